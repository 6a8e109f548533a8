//! `outlast verify`: recomputes the hash chain of sessions (R3.10).
use crate::data::Data;
use crate::find;
use crate::terminal;
use crate::words::count;
use clap::Args;
use outlast::store::Store;
use outlast::{Error, SessionId};
use serde_json::json;

/// Sessions in one page of the listing.
const PAGE: usize = 256;

/// Recomputes the hash chain, so that no changed, removed or reordered record passes.
#[derive(Args)]
pub(crate) struct Verify {
    /// The session, by id or key; all of them without it
    session: Option<String>,
}

impl Verify {
    /// Does it. Damage in one session does not keep the others from being looked at.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let store = data.open_widely().await?;
        let store = store.as_ref();
        if let Some(text) = self.session {
            let session = find::session(store, &text).await?;
            return verify(store, session.id).await;
        }
        let all = count_all(store).await?;
        let (mut looked, mut damaged, mut first, mut before) = (0, 0, None, None);
        loop {
            let page = store.sessions(before, PAGE).await?;
            let Some(last) = page.last() else { break };
            before = Some(last.id);
            for session in page {
                terminal::bar(looked, all, "sessions");
                looked += 1;
                if let Err(error) = verify(store, session.id).await {
                    damaged += 1;
                    told(session.id, Err(&error));
                    first.get_or_insert(error);
                }
            }
        }
        terminal::progress(None);
        let looked = usize::try_from(looked).unwrap_or(usize::MAX);
        terminal::note(&format!("· {}, {damaged} damaged", count(looked, "session", "sessions")));
        first.map_or(Ok(()), Err)
    }
}

/// How many sessions there are, for those who wait.
async fn count_all(store: &dyn Store) -> Result<u64, Error> {
    let (mut all, mut before) = (0, None);
    loop {
        let page = store.sessions(before, PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        before = Some(last.id);
        all += page.len() as u64;
    }
}

async fn verify(store: &dyn Store, session: SessionId) -> Result<(), Error> {
    let records = store.verify(session).await?;
    told(session, Ok(records));
    Ok(())
}

fn told(session: SessionId, found: Result<u64, &Error>) {
    terminal::progress(None);
    match found {
        _ if terminal::is_json() => {
            let (records, error) = match found {
                Ok(records) => (Some(records), None),
                Err(error) => (None, Some(json!({ "code": error.kind().code(), "detail": error.detail() }))),
            };
            terminal::json(&json!({ "session": session, "records": records, "error": error }));
        }
        Ok(records) => terminal::say(&format!("{session} whole: {records} records")),
        Err(error) => terminal::say(&format!("{session} DAMAGED: {}", error.detail())),
    }
}

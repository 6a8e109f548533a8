//! `outlast verify`: recomputes the hash chain of sessions (R3.10).
use crate::data::Data;
use crate::find;
use crate::terminal;
use crate::words::count;
use clap::Args;
use outlast::store::Store;
use outlast::{Error, SessionId};

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
        let (mut whole, mut damaged, mut first) = (0, 0, None);
        let mut before = None;
        loop {
            let page = store.sessions(before, PAGE).await?;
            let Some(last) = page.last() else { break };
            before = Some(last.id);
            for session in page {
                match verify(store, session.id).await {
                    Ok(()) => whole += 1,
                    Err(error) => {
                        damaged += 1;
                        terminal::say(&format!("{} DAMAGED: {}", session.id, error.detail()));
                        first.get_or_insert(error);
                    }
                }
            }
        }
        terminal::note(&format!("· {}, {damaged} damaged", count(whole + damaged, "session", "sessions")));
        first.map_or(Ok(()), Err)
    }
}

async fn verify(store: &dyn Store, session: SessionId) -> Result<(), Error> {
    let records = store.verify(session).await?;
    terminal::say(&format!("{session} whole: {records} records"));
    Ok(())
}

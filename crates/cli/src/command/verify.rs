//! `outlast verify`: recomputes the hash chains of sessions.
use crate::backend::CommandBackend;
use crate::formatting::count;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::{Error, SessionId};
use serde_json::json;

/// Recomputes the hash chain, to detect changed, removed or reordered records.
#[derive(Args)]
pub(crate) struct VerifyArgs {
    /// Session, by id or key; default: all sessions
    session: Option<String>,
}

impl VerifyArgs {
    /// Runs the command. After a damaged session, the others are still checked.
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend_for_all_orgs().await?;
        if let Some(text) = self.session {
            return verify(&backend, backend.find(&text).await?.id).await;
        }
        let sessions = backend.all().await?;
        let (mut looked, mut damaged, mut first) = (0, 0, None);
        for session in &sessions {
            terminal::bar(looked, sessions.len() as u64, "sessions");
            looked += 1;
            if let Err(error) = verify(&backend, *session).await {
                damaged += 1;
                print_result(*session, Err(&error));
                first.get_or_insert(error);
            }
        }
        terminal::progress(None);
        terminal::note(&format!("· {}, {damaged} damaged", count(sessions.len(), "session", "sessions")));
        first.map_or(Ok(()), Err)
    }
}

async fn verify(backend: &CommandBackend, session: SessionId) -> Result<(), Error> {
    let records = backend.verify(session).await?;
    print_result(session, Ok(records));
    Ok(())
}

fn print_result(session: SessionId, found: Result<u64, &Error>) {
    terminal::progress(None);
    match found {
        _ if terminal::is_json() => {
            let (records, error) = match found {
                Ok(records) => (Some(records), None),
                Err(error) => (None, Some(json!({ "code": error.kind().code(), "detail": error.detail() }))),
            };
            terminal::json(&json!({ "session": session, "records": records, "error": error }));
        }
        Ok(records) => terminal::say(&format!("{session} intact: {records} records")),
        Err(error) => terminal::say(&format!("{session} DAMAGED: {}", error.detail())),
    }
}

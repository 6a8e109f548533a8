//! `outlast sessions`: lists, shows, forks, rewinds, deletes, exports and imports sessions.
mod delete;
mod export;
mod fork;
mod import;
mod list;
mod rewind;
mod show;
mod tree;

use crate::global_args::GlobalArgs;
use clap::{Args, Subcommand};
use outlast::Error;

pub(crate) use list::{list, session_json};

/// Manages sessions. Lists them if no subcommand is given.
#[derive(Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    what: Option<SessionsCommand>,
}

#[derive(Subcommand)]
enum SessionsCommand {
    /// List sessions, newest first
    List(list::SessionListArgs),
    /// Show the messages and the state of a session, and what it waits for
    Show(show::SessionShowArgs),
    /// Fork a session at a message, without copying it
    Fork(fork::SessionForkArgs),
    /// Move a head back to a message; later messages are kept
    Rewind(rewind::SessionRewindArgs),
    /// Delete a session and everything that only it uses
    Delete(delete::SessionDeleteArgs),
    /// Export a session to a file, to archive, move or replay it
    Export(export::SessionExportArgs),
    /// Import a session from an exported file
    Import(import::SessionImportArgs),
}

impl SessionsArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        match self.what {
            None => list::newest(data).await,
            Some(SessionsCommand::List(list)) => list.run(data).await,
            Some(SessionsCommand::Show(show)) => show.run(data).await,
            Some(SessionsCommand::Fork(fork)) => fork.run(data).await,
            Some(SessionsCommand::Rewind(rewind)) => rewind.run(data).await,
            Some(SessionsCommand::Delete(delete)) => delete.run(data).await,
            Some(SessionsCommand::Export(export)) => export.run(data).await,
            Some(SessionsCommand::Import(import)) => import.run(data).await,
        }
    }
}

//! `outlast sessions`: lists, shows, forks, rewinds, deletes, exports and imports sessions.
mod delete;
mod export;
mod fork;
mod import;
mod list;
mod rewind;
mod show;
mod tree;

use crate::data::Data;
use clap::{Args, Subcommand};
use outlast::Error;

pub(crate) use list::{list, session_json};

/// Manages sessions. Lists them if no subcommand is given.
#[derive(Args)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// List sessions, newest first
    List(list::List),
    /// Show the messages and the state of a session, and what it waits for
    Show(show::Show),
    /// Fork a session at a message, without copying it
    Fork(fork::Fork),
    /// Move a head back to a message; later messages are kept
    Rewind(rewind::Rewind),
    /// Delete a session and everything that only it uses
    Delete(delete::Delete),
    /// Export a session to a file, to archive, move or replay it
    Export(export::Export),
    /// Import a session from an exported file
    Import(import::Import),
}

impl Sessions {
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        match self.what {
            None => list::newest(data).await,
            Some(What::List(list)) => list.run(data).await,
            Some(What::Show(show)) => show.run(data).await,
            Some(What::Fork(fork)) => fork.run(data).await,
            Some(What::Rewind(rewind)) => rewind.run(data).await,
            Some(What::Delete(delete)) => delete.run(data).await,
            Some(What::Export(export)) => export.run(data).await,
            Some(What::Import(import)) => import.run(data).await,
        }
    }
}

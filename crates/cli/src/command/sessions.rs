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

/// Looks at sessions and shapes them; lists them if nothing else is said.
#[derive(Args)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// List sessions, newest first
    List(list::List),
    /// Show a session's messages, its state and what it waits for
    Show(show::Show),
    /// Branch a session at a message; nothing is copied
    Fork(fork::Fork),
    /// Move a head back to a message; nothing is lost
    Rewind(rewind::Rewind),
    /// Delete a session and everything only it uses
    Delete(delete::Delete),
    /// Make one file of a session, to keep, to move or to replay
    Export(export::Export),
    /// Take a session in from such a file
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

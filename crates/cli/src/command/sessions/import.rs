//! `outlast sessions import`.
use crate::archived::Archive;
use crate::data::Data;
use crate::providers::Configuration;
use crate::terminal;
use crate::words::count;
use clap::Args;
use outlast::archive::Imported;
use outlast::clock::Clock;
use outlast::runtime::archive::import;
use outlast::runtime::attachments::Attachments;
use outlast::runtime::system::SystemClock;
use outlast::{Error, Limits};
use serde_json::json;
use std::path::PathBuf;

/// Takes a session in from a file. None of its turns is driven; those that were not over are closed.
#[derive(Args)]
pub(crate) struct Import {
    /// The file that `outlast sessions export` wrote; `-` is standard input
    file: PathBuf,
    /// The key of the session here; the one it had without it
    #[arg(long = "as", value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    configuration: Configuration,
}

impl Import {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let archive = Archive::open(&self.file)?.watched();
        let store = data.made().await?;
        let contents = data.contents(data.operator()?.as_ref(), &self.configuration).await?;
        let attachments = Attachments::new(store.clone(), contents, Limits::default());
        let imported = import(store.as_ref(), &attachments, archive, self.key, SystemClock.now()).await;
        terminal::progress(None);
        let Imported { session, closed, totals } = imported?;
        if data.json {
            terminal::json(&json!({
                "session": session, "turns": totals.turns, "records": totals.records, "closed": closed,
            }));
            return Ok(());
        }
        terminal::say(&session.to_string());
        let turns = count(usize::try_from(totals.turns).unwrap_or(usize::MAX), "turn", "turns");
        terminal::note(&format!("· {turns}, {} records", totals.records));
        if closed > 0 {
            terminal::note(&format!(
                "· {closed} not over when it was exported, and closed here; nothing of it is driven"
            ));
        }
        Ok(())
    }
}

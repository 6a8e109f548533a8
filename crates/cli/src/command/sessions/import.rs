//! `outlast sessions import`: imports a session from an archive file.
use crate::archive_reader::ArchiveReader;
use crate::config_file::ConfigFile;
use crate::formatting::count;
use crate::global_args::GlobalArgs;
use crate::terminal;
use bytes::Bytes;
use clap::Args;
use futures_util::{Stream, stream};
use outlast::archive::ImportResult;
use outlast::clock::Clock;
use outlast::runtime::archive::import;
use outlast::runtime::attachments::Attachments;
use outlast::runtime::worker::system::SystemClock;
use outlast::{Error, Limits};
use outlast_client::api::archive::ImportedSession;
use serde_json::json;
use std::io::{self, Read};
use std::path::PathBuf;

/// The number of bytes per piece of an upload.
const PIECE: usize = 64 << 10;

/// Imports a session from a file. None of its turns runs; turns that had not ended are closed.
#[derive(Args)]
pub(crate) struct SessionImportArgs {
    /// File from `outlast sessions export`; `-` reads standard input
    file: PathBuf,
    /// New key of the session; default: the key in the file
    #[arg(long = "as", value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    configuration: ConfigFile,
}

impl SessionImportArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let archive = ArchiveReader::open(&self.file)?.watched();
        let imported = match data.client()? {
            Some(client) => client.import(pieces(archive), self.key.as_deref()).await,
            None => self.here(data, archive).await,
        };
        terminal::progress(None);
        let ImportedSession { session, closed, turns, records } = imported?;
        if data.json {
            terminal::json(&json!({
                "session": session, "turns": turns, "records": records, "closed": closed,
            }));
            return Ok(());
        }
        terminal::say(&session.to_string());
        let turns = count(usize::try_from(turns).unwrap_or(usize::MAX), "turn", "turns");
        terminal::note(&format!("· {turns}, {records} records"));
        if closed > 0 {
            terminal::note(&format!("· unfinished turns, closed without running: {closed}"));
        }
        Ok(())
    }
    /// Imports into a database file.
    async fn here(&self, data: &GlobalArgs, archive: ArchiveReader) -> Result<ImportedSession, Error> {
        let store = data.open_or_create().await?;
        let contents = data.contents(data.operator()?.as_ref(), &self.configuration).await?;
        let attachments = Attachments::new(store.clone(), contents, Limits::default());
        let imported =
            import(store.as_ref(), &attachments, archive, self.key.clone(), SystemClock.now()).await?;
        let ImportResult { session, closed, totals } = imported;
        Ok(ImportedSession { session, closed, turns: totals.turns, records: totals.records })
    }
}

/// Returns the archive as a stream of pieces for an upload.
fn pieces(archive: ArchiveReader) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(archive, |mut archive| async move {
        let mut piece = vec![0; PIECE];
        let read = archive.read(&mut piece)?;
        piece.truncate(read);
        Ok((read > 0).then(|| (Bytes::from(piece), archive)))
    })
}

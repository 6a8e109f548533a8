//! `outlast attachments`: lists and saves the attachments of a session, and deletes unreferenced content.
use crate::backend::CommandBackend;
use crate::config_file::ConfigFile;
use crate::formatting::count;
use crate::global_args::GlobalArgs;
use crate::private_file;
use crate::terminal;
use bytes::Bytes;
use clap::Args;
use futures_util::{Stream, TryStreamExt};
use outlast::attachment_upload::BlobLocation;
use outlast::clock::{Clock, Entropy};
use outlast::runtime::attachments::{Attachments as Kept, SweepReport};
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::store::Store;
use outlast::vocab::WorkerId;
use outlast::vocab::id::AttachmentId;
use outlast::{Error, Kind, Limits, SessionId};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;

/// Lists the attachments of a session, saves one, or deletes unused content.
#[derive(Args)]
pub(crate) struct AttachmentsArgs {
    /// Session, by id or key
    #[arg(required_unless_present = "sweep")]
    session: Option<String>,
    /// Save this attachment instead of listing all
    #[arg(long, value_name = "ID", requires = "to")]
    save: Option<String>,
    /// File to save the attachment to; an existing file is not overwritten
    #[arg(long, value_name = "FILE", requires = "save")]
    to: Option<PathBuf>,
    /// Delete unused content outside the database; workers do this every hour
    #[arg(long, conflicts_with_all = ["session", "save"])]
    sweep: bool,
    /// Keep unused content that was stored within this time; default: 86400 (a day)
    #[arg(long, value_name = "SECONDS", requires = "sweep")]
    grace: Option<u64>,
    #[command(flatten)]
    configuration: ConfigFile,
}

impl AttachmentsArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let Some(session) = &self.session else { return self.sweep(data).await };
        let backend = data.backend().await?;
        let session = backend.find(session).await?.id;
        let (Some(id), Some(to)) = (&self.save, &self.to) else {
            return list(&backend, session, data.json).await;
        };
        let id: AttachmentId = id.parse()?;
        let saved = match backend {
            CommandBackend::File(store) => {
                let contents = data.contents(data.operator()?.as_ref(), &self.configuration).await?;
                let attachments = Kept::new(store, contents, Limits::default());
                let (_, pieces) = attachments.open(session, id).await?;
                save(pieces, to).await?
            }
            CommandBackend::Server(client) => save(client.attachment(session, id).await?, to).await?,
        };
        if data.json {
            terminal::json(&json!({ "id": id, "bytes": saved, "file": to }));
        } else {
            terminal::note(&format!("· {saved} bytes saved"));
        }
        Ok(())
    }

    async fn sweep(&self, data: &GlobalArgs) -> Result<(), Error> {
        let now = SystemClock.now();
        let worker = WorkerId::fresh(now, SystemEntropy.random_id_bytes());
        let store: Arc<dyn Store> = Arc::new(data.open_as(Some(worker))?);
        let content_grace = self.grace.map_or(Limits::default().content_grace, Duration::from_secs);
        let limits = Limits { content_grace, ..Limits::default() };
        let Some(contents) = data.contents(store.as_ref(), &self.configuration).await? else {
            terminal::note("· attachments are stored in the database, which has no unused content to delete");
            return Ok(());
        };
        let attachments = Kept::new(store, Some(contents), limits);
        let SweepReport { looked_at, deleted } = attachments.sweep(worker, now).await?;
        if data.json {
            terminal::json(&json!({ "looked_at": looked_at, "deleted": deleted }));
            return Ok(());
        }
        let looked_at = count(usize::try_from(looked_at).unwrap_or(usize::MAX), "content", "contents");
        terminal::say(&format!("{looked_at} checked, {deleted} deleted"));
        Ok(())
    }
}

/// Writes a stream to a new file and returns the number of bytes.
async fn save(pieces: impl Stream<Item = Result<Bytes, Error>>, to: &Path) -> Result<u64, Error> {
    let unwritten = |cause: std::io::Error| {
        let detail = format!("{} cannot be written: {cause}", to.display());
        Error::new(Kind::IoFailed, detail).because(cause)
    };
    let mut file = File::from_std(private_file::create(to).map_err(unwritten)?);
    let mut pieces = pin!(pieces);
    let saved = async {
        let mut bytes = 0;
        while let Some(piece) = pieces.try_next().await? {
            file.write_all(&piece).await.map_err(unwritten)?;
            bytes += piece.len() as u64;
        }
        file.flush().await.map_err(unwritten)?;
        Ok(bytes)
    };
    let saved = saved.await;
    if saved.is_err() {
        // Do not leave a partial or corrupt file behind.
        fs::remove_file(to).await.map_err(unwritten)?;
    }
    saved
}

async fn list(backend: &CommandBackend, session: SessionId, json: bool) -> Result<(), Error> {
    let attached = backend.attachments(session).await?;
    if attached.is_empty() && !json {
        terminal::note("· the session has no attachments of its own");
    }
    for view in attached {
        let name = view.attachment.name.as_deref().unwrap_or("-");
        let media_type = view.attachment.media_type.as_str();
        if json {
            terminal::json(&json!({
                "id": view.attachment.id, "content": view.attachment.content, "media_type": media_type,
                "name": view.attachment.name, "bytes": view.bytes, "outside": view.location == BlobLocation::Outside,
            }));
            continue;
        }
        let lies = match view.location {
            BlobLocation::Database => "",
            BlobLocation::Outside => " outside",
        };
        terminal::say(&format!("{} {media_type} {} bytes{lies} {name}", view.attachment.id, view.bytes));
    }
    Ok(())
}

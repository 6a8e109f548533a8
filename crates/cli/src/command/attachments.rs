//! `outlast attachments`: what a session has attached, and its bytes.
use crate::data::Data;
use crate::find;
use crate::terminal;
use clap::Args;
use outlast::store::Content;
use outlast::vocab::id::AttachmentId;
use outlast::{Error, Kind, Limits};
use std::path::PathBuf;

/// Lists the attachments of a session, or saves one.
#[derive(Args)]
pub(crate) struct Attachments {
    /// The session, by id or key
    session: String,
    /// Save this one instead
    #[arg(long, value_name = "ID", requires = "to")]
    save: Option<String>,
    /// Where to save it; a file that is there is not overwritten
    #[arg(long, value_name = "FILE", requires = "save")]
    to: Option<PathBuf>,
}

impl Attachments {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let store = data.open()?;
        let session = find::session(&store, &self.session).await?;
        if let (Some(id), Some(to)) = (&self.save, &self.to) {
            let id: AttachmentId = id.parse()?;
            let bytes = store.blob(store.attachment(session.id, id).await?.attachment.content).await?;
            let saved = std::fs::File::create_new(to)
                .and_then(|mut file| std::io::Write::write_all(&mut file, &bytes));
            saved.map_err(|cause| {
                let detail = format!("{} cannot be written: {cause}", to.display());
                Error::new(Kind::IoFailed, detail).because(cause)
            })?;
            terminal::note(&format!("· {} bytes saved", bytes.len()));
            return Ok(());
        }
        let attached = store.attachments(session.id, Limits::default().page_rows).await?;
        if attached.is_empty() {
            terminal::note("· the session has no attachments of its own");
        }
        for view in attached {
            let name = view.attachment.name.as_deref().unwrap_or("-");
            let media_type = view.attachment.media_type.as_str();
            terminal::say(&format!("{} {media_type} {} bytes {name}", view.attachment.id, view.bytes));
        }
        Ok(())
    }
}

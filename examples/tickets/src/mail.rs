//! A folder of mail. Each file in it starts a turn in the session of its sender.
use crate::{TicketCustomer, Tickets};
use outlast::ResultFuture;
use outlast::prelude::*;
use outlast::trigger::{ExternalEvent, TriggerSource};
use outlast::vocab::TurnId;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to check the folder.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The folder for rejected mail.
const REFUSED: &str = "refused";

/// The mail folder. A file is named after its sender and a number: `ann.17.txt`.
pub(crate) struct MailFolder(pub(crate) PathBuf);

impl MailFolder {
    async fn read(&self) -> Result<ExternalEvent, Error> {
        loop {
            if let Some(name) = first(&self.0).await.map_err(|cause| unreadable(&cause))? {
                let content =
                    tokio::fs::read(self.0.join(&name)).await.map_err(|cause| unreadable(&cause))?;
                let writer = name.split('.').next().unwrap_or_default().to_owned();
                // The text is untrusted, so it comes as a file.
                return ExternalEvent::new(
                    &name,
                    &writer,
                    "A mail came in. Do what is right for the customer.",
                )
                .attach("text/plain", Some(name), content)?
                .with_plugin_input::<Tickets>(&TicketCustomer { name: writer });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn remove(&self, id: &str, came: Result<TurnId, &Error>) -> io::Result<()> {
        let file = self.0.join(id);
        if came.is_ok() {
            return tokio::fs::remove_file(file).await;
        }
        let refused = self.0.join(REFUSED);
        tokio::fs::create_dir_all(&refused).await?;
        tokio::fs::rename(file, refused.join(id)).await
    }
}

impl TriggerSource for MailFolder {
    fn next(&self) -> ResultFuture<'_, ExternalEvent> {
        Box::pin(self.read())
    }

    fn settled<'a>(&'a self, id: &'a str, came: Result<TurnId, &'a Error>) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            match self.remove(id, came).await {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.map_err(|cause| unreadable(&cause)),
            }
        })
    }
}

/// Returns the first file by name.
async fn first(folder: &Path) -> io::Result<Option<String>> {
    let mut entries = tokio::fs::read_dir(folder).await?;
    let mut first: Option<String> = None;
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.file_name().into_string().ok();
        let name = name.filter(|name| Path::new(name).extension().is_some_and(|end| end == "txt"));
        if let Some(name) = name
            && first.as_ref().is_none_or(|first| name < *first)
        {
            first = Some(name);
        }
    }
    Ok(first)
}

fn unreadable(cause: &io::Error) -> Error {
    failed(format!("the folder of mail cannot be used: {cause}"))
}

//! A file that is sent with an input, and a tool that creates another file from it. Both are stored with the session.
use outlast::prelude::*;
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::id::AttachmentId;
use std::path::Path;
use std::sync::Arc;

/// Makes a copy of a text in capital letters.
#[tool(idempotent)]
async fn shout(attachment: String, attachments: Attachments) -> Result<AttachmentId, Error> {
    let file = attachments.get(attachment.parse()?).await?;
    let loud = String::from_utf8_lossy(&file.bytes).to_uppercase();
    Ok(attachments.put("text/plain", Some("loud.txt".to_owned()), loud.into_bytes())?.id)
}

/// Sends a note and reads the result.
pub(crate) async fn run(dir: &Path) -> Result<String, Error> {
    let script: Script = "call shout {\"attachment\": \"{{input}}\"}\n---\nsay {{result shout}}".parse()?;
    let outlast = Outlast::at(dir.join("attachments.db"))
        .provider(Rehearsal::scripted(script, Arc::new(SystemClock)))
        .tool(shout)
        .start()
        .await?;
    let session = outlast.new_session();
    // A real model sees the note itself; the rehearsal model gets its id.
    let note = outlast::attachment_upload::Upload::new(
        "text/plain".to_owned().try_into()?,
        None,
        b"tea at five".as_slice(),
    )?;
    let turn = session.send(note.attachment.id.to_string()).attach("text/plain", None, note.bytes)?.await?;
    let loud: AttachmentId = turn.answer().await?.parse()?;
    let stored = outlast.store().attachment(turn.session(), loud).await?;
    let bytes = outlast.attachments().read(turn.session(), loud, 0..stored.bytes).await?;
    outlast.shut_down().await;
    Ok(format!("{}: {}", stored.attachment.name.unwrap_or_default(), String::from_utf8_lossy(&bytes)))
}

/// Runs it in the current directory.
#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    println!("{}", run(Path::new(".")).await?);
    Ok(())
}

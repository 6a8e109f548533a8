//! Streaming attachments, stored inside and outside the database.
use outlast::attachment_upload::BlobLocation;
use outlast::contents::{ContentStorage, MemoryContents, collect_bytes};
use outlast::runtime::worker::system::SystemClock;
use outlast::{Error, Outlast};
use std::sync::Arc;

async fn streamed(outlast: Outlast) -> Result<BlobLocation, Error> {
    let bytes = b"twelve words".repeat(100_000);
    let sending = outlast.session("ann").send("what is this?");
    let turn =
        sending.attach_stream("text/plain", Some("long.txt".to_owned()), bytes.as_slice()).await?.await?;
    turn.answer().await?;
    let id = outlast.store().attachments(turn.session(), 10).await?.remove(0).attachment.id;
    let attachments = outlast.attachments();
    let (about, pieces) = attachments.open(turn.session(), id).await?;
    assert_eq!((about.attachment.name.as_deref(), about.bytes), (Some("long.txt"), 1_200_000));
    assert!(collect_bytes(pieces, "test", 1_200_000).await? == bytes);
    assert_eq!(attachments.read(turn.session(), id, 7..12).await?, b"words");
    let lies = attachments.info(turn.session(), id).await?.location;
    drop(attachments);
    outlast.shut_down().await;
    Ok(lies)
}

#[tokio::test]
async fn streamed_attachment_reads_back_from_every_store() -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    let inside = Outlast::at(folder.path().join("inside.db")).start().await?;
    assert_eq!(streamed(inside).await?, BlobLocation::Database);

    let contents: Arc<dyn ContentStorage> = Arc::new(MemoryContents::new(Arc::new(SystemClock)));
    let outside =
        Outlast::at(folder.path().join("outside.db")).attachment_store(move |_| Ok(contents)).start().await?;
    assert_eq!(streamed(outside).await?, BlobLocation::Outside);
    Ok(())
}

#[tokio::test]
async fn attachment_store_receives_a_distinct_database_name() -> Result<(), Error> {
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for file in ["one.db", "other.db", "one.db"] {
        let (send_name, name) = std::sync::mpsc::channel();
        let open = move |name: &str| {
            send_name.send(name.to_owned()).expect("somebody listens");
            Ok(Arc::new(MemoryContents::new(Arc::new(SystemClock))) as Arc<dyn ContentStorage>)
        };
        Outlast::at(folder.path().join(file)).attachment_store(open).start().await?.shut_down().await;
        names.push(name.recv().expect("it was told"));
    }
    assert_eq!(names[0], names[2]);
    assert_ne!(names[0], names[1]);
    Ok(())
}

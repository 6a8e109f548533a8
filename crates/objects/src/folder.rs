//! Storage in a local directory.
use object_store::local::LocalFileSystem;
use outlast_vocab::{Error, Kind, Millis};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Opens the directory of one database, and creates it if it does not exist. Writes survive a power loss.
pub(crate) fn open(outer: &Path, folder: &Path) -> Result<LocalFileSystem, Error> {
    let failed = |cause: io::Error| {
        let detail = format!("{} cannot be used for attachments: {cause}", outer.display());
        Error::new(Kind::AttachmentUnavailable, detail).because(cause)
    };
    for made in [outer, folder] {
        create_private(made).map_err(failed)?;
    }
    let store = LocalFileSystem::new_with_prefix(folder).map_err(|cause| failed(io::Error::other(cause)))?;
    Ok(store.with_fsync(true))
}

/// Creates a directory that only its owner can access.
fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(folder) {
        Ok(()) => folder.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all()),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// Removes partial files that a crashed process wrote before a time: `NAME#1` next to `NAME`. Listings do not contain
/// them.
pub(crate) async fn remove_staged(folder: PathBuf, before: Millis) -> Result<(), Error> {
    let removed = tokio::task::spawn_blocking(move || {
        let before = UNIX_EPOCH + Duration::from_millis(before.0);
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let meta = entry.metadata()?;
                if meta.is_dir() {
                    folders.push(entry.path());
                } else if is_staged(&entry.path()) && meta.modified()? < before {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    });
    removed.await.unwrap_or_else(|cause| Err(io::Error::other(cause))).map_err(|cause: io::Error| {
        let detail = format!("leftovers of interrupted uploads cannot be removed: {cause}");
        Error::new(Kind::AttachmentUnavailable, detail).because(cause)
    })
}

fn is_staged(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains('#'))
}

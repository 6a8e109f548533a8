//! Files that only their owner may read and write.
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a file that only its owner may read and write. Fails if the name is taken; a symbolic link of that name is not followed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes such a file. One that cannot be written whole is removed.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create(path)?.write_all(bytes).inspect_err(|_| {
        // What is left is of no use; whether it can be removed changes nothing.
        let _removed = std::fs::remove_file(path);
    })
}

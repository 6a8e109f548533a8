//! Creates files that only their owner can read and write.
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Creates a file that only its owner can read and write. Fails if the path exists. Does not follow symbolic
/// links.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Creates and writes such a file. Removes it if it cannot be written completely.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create(path)?.write_all(bytes).inspect_err(|_| {
        // Clean up as far as possible. The original error is returned.
        let _removed = std::fs::remove_file(path);
    })
}

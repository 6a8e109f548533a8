//! Reads the files that `outlast sessions export` writes.
use crate::terminal;
use outlast::vocab::limits::ARCHIVE_BYTES;
use outlast::{Error, Kind};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

/// An open archive. It can be read several times from the start.
pub(crate) struct ArchiveReader {
    from: ArchiveSource,
    read: u64,
    bytes: u64,
    watched: bool,
}

enum ArchiveSource {
    File(File),
    Input(Cursor<Vec<u8>>),
}

impl ArchiveReader {
    /// Opens a file, or reads all of standard input if the path is `-`.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let unread = |cause: io::Error| {
            Error::new(Kind::IoFailed, format!("{} cannot be read: {cause}", path.display())).because(cause)
        };
        let (from, bytes) = if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            io::stdin().lock().take(ARCHIVE_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
            let length = bytes.len() as u64;
            (ArchiveSource::Input(Cursor::new(bytes)), length)
        } else {
            let file = File::open(path).map_err(unread)?;
            let bytes = file.metadata().map_err(unread)?.len();
            (ArchiveSource::File(file), bytes)
        };
        Ok(Self { from, read: 0, bytes, watched: false })
    }

    /// Shows the reading progress on the terminal.
    pub(crate) fn watched(self) -> Self {
        Self { watched: true, ..self }
    }
}

impl Read for ArchiveReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.from {
            ArchiveSource::File(file) => file.read(to),
            ArchiveSource::Input(input) => input.read(to),
        }?;
        self.read += read as u64;
        if self.watched {
            terminal::bar(self.read, self.bytes, "bytes");
        }
        Ok(read)
    }
}

impl Seek for ArchiveReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match &mut self.from {
            ArchiveSource::File(file) => file.seek(to),
            ArchiveSource::Input(input) => input.seek(to),
        }?;
        self.read = at;
        Ok(at)
    }
}

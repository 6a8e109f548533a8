//! `outlast sessions export`: writes a session to an archive file.
use crate::backend::CommandBackend;
use crate::config_file::ConfigFile;
use crate::global_args::GlobalArgs;
use crate::private_file;
use crate::terminal;
use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use outlast::clock::Clock;
use outlast::runtime::attachments::Attachments;
use outlast::runtime::worker::system::SystemClock;
use outlast::{Error, Export as Written, Kind, Limits};
use outlast_client::ExportDownload;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Exports a session to a file.
#[derive(Args)]
pub(crate) struct SessionExportArgs {
    /// Session, by id or key
    session: String,
    /// File to write; default: standard output. An existing file is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    configuration: ConfigFile,
}

impl SessionExportArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let backend = data.backend().await?;
        let session = backend.find(&self.session).await?.id;
        let export = match backend {
            CommandBackend::Server(client) => {
                ArchiveStream::There { file: client.export(session).await?, lines: RecordCounter::default() }
            }
            CommandBackend::File(store) => {
                let contents = data.contents(data.operator()?.as_ref(), &self.configuration).await?;
                let attachments = Attachments::new(store.clone(), contents, Limits::default());
                ArchiveStream::Here(Box::new(
                    Written::begin(store, attachments, session, SystemClock.now()).await?,
                ))
            }
        };
        let Some(path) = &self.output else {
            let out = io::stdout();
            return write(export, &mut out.lock(), Path::new("standard output")).await;
        };
        to_file(export, path).await
    }
}

/// The source of an archive.
enum ArchiveStream {
    /// A database file.
    Here(Box<Written>),
    /// A server.
    There { file: ExportDownload, lines: RecordCounter },
}

impl ArchiveStream {
    /// Returns the next piece of the archive, or `None` at its end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        match self {
            Self::Here(export) => Ok(export.piece().await?.map(Bytes::from)),
            Self::There { file, lines } => {
                let piece = file.bytes.next().await.transpose()?;
                lines.count(piece.as_deref().unwrap_or_default());
                Ok(piece)
            }
        }
    }

    /// Returns how many records were exported, and how many there are.
    fn progress(&self) -> (u64, u64) {
        match self {
            Self::Here(export) => export.progress(),
            Self::There { file, lines } => (lines.records, file.records),
        }
    }
}

/// Counts the records of an archive that arrives in pieces.
#[derive(Default)]
struct RecordCounter {
    /// The start of the current line.
    begun: Vec<u8>,
    records: u64,
}

impl RecordCounter {
    /// The number of bytes that contain the kind of a line. A line starts with a checksum.
    const TOLD: usize = 96;

    fn count(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let taken = Self::TOLD.saturating_sub(self.begun.len()).min(part.len());
            self.begun.extend_from_slice(&part[..taken]);
            if part.ends_with(b"\n") {
                let kind = self.begun.split(|byte| *byte == b',').nth(1);
                self.records += u64::from(kind.is_some_and(|kind| kind.starts_with(b"\"record\":")));
                self.begun.clear();
            }
        }
    }
}

/// Writes the archive under a temporary name, and renames it when it is complete.
async fn to_file(export: ArchiveStream, path: &Path) -> Result<(), Error> {
    if path.exists() {
        let detail = format!("{} exists already; name another file or remove it", path.display());
        return Err(Error::new(Kind::IoFailed, detail));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    // An earlier export may have left such a file, or another user may have placed a link here. If it cannot
    // be removed, `create` fails.
    let _removed = std::fs::remove_file(&partial);
    let mut file = private_file::create(&partial).map_err(|cause| unwritten(&partial, cause))?;
    let written = write(export, &mut file, &partial).await;
    let named = written.and_then(|()| {
        let synced = file.sync_all().and_then(|()| std::fs::rename(&partial, path));
        synced.map_err(|cause| unwritten(path, cause))
    });
    if named.is_err() {
        // Clean up as far as possible. The original error is returned.
        let _ = std::fs::remove_file(&partial);
    }
    named
}

async fn write(mut export: ArchiveStream, to: &mut impl Write, path: &Path) -> Result<(), Error> {
    while let Some(piece) = export.piece().await? {
        to.write_all(&piece).map_err(|cause| unwritten(path, cause))?;
        let (written, of) = export.progress();
        terminal::bar(written, of, "records");
    }
    terminal::progress(None);
    to.flush().map_err(|cause| unwritten(path, cause))
}

fn unwritten(path: &Path, cause: io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("{} cannot be written: {cause}", path.display())).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_across_chunk_boundaries() {
        let sum = "0".repeat(64);
        let line = |kind: &str| format!("{{\"sum\":\"{sum}\",\"{kind}\":{{\"record\":1}}}}\n");
        let file = ["archive", "session", "record", "record", "content", "end"].map(line).concat();
        for size in 1..file.len() {
            let mut lines = RecordCounter::default();
            file.as_bytes().chunks(size).for_each(|piece| lines.count(piece));
            assert_eq!(lines.records, 2, "{size}");
        }
    }
}

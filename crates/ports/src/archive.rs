//! Archives: the export of a session to a file, and its import.
//!
//! [`outlast_vocab::archive`] defines the file format. [`ArchiveLineReader`] reads a file. [`check()`] verifies it before
//! anything is written. [`ArchiveStore`] exports sessions from a store and imports them. The transactions are in
//! `outlast-ledger`.
mod check;

pub use check::check;

use crate::ResultFuture;
use crate::attachment_upload::ExternalUpload;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_vocab::archive::{
    ArchiveChecksum, ArchiveLine, ArchiveTotals, AttachmentLine, ContentLine, PackageLine, RecordLine,
    SessionLine, TurnLine, ValueLine,
};
use outlast_vocab::id::{AttachmentId, SessionId};
use outlast_vocab::limits::{ARCHIVE_BYTES, ARCHIVE_LINE_BYTES};
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};

/// The part of a session that precedes its records in a file.
#[derive(Clone, Debug)]
pub struct SessionOutline {
    /// The session.
    pub session: SessionLine,
    /// Its turns, in the order they were accepted.
    pub turns: Vec<TurnLine>,
    /// Its values, without those of the sessions it was forked from.
    pub values: Vec<ValueLine>,
    /// Its attachments.
    pub attachments: Vec<AttachmentLine>,
}

/// A query for records to export.
#[derive(Clone, Copy, Debug)]
pub struct RecordPage {
    /// The session.
    pub session: SessionId,
    /// The record after which the page begins.
    pub after: Seq,
    /// The last record, inclusive.
    pub to: Seq,
    /// The maximum number of records.
    pub limit: usize,
}

/// Records with the packages they refer to.
#[derive(Clone, Debug)]
pub struct ExportedRecords {
    /// Packages that no earlier page contained, and their parts.
    pub packages: Vec<PackageLine>,
    /// The records.
    pub records: Vec<RecordLine>,
}

/// The request to import a file.
pub struct ImportRequest {
    /// The bytes of the file, from the start.
    pub from: Box<dyn Read + Send>,
    /// The key for the session. Defaults to the key in the file.
    pub key: Option<String>,
    /// Content that was already uploaded to external storage.
    pub outside: BTreeMap<AttachmentId, ExternalUpload>,
    /// Whether the session is only compared with a new run of its turns in which no call is real. Such an import
    /// needs no signature of this database.
    pub is_comparison: bool,
    /// The current time.
    pub now: Millis,
}

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportResult {
    /// The session.
    pub session: SessionId,
    /// The number of turns that had not ended in the file and are now closed.
    pub closed: u64,
    /// The counts of what the file contains.
    pub totals: ArchiveTotals,
}

/// Exports and imports sessions.
pub trait ArchiveStore: Send + Sync {
    /// Returns the outline of a session, preceded by those of the sessions it was forked from. The oldest comes
    /// first. Ancestors are included up to the records that the session needs.
    fn outlines(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionOutline>>;

    /// Returns the exact records of a session, with the packages they refer to that are not in `known`.
    fn export_records(&self, page: RecordPage, known: BTreeSet<Hash>) -> ResultFuture<'_, ExportedRecords>;

    /// Imports a session, completely or not at all. Imported turns never run: those that had not ended are closed.
    fn import(&self, import: ImportRequest) -> ResultFuture<'_, ImportResult>;

    /// Records in the audit log that a session is about to be re-run, and refuses callers without permission.
    fn note_rerun(&self, rerun: RerunAudit) -> ResultFuture<'_, ()>;
}

/// An audit entry for a re-run.
#[derive(Clone, Debug)]
pub struct RerunAudit {
    /// The session.
    pub session: SessionId,
    /// Whether real calls are made, either because the recording has no answer or to repeat a recorded call.
    pub is_live: bool,
    /// What differs from the recorded run.
    pub detail: String,
    /// The time of the re-run.
    pub now: Millis,
}

/// Encodes bytes of content as a line.
pub fn content_line(bytes: &[u8]) -> ArchiveLine {
    ArchiveLine::Content(ContentLine { base64: STANDARD.encode(bytes) })
}

/// Decodes the bytes of a content line.
pub fn decode_content(line: &ContentLine) -> Result<Vec<u8>, String> {
    STANDARD.decode(&line.base64).map_err(|cause| format!("its content is not valid base64: {cause}"))
}

/// Reads an archive line by line. It verifies the checksum of every line. [`check()`] verifies what the lines say.
pub struct ArchiveLineReader<R> {
    from: R,
    checksum: ArchiveChecksum,
    line: u64,
    bytes: u64,
    ended: bool,
}

impl<R: Read> ArchiveLineReader<BufReader<R>> {
    /// Creates a reader of these bytes.
    pub fn new(from: R) -> Self {
        Self {
            from: BufReader::new(from),
            checksum: ArchiveChecksum::default(),
            line: 0,
            bytes: 0,
            ended: false,
        }
    }
}

impl<R: BufRead> ArchiveLineReader<R> {
    /// Returns the next line, or `None` after the last one. A file without its end line is an error.
    pub fn next_line(&mut self) -> Result<Option<ArchiveLine>, Error> {
        self.line += 1;
        let text = self.text()?;
        let Some(text) = text else {
            if self.ended {
                return Ok(None);
            }
            return Err(self.error_at_line("the file is truncated: the last line of an archive is missing"));
        };
        if self.ended {
            return Err(self.error_at_line("something follows the end of the archive"));
        }
        let line = self.checksum.read(&text).map_err(|what| self.error_at_line(&what))?;
        self.ended = matches!(line, ArchiveLine::End(_));
        Ok(Some(line))
    }

    /// Returns the error for the line that was read last.
    pub fn error_at_line(&self, what: &str) -> Error {
        Error::new(Kind::ArchiveInvalid, format!("line {}: {what}", self.line))
    }

    fn text(&mut self) -> Result<Option<String>, Error> {
        let mut bytes = Vec::new();
        let most = ARCHIVE_LINE_BYTES as u64 + 1;
        let read = self.from.by_ref().take(most).read_until(b'\n', &mut bytes).map_err(|cause| {
            Error::new(Kind::IoFailed, format!("the archive cannot be read: {cause}")).because(cause)
        })?;
        self.bytes += read as u64;
        if self.bytes > ARCHIVE_BYTES {
            let detail = format!("archive_bytes is limited to {ARCHIVE_BYTES}, but this file has more");
            return Err(Error::new(Kind::LimitExceeded, detail));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let ends = bytes.pop() == Some(b'\n');
        let text = match String::from_utf8(bytes) {
            _ if !ends && read as u64 == most => {
                Err(format!("it is longer than archive_line_bytes, which is {ARCHIVE_LINE_BYTES}"))
            }
            _ if !ends => Err("it has no end; the file is truncated".to_owned()),
            Ok(text) => Ok(text),
            Err(_) => Err("it is not UTF-8 text".to_owned()),
        };
        text.map(Some).map_err(|what| self.error_at_line(&what))
    }
}

//! Archives: a session as one file, and the way in and out of a store.
//!
//! What stands in a file is said in [`outlast_vocab::archive`]. [`Lines`] reads one, [`check()`] says whether it is whole
//! before anything is written, [`Archives`] is what a store gives for a file and takes from one.
mod check;

pub use check::check;

use crate::filed::Outside;
use crate::store::Backend;
use crate::{Answer, ledger};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_vocab::archive::{
    AttachmentLine, ContentLine, Line, PackageLine, RecordLine, Seal, SessionLine, Totals, TurnLine,
    ValueLine,
};
use outlast_vocab::id::{AttachmentId, SessionId};
use outlast_vocab::limits::{ARCHIVE_BYTES, ARCHIVE_LINE_BYTES};
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};

/// What a file says of a session before its records.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The session.
    pub session: SessionLine,
    /// Its turns, in the order they were accepted.
    pub turns: Vec<TurnLine>,
    /// Its values; those of the sessions that it was forked from are not its own.
    pub values: Vec<ValueLine>,
    /// Its attachments.
    pub attachments: Vec<AttachmentLine>,
}

/// Records of a session on their way into a file.
#[derive(Clone, Copy, Debug)]
pub struct RecordPage {
    /// The session.
    pub session: SessionId,
    /// Records after this one.
    pub after: Seq,
    /// Up to and with this one.
    pub to: Seq,
    /// How many at most.
    pub limit: usize,
}

/// Records with the packages that they name.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Packages that no page before had, and their parts.
    pub packages: Vec<PackageLine>,
    /// The records.
    pub records: Vec<RecordLine>,
}

/// A file on its way into a store.
pub struct Import {
    /// Its bytes, from the beginning.
    pub from: Box<dyn Read + Send>,
    /// The key that the session gets; that of the file without it.
    pub key: Option<String>,
    /// Contents that were put outside the database before.
    pub outside: BTreeMap<AttachmentId, Outside>,
    /// Whether it is only compared with a new run of its turns in which no call is real. It needs no proof of this database then.
    pub compared: bool,
    /// Now.
    pub now: Millis,
}

/// What came of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The session.
    pub session: SessionId,
    /// How many turns were not over in the file, and are closed now.
    pub closed: u64,
    /// What the file has.
    pub totals: Totals,
}

/// Sessions as files.
pub trait Archives: Send + Sync {
    /// What a file says of a session: first of those it was forked from, as far as it needs them, the oldest first.
    fn outlines(&self, session: SessionId) -> Answer<'_, Vec<Outline>>;

    /// Records of a session to the byte, with the packages they name that are not among `known`.
    fn recorded(&self, page: RecordPage, known: BTreeSet<Hash>) -> Answer<'_, Recorded>;

    /// Takes a session in. All of it or nothing is written, and none of its turns will be driven: those that were not over are
    /// closed.
    fn import(&self, import: Import) -> Answer<'_, Imported>;

    /// Notes that a session is about to be run again beside itself, and refuses who may not.
    fn note_rerun(&self, rerun: NotedRerun) -> Answer<'_, ()>;
}

/// A re-run, for the audit.
#[derive(Clone, Debug)]
pub struct NotedRerun {
    /// The session.
    pub session: SessionId,
    /// Whether calls are made that the recording has no answer for, or again that it has.
    pub is_live: bool,
    /// What is to be different.
    pub detail: String,
    /// When.
    pub now: Millis,
}

impl<B: Backend> Archives for B {
    fn outlines(&self, session: SessionId) -> Answer<'_, Vec<Outline>> {
        self.read(move |rows| ledger::outlines(rows, session))
    }

    fn recorded(&self, page: RecordPage, known: BTreeSet<Hash>) -> Answer<'_, Recorded> {
        self.read(move |rows| ledger::recorded(rows, page, &known))
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        self.write(move |rows| ledger::import(rows, import))
    }

    fn note_rerun(&self, rerun: NotedRerun) -> Answer<'_, ()> {
        self.write(move |rows| ledger::note_rerun(rows, rerun))
    }
}

/// Bytes of content as a line.
pub fn content_line(bytes: &[u8]) -> Line {
    Line::Content(ContentLine { base64: STANDARD.encode(bytes) })
}

/// The bytes of a line of content.
pub fn content_of(line: &ContentLine) -> Result<Vec<u8>, String> {
    STANDARD.decode(&line.base64).map_err(|cause| format!("its content is no base64: {cause}"))
}

/// Reads an archive line by line. Every line has its sum checked; what the lines say is for [`check()`].
pub struct Lines<R> {
    from: R,
    seal: Seal,
    line: u64,
    bytes: u64,
    ended: bool,
}

impl<R: Read> Lines<BufReader<R>> {
    /// The lines of these bytes.
    pub fn new(from: R) -> Self {
        Self { from: BufReader::new(from), seal: Seal::default(), line: 0, bytes: 0, ended: false }
    }
}

impl<R: BufRead> Lines<R> {
    /// The next line, or nothing behind the last one. A file that ends before its end is an error.
    pub fn take(&mut self) -> Result<Option<Line>, Error> {
        self.line += 1;
        let text = self.text()?;
        let Some(text) = text else {
            if self.ended {
                return Ok(None);
            }
            return Err(
                self.wrong("the file ends here, but an archive ends with a line that says so; it was cut")
            );
        };
        if self.ended {
            return Err(self.wrong("something follows the end of the archive"));
        }
        let line = self.seal.read(&text).map_err(|what| self.wrong(&what))?;
        self.ended = matches!(line, Line::End(_));
        Ok(Some(line))
    }

    /// What is wrong with the line that was read last.
    pub fn wrong(&self, what: &str) -> Error {
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
            _ if !ends => Err("it has no end; the file was cut".to_owned()),
            Ok(text) => Ok(text),
            Err(_) => Err("it is no text in UTF-8".to_owned()),
        };
        text.map(Some).map_err(|what| self.wrong(&what))
    }
}

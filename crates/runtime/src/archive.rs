//! Exports sessions to files, piece by piece, and imports them atomically.
//!
//! The file format is in [`outlast_vocab::archive`]. The rules of an import are in `outlast-ledger`.
use crate::attachments::Attachments;
use futures_util::stream;
use outlast_ports::archive::{
    ArchiveLineReader, ExportedRecords, ImportRequest, ImportResult, RecordPage, SessionOutline, check,
    content_line, decode_content,
};
use outlast_ports::attachment_upload::{AttachmentUpload, ExternalUpload};
use outlast_ports::store::Store;
use outlast_vocab::archive::{
    ARCHIVE_FORMAT, ArchiveChecksum, ArchiveHeader, ArchiveLine, ArchiveTotals, AttachmentLine,
};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::Attachment;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Hash, Kind, Millis, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read, Seek};
use std::sync::Arc;

/// Records per piece of a file.
const PAGE: usize = 256;

/// Bytes of content per line. A multiple of three, so that base64 needs no padding.
const CONTENT: u64 = 192 << 10;

/// The number of digits in an attachment id after its prefix.
const ATTACHMENT_DIGITS: usize = 32;

/// An export of a session. Changes made during the export are not included.
pub struct Export {
    store: Arc<dyn Store>,
    attachments: Attachments,
    parts: VecDeque<ExportPart>,
    seal: ArchiveChecksum,
    totals: ArchiveTotals,
    packages: BTreeSet<Hash>,
    records: u64,
}

/// A part that is still to be written. Parts are written in order.
enum ExportPart {
    Header(ArchiveHeader),
    Outline(Box<SessionOutline>),
    Records(ExportRecords),
    File(AttachmentLine),
    Content { session: SessionId, id: AttachmentId, at: u64, bytes: u64 },
    End,
}

/// The records of one session, and the attachments that follow them.
struct ExportRecords {
    session: SessionId,
    after: Seq,
    to: Seq,
    files: Vec<AttachmentLine>,
    /// Attachment ids found in the records. `None` for the exported session itself: all its attachments are
    /// exported.
    mentioned: Option<BTreeSet<String>>,
}

impl Export {
    /// Begins the export of a session, including what it needs from the sessions it was forked from.
    pub async fn begin(
        store: Arc<dyn Store>,
        attachments: Attachments,
        session: SessionId,
        now: Millis,
    ) -> Result<Self, Error> {
        let outlines = store.outlines(session).await?;
        let records = outlines.iter().map(|outline| outline.session.last.seq.0).sum();
        let mut parts =
            VecDeque::from([ExportPart::Header(ArchiveHeader { format: ARCHIVE_FORMAT, session, at: now })]);
        parts.extend(outlines.into_iter().map(|outline| ExportPart::Outline(Box::new(outline))));
        parts.push_back(ExportPart::End);
        let (seal, totals, packages) =
            (ArchiveChecksum::default(), ArchiveTotals::default(), BTreeSet::new());
        Ok(Self { store, attachments, parts, seal, totals, packages, records })
    }

    /// Returns how many records were written so far, and how many there will be.
    pub fn progress(&self) -> (u64, u64) {
        (self.totals.records, self.records)
    }

    /// Returns the next piece of the file as complete lines, or `None` at the end.
    pub async fn piece(&mut self) -> Result<Option<String>, Error> {
        let Some(part) = self.parts.pop_front() else { return Ok(None) };
        let lines = match part {
            ExportPart::Header(header) => vec![ArchiveLine::Archive(header)],
            ExportPart::Outline(outline) => self.outline(*outline),
            ExportPart::Records(records) => self.records(records).await?,
            ExportPart::File(file) => vec![ArchiveLine::Attachment(file)],
            ExportPart::Content { session, id, at, bytes } => {
                let end = bytes.min(at + CONTENT);
                if end < bytes {
                    self.parts.push_front(ExportPart::Content { session, id, at: end, bytes });
                }
                vec![content_line(&self.attachments.read(session, id, at..end).await?)]
            }
            ExportPart::End => vec![ArchiveLine::End(self.totals)],
        };
        let mut text = String::new();
        for line in lines {
            self.totals.count(&line);
            self.seal.write(&line, &mut text);
        }
        Ok(Some(text))
    }

    fn outline(&mut self, outline: SessionOutline) -> Vec<ArchiveLine> {
        let SessionOutline { session, turns, values, attachments: files } = outline;
        let is_forked_from = self.parts.iter().any(|part| matches!(part, ExportPart::Outline(_)));
        let (id, to) = (session.id, session.last.seq);
        let mentioned = is_forked_from.then(BTreeSet::new);
        self.parts.push_front(ExportPart::Records(ExportRecords {
            session: id,
            after: Seq(0),
            to,
            files,
            mentioned,
        }));
        let mut lines = vec![ArchiveLine::Session(session)];
        lines.extend(turns.into_iter().map(ArchiveLine::Turn));
        lines.extend(values.into_iter().map(ArchiveLine::Value));
        lines
    }

    async fn records(&mut self, mut part: ExportRecords) -> Result<Vec<ArchiveLine>, Error> {
        let ExportRecords { session, after, to, .. } = part;
        let page = RecordPage { session, after, to, limit: PAGE };
        let ExportedRecords { packages, records } =
            self.store.export_records(page, self.packages.clone()).await?;
        self.packages.extend(packages.iter().map(|package| package.hash));
        let Some(last) = records.last() else {
            let detail =
                format!("record {} of {session} is missing; was the session deleted meanwhile?", after.0 + 1);
            return Err(Error::new(Kind::SessionNotFound, detail));
        };
        part.after = last.seq;
        if let Some(mentioned) = &mut part.mentioned {
            mentioned.extend(records.iter().flat_map(|record| attachments_in(record.fact.get())));
        }
        if part.after < to {
            self.parts.push_front(ExportPart::Records(part));
        } else {
            self.files(part);
        }
        let packages = packages.into_iter().map(ArchiveLine::Package);
        Ok(packages.chain(records.into_iter().map(ArchiveLine::Record)).collect())
    }

    /// Queues the attachments of a session after its records.
    fn files(&mut self, part: ExportRecords) {
        let ExportRecords { session, files, mentioned, .. } = part;
        let needed = |file: &AttachmentLine| {
            mentioned.as_ref().is_none_or(|mentioned| mentioned.contains(&file.attachment.id.to_string()))
        };
        for file in files.into_iter().filter(needed).rev() {
            let (id, bytes) = (file.attachment.id, file.bytes);
            self.parts.push_front(ExportPart::Content { session, id, at: 0, bytes });
            self.parts.push_front(ExportPart::File(file));
        }
    }
}

/// Returns the attachment ids that appear in a text.
fn attachments_in(text: &str) -> impl Iterator<Item = String> {
    let prefix = format!("{}_", AttachmentId::NOUN.prefix);
    let starts: Vec<usize> = text.match_indices(&prefix).map(|(at, _)| at).collect();
    let length = prefix.len() + ATTACHMENT_DIGITS;
    starts
        .into_iter()
        .filter_map(move |at| text.get(at..at + length).map(str::to_owned))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Imports the session of a file under its own id.
///
/// The whole file is checked before anything is written, then read again. No turn is driven; unfinished turns
/// are closed.
pub async fn import(
    store: &dyn Store,
    attachments: &Attachments,
    from: impl Read + Seek + Send + 'static,
    key: Option<String>,
    now: Millis,
) -> Result<ImportResult, Error> {
    run_import(store, attachments, from, ImportOptions { key, compared: false, now }).await
}

/// Imports the session of a file to compare it with a new run of its turns, in which all calls are simulated.
///
/// Unlike [`import`], it needs no proof that the file comes from this database.
pub async fn import_to_compare(
    store: &dyn Store,
    attachments: &Attachments,
    from: impl Read + Seek + Send + 'static,
) -> Result<ImportResult, Error> {
    run_import(store, attachments, from, ImportOptions { key: None, compared: true, now: Millis(0) }).await
}

/// The options of an import.
struct ImportOptions {
    key: Option<String>,
    compared: bool,
    now: Millis,
}

async fn run_import(
    store: &dyn Store,
    attachments: &Attachments,
    mut from: impl Read + Seek + Send + 'static,
    ImportOptions { key, compared, now }: ImportOptions,
) -> Result<ImportResult, Error> {
    rewind(&mut from)?;
    check(&mut from)?;
    rewind(&mut from)?;
    let outside = put_outside(attachments, &mut from).await?;
    rewind(&mut from)?;
    store.import(ImportRequest { from: Box::new(from), key, outside, is_comparison: compared, now }).await
}

fn rewind(from: &mut impl Seek) -> Result<(), Error> {
    from.rewind().map_err(|cause| {
        Error::new(Kind::IoFailed, format!("the archive cannot be read from its beginning: {cause}"))
            .because(cause)
    })
}

/// Uploads contents before the write that refers to them, if contents are stored outside the database.
async fn put_outside(
    attachments: &Attachments,
    from: impl Read,
) -> Result<BTreeMap<AttachmentId, ExternalUpload>, Error> {
    let mut placed = BTreeMap::new();
    if !attachments.are_external() {
        return Ok(placed);
    }
    let mut lines = ArchiveLineReader::new(from);
    while let Some(line) = lines.next_line()? {
        let ArchiveLine::Attachment(AttachmentLine { attachment, bytes }) = line else { continue };
        let Attachment { id, media_type, name, .. } = attachment;
        let mut pieces = Vec::new();
        let mut read = 0;
        while read < bytes
            && let Some(ArchiveLine::Content(content)) = lines.next_line()?
        {
            let piece = decode_content(&content).map_err(|what| lines.error_at_line(&what))?;
            read += piece.len() as u64;
            pieces.push(Ok(piece.into()));
        }
        let filed = attachments.keep(media_type, name, Box::pin(stream::iter(pieces))).await?;
        if let AttachmentUpload::Outside(outside) = filed {
            placed.insert(id, outside);
        }
    }
    Ok(placed)
}

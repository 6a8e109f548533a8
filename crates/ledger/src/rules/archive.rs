//! Exports sessions to archive files, and imports them. [`outlast_vocab::archive`] defines the format.
use super::external_content::count_use;
use super::orgs::{AuditedAction, audit_action};
use super::search::index_record;
use super::{append, empty_session, lookup, required_row, session_row};
use crate::rows::{
    AttachmentRow, ClaimRow, ContentRows, ContentWrites, ReadRows, RecordAddress, RecordBody, RecordRange,
    RecordRow, ResolutionRow, Rows, SessionNo, SessionRow, Signatures, TurnRow, TurnWrites,
};
use outlast_ports::archive::{
    ArchiveLineReader, ExportedRecords, ImportRequest, ImportResult, RecordPage, RerunAudit, SessionOutline,
    decode_content,
};
use outlast_ports::attachment_upload::ExternalUpload;
use outlast_ports::turns::{Fence, TurnNo};
use outlast_views::{BlobLocation, TurnState};
use outlast_vocab::access::AuditAction;
use outlast_vocab::archive::{
    ArchiveLine, ArchiveTotals, AttachmentLine, PackageLine, RecordLine, SessionLine, TurnLine, ValueLine,
};
use outlast_vocab::effect::{BatchCall, Command, JournalPosition, Outcome, ToolOutcome};
use outlast_vocab::id::{AttachmentId, SessionId, TurnId};
use outlast_vocab::limits::{INLINE_BYTES, Limits};
use outlast_vocab::message::ToolResult;
use outlast_vocab::package::StoredPackage;
use outlast_vocab::record::{
    ClaimRef, EffectAnswered, EffectRequested, Fact, NodeRef, Seq, TurnAccepted, TurnEnd, TurnEndKind,
};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, limits};
use std::collections::{BTreeMap, BTreeSet};

/// Why the import closes a turn that had not ended in the file.
const CLOSED: &str = "the session was exported before the turn ended, and imported turns do not run";

/// Returns the outlines of a session and of those it was forked from, oldest first.
pub fn outlines(rows: &dyn ReadRows, session: SessionId) -> Result<Vec<SessionOutline>, Error> {
    let session = session_row(rows, session)?;
    let mut forked_from = session.forked_from;
    let names = rows.value_names(session.no, "", usize::MAX)?;
    let values = names.into_iter().map(|name| value(rows, session.id, name)).collect::<Result<_, _>>()?;
    let mut outlines = vec![outline(rows, &session, session.last_seq, values)?];
    while let Some(node) = forked_from {
        let parent = required_row("session", rows.session(node.session)?)?;
        let record = required_row("record", lookup::one(rows, parent.no, node.seq)?)?;
        let turn = super::turn_by_no(rows, required_row("turn", record.turn)?)?;
        // The message's turn is exported to its end: a request before the message may be answered after it.
        let to = turn.ended.map_or(parent.last_seq, |ended| ended.max(turn.last_node));
        outlines.push(outline(rows, &parent, to, Vec::new())?);
        forked_from = parent.forked_from;
    }
    outlines.reverse();
    Ok(outlines)
}

fn value(rows: &dyn ReadRows, session: SessionId, name: String) -> Result<ValueLine, Error> {
    let value = required_row("value", lookup::value(rows, session, &name)?)?;
    Ok(ValueLine { name, value })
}

/// Returns the outline of a session up to a record.
fn outline(
    rows: &dyn ReadRows,
    session: &SessionRow,
    to: Seq,
    values: Vec<ValueLine>,
) -> Result<SessionOutline, Error> {
    let hash = if to == session.last_seq {
        session.last_hash
    } else {
        required_row("record", lookup::one(rows, session.no, to)?)?.hash
    };
    let name = |node: RecordAddress| lookup::node_ref(rows, node);
    let reaches = |node: &RecordAddress| node.session != session.no || node.seq <= to;
    let mut heads = BTreeMap::new();
    for (head, node) in rows.heads(session.no)? {
        if node.as_ref().is_none_or(reaches) {
            heads.insert(head, node.map(name).transpose()?);
        }
    }
    let mut turns = Vec::new();
    for turn in rows.turns(session.no, 0, usize::MAX)?.into_iter().filter(|turn| turn.accepted <= to) {
        turns.push(TurnLine {
            id: turn.id,
            key: turn.key,
            input: turn.input,
            delivery: turn.delivery,
            head: turn.head,
            accepted: turn.accepted,
            last_node: (turn.last_node > Seq(0)).then(|| turn.last_node.min(to)),
            parent: turn.parent.map(name).transpose()?,
            ended: turn.ended.filter(|ended| *ended <= to),
        });
    }
    let attachments = rows.attachments(session.no, None, usize::MAX)?.into_iter();
    let SessionRow { id, key, created, updated, .. } = session.clone();
    let forked_from = session.forked_from.map(name).transpose()?;
    let last = JournalPosition { seq: to, hash };
    let mut line = SessionLine { id, key, created, updated, last, forked_from, heads, signature: None };
    // A session that was imported without a signature does not get one here.
    if session.foreign == Seq(0) {
        line.signature = Some(rows.sign_session(session.org, line.fingerprint(&turns, &values))?);
    }
    Ok(SessionOutline {
        session: line,
        turns,
        values,
        attachments: attachments
            .map(|row| AttachmentLine { attachment: row.attachment, bytes: row.bytes })
            .collect(),
    })
}

/// Returns the exact records, with the packages they refer to.
pub fn export_records(
    rows: &dyn ReadRows,
    page: RecordPage,
    known: &BTreeSet<Hash>,
) -> Result<ExportedRecords, Error> {
    let session = session_row(rows, page.session)?;
    let RecordPage { after, to, limit, .. } = page;
    let from = Seq(after.0.saturating_add(1));
    let range = RecordRange { session: session.no, turn: None, nodes_only: false, from, to, limit };
    let mut names = lookup::TurnNames::default();
    let (mut packages, mut records) = (Packages { known, lines: Vec::new() }, Vec::new());
    for row in rows.records(range)? {
        let turn = row.turn.map(|no| names.id(rows, no)).transpose()?;
        let (seq, at, hash) = (row.seq, row.at, row.hash);
        let body = lookup::body_of(rows, row.body)?;
        match Fact::decode(&body)? {
            Fact::Accepted(accepted) => packages.add(rows, accepted.package)?,
            Fact::Started(started) => packages.add(rows, Some(started.package))?,
            _ => {}
        }
        records.push(RecordLine::new(seq, turn, at, hash, &body)?);
    }
    Ok(ExportedRecords { packages: packages.lines, records })
}

/// Collects packages for a file, each once.
struct Packages<'a> {
    known: &'a BTreeSet<Hash>,
    lines: Vec<PackageLine>,
}

impl Packages<'_> {
    fn add(&mut self, rows: &dyn ContentRows, fingerprint: Option<Hash>) -> Result<(), Error> {
        let has = |line: &PackageLine| Some(line.hash) == fingerprint;
        let new = fingerprint.filter(|hash| !self.known.contains(hash) && !self.lines.iter().any(has));
        let Some(fingerprint) = new else { return Ok(()) };
        let package = part(rows, fingerprint)?;
        let stored = StoredPackage::read(fingerprint, package.json.as_bytes())?;
        for (_, sidecar) in stored.sidecars() {
            self.lines.push(part(rows, sidecar)?);
        }
        self.lines.push(package);
        Ok(())
    }
}

fn part(rows: &dyn ContentRows, hash: Hash) -> Result<PackageLine, Error> {
    let json = rows.package(hash)?.and_then(|bytes| String::from_utf8(bytes).ok());
    let json =
        json.ok_or_else(|| Error::new(Kind::BlobNotFound, format!("no package has the hash {hash}")))?;
    Ok(PackageLine { hash, json })
}

/// Records in the audit log that a session is about to be re-run. A re-run with real calls needs more permission.
pub fn note_rerun(rows: &mut dyn Rows, rerun: RerunAudit) -> Result<(), Error> {
    let RerunAudit { session, is_live, detail, now } = rerun;
    let session = session_row(rows, session)?;
    let act = if is_live { AuditAction::RerunLive } else { AuditAction::Rerun };
    audit_action(rows, AuditedAction { act, org: session.org, subject: &session.id, detail }, now)
}

/// Imports a session from a file that was checked.
pub fn import(rows: &mut dyn Rows, import: ImportRequest) -> Result<ImportResult, Error> {
    let ImportRequest { from, key, outside, is_comparison: compared, now } = import;
    let mut lines = ArchiveLineReader::new(from);
    let mut taking = ArchiveImport {
        key,
        outside,
        compared,
        now,
        sessions: BTreeMap::new(),
        at: None,
        closed: 0,
        target: None,
    };
    let mut totals = ArchiveTotals::default();
    while let Some(line) = lines.next_line()? {
        totals.count(&line);
        taking.line(rows, line)?;
    }
    let session = taking.target.ok_or_else(|| lines.error_at_line("the file has no session"))?;
    let org = rows.access().visibility.home();
    let detail = format!("{} records from a file", totals.records);
    audit_action(rows, AuditedAction { act: AuditAction::Import, org, subject: &session, detail }, now)?;
    Ok(ImportResult { session, closed: taking.closed, totals })
}

/// The state of an import.
struct ArchiveImport {
    key: Option<String>,
    outside: BTreeMap<AttachmentId, ExternalUpload>,
    compared: bool,
    now: Millis,
    /// The sessions of the file, with their numbers in this database.
    sessions: BTreeMap<SessionId, SessionNo>,
    /// The session whose lines are read. `None` while lines are skipped because the session already exists.
    at: Option<SessionImport>,
    closed: u64,
    /// The session that was exported.
    target: Option<SessionId>,
}

/// A session while its lines are imported.
struct SessionImport {
    row: SessionRow,
    /// The session, its turns and values as the file states them. The signature must cover them.
    line: SessionLine,
    turn_lines: Vec<TurnLine>,
    values: Vec<ValueLine>,
    turns: BTreeMap<TurnId, TurnRow>,
    /// Calls that have no outcome yet, or an unknown one.
    claims: BTreeMap<ClaimRef, OpenClaim>,
    file: Option<ImportedFile>,
}

struct OpenClaim {
    row: ClaimRow,
    may_repeat: bool,
}

struct ImportedFile {
    line: AttachmentLine,
    bytes: Vec<u8>,
}

impl ArchiveImport {
    fn line(&mut self, rows: &mut dyn Rows, line: ArchiveLine) -> Result<(), Error> {
        let outside = &self.outside;
        match (line, self.at.as_mut()) {
            (ArchiveLine::Archive(header), _) => self.target = Some(header.session),
            (ArchiveLine::Session(line), _) => {
                self.close(rows)?;
                self.begin(rows, line)?;
            }
            (ArchiveLine::End(_), _) => self.close(rows)?,
            (ArchiveLine::Package(package), _) => rows.pin_blob(package.hash, package.json.as_bytes())?,
            (ArchiveLine::Turn(line), Some(section)) => {
                let parent = line.parent.map(|node| resolve_node(&self.sessions, node)).transpose()?;
                section.turn_lines.push(line.clone());
                section.turn(rows, line, parent)?;
            }
            (ArchiveLine::Value(line), Some(section)) => {
                rows.put_value(section.row.no, &line.name, Some(&line.value.to_string()))?;
                section.values.push(line);
            }
            (ArchiveLine::Record(line), Some(section)) => section.record(rows, &line)?,
            (ArchiveLine::Attachment(line), Some(section)) => section.attachment(rows, line, outside)?,
            (ArchiveLine::Content(line), Some(section)) => {
                let bytes = decode_content(&line).map_err(|what| Error::new(Kind::ArchiveInvalid, what))?;
                section.content(rows, &bytes)?;
            }
            (
                ArchiveLine::Turn(_)
                | ArchiveLine::Value(_)
                | ArchiveLine::Record(_)
                | ArchiveLine::Attachment(_)
                | ArchiveLine::Content(_),
                None,
            ) => {}
        }
        Ok(())
    }

    fn begin(&mut self, rows: &mut dyn Rows, line: SessionLine) -> Result<(), Error> {
        let is_target = self.target == Some(line.id);
        if let Some(here) = rows.session_by_id(line.id)? {
            let known =
                lookup::one(rows, here.no, line.last.seq)?.is_some_and(|row| row.hash == line.last.hash);
            if is_target || !known {
                return Err(exists(line.id, is_target));
            }
            self.sessions.insert(line.id, here.no);
            return Ok(());
        }
        let org = rows.access().visibility.home();
        let key = if is_target { self.key.take().or_else(|| line.key.clone()) } else { None };
        limits::check("key_bytes", key.as_ref().map_or(0, String::len), Limits::default().key_bytes)?;
        if let Some(key) = key.as_deref().filter(|_| is_target)
            && rows.session_by_key(org, key)?.is_some()
        {
            let detail =
                format!("a session has the key `{key}` already; import this one under another (`--as`)");
            return Err(Error::new(Kind::InputKeyReused, detail));
        }
        let forked_from = line.forked_from.map(|node| resolve_node(&self.sessions, node)).transpose()?;
        let row = SessionRow {
            forked_from,
            imported: line.last.seq,
            foreign: if self.compared { Seq(0) } else { line.last.seq },
            ..empty_session(line.id, org, key, line.created)
        };
        let row = SessionRow { updated: line.updated, ..row };
        let no = rows.insert_session(&row)?;
        self.sessions.insert(line.id, no);
        for (head, node) in &line.heads {
            let node = node.map(|node| resolve_node(&self.sessions, node)).transpose()?;
            rows.put_head(no, head, node)?;
        }
        let row = SessionRow { no, ..row };
        let (turn_lines, values, turns) = (Vec::new(), Vec::new(), BTreeMap::new());
        self.at =
            Some(SessionImport { row, line, turn_lines, values, turns, claims: BTreeMap::new(), file: None });
        Ok(())
    }

    /// Writes the session, and closes its turns that had not ended.
    fn close(&mut self, rows: &mut dyn Rows) -> Result<(), Error> {
        let Some(mut section) = self.at.take() else { return Ok(()) };
        if section.is_signed_here(rows)? {
            section.row.foreign = Seq(0);
        }
        let mut open: Vec<TurnRow> =
            section.turns.values().filter(|turn| turn.state != TurnState::Ended).cloned().collect();
        open.sort_by_key(|turn| turn.index);
        for turn in open {
            section.close(rows, turn, self.now)?;
            self.closed += 1;
        }
        for OpenClaim { row, .. } in section.claims.into_values().filter(|open| open.row.unknown) {
            rows.put_claim(&row)?;
        }
        rows.put_session(&section.row)
    }
}

fn exists(session: SessionId, is_target: bool) -> Error {
    let detail = if is_target {
        format!("the session {session} already exists")
    } else {
        format!(
            "the session was forked from {session}, which exists here with a different or shorter history"
        )
    };
    Error::new(Kind::ArchiveExists, detail)
}

fn resolve_node(sessions: &BTreeMap<SessionId, SessionNo>, node: NodeRef) -> Result<RecordAddress, Error> {
    let session = sessions.get(&node.session).copied();
    let session = session.ok_or_else(|| {
        Error::new(
            Kind::ArchiveInvalid,
            format!("something refers to {}, which does not exist", node.session),
        )
    })?;
    Ok(RecordAddress { session, seq: node.seq })
}

impl SessionImport {
    /// Returns whether this database exported the imported lines, for the same organisation.
    fn is_signed_here(&self, rows: &dyn Signatures) -> Result<bool, Error> {
        let Some(signature) = self.line.signature else { return Ok(false) };
        let proof = rows.sign_session(self.row.org, self.line.fingerprint(&self.turn_lines, &self.values))?;
        Ok(signature.eq_constant_time(&proof))
    }

    fn turn(
        &mut self,
        rows: &mut dyn TurnWrites,
        line: TurnLine,
        parent: Option<RecordAddress>,
    ) -> Result<(), Error> {
        let state = match (line.ended, line.last_node) {
            (Some(_), _) => TurnState::Ended,
            (None, Some(_)) => TurnState::Active,
            (None, None) => TurnState::Queued,
        };
        let mut row = TurnRow {
            no: TurnNo(0),
            id: line.id,
            session: self.row.no,
            index: self.row.turns,
            key: line.key,
            input: line.input,
            delivery: line.delivery,
            head: line.head,
            state,
            accepted: line.accepted,
            last_node: line.last_node.unwrap_or_default(),
            parent,
            ended: line.ended,
            cancelled: false,
            writes: None,
            retry_of: None,
        };
        row.no = rows.insert_turn(&row)?;
        self.row.turns += 1;
        self.turns.insert(row.id, row);
        Ok(())
    }

    fn record(&mut self, rows: &mut dyn Rows, line: &RecordLine) -> Result<(), Error> {
        let body = line.body();
        let fact = Fact::decode(&body)?;
        let turn = line.turn.and_then(|turn| self.turns.get(&turn)).map(|turn| turn.no);
        let body = if body.len() <= INLINE_BYTES {
            RecordBody::Inline(body)
        } else {
            let content = Hash::of(&body);
            rows.put_blob(content, &body)?;
            RecordBody::Blob(content)
        };
        let (session, seq, at, hash) = (self.row.no, line.seq, line.at, line.hash);
        rows.append(&RecordRow { session, seq, turn, at, node: fact.is_node(), hash, body })?;
        index_record(rows, &self.row, seq, &fact)?;
        (self.row.last_seq, self.row.last_hash) = (seq, hash);
        self.row.count(&fact);
        match turn {
            Some(turn) => self.apply_fact(rows, turn, fact, seq, at),
            None => Ok(()),
        }
    }

    /// Updates the calls and waits of a turn from one of its records.
    fn apply_fact(
        &mut self,
        rows: &mut dyn Rows,
        turn: TurnNo,
        fact: Fact,
        seq: Seq,
        since: Millis,
    ) -> Result<(), Error> {
        match fact {
            Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => {
                for (child, call) in (0..).zip(batch.calls) {
                    let BatchCall::Run(call) = call else { continue };
                    let claim = ClaimRef { asked: seq, child };
                    let (session, fence) = (self.row.no, Fence(0));
                    let row = ClaimRow { session, claim, turn, call: call.id, fence, unknown: false, since };
                    self.claims.insert(claim, OpenClaim { row, may_repeat: call.class.may_repeat() });
                }
            }
            Fact::Answered(EffectAnswered {
                claim,
                outcome: Outcome::ToolCall(ToolOutcome::Unknown),
                ..
            }) => {
                if let Some(open) = self.claims.get_mut(&claim) {
                    open.row.unknown = true;
                }
            }
            Fact::Answered(EffectAnswered { claim, .. }) => drop(self.claims.remove(&claim)),
            Fact::Settled(settled) => drop(self.claims.remove(&settled.claim)),
            Fact::Accepted(TurnAccepted { retry_of: Some(original), .. }) => {
                self.retries(rows, turn, original)?;
            }
            Fact::Ended { end } => self.row.set_last_end(turn, end.kind()),
            Fact::Resolved { key, resolution } if rows.resolution(turn, &key)?.is_none() => {
                rows.insert_resolution(&ResolutionRow { turn, key, resolution })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Records which turn this one retries, if that turn exists here.
    fn retries(&mut self, rows: &mut dyn TurnWrites, turn: TurnNo, original: TurnId) -> Result<(), Error> {
        let original = rows.turn_by_id(original)?.map(|original| original.no);
        if let Some(row) = self.turns.values_mut().find(|row| row.no == turn) {
            row.retry_of = original;
            rows.put_turn(row)?;
        }
        Ok(())
    }

    fn attachment(
        &mut self,
        rows: &mut dyn ContentWrites,
        line: AttachmentLine,
        outside: &BTreeMap<AttachmentId, ExternalUpload>,
    ) -> Result<(), Error> {
        if let Some(outside) = outside.get(&line.attachment.id) {
            count_use(rows, outside)?;
            return self.attached(rows, line, BlobLocation::Outside);
        }
        let bytes = usize::try_from(line.bytes).unwrap_or(usize::MAX);
        limits::check("attachment_bytes", bytes, Limits::default().attachment_bytes)?;
        self.file = Some(ImportedFile { line, bytes: Vec::with_capacity(bytes) });
        Ok(())
    }

    fn content(&mut self, rows: &mut dyn ContentWrites, bytes: &[u8]) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.bytes.extend_from_slice(bytes);
        let Some(ImportedFile { line, bytes }) =
            self.file.take_if(|file| file.bytes.len() as u64 >= file.line.bytes)
        else {
            return Ok(());
        };
        rows.put_blob(line.attachment.content, &bytes)?;
        self.attached(rows, line, BlobLocation::Database)
    }

    fn attached(
        &self,
        rows: &mut dyn ContentWrites,
        line: AttachmentLine,
        location: BlobLocation,
    ) -> Result<(), Error> {
        let AttachmentLine { attachment, bytes } = line;
        rows.insert_attachment(&AttachmentRow { session: self.row.no, attachment, bytes, location })
    }

    /// Ends a turn that had not ended. A running call that must not be repeated gets an unknown outcome.
    fn close(&mut self, rows: &mut dyn Rows, mut turn: TurnRow, now: Millis) -> Result<(), Error> {
        let no = turn.no;
        for open in self.claims.values_mut().filter(|open| open.row.turn == no && !open.row.unknown) {
            open.row.unknown = !open.may_repeat;
            let outcome = if open.may_repeat {
                ToolOutcome::Done(ToolResult::Err(Failure::new(Kind::ToolInterrupted, CLOSED)))
            } else {
                ToolOutcome::Unknown
            };
            let claim = open.row.claim;
            let fact = Fact::Answered(EffectAnswered { claim, outcome: outcome.into(), cost: None });
            append(rows, &mut self.row, Some(&mut turn), fact.into(), now)?;
        }
        if turn.state == TurnState::Active {
            let node = RecordAddress { session: self.row.no, seq: turn.last_node };
            rows.put_head(self.row.no, &turn.head, Some(node))?;
        }
        let end = Fact::Ended { end: TurnEnd::Cancelled { reason: CLOSED.to_owned() } };
        let (place, _) = append(rows, &mut self.row, Some(&mut turn), end.into(), now)?;
        self.row.set_last_end(turn.no, TurnEndKind::Cancelled);
        (turn.state, turn.ended) = (TurnState::Ended, Some(place.seq));
        rows.put_turn(&turn)
    }
}

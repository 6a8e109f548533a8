//! Verifies that an archive is complete and consistent, before any of it is written.
//!
//! Memory use grows with the number of turns and messages, not with their size.
use super::{ArchiveLineReader, decode_content};
use outlast_vocab::archive::{
    ARCHIVE_FORMAT, ArchiveHeader, ArchiveLine, ArchiveTotals, AttachmentLine, RecordLine, SessionLine,
    TurnLine,
};
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::hash::IncrementalHasher;
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::Attachment;
use outlast_vocab::record::{Fact, NodeRef, Seq, chain_hash};
use outlast_vocab::{Error, Hash, Kind, SessionId, TurnId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// Reads an archive to its end and returns what it contains. An error names the first invalid line.
pub fn check(from: impl Read) -> Result<ArchiveTotals, Error> {
    let mut lines = ArchiveLineReader::new(from);
    let mut checked = ArchiveCheck::default();
    while let Some(line) = lines.next_line()? {
        if let ArchiveLine::Archive(ArchiveHeader { format, .. }) = &line
            && *format > ARCHIVE_FORMAT
        {
            let detail =
                format!("the archive has format {format}, but this program reads up to {ARCHIVE_FORMAT}");
            return Err(Error::new(Kind::ArchiveTooNew, detail));
        }
        checked.line(&line).map_err(|what| lines.error_at_line(&what))?;
    }
    Ok(checked.totals)
}

/// The state of the check after the lines read so far.
#[derive(Default)]
struct ArchiveCheck {
    header: Option<ArchiveHeader>,
    sessions: Vec<CheckedSession>,
    turns: BTreeSet<TurnId>,
    packages: BTreeSet<Hash>,
    file: Option<OpenFile>,
    totals: ArchiveTotals,
}

/// A session while its lines are read.
struct CheckedSession {
    line: SessionLine,
    turns: Vec<CheckedTurn>,
    numbers: BTreeMap<TurnId, usize>,
    /// Messages by ascending position, with the turn of each.
    nodes: Vec<(Seq, usize)>,
    attachments: BTreeSet<AttachmentId>,
    end: JournalPosition,
}

struct CheckedTurn {
    line: TurnLine,
    accepted: bool,
    ended: bool,
}

/// An attachment whose content is being read.
struct OpenFile {
    line: AttachmentLine,
    left: u64,
    hashing: IncrementalHasher,
}

impl ArchiveCheck {
    fn line(&mut self, line: &ArchiveLine) -> Result<(), String> {
        if self.header.is_none() && !matches!(line, ArchiveLine::Archive(_)) {
            return Err("the first line must be the header of an archive".to_owned());
        }
        if !matches!(line, ArchiveLine::Content(_)) {
            self.close_file()?;
        }
        if !matches!(line, ArchiveLine::End(_)) {
            self.totals.count(line);
        }
        match line {
            ArchiveLine::Archive(header) => match self.header.replace(*header) {
                None => Ok(()),
                Some(_) => Err("a second archive header appears inside the archive".to_owned()),
            },
            ArchiveLine::Session(session) => self.session(session),
            ArchiveLine::Turn(turn) => self.turn(turn),
            ArchiveLine::Value(_) => self.section().map(drop),
            ArchiveLine::Package(package) => {
                if Hash::of(package.json.as_bytes()) != package.hash {
                    return Err(format!("the package {} does not match its hash", package.hash));
                }
                self.packages.insert(package.hash);
                Ok(())
            }
            ArchiveLine::Record(record) => self.record(record),
            ArchiveLine::Attachment(file) => self.attachment(file),
            ArchiveLine::Content(content) => {
                let file = self.file.as_mut().ok_or("content without an attachment before it")?;
                let bytes = decode_content(content)?;
                let left = file.left.checked_sub(bytes.len() as u64);
                file.left = left.ok_or("an attachment has more content than it says")?;
                file.hashing.update(&bytes);
                Ok(())
            }
            ArchiveLine::End(totals) => {
                self.close_session()?;
                let last = self.sessions.last().map(|section| section.line.id);
                if last != self.header.map(|header| header.session) {
                    return Err("the session that the first line names is not the last one".to_owned());
                }
                if *totals == self.totals {
                    Ok(())
                } else {
                    Err("its counts do not match the file".to_owned())
                }
            }
        }
    }

    fn section(&mut self) -> Result<&mut CheckedSession, String> {
        self.sessions.last_mut().ok_or_else(|| "it belongs to a session, but none has begun".to_owned())
    }

    fn session(&mut self, line: &SessionLine) -> Result<(), String> {
        self.close_session()?;
        if self.sessions.iter().any(|section| section.line.id == line.id) {
            return Err(format!("the session {} appears twice", line.id));
        }
        match line.forked_from {
            Some(node) => self.node(node).map(drop)?,
            None if !self.sessions.is_empty() => {
                return Err(format!("{} is not forked from the session before it", line.id));
            }
            None => {}
        }
        let end = JournalPosition { seq: Seq(0), hash: Hash::ZERO };
        let (turns, numbers, nodes) = (Vec::new(), BTreeMap::new(), Vec::new());
        let attachments = BTreeSet::new();
        self.sessions.push(CheckedSession { line: line.clone(), turns, numbers, nodes, attachments, end });
        Ok(())
    }

    fn turn(&mut self, line: &TurnLine) -> Result<(), String> {
        if !self.turns.insert(line.id) {
            return Err(format!("the turn {} appears twice", line.id));
        }
        let section = self.section()?;
        if section.end.seq != Seq(0) {
            return Err("turns must stand before the records of their session".to_owned());
        }
        let last = section.line.last.seq;
        let in_order = line.last_node.is_none_or(|node| line.accepted <= node && node <= last)
            && line.ended.is_none_or(|ended| line.accepted < ended && ended <= last);
        if !in_order || (line.last_node.is_none() && line.parent.is_some()) {
            return Err(format!("the places of the turn {} contradict each other", line.id));
        }
        section.numbers.insert(line.id, section.turns.len());
        section.turns.push(CheckedTurn { line: line.clone(), accepted: false, ended: false });
        Ok(())
    }

    fn record(&mut self, line: &RecordLine) -> Result<(), String> {
        let fact = line.decode().map_err(|error| error.to_string())?;
        let named = match &fact {
            Fact::Accepted(accepted) => accepted.package,
            Fact::Started(started) => Some(started.package),
            _ => None,
        };
        if let Some(package) = named.filter(|package| !self.packages.contains(package)) {
            return Err(format!("the record names the package {package}, which does not stand before it"));
        }
        self.section()?.record(line, &fact)
    }

    fn attachment(&mut self, line: &AttachmentLine) -> Result<(), String> {
        let AttachmentLine { attachment: Attachment { id, .. }, bytes } = line;
        if !self.section()?.attachments.insert(*id) {
            return Err(format!("the attachment {id} appears twice"));
        }
        if *bytes == 0 {
            return Err(format!("the attachment {id} has no bytes"));
        }
        self.file =
            Some(OpenFile { line: line.clone(), left: *bytes, hashing: IncrementalHasher::default() });
        Ok(())
    }

    fn close_file(&mut self) -> Result<(), String> {
        let Some(OpenFile { line, left, hashing }) = self.file.take() else { return Ok(()) };
        let Attachment { id, content, .. } = line.attachment;
        if left > 0 {
            return Err(format!("{left} bytes of the attachment {id} are missing before this"));
        }
        if hashing.hash() == content {
            Ok(())
        } else {
            Err(format!("the attachment {id} does not match its hash"))
        }
    }

    /// Compares what a session states about itself with its records.
    fn close_session(&self) -> Result<(), String> {
        let Some(section) = self.sessions.last() else { return Ok(()) };
        if section.end != section.line.last {
            let JournalPosition { seq, .. } = section.end;
            return Err(format!(
                "{} says it ends at record {}, but ends at {seq}",
                section.line.id, section.line.last.seq
            ));
        }
        for turn in &section.turns {
            self.place(section, turn)?;
        }
        section.line.heads.values().flatten().try_for_each(|node| self.node(*node).map(drop))
    }

    /// Checks the positions of a turn. A turn follows one that ended before it, so no path is a cycle.
    fn place(&self, section: &CheckedSession, turn: &CheckedTurn) -> Result<(), String> {
        let TurnLine { id, parent, ended, .. } = &turn.line;
        if !turn.accepted || turn.ended != ended.is_some() {
            return Err(format!("the records of {id} are not where its turn says"));
        }
        let Some(parent) = parent else { return Ok(()) };
        let before = self.node(*parent)?;
        if parent.session != section.line.id {
            return Ok(());
        }
        let before = section.turns[before].line.ended;
        let follows = before.is_some_and(|before| ended.is_none_or(|ended| before < ended));
        if follows { Ok(()) } else { Err(format!("{id} follows a turn that did not end before it")) }
    }

    /// Returns the index of the turn that a message belongs to.
    fn node(&self, node: NodeRef) -> Result<usize, String> {
        let NodeRef { session, seq } = node;
        let section = self.sessions.iter().find(|section| section.line.id == session);
        let found = section.and_then(|section| section.message(seq));
        found.ok_or_else(|| format!("something refers to message {seq} of {session}, which does not exist"))
    }
}

impl CheckedSession {
    fn message(&self, seq: Seq) -> Option<usize> {
        let at = self.nodes.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        let turn = self.nodes[at].1;
        self.turns[turn].line.last_node.is_some_and(|last| seq <= last).then_some(turn)
    }

    fn record(&mut self, line: &RecordLine, fact: &Fact) -> Result<(), String> {
        let id: SessionId = self.line.id;
        let expected = Seq(self.end.seq.0 + 1);
        if line.seq != expected {
            return Err(format!("record {expected} of {id} must stand here, but it is {}", line.seq));
        }
        if chain_hash(&self.end.hash, line.seq, line.turn, line.at, &line.body()) != line.hash {
            return Err(format!(
                "record {expected} of {id} breaks the chain: its content does not match its hash"
            ));
        }
        self.end = JournalPosition { seq: line.seq, hash: line.hash };
        if matches!(fact, Fact::Opened { .. }) != (expected == Seq(1)) {
            return Err(format!("the first record of {id} must open it, and no other may"));
        }
        let Some(turn) = line.turn else { return Ok(()) };
        let number = *self.numbers.get(&turn).ok_or_else(|| format!("no turn of {id} has the id {turn}"))?;
        let seen = &mut self.turns[number];
        match fact {
            Fact::Accepted(accepted) => {
                let TurnLine { key, delivery, .. } = &seen.line;
                seen.accepted =
                    seen.line.accepted == line.seq && *key == accepted.key && *delivery == accepted.delivery;
            }
            Fact::Ended { .. } => seen.ended = seen.line.ended == Some(line.seq),
            _ => {}
        }
        if fact.is_node() {
            self.nodes.push((line.seq, number));
        }
        Ok(())
    }
}

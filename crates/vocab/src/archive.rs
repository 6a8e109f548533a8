//! The archive format: a session as one file of JSON lines. Each line has a checksum over itself and all
//! lines before it.
//!
//! The first line is [`ArchiveLine::Archive`], the last one [`ArchiveLine::End`]. Between them are the sessions that the
//! exported one was forked from, oldest first and only as much of them as needed, and then the session
//! itself. Each session begins with [`ArchiveLine::Session`], followed by its turns, its values, its records with
//! the packages they name, and its attachments. There is no line for secrets, because sessions store none.
//!
//! A sealed line is `{"sum":"…",` followed by the line's JSON without its first brace, so every line is valid
//! JSON.
use crate::canonical_json;
use crate::effect::JournalPosition;
use crate::message::Attachment;
use crate::record::{Fact, InputDelivery, NodeRef, Seq};
use crate::{Error, Hash, Kind, Millis, OrgId, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The version of the format. Readers refuse a higher version.
pub const ARCHIVE_FORMAT: u32 = 1;

/// The beginning of every sealed line.
const OPENING: &str = r#"{"sum":""#;

/// The number of hex digits of a checksum.
const DIGITS: usize = 64;

/// One line of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveLine {
    /// The header of the file.
    Archive(ArchiveHeader),
    /// The beginning of a session.
    Session(SessionLine),
    /// A turn of the session.
    Turn(TurnLine),
    /// A value of the session.
    Value(ValueLine),
    /// A package that the following records name, or a part of one.
    Package(PackageLine),
    /// A record of the session.
    Record(RecordLine),
    /// An attachment of the session. Its content follows.
    Attachment(AttachmentLine),
    /// A part of that content.
    Content(ContentLine),
    /// The end of a complete file.
    End(ArchiveTotals),
}

/// The header of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveHeader {
    /// The version of the format.
    pub format: u32,
    /// The exported session, which is the last one in the file.
    pub session: SessionId,
    /// When it was exported.
    pub at: Millis,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLine {
    /// Its id.
    pub id: SessionId,
    /// The key that its caller gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it was opened.
    pub created: Millis,
    /// When it last changed.
    pub updated: Millis,
    /// Its last record in this file.
    pub last: JournalPosition,
    /// Where it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<NodeRef>,
    /// The positions of its heads.
    pub heads: BTreeMap<String, Option<NodeRef>>,
    /// The signature of the database that wrote the file. Only that database can sign this session, its
    /// turns, values and records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Hash>,
}

impl SessionLine {
    /// Returns a fingerprint of all lines of the session. The hash of the last record covers all records.
    pub fn fingerprint(&self, turns: &[TurnLine], values: &[ValueLine]) -> Hash {
        let unsigned = Self { signature: None, ..self.clone() };
        canonical_json::fingerprint(&(unsigned, turns, values))
    }

    /// Signs the fingerprint of a session of an organisation with the secret of the database.
    pub fn sign(secret: &[u8; 32], org: OrgId, fingerprint: Hash) -> Hash {
        let org = org.to_u128().to_be_bytes();
        let parts = [org.as_slice(), fingerprint.as_bytes().as_slice()];
        Hash::signed(secret, "outlast archive session v1", parts)
    }
}

/// The data of a turn that its records do not contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLine {
    /// Its id.
    pub id: TurnId,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The fingerprint of its input, which distinguishes a repeated request from a reused key.
    pub input: Hash,
    /// How the input is delivered if a turn is running.
    pub delivery: InputDelivery,
    /// The head it is for.
    pub head: String,
    /// The record of its input.
    pub accepted: Seq,
    /// Its last message, or `None` if it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_node: Option<Seq>,
    /// The message it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<NodeRef>,
    /// The record of its end, or `None` if it had not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Seq>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueLine {
    /// Its name.
    pub name: String,
    /// The value itself.
    pub value: Value,
}

/// A stored package, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageLine {
    /// Its hash, by which records and packages refer to it.
    pub hash: Hash,
    /// Its content, as canonical JSON.
    pub json: String,
}

/// A record. Its fact is preserved byte for byte.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordLine {
    /// Its position in the session.
    pub seq: Seq,
    /// Its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// When it was written.
    pub at: Millis,
    /// The hash of the chain after it.
    pub hash: Hash,
    /// The version of its body.
    pub version: u8,
    /// The fact.
    pub fact: Box<RawValue>,
}

impl RecordLine {
    /// Creates a line from the stored body of a record.
    pub fn new(seq: Seq, turn: Option<TurnId>, at: Millis, hash: Hash, body: &[u8]) -> Result<Self, Error> {
        let text = body.split_first().and_then(|(version, json)| {
            let json = String::from_utf8(json.to_vec()).ok()?;
            Some((*version, RawValue::from_string(json).ok()?))
        });
        let Some((version, fact)) = text else {
            return Err(Error::new(Kind::RecordCorrupt, format!("the body of record {seq} is no JSON")));
        };
        Ok(Self { seq, turn, at, hash, version, fact })
    }

    /// Returns the stored body.
    pub fn body(&self) -> Vec<u8> {
        let mut body = vec![self.version];
        body.extend_from_slice(self.fact.get().as_bytes());
        body
    }

    /// Decodes the fact.
    pub fn decode(&self) -> Result<Fact, Error> {
        Fact::decode(&self.body())
    }
}

/// An attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentLine {
    /// Its metadata.
    pub attachment: Attachment,
    /// The number of content bytes that follow.
    pub bytes: u64,
}

/// A part of the content of the last named attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentLine {
    /// The bytes, in base64.
    pub base64: String,
}

/// The totals of the file, so that a truncated file is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveTotals {
    /// Sessions.
    pub sessions: u64,
    /// Turns.
    pub turns: u64,
    /// Records.
    pub records: u64,
    /// Attachments.
    pub attachments: u64,
}

impl ArchiveTotals {
    /// Counts a line.
    pub fn count(&mut self, line: &ArchiveLine) {
        match line {
            ArchiveLine::Session(_) => self.sessions += 1,
            ArchiveLine::Turn(_) => self.turns += 1,
            ArchiveLine::Record(_) => self.records += 1,
            ArchiveLine::Attachment(_) => self.attachments += 1,
            ArchiveLine::Archive(_)
            | ArchiveLine::Value(_)
            | ArchiveLine::Package(_)
            | ArchiveLine::Content(_)
            | ArchiveLine::End(_) => {}
        }
    }
}

/// The running checksum of a file while it is written or read.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveChecksum(Hash);

impl Default for ArchiveChecksum {
    fn default() -> Self {
        Self(Hash::ZERO)
    }
}

impl ArchiveChecksum {
    /// Appends a sealed line to a text.
    ///
    /// # Panics
    /// Never panics: lines are plain data.
    pub fn write(&mut self, line: &ArchiveLine, to: &mut String) {
        let json = serde_json::to_string(line).expect("lines of an archive are plain data");
        self.0 = self.after(&json);
        to.push_str(OPENING);
        to.push_str(&self.0.to_string());
        to.push_str("\",");
        to.push_str(&json[1..]);
        to.push('\n');
    }

    /// Reads a sealed line without its line feed. The error says what is wrong with the line.
    pub fn read(&mut self, text: &str) -> Result<ArchiveLine, String> {
        let sealed = text.strip_prefix(OPENING).and_then(|rest| rest.split_at_checked(DIGITS));
        let sealed = sealed.and_then(|(sum, rest)| Some((sum, rest.strip_prefix("\",")?)));
        let Some((sum, rest)) = sealed else {
            return Err("it does not start with a checksum, as every line of an archive does".to_owned());
        };
        let json = format!("{{{rest}");
        let found = self.after(&json);
        if found.to_string() != sum {
            return Err(
                "its checksum does not match: it was changed, or lines before it are missing".to_owned()
            );
        }
        self.0 = found;
        serde_json::from_str(&json).map_err(|cause| format!("it does not decode: {cause}"))
    }

    fn after(self, json: &str) -> Hash {
        Hash::of_parts("outlast archive v1", [self.0.as_bytes().as_slice(), json.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> ArchiveLine {
        ArchiveLine::Archive(ArchiveHeader {
            format: ARCHIVE_FORMAT,
            session: SessionId::from_u128(7),
            at: Millis(9),
        })
    }

    fn sealed() -> String {
        let mut text = String::new();
        let mut seal = ArchiveChecksum::default();
        seal.write(&header(), &mut text);
        seal.write(&ArchiveLine::End(ArchiveTotals::default()), &mut text);
        text
    }

    #[test]
    fn every_line_is_json_and_reads_back() {
        let text = sealed();
        let mut seal = ArchiveChecksum::default();
        for line in text.lines() {
            assert!(serde_json::from_str::<Value>(line).unwrap()["sum"].is_string());
            seal.read(line).unwrap();
        }
    }

    #[test]
    fn changed_byte_or_missing_line_breaks_checksum() {
        let text = sealed();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            ArchiveChecksum::default().read(lines[1]).unwrap_err().starts_with("its checksum does not match")
        );
        for at in 0..lines[0].len() {
            let mut changed = lines[0].as_bytes().to_vec();
            changed[at] ^= 1;
            assert!(
                ArchiveChecksum::default().read(&String::from_utf8(changed).unwrap()).is_err(),
                "byte {at}"
            );
        }
    }

    #[test]
    fn record_body_is_stored_byte_for_byte() {
        let body = b"\x01{\"head_moved\":{\"to\":null,  \"head\":\"m\"}}";
        let line = RecordLine::new(Seq(1), None, Millis(1), Hash::ZERO, body).unwrap();
        let (mut text, mut seal) = (String::new(), ArchiveChecksum::default());
        seal.write(&ArchiveLine::Record(line), &mut text);
        let ArchiveLine::Record(read) = ArchiveChecksum::default().read(text.trim_end()).unwrap() else {
            panic!()
        };
        assert_eq!(read.body(), body);
        assert_eq!(
            RecordLine::new(Seq(1), None, Millis(1), Hash::ZERO, b"\x01{").unwrap_err().kind(),
            Kind::RecordCorrupt
        );
    }
}

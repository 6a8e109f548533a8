//! A session as one file: lines of JSON, each sealed by a sum over it and all lines before it.
//!
//! The first line is [`Line::Archive`], the last one [`Line::End`]. Between them stand the sessions that the exported one was
//! forked from, the oldest first and only as far as it needs them, and then the session itself. Each begins with
//! [`Line::Session`] and has its turns, its values, its records with the packages they name, and its attachments. There is no
//! line for secrets: a session has none that are kept with it.
//!
//! A sealed line is `{"sum":"…",` and the line's own JSON without its first brace, so every line is JSON by itself.
use crate::canon;
use crate::effect::Place;
use crate::message::Attachment;
use crate::record::{Delivery, Fact, NodeRef, Seq};
use crate::{Error, Hash, Kind, Millis, OrgId, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The version of the format. A reader refuses a higher one.
pub const FORMAT: u32 = 1;

/// How a sealed line begins.
const OPENING: &str = r#"{"sum":""#;

/// Hex digits of a sum.
const DIGITS: usize = 64;

/// One line of an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What the file is.
    Archive(Header),
    /// A session begins.
    Session(SessionLine),
    /// A turn of it.
    Turn(TurnLine),
    /// A value of it.
    Value(ValueLine),
    /// A package that the records after it name, or a part of one.
    Package(PackageLine),
    /// A record of it.
    Record(RecordLine),
    /// An attachment of it, whose content follows.
    Attachment(AttachmentLine),
    /// Some of that content.
    Content(ContentLine),
    /// The file is whole.
    End(Totals),
}

/// What the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The session that was exported: the last one in the file.
    pub session: SessionId,
    /// When.
    pub at: Millis,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLine {
    /// Its id.
    pub id: SessionId,
    /// The key its caller knows it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it was opened.
    pub created: Millis,
    /// When it last changed.
    pub updated: Millis,
    /// Its last record in this file.
    pub last: Place,
    /// Where it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<NodeRef>,
    /// Where its heads stand.
    pub heads: BTreeMap<String, Option<NodeRef>>,
    /// The proof of the database that wrote the file: only it can make one for this session, its turns, values and records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Hash>,
}

impl SessionLine {
    /// Returns a fingerprint of everything that the file says of the session. The hash of the last record stands for all records.
    pub fn fingerprint(&self, turns: &[TurnLine], values: &[ValueLine]) -> Hash {
        let unsigned = Self { signature: None, ..self.clone() };
        canon::fingerprint(&(unsigned, turns, values))
    }

    /// Returns the proof that an organisation of a database had a session with this fingerprint, made with the secret of the
    /// database.
    pub fn sign(secret: &[u8; 32], org: OrgId, fingerprint: Hash) -> Hash {
        let org = org.to_u128().to_be_bytes();
        let parts = [org.as_slice(), fingerprint.as_bytes().as_slice()];
        Hash::signed(secret, "outlast archive session v1", parts)
    }
}

/// A turn, as far as its records do not say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLine {
    /// Its id.
    pub id: TurnId,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The fingerprint of its input, to tell a repeat from a reuse of the key.
    pub input: Hash,
    /// What it does when a turn is under way.
    pub delivery: Delivery,
    /// The head it is for.
    pub head: String,
    /// The record that accepted it.
    pub accepted: Seq,
    /// Its last message; none if it never began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_node: Option<Seq>,
    /// The message it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<NodeRef>,
    /// The record that ended it; none if it was not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Seq>,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueLine {
    /// Its name.
    pub name: String,
    /// What it is.
    pub value: Value,
}

/// A package or a part of one, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageLine {
    /// Its hash, by which records and packages name it.
    pub hash: Hash,
    /// Its bytes, which are canonical JSON.
    pub json: String,
}

/// A record, whose fact stands here to the byte as it was written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordLine {
    /// Its place in the session.
    pub seq: Seq,
    /// Its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// When it was written.
    pub at: Millis,
    /// The chain's hash after it.
    pub hash: Hash,
    /// The version of its body.
    pub version: u8,
    /// What became true.
    pub fact: Box<RawValue>,
}

impl RecordLine {
    /// A record with its stored body.
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

    /// The stored body.
    pub fn body(&self) -> Vec<u8> {
        let mut body = vec![self.version];
        body.extend_from_slice(self.fact.get().as_bytes());
        body
    }

    /// What became true.
    pub fn decode(&self) -> Result<Fact, Error> {
        Fact::decode(&self.body())
    }
}

/// An attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentLine {
    /// What it is.
    pub attachment: Attachment,
    /// How many bytes follow.
    pub bytes: u64,
}

/// Bytes of the attachment that was named last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentLine {
    /// The bytes, in base64.
    pub base64: String,
}

/// What the file has, so that a missing end is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Sessions.
    pub sessions: u64,
    /// Turns.
    pub turns: u64,
    /// Records.
    pub records: u64,
    /// Attachments.
    pub attachments: u64,
}

impl Totals {
    /// Counts a line.
    pub fn count(&mut self, line: &Line) {
        match line {
            Line::Session(_) => self.sessions += 1,
            Line::Turn(_) => self.turns += 1,
            Line::Record(_) => self.records += 1,
            Line::Attachment(_) => self.attachments += 1,
            Line::Archive(_) | Line::Value(_) | Line::Package(_) | Line::Content(_) | Line::End(_) => {}
        }
    }
}

/// The sums of a file, line by line, while it is written or read.
#[derive(Clone, Copy, Debug)]
pub struct Seal(Hash);

impl Default for Seal {
    fn default() -> Self {
        Self(Hash::ZERO)
    }
}

impl Seal {
    /// Adds a line to a text, sealed.
    ///
    /// # Panics
    /// Never: lines are plain data.
    pub fn write(&mut self, line: &Line, to: &mut String) {
        let json = serde_json::to_string(line).expect("lines of an archive are plain data");
        self.0 = self.after(&json);
        to.push_str(OPENING);
        to.push_str(&self.0.to_string());
        to.push_str("\",");
        to.push_str(&json[1..]);
        to.push('\n');
    }

    /// Reads a sealed line, without its line feed. The error says what is wrong with it.
    pub fn read(&mut self, text: &str) -> Result<Line, String> {
        let sealed = text.strip_prefix(OPENING).and_then(|rest| rest.split_at_checked(DIGITS));
        let sealed = sealed.and_then(|(sum, rest)| Some((sum, rest.strip_prefix("\",")?)));
        let Some((sum, rest)) = sealed else {
            return Err("it does not begin with a sum, as every line of an archive does".to_owned());
        };
        let json = format!("{{{rest}");
        let found = self.after(&json);
        if found.to_string() != sum {
            return Err("its sum does not fit: it was changed, or lines before it are missing".to_owned());
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

    fn header() -> Line {
        Line::Archive(Header { format: FORMAT, session: SessionId::from_u128(7), at: Millis(9) })
    }

    fn sealed() -> String {
        let mut text = String::new();
        let mut seal = Seal::default();
        seal.write(&header(), &mut text);
        seal.write(&Line::End(Totals::default()), &mut text);
        text
    }

    #[test]
    fn every_line_is_json_and_reads_back() {
        let text = sealed();
        let mut seal = Seal::default();
        for line in text.lines() {
            assert!(serde_json::from_str::<Value>(line).unwrap()["sum"].is_string());
            seal.read(line).unwrap();
        }
    }

    #[test]
    fn a_changed_byte_or_a_missing_line_does_not_fit_its_sum() {
        let text = sealed();
        let lines: Vec<&str> = text.lines().collect();
        assert!(Seal::default().read(lines[1]).unwrap_err().starts_with("its sum does not fit"));
        for at in 0..lines[0].len() {
            let mut changed = lines[0].as_bytes().to_vec();
            changed[at] ^= 1;
            assert!(Seal::default().read(&String::from_utf8(changed).unwrap()).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_body_of_a_record_stands_there_to_the_byte() {
        let body = b"\x01{\"head_moved\":{\"to\":null,  \"head\":\"m\"}}";
        let line = RecordLine::new(Seq(1), None, Millis(1), Hash::ZERO, body).unwrap();
        let (mut text, mut seal) = (String::new(), Seal::default());
        seal.write(&Line::Record(line), &mut text);
        let Line::Record(read) = Seal::default().read(text.trim_end()).unwrap() else { panic!() };
        assert_eq!(read.body(), body);
        assert_eq!(
            RecordLine::new(Seq(1), None, Millis(1), Hash::ZERO, b"\x01{").unwrap_err().kind(),
            Kind::RecordCorrupt
        );
    }
}

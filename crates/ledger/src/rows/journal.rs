//! The journal: records, the feed of all sessions, and replies that are still being streamed.
use super::{RowAccess, SessionNo};
use outlast_ports::turns::TurnNo;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::key::ReplayKey;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Hash, Millis};

/// The address of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAddress {
    /// The session that contains the record.
    pub session: SessionNo,
    /// The record's position in the session.
    pub seq: Seq,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// Its session.
    pub session: SessionNo,
    /// Its position in the session.
    pub seq: Seq,
    /// Its turn.
    pub turn: Option<TurnNo>,
    /// When it was written.
    pub at: Millis,
    /// Whether the record is part of the transcript.
    pub node: bool,
    /// The hash of the chain at this record.
    pub hash: Hash,
    /// Its body, or where the body is stored.
    pub body: RecordBody,
}

/// A record's body, or the hash of the blob that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordBody {
    /// Stored in the row.
    Inline(Vec<u8>),
    /// Stored as a blob.
    Blob(Hash),
}

/// A query for records of a session.
#[derive(Clone, Copy, Debug)]
pub struct RecordRange {
    /// The session.
    pub session: SessionNo,
    /// Restricts the query to this turn.
    pub turn: Option<TurnNo>,
    /// Restricts the query to records of the transcript.
    pub nodes_only: bool,
    /// The first position.
    pub from: Seq,
    /// The last position, inclusive.
    pub to: Seq,
    /// The maximum number of records.
    pub limit: usize,
}

/// A piece of text from a reply that is still being streamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialRow {
    /// The turn.
    pub turn: TurnNo,
    /// The model call.
    pub key: ReplayKey,
    /// The attempt that produced the text.
    pub attempt: u32,
    /// How many bytes of text precede this piece.
    pub start: usize,
    /// The text.
    pub text: String,
}

/// Reads the records of a session, and partial replies.
pub trait JournalRows: RowAccess {
    /// Returns records by ascending position.
    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error>;
    /// Returns the stored text of the reply that a turn is receiving, by ascending start.
    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error>;
}

/// Reads the records of many sessions, in the order they became durable.
pub trait FeedRows: RowAccess {
    /// Returns records of many sessions after a position, in the order they became durable.
    fn feed(&self, of: OrgVisibility, after: u64, limit: usize) -> Result<Vec<(u64, RecordRow)>, Error>;
    /// Returns the position of the last record of the feed.
    fn feed_end(&self) -> Result<u64, Error>;
}

/// Counts the records of many sessions.
pub trait FeedQueries: FeedRows {
    /// Returns the number of records in the feed after a position.
    fn feed_length(&self, after: u64) -> Result<u64, Error>;
}

/// Appends records, and stores partial replies.
pub trait JournalWrites: JournalRows {
    /// Appends a record.
    fn append(&mut self, row: &RecordRow) -> Result<(), Error>;
    /// Stores a piece of a reply, in place of the one with the same start.
    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error>;
    /// Deletes the stored text of the reply that a turn is receiving.
    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error>;
}

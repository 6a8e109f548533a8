//! The journal: the records of a session in order, and the feed of all sessions.
use crate::ResultFuture;
use outlast_views::HistoryTurn;
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::message::Part;
use outlast_vocab::record::{NodeRef, Record, Seq};

/// A position in the feed of all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedCursor(pub u64);

/// A record with its session, in the order of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRecord {
    /// The cursor to continue reading from.
    pub cursor: FeedCursor,
    /// The session.
    pub session: SessionId,
    /// The record.
    pub record: Record,
}

/// Reads the journal: the facts of sessions, in order.
pub trait Journal: Send + Sync {
    /// Returns the records of a session after a cursor.
    fn records(&self, session: SessionId, after: Seq, limit: usize) -> ResultFuture<'_, Vec<Record>>;

    /// Returns the records of one turn.
    fn turn_records(&self, turn: TurnId) -> ResultFuture<'_, Vec<Record>>;

    /// Returns records of all sessions after a cursor, in the order they became durable.
    fn feed(&self, after: FeedCursor, limit: usize) -> ResultFuture<'_, Vec<FeedRecord>>;

    /// Returns the end of the feed. A handle scoped to one organisation gets 0, because the position would reveal how
    /// much others write.
    fn feed_end(&self) -> ResultFuture<'_, FeedCursor>;

    /// Returns the turns up to and including this message, newest first, until `bytes` of records are read.
    fn history(&self, node: NodeRef, bytes: usize) -> ResultFuture<'_, Vec<HistoryTurn>>;

    /// Returns the inputs that are queued to join the running turn.
    fn joinable(&self, session: SessionId) -> ResultFuture<'_, Vec<(TurnId, Vec<Part>)>>;

    /// Recomputes the hash chain of a session and returns the number of its records.
    fn verify(&self, session: SessionId) -> ResultFuture<'_, u64>;
}

//! Turns: their state, what their durability costs, and the results of stopping and retrying one.
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::record::{NodeRef, Record, Seq, TurnEnd};
use std::time::Duration;

/// A turn, as queries return it.
#[derive(Clone, Debug)]
pub struct TurnView {
    /// Its id.
    pub id: TurnId,
    /// Its session.
    pub session: SessionId,
    /// Its index in the session, counted from 0.
    pub index: u32,
    /// Its state.
    pub state: TurnState,
    /// The message it follows.
    pub parent: Option<NodeRef>,
    /// The positions of its first message and its last message so far.
    pub span: (Seq, Seq),
    /// How it ended. The end is written once and never changes.
    pub end: Option<TurnEnd>,
    /// How many writes the turn took. `None` if it was imported or is older than the counter.
    pub writes: Option<WriteCount>,
    /// The turn that this one retries.
    pub retry_of: Option<TurnId>,
    /// Whether it was imported without a signature of this database, so its content is untrusted.
    pub foreign: bool,
}

/// The state of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// Accepted, but not begun.
    Queued,
    /// Begun.
    Active,
    /// Over.
    Ended,
}

/// The writes of a turn: the one that accepted it, and those of the workers that ran it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCount {
    /// The number of writes.
    pub commits: u64,
    /// How long the turn waited for them, where a later write could report it.
    pub waited: Duration,
}

/// The result of a cancel request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The turn will stop.
    Requested,
    /// The turn was still queued and has ended.
    EndedBeforeStart,
    /// The turn had already ended.
    AlreadyEnded(TurnEnd),
}

/// The cost of durability for a turn so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnDurabilityCost {
    /// Records written.
    pub records: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// The writes, if known.
    pub writes: Option<WriteCount>,
}

impl TurnDurabilityCost {
    /// Computes the cost from the records and writes of a turn.
    pub fn of(records: &[Record], writes: Option<WriteCount>) -> Self {
        let bytes = records.iter().map(|record| record.fact.encode().len()).sum();
        Self { records: records.len(), bytes, writes }
    }
}

/// Where a turn is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPlace {
    /// On its own head, in its place.
    SameHead,
    /// In a new session that forks before the turn.
    Fork,
}

/// The result of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOutcome {
    /// The turn had not ended, and continues.
    Woken,
    /// The turn had ended, and a new turn retries it.
    NewTurn {
        /// The session of the new turn: the original one or a fork of it.
        session: SessionId,
        /// The new turn.
        turn: TurnId,
        /// Whether the retry existed before.
        duplicate: bool,
    },
}

//! Messages found by their words: inputs and replies, of whoever may see them.
//!
//! The words are written with the message, in one transaction, so what is found is what is there.
use crate::Answer;
use crate::ledger;
use crate::store::{Backend, FeedCursor};
use outlast_vocab::Millis;
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::record::Seq;
use outlast_vocab::words::Wanted;

/// What is looked for.
#[derive(Clone, Debug)]
pub struct Find {
    /// The words.
    pub wanted: Wanted,
    /// Only in this session.
    pub session: Option<SessionId>,
    /// Only messages that were written before the one with this position; all of them without it.
    pub before: Option<FeedCursor>,
    /// How many.
    pub limit: usize,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its position among all records, for the next page.
    pub position: FeedCursor,
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub turn: TurnId,
    /// Its place in the session.
    pub seq: Seq,
    /// When it was written.
    pub at: Millis,
    /// Whether it is an input; a reply if not.
    pub is_input: bool,
    /// What it says.
    pub text: String,
}

/// Messages by their words.
pub trait Search: Send + Sync {
    /// Messages that have these words, the newest first.
    fn find(&self, find: Find) -> Answer<'_, Vec<Found>>;
}

impl<B: Backend> Search for B {
    fn find(&self, find: Find) -> Answer<'_, Vec<Found>> {
        self.read(move |rows| ledger::find(rows, &find))
    }
}

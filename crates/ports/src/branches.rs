//! Branches: sessions are forked, rewound, deleted and settled by people.
use crate::ResultFuture;
use outlast_views::ForkTo;
use outlast_vocab::Millis;
use outlast_vocab::id::{CallId, SessionId};
use outlast_vocab::record::{OutcomeVerdict, Seq};

/// The name of the head that every session has from the start.
pub const MAIN_HEAD: &str = "main";

/// The request to branch a session.
#[derive(Clone, Debug)]
pub struct ForkRequest {
    /// The session to branch.
    pub from: SessionId,
    /// The message to branch after. Defaults to the main head.
    pub at: Option<Seq>,
    /// Where to create the branch.
    pub to: ForkTo,
    /// The current time.
    pub now: Millis,
}

/// Branches, rewinds and deletes sessions.
pub trait BranchStore: Send + Sync {
    /// Creates a new head or a new session at a message. No message is copied. A session that begins at a head of its
    /// parent gets the parent's current values. A session that begins earlier gets no values.
    fn fork(&self, fork: ForkRequest) -> ResultFuture<'_, SessionId>;

    /// Moves a head to an earlier message, or to the start of the session. The start is before its first message, or
    /// at the message it was forked from. No message is deleted.
    fn rewind(&self, session: SessionId, head: String, to: Option<Seq>, now: Millis) -> ResultFuture<'_, ()>;

    /// Deletes a session and everything that only it uses.
    fn delete(&self, session: SessionId, now: Millis) -> ResultFuture<'_, ()>;

    /// Returns the sessions that were forked from this one and need its history.
    fn forks(&self, session: SessionId) -> ResultFuture<'_, Vec<SessionId>>;

    /// Records the outcome of a call whose outcome was unknown.
    fn settle(&self, call: CallId, verdict: OutcomeVerdict, now: Millis) -> ResultFuture<'_, SessionId>;
}

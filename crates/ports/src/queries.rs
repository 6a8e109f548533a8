//! Queries over sessions and turns, and over the work that is left.
use crate::ResultFuture;
use crate::page::Page;
use crate::store::StoreStatus;
use crate::turns::TurnNo;
use outlast_views::{LastEnd, SessionView, TurnView, UnknownCall, WaitingTurn};
use outlast_vocab::id::{CallId, SessionId, TurnId, WorkerId};
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Hash, Millis};

/// The work that a worker can find in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerAgenda {
    /// Whether there is a session that the worker could claim now.
    pub has_work: bool,
    /// Whether a suspect is due to run alone, for a worker that has been alive long enough.
    pub has_suspect: bool,
    /// When the next parked or held turn is due.
    pub next_wake: Option<Millis>,
    /// When the next reminder or escalation of an approval request is due.
    pub next_notice: Option<Millis>,
}

/// Turns that requests without an idempotency key started, in the order they were accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTurns {
    /// The turns, each with the fingerprint of its request.
    pub turns: Vec<(TurnId, Hash)>,
    /// The last turn that was looked at, of whatever origin. The next query starts after it.
    pub through: TurnNo,
    /// Whether there are turns after it.
    pub has_more: bool,
}

/// How far a turn is that a request started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTurnState {
    /// Whether the process that accepted it still runs. Its client may be connected there.
    pub is_acceptor_running: bool,
    /// When the turn ended, if it did.
    pub ended: Option<Millis>,
}

/// The amount of outstanding work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreLoad {
    /// Sessions that wait for a worker.
    pub ready: usize,
    /// Sessions that a worker is running.
    pub leased: usize,
    /// Sessions that are held back because workers died while their turns ran.
    pub held: usize,
    /// Payments that are decided but that the payment authority has not yet accepted.
    pub pending_payments: usize,
    /// Turns that wait for a model provider.
    pub provider_waits: usize,
    /// The number of sessions by how their last turn ended, without those that were answered.
    pub last_ends: Vec<(LastEnd, usize)>,
}

/// Queries for people, tools and workers.
pub trait Queries: Send + Sync {
    /// Returns sessions older than `before`, newest first.
    fn sessions(&self, before: Option<SessionId>, limit: usize) -> ResultFuture<'_, Vec<SessionView>>;

    /// Returns one session.
    fn session(&self, id: SessionId) -> ResultFuture<'_, SessionView>;

    /// Returns the session with a caller's key.
    fn session_by_key(&self, key: String) -> ResultFuture<'_, SessionView>;

    /// Returns one turn.
    fn turn(&self, id: TurnId) -> ResultFuture<'_, TurnView>;

    /// Returns turns of a session in the order they were accepted, starting at index `from`.
    fn turns(&self, session: SessionId, from: u32, limit: usize) -> ResultFuture<'_, Vec<TurnView>>;

    /// Returns the turns that requests without an idempotency key started, among `limit` turns after `after`. `None`
    /// looks at the newest ones. Returns none for a handle that is limited to one organisation.
    fn request_turns(&self, after: Option<TurnNo>, limit: usize) -> ResultFuture<'_, RequestTurns>;

    /// Returns how far a turn is that a request started.
    fn request_turn_state(&self, turn: TurnId) -> ResultFuture<'_, RequestTurnState>;

    /// Returns calls whose outcome is unknown, oldest first.
    fn unknown(&self, limit: usize) -> ResultFuture<'_, Vec<UnknownCall>>;

    /// Returns a page of these calls, after the call with this start time and id.
    fn unknown_after(
        &self,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> ResultFuture<'_, Page<UnknownCall, (Millis, CallId)>>;

    /// Returns turns that wait for something of this kind, oldest first.
    fn waiting(&self, kind: WaitKind, limit: usize) -> ResultFuture<'_, Vec<WaitingTurn>>;

    /// Returns the reason given for cancelling a turn, if it is to stop. Cheap.
    fn cancel_reason(&self, turn: TurnId) -> ResultFuture<'_, Option<String>>;

    /// Returns whether there is a session that this worker could claim now. Cheap.
    fn has_work(&self, worker: WorkerId, now: Millis) -> ResultFuture<'_, bool>;

    /// Returns when the next parked or held turn is due.
    fn next_wake(&self) -> ResultFuture<'_, Option<Millis>>;

    /// Returns `has_work` and `next_wake` in one read, with whether a suspect is due and when the next notice is due.
    fn agenda(&self, worker: WorkerId, now: Millis) -> ResultFuture<'_, WorkerAgenda>;

    /// Returns how much work is outstanding, counted up to a limit.
    fn load(&self) -> ResultFuture<'_, StoreLoad>;

    /// Returns a number that changes when another process changes the database. Cheap.
    fn changes(&self) -> ResultFuture<'_, u64>;

    /// Returns the database's status.
    fn status(&self) -> ResultFuture<'_, StoreStatus>;
}

//! The inbox: inputs, retries, cancels and resolutions. Each is one write.
use crate::ResultFuture;
use crate::attachment_upload::AttachmentUpload;
use crate::branches::MAIN_HEAD;
use crate::budget::FirstCallReservation;
use crate::turns::{ClaimedTurn, LeaseRequest};
use outlast_views::{CancelOutcome, ResolveResult};
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::record::TurnAccepted;
use outlast_vocab::wait::{CompletionKey, Resolution};
use outlast_vocab::{Hash, Limits, Millis};

/// Identifies a session, existing or new.
#[derive(Clone, Debug)]
pub enum SessionTarget {
    /// A new session with this id.
    New(SessionId),
    /// The existing session with this id.
    Id(SessionId),
    /// The session with this key. If no session has the key, a new one is opened under the fresh id.
    Key {
        /// The caller's key.
        key: String,
        /// The id of the session if it is new.
        fresh: SessionId,
    },
}

/// The request to accept an input for a session.
#[derive(Clone, Debug)]
pub struct AcceptRequest {
    /// The session.
    pub target: SessionTarget,
    /// The id of the turn if the input is new.
    pub turn: TurnId,
    /// The head that the input is for.
    pub head: String,
    /// The input, as it is recorded. It never retries another turn; [`Inbox::retry`] does.
    pub accepted: TurnAccepted,
    /// The hash of the request that contained the input. If set, the same key must come with the same request.
    pub request: Option<Hash>,
    /// The index that the turn must get in its session, counted from 0. Any index is accepted if absent.
    pub index: Option<u32>,
    /// The configuration that answers the input, unless the store already has it.
    pub blobs: Vec<Vec<u8>>,
    /// Attachments of the input.
    pub files: Vec<AttachmentUpload>,
    /// The current time.
    pub now: Millis,
    /// The worker that runs the turn immediately if the session is idle.
    pub lease_request: Option<LeaseRequest>,
    /// The budget reservation for the first model call, if the worker starts the turn and budgets apply.
    pub first: Option<FirstCallReservation>,
    /// The maximum number of inputs that may be queued for the session.
    pub queued_most: usize,
}

impl AcceptRequest {
    /// Creates a request with a text, on the main head of a session. No worker takes its turn.
    pub fn text(target: SessionTarget, turn: TurnId, text: impl Into<String>, now: Millis) -> Self {
        Self {
            target,
            turn,
            head: MAIN_HEAD.to_owned(),
            accepted: TurnAccepted::text(text),
            request: None,
            index: None,
            blobs: Vec::new(),
            files: Vec::new(),
            now,
            lease_request: None,
            first: None,
            queued_most: Limits::default().queued_inputs,
        }
    }
}

/// The request to retry a turn that ended.
#[derive(Clone, Copy, Debug)]
pub struct RetryRequest {
    /// The turn to retry.
    pub turn: TurnId,
    /// The id of the new turn.
    pub fresh: TurnId,
    /// The id of the new session, if the retry is made in a fork.
    pub fork: Option<SessionId>,
    /// The current time.
    pub now: Millis,
    /// The worker that runs the turn immediately if the session is idle.
    pub lease_request: Option<LeaseRequest>,
    /// The maximum number of inputs that may be queued for the session.
    pub queued_most: usize,
}

/// The result of accepting an input.
#[derive(Debug)]
pub struct AcceptReceipt {
    /// The session.
    pub session: SessionId,
    /// The turn that the input became.
    pub turn: TurnId,
    /// Whether the input had already been accepted under the same key.
    pub duplicate: bool,
    /// The input's position in the journal, which serves as a receipt.
    pub place: JournalPosition,
    /// The turn to run, if the worker got the session.
    pub work: Option<ClaimedTurn>,
}

/// Accepts work. Accepting the same key twice returns the first turn.
pub trait Inbox: Send + Sync {
    /// Accepts an input.
    fn accept(&self, accept: AcceptRequest) -> ResultFuture<'_, AcceptReceipt>;

    /// Retries a turn that ended. Creates a new turn with the same input, in place of the original or in a fork.
    /// Retrying the same turn again returns the retry that is running or that was answered.
    fn retry(&self, retry: RetryRequest) -> ResultFuture<'_, AcceptReceipt>;

    /// Opens a session without input.
    fn open(&self, target: SessionTarget, now: Millis) -> ResultFuture<'_, SessionId>;

    /// Asks a turn to stop. A cancel that arrives too late affects no other turn.
    fn cancel(&self, turn: TurnId, reason: String, now: Millis) -> ResultFuture<'_, CancelOutcome>;

    /// Asks a turn to stop and undo what it did. An earlier cancel or abort of the turn takes precedence.
    fn abort(&self, turn: TurnId, reason: String, now: Millis) -> ResultFuture<'_, CancelOutcome>;

    /// Resolves a wait, before, during or after it begins. The first resolution takes effect.
    fn resolve(
        &self,
        turn: TurnId,
        key: ReplayKey,
        resolution: Resolution,
        now: Millis,
    ) -> ResultFuture<'_, ResolveResult>;

    /// Returns the key with which an external party resolves this wait of a turn.
    fn completion_key(&self, turn: TurnId, wait: ReplayKey) -> ResultFuture<'_, CompletionKey>;
}

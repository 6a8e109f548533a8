//! The store interface: the traits that the runtime uses to read and write a database.
//!
//! [`Store`] combines small traits, such as [`Inbox`], [`Turns`] and [`Journal`]. One object implements all of them.
//! Each method that writes is one transaction: its effects become visible together or not at all. They are durable
//! when the method returns.
//!
//! This module knows neither SQL nor a particular engine. `outlast-ledger` holds the rules, and implements these traits
//! for everything that can run a unit of work as one transaction.
use crate::ResultFuture;
use crate::archive::ArchiveStore;
use crate::attachment_upload::{self, AttachmentUpload, ExternalContentStore};
use crate::budget::{BudgetStore, BudgetUpdate, FirstCallReservation, ReservationResult};
use crate::configs::ConfigStore;
use crate::contents::StoredContent;
use crate::metrics::HistogramValue;
use crate::orgs::OrgStore;
use crate::outbox::SinkOutbox;
use crate::page::Page;
use crate::payment_outbox::PaymentOutbox;
use crate::rate::{AdmissionDecision, AdmissionRequest, RateStore};
use crate::search::MessageSearch;
use crate::votes::VoteStore;
use outlast_views::{
    AttachmentView, CancelOutcome, ForkTo, HistoryTurn, LastEnd, ResolveResult, SessionView, TurnView,
    UnknownCall, WaitingTurn,
};
use outlast_vocab::access::Access;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::id::{AttachmentId, CallId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::limits::{SEALED_DEATHS, SUSPECT_DEATHS};
use outlast_vocab::message::{Attachment, MediaType, Message, Part, PluginName};
use outlast_vocab::record::{Fact, InputDelivery, NodeRef, OutcomeVerdict, Record, Seq, TurnEnd};
use outlast_vocab::trace::TraceParent;
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Hash, Limits, Millis};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The name of the head that every session has from the start.
pub const MAIN_HEAD: &str = "main";

/// A fencing token. Every claim raises it, and every write of a worker is checked against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// A worker's lease on a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The turn that the worker runs.
    pub turn: TurnId,
    /// The worker that holds the lease.
    pub worker: WorkerId,
    /// The fencing token that proves the lease.
    pub fence: Fence,
}

/// A worker that asks for a lease, and when that lease is to expire.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// The worker.
    pub worker: WorkerId,
    /// When the lease expires unless the worker renews it.
    pub until: Millis,
}

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
    /// The content of the input.
    pub parts: Vec<Part>,
    /// The caller's idempotency key.
    pub key: Option<String>,
    /// The hash of the request that contained the input. If set, the same key must come with the same request.
    pub request: Option<Hash>,
    /// The index that the turn must get in its session, counted from 0. Any index is accepted if absent.
    pub index: Option<u32>,
    /// How the input is handled if a turn is already running.
    pub delivery: InputDelivery,
    /// The head that the input is for.
    pub head: String,
    /// A JSON Schema that the turn's answer must match.
    pub output: Option<Value>,
    /// Data for plug-ins, by plug-in name.
    pub plugins: BTreeMap<PluginName, Value>,
    /// The trace context of the span that caused the input.
    pub traceparent: Option<TraceParent>,
    /// Messages of a conversation that took place elsewhere before this input.
    pub before: Vec<Message>,
    /// Data that the sender wants returned with the input.
    pub note: Option<Value>,
    /// The fingerprint of the configuration that answers the input.
    pub package: Option<Hash>,
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
            parts: vec![Part::text(text)],
            key: None,
            request: None,
            index: None,
            delivery: InputDelivery::Next,
            head: MAIN_HEAD.to_owned(),
            output: None,
            plugins: BTreeMap::new(),
            traceparent: None,
            before: Vec::new(),
            note: None,
            package: None,
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

/// A turn for a worker to run, with everything the journal has about it.
#[derive(Debug)]
pub struct ClaimedTurn {
    /// The lease on its session.
    pub lease: Lease,
    /// The organisation that owns it.
    pub org: OrgId,
    /// The index of the turn in its session, counted from 0.
    pub index: u32,
    /// The head that the turn appends to.
    pub head: String,
    /// The message that the turn follows, for a turn without a `TurnStarted` record.
    pub parent: Option<NodeRef>,
    /// The crash guard's counters for the turn.
    pub guard: CrashGuard,
    /// If set, the turn must run alone, and a worker's death counts against it for this long after the run begins.
    pub trial: Option<Duration>,
    /// The records of the turn, in order.
    pub records: Vec<Record>,
    /// The result of the budget reservation for its first effect.
    pub hold_result: Option<ReservationResult>,
    /// Whether the turn ran under an earlier lease that ended without parking it.
    pub resumed: bool,
}

/// The crash guard's counters for a turn since its last progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashGuard {
    /// Workers that died while they ran the turn.
    pub deaths: u32,
    /// Consecutive deaths among these in which the worker ran nothing else.
    pub alone: u32,
    /// Whether the current lease is for a run alone.
    pub trial: TrialState,
}

impl CrashGuard {
    /// Returns whether the turn may only run alone.
    pub fn is_suspect(&self) -> bool {
        self.deaths >= SUSPECT_DEATHS
    }

    /// Returns whether the turn proved to kill or block its worker.
    pub fn is_guilty(&self) -> bool {
        self.alone >= SEALED_DEATHS || self.trial == TrialState::Hung
    }
}

/// The state of a trial: a run of a suspect as the only turn of its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrialState {
    /// No trial: the turn runs beside others, or does not run.
    #[default]
    NotOnTrial,
    /// The turn is claimed and waits until its worker runs nothing else.
    Waits,
    /// The turn runs alone.
    Runs,
    /// The turn ran alone and blocked its thread.
    Hung,
}

/// One write of a worker.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The lease under which the worker writes.
    pub lease: Lease,
    /// The current time.
    pub now: Millis,
    /// The facts to append, in order. The store rejects facts that belong to other writes: an input, an end, a wait,
    /// a cancel request, a resolution, a head move or an operator's verdict.
    pub facts: Vec<Fact>,
    /// Session values that change in the same write.
    pub values: Vec<ValueWrite>,
    /// Configuration that the facts refer to.
    pub blobs: Vec<Vec<u8>>,
    /// Attachments that the facts refer to.
    pub files: Vec<AttachmentUpload>,
    /// What to do with the stored text of a partial reply.
    pub partial: PartialReplyChange,
    /// Changes to budget accounts, if budgets apply.
    pub budget_update: Option<BudgetUpdate>,
    /// Calls that need permission from a rate limit, if the store keeps the rates.
    pub admissions: Vec<AdmissionRequest>,
    /// Time the turn waited for earlier writes that no earlier commit reported.
    pub waited: Duration,
    /// What happens to the turn after the write.
    pub transition: TurnTransition,
}

impl Commit {
    /// Creates a commit of facts alone. Set other fields with struct update syntax.
    pub fn new(lease: Lease, now: Millis, facts: Vec<Fact>, transition: TurnTransition) -> Self {
        let (values, blobs, files) = (Vec::new(), Vec::new(), Vec::new());
        let (partial, budget_update, admissions, waited) =
            (PartialReplyChange::Unchanged, None, Vec::new(), Duration::ZERO);
        Self {
            lease,
            now,
            facts,
            values,
            blobs,
            files,
            partial,
            budget_update,
            admissions,
            waited,
            transition,
        }
    }
}

/// An attachment with its bytes, before it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    /// The attachment's metadata.
    pub attachment: Attachment,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

impl Upload {
    /// Creates an upload from bytes of this media type. The name does not affect its identity: equal bytes of one
    /// type are the same attachment.
    pub fn new(
        media_type: MediaType,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        let bytes = bytes.into();
        let put = StoredContent { content: Hash::of(&bytes), bytes: bytes.len() as u64 };
        Ok(Self { attachment: attachment_upload::attachment_of(put, media_type, name)?, bytes })
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {:?}", self.bytes.len(), self.attachment)
    }
}

/// A change to the stored text of a reply that is still being streamed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PartialReplyChange {
    /// Leaves the stored text unchanged.
    #[default]
    Unchanged,
    /// Stores this text too. Text at the start of a reply replaces everything stored before.
    Append(PartialReplyText),
    /// Deletes the stored text, because the reply is complete or starts again.
    Delete,
}

/// A piece of text from a reply that is still being streamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialReplyText {
    /// The model call.
    pub key: ReplayKey,
    /// The attempt that produced the text.
    pub attempt: u32,
    /// How many bytes of text precede this piece.
    pub start: usize,
    /// The text.
    pub text: String,
}

/// A change to one value of a session. `None` removes the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueWrite {
    /// The value's name.
    pub name: String,
    /// The new value.
    pub value: Option<Value>,
}

/// What happens to a turn after a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnTransition {
    /// The turn continues.
    Continue,
    /// The turn continues if an input is queued to join it. Otherwise it ends.
    EndUnlessJoined(TurnEnd),
    /// The turn ends. The next queued turn begins under the same worker.
    End(TurnEnd),
    /// The turn is parked until one of these waits is resolved or due.
    Park(Vec<Wait>),
}

/// The result of a commit.
#[derive(Debug)]
pub struct CommitReceipt {
    /// The positions of the facts in the journal, in order.
    pub places: Vec<JournalPosition>,
    /// The session's last record after the write.
    pub last: JournalPosition,
    /// Whether an input is queued to join the turn.
    pub has_joining_input: bool,
    /// The reason given for cancelling the turn, if it is to stop.
    pub cancelled: Option<String>,
    /// The result of the budget reservation, if one was requested.
    pub hold_result: Option<ReservationResult>,
    /// The rate-limit decisions for the commit's calls, in order. Empty if a budget is exhausted.
    pub admissions: Vec<AdmissionDecision>,
    /// The state of the turn after the commit.
    pub after: TurnAfterCommit,
}

/// The state of a turn after a commit.
#[derive(Debug)]
pub enum TurnAfterCommit {
    /// The turn continues under the same lease.
    Continues,
    /// The turn is parked and its lease is released.
    Parked,
    /// A wait is already resolved or due, so the turn continues under the same lease.
    Ready,
    /// The turn ended and its lease is released.
    Ended,
    /// The turn ended. The session's next turn begins under a raised fence.
    Next(Box<ClaimedTurn>),
}

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

/// Assigns sessions to workers. Claiming a session raises its fence, and a write with an old fence changes nothing.
pub trait Turns: Send + Sync {
    /// Claims up to `limit` sessions that need a worker: ready, due, or left by a dead worker.
    fn claim(
        &self,
        lease_request: LeaseRequest,
        now: Millis,
        limit: usize,
    ) -> ResultFuture<'_, Vec<ClaimedTurn>>;

    /// Extends all leases of a worker and returns those it still holds.
    fn renew(&self, lease_request: LeaseRequest) -> ResultFuture<'_, Vec<(SessionId, Fence)>>;

    /// Appends facts to the journal and applies everything that follows from them.
    fn commit(&self, commit: Commit) -> ResultFuture<'_, CommitReceipt>;

    /// Releases a session so that another worker can claim it immediately. A suspect is held back.
    fn release_lease(&self, lease: Lease, now: Millis) -> ResultFuture<'_, ()>;

    /// Claims the suspect that has been due longest, to run it alone. It must have been due at `due` or earlier.
    /// Returns `None` for a worker that has not `lived` long enough, or while another suspect is on trial.
    fn claim_suspect(
        &self,
        lease_request: LeaseRequest,
        lived: Duration,
        due: Millis,
    ) -> ResultFuture<'_, Option<ClaimedTurn>>;

    /// Records that a suspect begins to run. Returns `false` if its worker still has other sessions.
    fn begin_trial(&self, lease: Lease) -> ResultFuture<'_, bool>;

    /// Records that a suspect ran alone for its whole trial window and its worker survived.
    fn end_trial(&self, lease: Lease) -> ResultFuture<'_, ()>;

    /// Records that a turn blocks its thread. Returns whether the session was released so that the turn is sealed.
    fn report_hang(&self, lease: Lease) -> ResultFuture<'_, bool>;
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

/// Reads content by hash, attachments, and the values of sessions.
pub trait ContentQueries: Send + Sync {
    /// Returns the bytes with this hash. A handle scoped to one organisation finds nothing: it reads content through
    /// the row that refers to it.
    fn blob(&self, hash: Hash) -> ResultFuture<'_, Vec<u8>>;

    /// Returns the configuration under which a turn began, or for which it was accepted.
    fn package(&self, turn: TurnId) -> ResultFuture<'_, Vec<u8>>;

    /// Returns a range of the bytes of an attachment stored in the database, without reading the rest. The bytes are
    /// not verified against the hash.
    fn attached(&self, session: SessionId, id: AttachmentId, range: Range<u64>) -> ResultFuture<'_, Vec<u8>>;

    /// Returns an attachment of a session, or of the sessions it was forked from.
    fn attachment(&self, session: SessionId, id: AttachmentId) -> ResultFuture<'_, AttachmentView>;

    /// Returns the attachments that a session itself uses, by id.
    fn attachments(&self, session: SessionId, limit: usize) -> ResultFuture<'_, Vec<AttachmentView>>;

    /// Returns a page of these attachments, after the one with this id.
    fn attachments_after(
        &self,
        session: SessionId,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> ResultFuture<'_, Page<AttachmentView, AttachmentId>>;

    /// Returns the stored text of the reply that a turn was receiving when its worker left it.
    fn said(&self, turn: TurnId) -> ResultFuture<'_, Option<PartialReplyText>>;

    /// Returns a value of a session.
    fn value(&self, session: SessionId, name: String) -> ResultFuture<'_, Option<Value>>;

    /// Returns the names of a session's values that begin with `prefix`.
    fn value_names(&self, session: SessionId, prefix: String, limit: usize) -> ResultFuture<'_, Vec<String>>;

    /// Returns the secret that signs completion keys. It is created with the database. Only the operator can read it.
    fn secret(&self) -> ResultFuture<'_, [u8; 32]>;
}

/// A database's status.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreStatus {
    /// The engine and its version.
    pub engine: String,
    /// The location of the database.
    pub place: String,
    /// The version of its schema.
    pub schema: u32,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// The size in bytes.
    pub bytes: u64,
    /// How long this process waited for writes to become durable. `None` if that takes no time.
    pub syncs: Option<HistogramValue>,
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
    pub owed: usize,
    /// Turns that wait for a model provider.
    pub provider_waits: usize,
    /// The number of sessions by how their last turn ended, without those that were answered.
    pub last_ends: Vec<(LastEnd, usize)>,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power failure.
    PowerLoss,
    /// The death of the process, but not a power failure. Requires an explicit unsafe setting.
    ProcessDeath,
    /// Nothing: the data is gone when the process ends.
    None,
}

impl Durability {
    /// Returns the description that people see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PowerLoss => "survives power loss",
            Self::ProcessDeath => "UNSAFE: lost with power",
            Self::None => "nothing is kept",
        }
    }
}

/// All traits of a store.
pub trait Store:
    Inbox
    + Turns
    + Journal
    + Queries
    + BranchStore
    + ContentQueries
    + ExternalContentStore
    + SinkOutbox
    + OrgStore
    + BudgetStore
    + RateStore
    + PaymentOutbox
    + ConfigStore
    + VoteStore
    + ArchiveStore
    + MessageSearch
{
    /// Returns a handle on the same data with this access. The new handle never has more access than this one.
    fn serving(self: Arc<Self>, access: Access) -> Arc<dyn Store>;
}

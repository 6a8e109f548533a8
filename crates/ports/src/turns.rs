//! Turns of workers: leases on sessions, and the commits that workers make under them.
use crate::ResultFuture;
use crate::attachment_upload::AttachmentUpload;
use crate::budget::{BudgetUpdate, ReservationResult};
use crate::rate::{AdmissionDecision, AdmissionRequest};
use outlast_vocab::Millis;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::id::{OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::limits::{SEALED_DEATHS, SUSPECT_DEATHS};
use outlast_vocab::record::{Fact, NodeRef, Record, TurnEnd};
use outlast_vocab::wait::Wait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A turn's number in this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnNo(pub i64);

/// A fencing token. Every claim raises it, and every write of a worker is checked against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// A worker's lease on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

//! The rows of a database, and the traits that read and write them.
//!
//! The rows are the same in memory, SQLite and PostgreSQL. An engine only reads and writes single rows. It does not
//! know what a write means: [`crate::rules`] implements fences, sequence, hash chain, claims and waits for every
//! engine.
//!
//! Rows are addressed by small numbers that the engine assigns, because an index over random ids halves the write
//! rate of a journal.
use outlast_ports::attachment_upload::SweepCounter;
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::{CrashGuard, Fence, TurnNo};
use outlast_views::{
    AuditRange, AuditRow, BlobLocation, ConfigKind, KeyView, Org, RateView, SessionState, TurnState, Vote,
    WriteCount,
};
use outlast_vocab::access::{Access, OrgVisibility, Principal, Scopes};
use outlast_vocab::approval::SentNotices;
use outlast_vocab::archive::SessionLine;
use outlast_vocab::budget::{Budget, UsageAmount};
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{AttachmentId, CallId, GrantId, KeyId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{Attachment, RuleId, ToolName};
use outlast_vocab::payment::Payment;
use outlast_vocab::policy::ApprovalRequirement;
use outlast_vocab::record::{ClaimRef, InputDelivery, Seq, TurnEndKind};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis};
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

/// The latest time that a column of every database can store. Anything due later is never due.
pub const LATEST: Millis = Millis(i64::MAX.cast_unsigned());

/// Returns the error for an id that is already in use.
pub fn taken(id: impl fmt::Display) -> Error {
    Error::new(Kind::InputKeyReused, format!("the id {id} is taken; ids are never used twice"))
}

/// A session's number in this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub i64);

/// The address of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordAddress {
    /// The session that contains the record.
    pub session: SessionNo,
    /// The record's position in the session.
    pub seq: Seq,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its number.
    pub no: SessionNo,
    /// Its id.
    pub id: SessionId,
    /// The organisation that owns the session and everything in it.
    pub org: OrgId,
    /// The caller's key for it, unique in its organisation.
    pub key: Option<String>,
    /// When it was opened.
    pub created: Millis,
    /// When it last changed.
    pub updated: Millis,
    /// Its scheduling state.
    pub state: SessionState,
    /// The fence of the last claim.
    pub fence: Fence,
    /// The worker that holds the lease.
    pub worker: Option<WorkerId>,
    /// When the lease expires.
    pub lease_until: Millis,
    /// When a parked or held turn is due.
    pub wake_at: Option<Millis>,
    /// The last record.
    pub last_seq: Seq,
    /// The hash of the chain at the last record.
    pub last_hash: Hash,
    /// The number of inputs accepted.
    pub turns: u32,
    /// The turn that is running or parked.
    pub active: Option<TurnNo>,
    /// The number of queued inputs.
    pub queued: u32,
    /// The crash guard's counters for the active turn.
    pub guard: CrashGuard,
    /// The message it was forked from.
    pub forked_from: Option<RecordAddress>,
    /// Its last imported record, or 0 if no record was imported.
    pub imported: Seq,
    /// Its last record that was imported without a signature of this database, or 0 if there is no such record.
    pub foreign: Seq,
    /// What models and priced tools cost in it, where prices were known. `None` for sessions older than the counter.
    pub cost: Option<Cost>,
    /// The turn that ended last. Inputs that joined another turn are ignored.
    pub last_ended: Option<LastEnded>,
}

/// The turn of a session that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastEnded {
    /// The turn.
    pub turn: TurnNo,
    /// How it ended.
    pub end: TurnEndKind,
}

/// A turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// Its number.
    pub no: TurnNo,
    /// Its id.
    pub id: TurnId,
    /// Its session.
    pub session: SessionNo,
    /// Its index in the session, counted from 0.
    pub index: u32,
    /// The caller's idempotency key, unique in the session.
    pub key: Option<String>,
    /// The fingerprint of the input. It distinguishes a repeated input from a reused key.
    pub input: Hash,
    /// How the input is handled if a turn is already running.
    pub delivery: InputDelivery,
    /// The head that the turn is for.
    pub head: String,
    /// Its state.
    pub state: TurnState,
    /// The record that accepted it.
    pub accepted: Seq,
    /// Its last record that is part of the transcript, or 0 before the turn begins.
    pub last_node: Seq,
    /// The message it follows.
    pub parent: Option<RecordAddress>,
    /// The record that ended it.
    pub ended: Option<Seq>,
    /// Whether a cancel was requested.
    pub cancelled: bool,
    /// How many writes the turn took. `None` if it was imported or is older than the counter.
    pub writes: Option<WriteCount>,
    /// The turn that this one retries.
    pub retry_of: Option<TurnNo>,
}

impl TurnRow {
    /// Returns whether the turn is queued to join a turn on this head.
    pub fn joins(&self, head: &str) -> bool {
        self.state == TurnState::Queued && self.delivery == InputDelivery::Join && self.head == head
    }
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

/// A claim: a call that was started and has no outcome yet, or whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// Its session.
    pub session: SessionNo,
    /// The record that made the claim, and the call within it.
    pub claim: ClaimRef,
    /// Its turn.
    pub turn: TurnNo,
    /// Outlast's id of the call.
    pub call: CallId,
    /// The fence under which the claim may be settled.
    pub fence: Fence,
    /// Whether the outcome is unknown and a person has to settle it.
    pub unknown: bool,
    /// When it was claimed.
    pub since: Millis,
}

/// The resolution of a turn's wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolutionRow {
    /// The turn.
    pub turn: TurnNo,
    /// The key of the wait.
    pub key: ReplayKey,
    /// The resolution.
    pub resolution: Resolution,
}

/// An attachment of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRow {
    /// The session that uses it.
    pub session: SessionNo,
    /// The attachment's metadata.
    pub attachment: Attachment,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where its content is stored.
    pub location: BlobLocation,
}

/// Content stored outside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalContentRow {
    /// The hash of the content.
    pub content: Hash,
    /// How many attachments use it.
    pub uses: u64,
    /// The worker that is deleting it, if any.
    pub deletion: Option<DeletionMark>,
}

/// A mark for deletion: a worker is deleting the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionMark {
    /// The worker.
    pub worker: WorkerId,
    /// When the worker marked the content.
    pub since: Millis,
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

/// A budget account: what the owner of a budget may use and has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetAccountRow {
    /// The organisation.
    pub org: OrgId,
    /// The name of the owner within the organisation, and of the period if the budget is per day or month.
    pub name: String,
    /// The budget that an operator set.
    pub operator_budget: Option<Budget>,
    /// The budget that the agent declared when usage was last counted.
    pub agent_budget: Option<Budget>,
    /// The amount used.
    pub spent: UsageAmount,
    /// The amount reserved.
    pub reserved: UsageAmount,
    /// The part of `spent` that is assumed because the real usage is unknown.
    pub lost: UsageAmount,
    /// The maximum amount that reading a session's conversation once more takes.
    pub conversation_cost: UsageAmount,
}

impl BudgetAccountRow {
    /// Creates an account without usage.
    pub fn empty(org: OrgId, name: &str) -> Self {
        let (name, none) = (name.to_owned(), UsageAmount::ZERO);
        Self {
            org,
            name,
            operator_budget: None,
            agent_budget: None,
            spent: none,
            reserved: none,
            lost: none,
            conversation_cost: none,
        }
    }
}

/// A budget reservation for an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRow {
    /// The turn.
    pub turn: TurnNo,
    /// The effect.
    pub key: ReplayKey,
    /// The maximum amount that the effect may use.
    pub amount_max: UsageAmount,
    /// The names of the accounts in which the amount is reserved.
    pub accounts: Vec<String>,
}

/// A payment in the payment outbox: the authority has not yet accepted the decision on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPaymentRow {
    /// The turn.
    pub turn: TurnNo,
    /// The payment, with the decision on it.
    pub payment: Payment,
    /// When the decision was made.
    pub since: Millis,
    /// How often the decision was sent to the authority.
    pub attempts: u32,
    /// When the decision is sent next.
    pub due_at: Millis,
    /// Why the authority did not accept it the last time.
    pub failure: Option<Failure>,
}

/// A sink: a subscriber to outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    /// Its name.
    pub name: String,
    /// When the sink was first registered.
    pub since: Millis,
    /// The last position of the feed that was scanned for it.
    pub cursor: u64,
    /// The number of outputs delivered so far.
    pub delivered: u64,
}

/// An output that is not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The sink.
    pub sink: String,
    /// The turn.
    pub turn: TurnNo,
    /// The event of the turn that is delivered.
    pub position: OutputPosition,
    /// How many attempts were started.
    pub attempts: u32,
    /// How many of these attempts are no longer counted, because the delivery was retried manually.
    pub attempts_forgiven: u32,
    /// When a worker may take it. `None` if it was given up.
    pub due_at: Option<Millis>,
    /// The worker that is delivering it until it is due again.
    pub worker: Option<WorkerId>,
    /// Why the last attempt failed.
    pub failure: Option<Failure>,
}

impl DeliveryRow {
    /// Returns its position among the deliveries of its sink.
    pub const fn place(&self) -> DeliveryPosition {
        DeliveryPosition { turn: self.turn, moment: self.position }
    }
}

/// The stored part of an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id.
    pub id: KeyId,
    /// The organisation that the key gives access to.
    pub org: OrgId,
    /// The principal in whose name the key acts.
    pub by: Principal,
    /// What the key permits.
    pub scopes: Scopes,
    /// The hash that the holder's secret is verified against ([`outlast_vocab::access::ApiKey::seal`]).
    pub seal: Hash,
    /// When the key was created.
    pub created: Millis,
    /// When the key expires.
    pub expires: Option<Millis>,
    /// When the key was revoked.
    pub revoked: Option<Millis>,
}

impl From<KeyRow> for KeyView {
    fn from(row: KeyRow) -> Self {
        let KeyRow { id, org, by, scopes, created, expires, revoked, seal: _ } = row;
        Self { id, org, by, scopes, created, expires, revoked }
    }
}

/// One version of an agent, a harness or a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRow {
    /// The organisation that owns it.
    pub org: OrgId,
    /// Its kind.
    pub kind: ConfigKind,
    /// Its name.
    pub name: String,
    /// The version, counted from 1.
    pub version: u32,
    /// The fingerprint of the body.
    pub fingerprint: Hash,
    /// The body as JSON.
    pub body: String,
    /// When the version was stored.
    pub at: Millis,
}

/// A vote on an approval request that is not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteRow {
    /// The turn that asks.
    pub turn: TurnNo,
    /// The key of the wait for the decision.
    pub key: ReplayKey,
    /// The vote. Each person has one.
    pub vote: Vote,
}

/// An approval request with reminders or an escalation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeRow {
    /// The turn that asks.
    pub turn: TurnNo,
    /// The key of the wait for the decision.
    pub key: ReplayKey,
    /// When the turn began to wait for the decision.
    pub since: Millis,
    /// Who is asked, and when to remind and escalate.
    pub ask: ApprovalRequirement,
    /// The reminders and escalation sent so far.
    pub given: SentNotices,
    /// When the next notice is due. `None` while the turn does not wait.
    pub due_at: Option<Millis>,
}

/// An approval for the rest of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// Its id.
    pub id: GrantId,
    /// The session.
    pub session: SessionNo,
    /// The fingerprint of what it covers.
    pub form: Hash,
    /// The tool.
    pub tool: ToolName,
    /// The rule that asked.
    pub rule: RuleId,
    /// The labels of the call it was given for: untrusted sources that may have caused the call.
    pub labels: Labels,
    /// The people who gave it.
    pub by: Vec<String>,
    /// When it was given.
    pub at: Millis,
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

/// The access of code that reads the rows directly.
static OPERATOR: LazyLock<Access> = LazyLock::new(Access::operator);

/// Reads rows.
pub trait ReadRows {
    /// Returns the access that these rows are filtered for. [`crate::scoped`] shows only the rows of one
    /// organisation.
    fn access(&self) -> &Access {
        &OPERATOR
    }
    /// Returns the session with this number.
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error>;
    /// Returns the session with this id.
    fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRow>, Error>;
    /// Returns the session of an organisation with this key.
    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error>;
    /// Returns sessions below `before`, by descending number.
    fn sessions(
        &self,
        of: OrgVisibility,
        before: Option<SessionNo>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error>;
    /// Returns sessions in a state above `after`, by ascending number.
    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error>;
    /// Counts the sessions whose last turn ended this way, up to a limit. `end` must not be `answered`, which is not
    /// indexed.
    fn count_last_ended(&self, end: TurnEndKind, limit: usize) -> Result<usize, Error>;
    /// Returns parked sessions that are due, earliest due time first.
    fn sessions_due(&self, now: Millis, limit: usize) -> Result<Vec<SessionRow>, Error>;
    /// Returns the held session with the earliest due time, if it is due. Ignores sessions with more than
    /// `most_deaths`.
    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error>;
    /// Returns leased sessions that are on trial or wait for their trial, with their workers.
    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error>;
    /// Returns when the next parked or held session is due.
    fn next_wake(&self) -> Result<Option<Millis>, Error>;
    /// Returns the sessions that were forked from this one.
    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error>;
    /// Returns the heads of a session, by name.
    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<RecordAddress>)>, Error>;
    /// Returns one head. The inner `None` is a head before the first message.
    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<RecordAddress>>, Error>;

    /// Returns the turn with this number.
    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error>;
    /// Returns the turn with this id.
    fn turn_by_id(&self, id: TurnId) -> Result<Option<TurnRow>, Error>;
    /// Returns the turn of a session with this idempotency key.
    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error>;
    /// Returns turns of a session by ascending index, starting at `from`.
    fn turns(&self, session: SessionNo, from: u32, limit: usize) -> Result<Vec<TurnRow>, Error>;
    /// Returns turns of a session that have not begun, by ascending index.
    fn queued(&self, session: SessionNo, limit: usize) -> Result<Vec<TurnRow>, Error>;

    /// Returns the newest retry of a turn.
    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error>;

    /// Returns records by ascending position.
    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error>;
    /// Returns records of many sessions after a position, in the order they became durable.
    fn feed(&self, of: OrgVisibility, after: u64, limit: usize) -> Result<Vec<(u64, RecordRow)>, Error>;

    /// Returns records with matching words at or before a position, newest first. Searches the sessions within this
    /// reach, or one session if given.
    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error>;
    /// Returns the position of the last record of the feed.
    fn feed_end(&self) -> Result<u64, Error>;
    /// Returns the number of records in the feed after a position.
    fn feed_length(&self, after: u64) -> Result<u64, Error>;

    /// Returns one claim.
    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error>;
    /// Returns the claims of a turn.
    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error>;
    /// Returns claims of unknown outcome after a given one, by ascending time and call id.
    fn unknown(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Result<Vec<ClaimRow>, Error>;

    /// Returns the waits of a turn.
    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error>;
    /// Returns waits of this kind of all turns, oldest turn first.
    fn waiting(&self, of: OrgVisibility, kind: WaitKind, limit: usize) -> Result<Vec<(TurnNo, Wait)>, Error>;
    /// Returns the resolution of a wait.
    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error>;

    /// Returns a value of a session, as JSON.
    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error>;
    /// Returns the names of a session's values that begin with `prefix`, in ascending order.
    fn value_names(&self, session: SessionNo, prefix: &str, limit: usize) -> Result<Vec<String>, Error>;
    /// Returns an attachment of a session.
    fn attachment(&self, session: SessionNo, id: AttachmentId) -> Result<Option<AttachmentRow>, Error>;
    /// Returns the attachments of a session after a given one, by ascending id.
    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Result<Vec<AttachmentRow>, Error>;
    /// Returns the stored text of the reply that a turn is receiving, by ascending start.
    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error>;
    /// Returns a blob.
    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error>;
    /// Returns a range of the bytes of a blob, without reading the rest. The range is cut at the end of the blob.
    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error>;
    /// Returns a configuration. The caller read its fingerprint in a record that it has access to.
    fn package(&self, fingerprint: Hash) -> Result<Option<Vec<u8>>, Error> {
        self.blob(fingerprint)
    }
    /// Returns the row of external content that is or was used, or is being deleted.
    fn outside(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error>;
    /// Returns external content that nothing uses any longer.
    fn unreferenced_content(&self, limit: usize) -> Result<Vec<Hash>, Error>;
    /// Returns how often content was marked for deletion or unmarked.
    fn sweeps(&self) -> Result<SweepCounter, Error>;
    /// Returns one sink.
    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error>;
    /// Returns all sinks by ascending name.
    fn sinks(&self) -> Result<Vec<SinkRow>, Error>;
    /// Returns the delivery of one output of a turn to a sink.
    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error>;
    /// Returns the deliveries to a sink after a given one, by ascending turn and moment.
    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, Error>;
    /// Returns deliveries that are due, earliest due time first.
    fn deliveries_due(&self, sink: &str, now: Millis, limit: usize) -> Result<Vec<DeliveryRow>, Error>;
    /// Returns deliveries that a worker has taken, by ascending turn.
    fn deliveries_taken(&self, sink: &str, limit: usize) -> Result<Vec<DeliveryRow>, Error>;
    /// Returns when the next delivery to a sink is due.
    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error>;
    /// Returns how many deliveries to a sink are pending, and how many were given up.
    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error>;
    /// Returns one budget account.
    fn purse(&self, org: OrgId, name: &str) -> Result<Option<BudgetAccountRow>, Error>;
    /// Returns budget accounts after a given one, by ascending organisation and name.
    fn budget_accounts(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<BudgetAccountRow>, Error>;
    /// Returns one rate limit.
    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error>;
    /// Returns rate limits after a given one, by ascending organisation and name.
    fn rates(
        &self,
        of: OrgVisibility,
        after: Option<(OrgId, &str)>,
        limit: usize,
    ) -> Result<Vec<RateView>, Error>;
    /// Returns whether an operator has set any budget.
    fn budgets_are_set(&self) -> Result<bool, Error>;
    /// Returns the budget reservations of a turn, by key.
    fn reservations(&self, turn: TurnNo) -> Result<Vec<ReservationRow>, Error>;
    /// Returns a payment of the payment outbox by its turn and key.
    fn pending_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<PendingPaymentRow>, Error>;
    /// Returns the payments in the payment outbox, oldest first.
    fn owed(&self, of: OrgVisibility, limit: usize) -> Result<Vec<PendingPaymentRow>, Error>;
    /// Returns payments that are due, earliest due time first.
    fn payments_due(&self, now: Millis, limit: usize) -> Result<Vec<PendingPaymentRow>, Error>;
    /// Returns when the next payment is due.
    fn next_payment_due(&self) -> Result<Option<Millis>, Error>;
    /// Returns the organisation with this id.
    fn org(&self, id: OrgId) -> Result<Option<Org>, Error>;
    /// Returns the organisation with this name.
    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error>;
    /// Returns organisations after a given one, by ascending name.
    fn orgs(&self, after: Option<&str>, limit: usize) -> Result<Vec<Org>, Error>;
    /// Returns one API key.
    fn key(&self, id: KeyId) -> Result<Option<KeyRow>, Error>;
    /// Returns API keys after a given one, by ascending id.
    fn keys(&self, of: OrgVisibility, after: Option<KeyId>, limit: usize) -> Result<Vec<KeyRow>, Error>;
    /// Returns entries of the audit log, by ascending number.
    fn audit(&self, of: OrgVisibility, range: AuditRange) -> Result<Vec<AuditRow>, Error>;
    /// Returns the latest version of an agent, a harness or a capability.
    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error>;
    /// Returns the latest version of each configuration of this kind after a given one, by ascending name.
    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error>;
    /// Returns the versions of a configuration below `before`, by descending number.
    fn config_versions(
        &self,
        org: OrgId,
        of: (ConfigKind, &str),
        before: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error>;
    /// Returns the votes on a turn's approval requests, by key and voter.
    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error>;
    /// Returns the approval requests of a turn that have reminders or an escalation, by key.
    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error>;
    /// Returns approval requests whose next notice is due, earliest due time first.
    fn notices_due(&self, now: Millis, limit: usize) -> Result<Vec<NoticeRow>, Error>;
    /// Returns when the next notice is due.
    fn next_notice(&self) -> Result<Option<Millis>, Error>;
    /// Returns the approval for the rest of a session with this id.
    fn grant(&self, id: GrantId) -> Result<Option<GrantRow>, Error>;
    /// Returns the approvals for the rest of one session, by ascending id.
    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error>;
    /// Returns such approvals of many sessions after a given one, by descending time and ascending id.
    fn grants(
        &self,
        of: OrgVisibility,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Result<Vec<GrantRow>, Error>;
    /// Returns the secret that signs completion keys.
    fn secret(&self) -> Result<[u8; 32], Error>;
    /// Returns the completion key of a wait. The caller has access to the turn.
    fn sign(&self, turn: TurnId, wait: ReplayKey) -> Result<CompletionKey, Error> {
        Ok(CompletionKey::sign(&self.secret()?, turn, wait))
    }
    /// Returns the signature which proves that an organisation of this database has a session with this fingerprint.
    /// The caller has access to the session, or a signature to compare.
    fn sign_session(&self, org: OrgId, fingerprint: Hash) -> Result<Hash, Error> {
        Ok(SessionLine::sign(&self.secret()?, org, fingerprint))
    }
    /// Returns whether a worker is known to be dead. This takes evidence, such as a released lock. Silence is not
    /// enough.
    fn is_dead(&self, worker: WorkerId) -> bool;
}

/// Writes rows.
pub trait Rows: ReadRows {
    /// Inserts a session and assigns its number, ignoring the number in the row. An id in use is refused ([`taken`]).
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error>;
    /// Replaces a session.
    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error>;
    /// Deletes a session with all its turns, records, claims, waits, votes, notices, grants, values, attachments,
    /// deliveries and heads. External content that only this session used keeps its row, with no uses. The session
    /// must have no payment in the payment outbox.
    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error>;
    /// Extends every lease of a worker and returns them.
    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error>;
    /// Sets a head.
    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<RecordAddress>) -> Result<(), Error>;
    /// Inserts a turn and assigns its number, ignoring the number in the row. An id in use is refused ([`taken`]).
    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error>;
    /// Replaces a turn.
    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error>;
    /// Appends a record.
    fn append(&mut self, row: &RecordRow) -> Result<(), Error>;
    /// Indexes a record of a session under these words, which are separated by spaces.
    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error>;
    /// Removes a record from the search index. `words` are the words it was indexed under.
    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error>;
    /// Inserts or replaces a claim.
    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error>;
    /// Deletes a claim.
    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error>;
    /// Inserts a wait of a turn, or replaces the one with the same key.
    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error>;
    /// Deletes the waits of a turn.
    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error>;
    /// Inserts a resolution.
    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error>;
    /// Sets or removes a value.
    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error>;
    /// Stores a blob, or counts one more use of it.
    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error>;
    /// Stores a blob that is never deleted, whether used or not.
    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error>;
    /// Inserts an attachment of a session, which must not have it yet. Uses of its content are counted separately.
    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error>;
    /// Inserts or replaces the row of external content.
    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error>;
    /// Deletes the row of external content.
    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error>;
    /// Sets how often content was marked for deletion or unmarked.
    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error>;
    /// Inserts or replaces a sink.
    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error>;
    /// Inserts or replaces a delivery.
    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error>;
    /// Deletes a delivery.
    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error>;
    /// Inserts or replaces a budget account.
    fn put_budget_account(&mut self, row: &BudgetAccountRow) -> Result<(), Error>;
    /// Deletes a budget account if it exists.
    fn delete_budget_account(&mut self, org: OrgId, name: &str) -> Result<(), Error>;
    /// Inserts or replaces a rate limit.
    fn put_rate(&mut self, row: &RateView) -> Result<(), Error>;
    /// Inserts or replaces a budget reservation.
    fn put_reservation(&mut self, row: &ReservationRow) -> Result<(), Error>;
    /// Deletes a budget reservation.
    fn delete_reservation(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Inserts or replaces a payment of the payment outbox.
    fn put_pending_payment(&mut self, row: &PendingPaymentRow) -> Result<(), Error>;
    /// Deletes a payment from the payment outbox if it is there.
    fn delete_pending_payment(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Inserts an organisation.
    fn insert_org(&mut self, org: &Org) -> Result<(), Error>;
    /// Inserts or replaces an API key.
    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error>;
    /// Adds an entry to the audit log and assigns its number, ignoring the number in the row.
    fn append_audit(&mut self, row: &AuditRow) -> Result<(), Error>;
    /// Inserts a version of a configuration, which must not exist yet.
    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error>;
    /// Inserts a vote, or replaces the same person's earlier vote.
    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error>;
    /// Deletes a vote.
    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error>;
    /// Inserts or replaces an approval request that has reminders or an escalation.
    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error>;
    /// Deletes an approval request that has reminders or an escalation, if it exists.
    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Inserts or replaces an approval for the rest of a session.
    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error>;
    /// Deletes an approval for the rest of a session.
    fn delete_grant(&mut self, id: GrantId) -> Result<(), Error>;
    /// Stores a piece of a reply, in place of the one with the same start.
    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error>;
    /// Deletes the stored text of the reply that a turn is receiving.
    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error>;
}

/// Added to the use count of a blob that is never deleted.
pub const PINNED_USES: u64 = 1 << 40;

//! The rows of a database: the same in memory, SQLite and PostgreSQL.
//!
//! Reading and writing single rows is all that an engine does. What a write means (fences, sequence, chain, claims,
//! waits) is decided once, in [`crate::ledger`]. Rows are addressed by small numbers that the engine gives out, because
//! an index over random ids halves the rate of a journal.
use crate::configs::ConfigKind;
use crate::filed::{Lies, Sweeps};
use crate::orgs::{AuditRange, Org};
use crate::outbox::DeliveryPlace;
use crate::rate::RateView;
use crate::sink::Moment;
use crate::store::{Fence, SessionState, TurnState, Writes};
use crate::votes::Vote;
use outlast_vocab::access::{Access, Principal, Reach, Scopes};
use outlast_vocab::approval::Given;
use outlast_vocab::archive::SessionLine;
use outlast_vocab::budget::{Amount, Budget};
use outlast_vocab::cost::Cost;
use outlast_vocab::id::{AttachmentId, CallId, GrantId, KeyId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{Attachment, RuleId, ToolName};
use outlast_vocab::payment::Payment;
use outlast_vocab::policy::Ask;
use outlast_vocab::record::{ClaimRef, Delivery, EndKind, Seq};
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::words::Wanted;
use outlast_vocab::{Error, Failure, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

/// The latest time that a column of every database can keep. What is due later is never due.
pub const LATEST: Millis = Millis(i64::MAX.cast_unsigned());

/// What whoever wants to use an id for the second time is told.
pub fn taken(id: impl fmt::Display) -> Error {
    Error::new(Kind::InputKeyReused, format!("the id {id} is taken; ids are never used twice"))
}

/// A session's number in this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub i64);

/// A turn's number in this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TurnNo(pub i64);

/// A record's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The session whose record it is.
    pub session: SessionNo,
    /// The record.
    pub seq: Seq,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its number.
    pub no: SessionNo,
    /// Its id.
    pub id: SessionId,
    /// Whose it is. With it goes everything in it.
    pub org: OrgId,
    /// The key its caller knows it by; unique in its organisation.
    pub key: Option<String>,
    /// When it was opened.
    pub created: Millis,
    /// When it last changed.
    pub updated: Millis,
    /// How it stands.
    pub state: SessionState,
    /// The fence of the last claim.
    pub fence: Fence,
    /// Who holds the lease.
    pub worker: Option<WorkerId>,
    /// Until when.
    pub lease_until: Millis,
    /// When a parked or held turn is due.
    pub wake_at: Option<Millis>,
    /// The last record.
    pub last_seq: Seq,
    /// The chain's hash there.
    pub last_hash: Hash,
    /// Inputs taken in.
    pub turns: u32,
    /// The turn that is driven or parked.
    pub active: Option<TurnNo>,
    /// Inputs that wait.
    pub queued: u32,
    /// What the crash guard knows of the active turn.
    pub guard: CrashGuard,
    /// Where it was forked from.
    pub forked_from: Option<Node>,
    /// The last of its records that came from a file; 0 if none did.
    pub imported: Seq,
    /// The last of its records that came from a file without the proof of this database; 0 if none did.
    pub foreign: Seq,
    /// What models and tools with a price cost in it, as far as prices were known; not known of sessions that are older than the count.
    pub cost: Option<Cost>,
    /// The turn that ended last. Inputs that joined another turn do not count.
    pub last_ended: Option<LastEnded>,
}

/// The turn of a session that ended last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastEnded {
    /// The turn.
    pub turn: TurnNo,
    /// How it ended.
    pub end: EndKind,
}

/// What the crash guard knows of a turn since its last progress. See [`crate::ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashGuard {
    /// Workers that died while they drove it.
    pub deaths: u32,
    /// Those of them in a row that drove nothing else.
    pub alone: u32,
    /// Whether the present lease is for a run alone.
    pub trial: Trial,
}

/// A run of a suspect as the only turn of its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trial {
    /// The turn runs beside others, or not at all.
    #[default]
    No,
    /// It is claimed, and waits until its worker drives nothing else.
    Waits,
    /// It runs alone.
    Runs,
    /// It ran alone and blocked its thread.
    Hung,
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
    /// Which turn of the session, counted from 0.
    pub index: u32,
    /// The caller's idempotency key; unique in the session.
    pub key: Option<String>,
    /// The fingerprint of the input, to tell a repeat from a reuse of the key.
    pub input: Hash,
    /// What it does when a turn is under way.
    pub delivery: Delivery,
    /// The head it is for.
    pub head: String,
    /// How it stands.
    pub state: TurnState,
    /// The record that accepted it.
    pub accepted: Seq,
    /// Its last record that makes the transcript; none (0) before it begins.
    pub last_node: Seq,
    /// The message it follows.
    pub parent: Option<Node>,
    /// The record that ended it.
    pub ended: Option<Seq>,
    /// Whether somebody asked it to stop.
    pub cancelled: bool,
    /// What it took to write it down; not known of one that came from a file, or is older than the count.
    pub writes: Option<Writes>,
    /// The turn that this one retries.
    pub retry_of: Option<TurnNo>,
}

impl TurnRow {
    /// Whether it waits to join a turn on this head.
    pub fn joins(&self, head: &str) -> bool {
        self.state == TurnState::Queued && self.delivery == Delivery::Join && self.head == head
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// Its session.
    pub session: SessionNo,
    /// Its place.
    pub seq: Seq,
    /// Its turn.
    pub turn: Option<TurnNo>,
    /// When it was written.
    pub at: Millis,
    /// Whether the transcript is built from it.
    pub node: bool,
    /// The chain's hash after it.
    pub hash: Hash,
    /// Its body, or where that is.
    pub body: Body,
}

/// A record's body, or the blob that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// In the row.
    Inline(Vec<u8>),
    /// In the blob store.
    Blob(Hash),
}

/// A claim: an effect that was asked and is not answered, or whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// Its session.
    pub session: SessionNo,
    /// The record that asked.
    pub claim: ClaimRef,
    /// Its turn.
    pub turn: TurnNo,
    /// Our id of the call.
    pub call: CallId,
    /// The fence under which it may be settled.
    pub fence: Fence,
    /// Whether its outcome is unknown and a person has to settle it.
    pub unknown: bool,
    /// When it was claimed.
    pub since: Millis,
}

/// How a wait of a turn was resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolutionRow {
    /// The turn.
    pub turn: TurnNo,
    /// The place in it.
    pub key: ReplayKey,
    /// How.
    pub resolution: Resolution,
}

/// An attachment of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRow {
    /// The session that uses it.
    pub session: SessionNo,
    /// What it is.
    pub attachment: Attachment,
    /// How many bytes it has.
    pub bytes: u64,
    /// Where its content lies.
    pub lies: Lies,
}

/// Content outside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideRow {
    /// Which.
    pub content: Hash,
    /// How many attachments have it.
    pub uses: u64,
    /// Who deletes it.
    pub condemned: Option<Condemned>,
}

/// A worker that deletes content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condemned {
    /// Who.
    pub worker: WorkerId,
    /// Since when.
    pub since: Millis,
}

/// Text of a reply that is still being said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialRow {
    /// The turn.
    pub turn: TurnNo,
    /// The model call.
    pub key: ReplayKey,
    /// Under which attempt it was said.
    pub attempt: u32,
    /// How many bytes of text came before.
    pub start: usize,
    /// The text.
    pub text: String,
}

/// What a budget's owner used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurseRow {
    /// The organisation.
    pub org: OrgId,
    /// Whose it is there, and of which period.
    pub name: String,
    /// What an operator set.
    pub set: Option<Budget>,
    /// What the agent said that was counted last.
    pub brought: Option<Budget>,
    /// What was used.
    pub spent: Amount,
    /// What is reserved.
    pub held: Amount,
    /// What counts as used because nobody knows.
    pub lost: Amount,
    /// What it takes at most to read a session's conversation once more.
    pub standing: Amount,
}

impl PurseRow {
    /// One of which nothing was used.
    pub fn empty(org: OrgId, name: &str) -> Self {
        let (name, none) = (name.to_owned(), Amount::ZERO);
        Self { org, name, set: None, brought: None, spent: none, held: none, lost: none, standing: none }
    }
}

/// What is reserved for an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRow {
    /// The turn.
    pub turn: TurnNo,
    /// The effect.
    pub key: ReplayKey,
    /// What it may use at most.
    pub most: Amount,
    /// The names of the purses in which it is reserved.
    pub purses: Vec<String>,
}

/// A payment that its authority is to be told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedRow {
    /// The turn.
    pub turn: TurnNo,
    /// The payment, with what is decided of it.
    pub payment: Payment,
    /// Since when that is decided.
    pub since: Millis,
    /// How often the authority was told.
    pub attempts: u32,
    /// When it is told next.
    pub due_at: Millis,
    /// Why it did not take it the last time.
    pub failure: Option<Failure>,
}

/// A sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    /// What it is called.
    pub name: String,
    /// Since when it is known.
    pub since: Millis,
    /// The last position of the feed that it has looked at.
    pub cursor: u64,
    /// Outputs that were delivered so far.
    pub delivered: u64,
}

/// An output that is not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The sink.
    pub sink: String,
    /// The turn.
    pub turn: TurnNo,
    /// What of it is told.
    pub moment: Moment,
    /// How often it was begun.
    pub attempts: u32,
    /// How many of these do not count any more, because somebody gave it all attempts anew.
    pub forgiven: u32,
    /// When it may be taken; none means that it was given up.
    pub due_at: Option<Millis>,
    /// Who has it, until it is due.
    pub worker: Option<WorkerId>,
    /// Why it was not taken the last time.
    pub failure: Option<Failure>,
}

impl DeliveryRow {
    /// Where it stands among those of its sink.
    pub const fn place(&self) -> DeliveryPlace {
        DeliveryPlace { turn: self.turn, moment: self.moment }
    }
}

/// What is kept of an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id.
    pub id: KeyId,
    /// The organisation it opens.
    pub org: OrgId,
    /// In whose name it acts.
    pub by: Principal,
    /// What it may do.
    pub scopes: Scopes,
    /// What its holder's secret is held against ([`outlast_vocab::access::ApiKey::seal`]).
    pub seal: Hash,
    /// When it was made.
    pub created: Millis,
    /// From when on it counts no more.
    pub expires: Option<Millis>,
    /// Since when it counts no more because somebody said so.
    pub revoked: Option<Millis>,
}

/// Something that somebody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number, given out in the order things were done.
    pub no: u64,
    /// When.
    pub at: Millis,
    /// In which organisation.
    pub org: OrgId,
    /// Who.
    pub by: Principal,
    /// What ([`outlast_vocab::access::Act::name`]).
    pub act: String,
    /// To what: an id, mostly.
    pub subject: String,
    /// What else a person wants to know of it. No arguments and no results.
    pub detail: String,
}

/// One version of an agent, a harness or a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRow {
    /// Whose it is.
    pub org: OrgId,
    /// What it is.
    pub kind: ConfigKind,
    /// What it is called.
    pub name: String,
    /// Which version, counted from 1.
    pub version: u32,
    /// The fingerprint of the body.
    pub fingerprint: Hash,
    /// What it says, as JSON.
    pub body: String,
    /// Since when.
    pub at: Millis,
}

/// A vote on a question for approval that is not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteRow {
    /// The turn that asks.
    pub turn: TurnNo,
    /// The wait for the answer.
    pub key: ReplayKey,
    /// The vote. Each person has one.
    pub vote: Vote,
}

/// A question for approval whose people are told of it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeRow {
    /// The turn that asks.
    pub turn: TurnNo,
    /// The wait for the answer.
    pub key: ReplayKey,
    /// When the turn began to wait for it.
    pub since: Millis,
    /// Who is asked, and when they are told again.
    pub ask: Ask,
    /// What they were told.
    pub given: Given,
    /// When they are told next; none while the turn does not wait.
    pub due_at: Option<Millis>,
}

/// An approval for the rest of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// What it is called.
    pub id: GrantId,
    /// The session.
    pub session: SessionNo,
    /// The name of what it covers.
    pub form: Hash,
    /// The tool.
    pub tool: ToolName,
    /// The rule that asked.
    pub rule: RuleId,
    /// The untrusted sources that may have asked for the call it was given for.
    pub labels: Labels,
    /// Who gave it.
    pub by: Vec<String>,
    /// When.
    pub at: Millis,
}

/// Which records to read.
#[derive(Clone, Copy, Debug)]
pub struct RecordRange {
    /// Of which session.
    pub session: SessionNo,
    /// Only of this turn.
    pub turn: Option<TurnNo>,
    /// Only those that make the transcript.
    pub nodes_only: bool,
    /// From this place on.
    pub from: Seq,
    /// Up to and with this place.
    pub to: Seq,
    /// How many at most.
    pub limit: usize,
}

/// The access of whoever has the rows themselves.
static OPERATOR: LazyLock<Access> = LazyLock::new(Access::operator);

/// Reads rows.
pub trait ReadRows {
    /// Whom the rows are shown to. [`crate::scoped`] shows those of one organisation only.
    fn access(&self) -> &Access {
        &OPERATOR
    }
    /// The session with this number.
    fn session(&self, no: SessionNo) -> Result<Option<SessionRow>, Error>;
    /// The session with this id.
    fn session_by_id(&self, id: SessionId) -> Result<Option<SessionRow>, Error>;
    /// The session of an organisation with this key.
    fn session_by_key(&self, org: OrgId, key: &str) -> Result<Option<SessionRow>, Error>;
    /// Sessions by falling number, below `before`.
    fn sessions(&self, of: Reach, before: Option<SessionNo>, limit: usize) -> Result<Vec<SessionRow>, Error>;
    /// Sessions in a state, by rising number, above `after`.
    fn sessions_in(
        &self,
        state: SessionState,
        after: SessionNo,
        limit: usize,
    ) -> Result<Vec<SessionRow>, Error>;
    /// Counts the sessions whose last turn ended so, up to a limit. The end must not be `answered`: those are not indexed.
    fn count_last_ended(&self, end: EndKind, limit: usize) -> Result<usize, Error>;
    /// Parked sessions that are due, those that were due first before the others.
    fn sessions_due(&self, now: Millis, limit: usize) -> Result<Vec<SessionRow>, Error>;
    /// The held session with at most so many deaths that was due first, if it is due.
    fn suspect_due(&self, now: Millis, most_deaths: u32) -> Result<Option<SessionRow>, Error>;
    /// Leased sessions that are on trial or wait for it, with their workers.
    fn trials(&self) -> Result<Vec<(SessionNo, WorkerId)>, Error>;
    /// When the next parked or held session is due.
    fn next_wake(&self) -> Result<Option<Millis>, Error>;
    /// Sessions that were forked from this one.
    fn forks(&self, of: SessionNo) -> Result<Vec<SessionId>, Error>;
    /// The heads of a session, by name.
    fn heads(&self, session: SessionNo) -> Result<Vec<(String, Option<Node>)>, Error>;
    /// One head.
    fn head(&self, session: SessionNo, name: &str) -> Result<Option<Option<Node>>, Error>;

    /// The turn with this number.
    fn turn(&self, no: TurnNo) -> Result<Option<TurnRow>, Error>;
    /// The turn with this id.
    fn turn_by_id(&self, id: TurnId) -> Result<Option<TurnRow>, Error>;
    /// The turn of a session with this idempotency key.
    fn turn_by_key(&self, session: SessionNo, key: &str) -> Result<Option<TurnRow>, Error>;
    /// Turns of a session by rising index.
    fn turns(&self, session: SessionNo, from: u32, limit: usize) -> Result<Vec<TurnRow>, Error>;
    /// Turns of a session that have not begun, by rising index.
    fn queued(&self, session: SessionNo, limit: usize) -> Result<Vec<TurnRow>, Error>;

    /// The newest retry of a turn.
    fn last_retry(&self, of: TurnNo) -> Result<Option<TurnRow>, Error>;

    /// Records by rising place.
    fn records(&self, range: RecordRange) -> Result<Vec<RecordRow>, Error>;
    /// Records of many sessions in the order they became durable, after a position.
    fn feed(&self, of: Reach, after: u64, limit: usize) -> Result<Vec<(u64, RecordRow)>, Error>;

    /// Records whose words fit, before a position and with it, the newest first: of whoever has this reach, in one session if that is
    /// said.
    fn with_words(
        &self,
        of: Reach,
        session: Option<SessionNo>,
        wanted: &Wanted,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error>;
    /// The position of the last record of the feed.
    fn feed_end(&self) -> Result<u64, Error>;
    /// How many records are in the feed after a position.
    fn feed_length(&self, after: u64) -> Result<u64, Error>;

    /// One claim.
    fn claim(&self, session: SessionNo, claim: ClaimRef) -> Result<Option<ClaimRow>, Error>;
    /// The claims of a turn.
    fn claims(&self, session: SessionNo, turn: TurnNo) -> Result<Vec<ClaimRow>, Error>;
    /// Claims whose outcome is unknown, by rising time and id of the call, behind one.
    fn unknown(
        &self,
        of: Reach,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Result<Vec<ClaimRow>, Error>;

    /// What a turn waits for.
    fn waits(&self, turn: TurnNo) -> Result<Vec<Wait>, Error>;
    /// Waits of this kind over many turns, the oldest turn first.
    fn waiting(&self, of: Reach, kind: WaitKind, limit: usize) -> Result<Vec<(TurnNo, Wait)>, Error>;
    /// How a wait was resolved.
    fn resolution(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<Resolution>, Error>;

    /// A value of a session, as JSON.
    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error>;
    /// Names of a session's values by rising name.
    fn value_names(&self, session: SessionNo, prefix: &str, limit: usize) -> Result<Vec<String>, Error>;
    /// An attachment of a session.
    fn attachment(&self, session: SessionNo, id: AttachmentId) -> Result<Option<AttachmentRow>, Error>;
    /// The attachments of a session by rising id, behind one.
    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Result<Vec<AttachmentRow>, Error>;
    /// What was kept of the reply that a turn was getting, by rising start.
    fn partials(&self, turn: TurnNo) -> Result<Vec<PartialRow>, Error>;
    /// A blob.
    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error>;
    /// Some bytes of a blob, without reading the others. What lies behind its end is left away.
    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error>;
    /// A configuration. Whoever asks has read its fingerprint in a record that is shown to them.
    fn package(&self, fingerprint: Hash) -> Result<Option<Vec<u8>>, Error> {
        self.blob(fingerprint)
    }
    /// Content outside that is or was used, or is being deleted.
    fn outside(&self, content: Hash) -> Result<Option<OutsideRow>, Error>;
    /// Contents outside that nothing uses any more.
    fn left(&self, limit: usize) -> Result<Vec<Hash>, Error>;
    /// How often contents were condemned or forgotten.
    fn sweeps(&self) -> Result<Sweeps, Error>;
    /// One sink.
    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error>;
    /// All sinks by rising name.
    fn sinks(&self) -> Result<Vec<SinkRow>, Error>;
    /// The delivery of one output of a turn to a sink.
    fn delivery(&self, sink: &str, turn: TurnNo, moment: Moment) -> Result<Option<DeliveryRow>, Error>;
    /// The deliveries to a sink by rising turn and moment, behind one.
    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPlace>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, Error>;
    /// Those that are due, those that were due first before the others.
    fn deliveries_due(&self, sink: &str, now: Millis, limit: usize) -> Result<Vec<DeliveryRow>, Error>;
    /// Those that a worker has, by rising turn.
    fn deliveries_taken(&self, sink: &str, limit: usize) -> Result<Vec<DeliveryRow>, Error>;
    /// When the next delivery to a sink is due.
    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error>;
    /// How many deliveries to a sink will be due, and how many were given up.
    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error>;
    /// One purse.
    fn purse(&self, org: OrgId, name: &str) -> Result<Option<PurseRow>, Error>;
    /// Purses by rising organisation and name, behind one.
    fn purses(&self, of: Reach, after: Option<(OrgId, &str)>, limit: usize) -> Result<Vec<PurseRow>, Error>;
    /// One rate.
    fn rate(&self, org: OrgId, name: &str) -> Result<Option<RateView>, Error>;
    /// Rates by rising organisation and name, behind one.
    fn rates(&self, of: Reach, after: Option<(OrgId, &str)>, limit: usize) -> Result<Vec<RateView>, Error>;
    /// Whether one of them was set by an operator.
    fn budgets_are_set(&self) -> Result<bool, Error>;
    /// What is reserved for effects of a turn, by key.
    fn holds(&self, turn: TurnNo) -> Result<Vec<HoldRow>, Error>;
    /// A payment that is owed, by its turn and place.
    fn owed_payment(&self, turn: TurnNo, key: &ReplayKey) -> Result<Option<OwedRow>, Error>;
    /// Payments that are owed over many turns, the oldest first.
    fn owed(&self, of: Reach, limit: usize) -> Result<Vec<OwedRow>, Error>;
    /// Those that are due, those that were due first before the others.
    fn owed_due(&self, now: Millis, limit: usize) -> Result<Vec<OwedRow>, Error>;
    /// When the next one is due.
    fn next_owed(&self) -> Result<Option<Millis>, Error>;
    /// The organisation with this id.
    fn org(&self, id: OrgId) -> Result<Option<Org>, Error>;
    /// The organisation with this name.
    fn org_by_name(&self, name: &str) -> Result<Option<Org>, Error>;
    /// Organisations by rising name, behind one.
    fn orgs(&self, after: Option<&str>, limit: usize) -> Result<Vec<Org>, Error>;
    /// One API key.
    fn key(&self, id: KeyId) -> Result<Option<KeyRow>, Error>;
    /// API keys by rising id, behind one.
    fn keys(&self, of: Reach, after: Option<KeyId>, limit: usize) -> Result<Vec<KeyRow>, Error>;
    /// What was done, by rising number.
    fn audit(&self, of: Reach, range: AuditRange) -> Result<Vec<AuditRow>, Error>;
    /// The last version of an agent, a harness or a capability.
    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error>;
    /// The last version of each of this kind, by rising name, behind one.
    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error>;
    /// The versions of one by falling number, below one.
    fn config_versions(
        &self,
        org: OrgId,
        of: (ConfigKind, &str),
        before: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error>;
    /// The votes on questions of a turn, by key and by who gave them.
    fn votes(&self, turn: TurnNo) -> Result<Vec<VoteRow>, Error>;
    /// The questions of a turn whose people are told again, by key.
    fn notices(&self, turn: TurnNo) -> Result<Vec<NoticeRow>, Error>;
    /// Those that are due, those that were due first before the others.
    fn notices_due(&self, now: Millis, limit: usize) -> Result<Vec<NoticeRow>, Error>;
    /// When the next one is due.
    fn next_notice(&self) -> Result<Option<Millis>, Error>;
    /// An approval for the rest of a session.
    fn grant(&self, id: GrantId) -> Result<Option<GrantRow>, Error>;
    /// Those of one session by rising id.
    fn session_grants(&self, session: SessionNo) -> Result<Vec<GrantRow>, Error>;
    /// Those of many sessions, by falling time and rising id, behind one.
    fn grants(
        &self,
        of: Reach,
        after: Option<(Millis, GrantId)>,
        limit: usize,
    ) -> Result<Vec<GrantRow>, Error>;
    /// The secret that signs completion keys.
    fn secret(&self) -> Result<[u8; 32], Error>;
    /// The completion key of a wait. Whoever asks was shown the turn.
    fn sign(&self, turn: TurnId, wait: ReplayKey) -> Result<CompletionKey, Error> {
        Ok(CompletionKey::sign(&self.secret()?, turn, wait))
    }
    /// The proof that an organisation of this database has a session with this fingerprint. The caller was shown the session, or has
    /// a proof to compare.
    fn sign_session(&self, org: OrgId, fingerprint: Hash) -> Result<Hash, Error> {
        Ok(SessionLine::sign(&self.secret()?, org, fingerprint))
    }
    /// Whether a worker is known to be dead. Only evidence counts (its lock is gone), never silence.
    fn is_dead(&self, worker: WorkerId) -> bool;
}

/// Writes rows.
pub trait Rows: ReadRows {
    /// Adds a session; its number is given out here, whatever the row says. An id that is taken is refused ([`taken`]).
    fn insert_session(&mut self, row: &SessionRow) -> Result<SessionNo, Error>;
    /// Replaces a session.
    fn put_session(&mut self, row: &SessionRow) -> Result<(), Error>;
    /// Removes a session with all its turns, records, claims, waits, votes, notices, grants, values, attachments, deliveries and
    /// heads. Content outside that
    /// only it used stays in the books with no use. No payment of it is owed.
    fn delete_session(&mut self, no: SessionNo) -> Result<(), Error>;
    /// Extends every lease of a worker and lists them.
    fn extend_leases(&mut self, worker: WorkerId, until: Millis) -> Result<Vec<(SessionId, Fence)>, Error>;
    /// Sets a head.
    fn put_head(&mut self, session: SessionNo, name: &str, node: Option<Node>) -> Result<(), Error>;
    /// Adds a turn; its number is given out here, whatever the row says. An id that is taken is refused ([`taken`]).
    fn insert_turn(&mut self, row: &TurnRow) -> Result<TurnNo, Error>;
    /// Replaces a turn.
    fn put_turn(&mut self, row: &TurnRow) -> Result<(), Error>;
    /// Adds a record at the end.
    fn append(&mut self, row: &RecordRow) -> Result<(), Error>;
    /// Lets a record of a session be found by these words, with spaces between them.
    fn put_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error>;
    /// Lets a record not be found by its words any more, which are these.
    fn delete_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error>;
    /// Adds or replaces a claim.
    fn put_claim(&mut self, row: &ClaimRow) -> Result<(), Error>;
    /// Removes a claim.
    fn delete_claim(&mut self, session: SessionNo, claim: ClaimRef) -> Result<(), Error>;
    /// Adds a wait of a turn, or replaces the one with the same key.
    fn put_wait(&mut self, turn: TurnNo, wait: &Wait) -> Result<(), Error>;
    /// Removes the waits of a turn.
    fn delete_waits(&mut self, turn: TurnNo) -> Result<(), Error>;
    /// Adds a resolution.
    fn insert_resolution(&mut self, row: &ResolutionRow) -> Result<(), Error>;
    /// Sets or removes a value.
    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error>;
    /// Adds a blob, or counts one more use of it.
    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error>;
    /// Adds a blob that stays whoever uses it.
    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error>;
    /// Adds an attachment of a session, which must not have it yet. Its content is counted apart.
    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error>;
    /// Adds or replaces content outside.
    fn put_outside(&mut self, row: &OutsideRow) -> Result<(), Error>;
    /// Removes content outside from the books.
    fn delete_outside(&mut self, content: Hash) -> Result<(), Error>;
    /// Sets how often contents were condemned or forgotten.
    fn put_sweeps(&mut self, sweeps: Sweeps) -> Result<(), Error>;
    /// Adds or replaces a sink.
    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error>;
    /// Adds or replaces a delivery.
    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error>;
    /// Removes a delivery.
    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: Moment) -> Result<(), Error>;
    /// Adds or replaces a purse.
    fn put_purse(&mut self, row: &PurseRow) -> Result<(), Error>;
    /// Removes a purse, if it is there.
    fn delete_purse(&mut self, org: OrgId, name: &str) -> Result<(), Error>;
    /// Adds or replaces a rate.
    fn put_rate(&mut self, row: &RateView) -> Result<(), Error>;
    /// Adds or replaces what is reserved for an effect.
    fn put_hold(&mut self, row: &HoldRow) -> Result<(), Error>;
    /// Removes what is reserved for an effect.
    fn delete_hold(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Adds or replaces a payment that is owed.
    fn put_owed(&mut self, row: &OwedRow) -> Result<(), Error>;
    /// Removes a payment that is owed, if it is there.
    fn delete_owed(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Adds an organisation.
    fn insert_org(&mut self, org: &Org) -> Result<(), Error>;
    /// Adds or replaces an API key.
    fn put_key(&mut self, row: &KeyRow) -> Result<(), Error>;
    /// Notes what was done; its number is given out here, whatever the row says.
    fn note(&mut self, row: &AuditRow) -> Result<(), Error>;
    /// Adds a version, which must not be there yet.
    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error>;
    /// Adds a vote, or replaces the one that the same person gave.
    fn put_vote(&mut self, row: &VoteRow) -> Result<(), Error>;
    /// Removes a vote.
    fn delete_vote(&mut self, row: &VoteRow) -> Result<(), Error>;
    /// Adds or replaces a question whose people are told again.
    fn put_notice(&mut self, row: &NoticeRow) -> Result<(), Error>;
    /// Removes a question whose people are told again, if it is there.
    fn delete_notice(&mut self, turn: TurnNo, key: &ReplayKey) -> Result<(), Error>;
    /// Adds or replaces an approval for the rest of a session.
    fn put_grant(&mut self, row: &GrantRow) -> Result<(), Error>;
    /// Removes an approval for the rest of a session.
    fn delete_grant(&mut self, id: GrantId) -> Result<(), Error>;
    /// Keeps a piece of a reply, in place of the one with the same start.
    fn put_partial(&mut self, row: &PartialRow) -> Result<(), Error>;
    /// Forgets what was kept of the reply that a turn was getting.
    fn delete_partials(&mut self, turn: TurnNo) -> Result<(), Error>;
}

/// Added to the uses of a blob that stays.
pub const PINNED: u64 = 1 << 40;

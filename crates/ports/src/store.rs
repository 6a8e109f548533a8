//! What the runtime asks of a database, in small facets. One object implements them all.
//!
//! Each method that writes is one transaction: everything in it is visible together or not at all, and durable when the
//! answer comes. [`Backend`] is all that a database has to bring; the facets follow from it and from [`crate::ledger`].
use crate::archive::Archives;
use crate::budget::{Awaited, Books, FirstCall, Held, Metering, PurseView};
use crate::configs::{ConfigKind, Configs, StoredConfig};
use crate::contents::Stored;
use crate::filed::{self, Condemn, Filed, Lies, Sweep, Sweeps};
use crate::ledger;
use crate::metrics::Spread;
use crate::orgs::Orgs;
use crate::outbox::{
    Attempt, Collect, DeliveryPlace, DeliveryView, Due, Outbox, Outlook, SinkView, Subscription,
};
use crate::owed::Owing;
use crate::page::Page;
use crate::rate::{Pacing, RateView, Rates, Want};
use crate::rows::{CrashGuard, ReadRows, Rows};
use crate::scoped::Scoped;
use crate::search::Search;
use crate::votes::Votes;
use crate::{Answer, BoxFuture};
use outlast_vocab::access::Access;
use outlast_vocab::budget::{Budget, Purse};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Place;
use outlast_vocab::id::{AttachmentId, CallId, DeliveryId, OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::key::ReplayKey;
use outlast_vocab::message::{Attachment, MediaType, Message, Part, PluginName, ToolName};
use outlast_vocab::record::{ClaimRef, Delivery, End, EndKind, Fact, NodeRef, Record, Seq, Verdict};
use outlast_vocab::trace::TraceParent;
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The head that a session has from its beginning.
pub const MAIN: &str = "main";

/// Proves who may write: raised with every claim, and checked by every write of a worker (R3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// A worker's right to drive a session until a point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The turn that is driven.
    pub turn: TurnId,
    /// Who holds it.
    pub worker: WorkerId,
    /// What proves it.
    pub fence: Fence,
}

/// Who wants to drive, and until when the lease is to last.
#[derive(Clone, Copy, Debug)]
pub struct Taker {
    /// The worker.
    pub worker: WorkerId,
    /// The end of its lease, unless renewed.
    pub until: Millis,
}

/// Which session is meant.
#[derive(Clone, Debug)]
pub enum Target {
    /// A new one with this id.
    New(SessionId),
    /// The one with this id.
    Id(SessionId),
    /// The one with this key, opened under the fresh id if there is none yet (R1.3).
    Key {
        /// The caller's key.
        key: String,
        /// The id it gets if it is new.
        fresh: SessionId,
    },
}

/// An input for a session.
#[derive(Clone, Debug)]
pub struct Accept {
    /// Which session.
    pub target: Target,
    /// The id the turn gets if the input is new.
    pub turn: TurnId,
    /// What it says.
    pub parts: Vec<Part>,
    /// The caller's idempotency key.
    pub key: Option<String>,
    /// The hash of the request that brought it, where the same key must bring the same request.
    pub request: Option<Hash>,
    /// Which turn of its session it must become, counted from 0; any where absent.
    pub index: Option<u32>,
    /// What it does when a turn is under way.
    pub delivery: Delivery,
    /// The head it is for.
    pub head: String,
    /// JSON Schema that the turn's answer must fit.
    pub output: Option<Value>,
    /// What it carries for plug-ins.
    pub plugins: BTreeMap<PluginName, Value>,
    /// The span that caused it.
    pub traceparent: Option<TraceParent>,
    /// What was said elsewhere before it.
    pub before: Vec<Message>,
    /// What its sender wants to be shown again with it.
    pub note: Option<Value>,
    /// The fingerprint of the configuration that is to answer it.
    pub package: Option<Hash>,
    /// The configuration that is to answer it, unless it is there already.
    pub blobs: Vec<Vec<u8>>,
    /// What it attaches.
    pub files: Vec<Filed>,
    /// Now.
    pub now: Millis,
    /// Who drives the turn at once if the session is free.
    pub taker: Option<Taker>,
    /// What is reserved for the taker, where something is counted.
    pub first: Option<FirstCall>,
    /// Inputs that may wait for the session.
    pub queued_most: usize,
}

/// A retry of a turn that ended.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// The turn to retry.
    pub turn: TurnId,
    /// The id of the new turn.
    pub fresh: TurnId,
    /// The id of the session that the retry is made in, if it is to be a fork.
    pub fork: Option<SessionId>,
    /// Now.
    pub now: Millis,
    /// Who drives the turn at once if the session is free.
    pub taker: Option<Taker>,
    /// Inputs that may wait for the session.
    pub queued_most: usize,
}

/// What became of an input.
#[derive(Debug)]
pub struct Accepted {
    /// The session.
    pub session: SessionId,
    /// The turn it is.
    pub turn: TurnId,
    /// Whether it had been accepted before under the same key.
    pub duplicate: bool,
    /// Where it stands in the journal: the receipt.
    pub place: Place,
    /// The turn to drive, if the taker got the session.
    pub work: Option<Work>,
}

/// A turn to drive, with everything the journal knows of it.
#[derive(Debug)]
pub struct Work {
    /// The right to drive it.
    pub lease: Lease,
    /// Whose it is.
    pub org: OrgId,
    /// Which turn of the session, counted from 0.
    pub index: u32,
    /// The head it appends to.
    pub head: String,
    /// The message it follows, if it has not begun yet.
    pub parent: Option<NodeRef>,
    /// What the crash guard knows of the turn.
    pub guard: CrashGuard,
    /// That it must run alone, and for how long the death of its worker counts against it from then on.
    pub trial: Option<Duration>,
    /// The records of the turn, in order.
    pub records: Vec<Record>,
    /// What became of the wish to reserve for its first effect.
    pub held: Option<Held>,
    /// Whether an earlier lease has driven it and did not leave it parked.
    pub resumed: bool,
}

/// One write of a worker.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The right to write.
    pub lease: Lease,
    /// Now.
    pub now: Millis,
    /// What became true, in order. Only what a worker does: what another write says (an input, an end, a wait, a
    /// cancel, a resolution, a head, an operator's word) is refused.
    pub facts: Vec<Fact>,
    /// Values of the session that change with it.
    pub values: Vec<ValueWrite>,
    /// The configuration that the facts refer to.
    pub blobs: Vec<Vec<u8>>,
    /// Attachments that the facts refer to.
    pub files: Vec<Filed>,
    /// What becomes of the text that was kept of a reply.
    pub partial: Partial,
    /// What it does to the books, where something is counted.
    pub metering: Option<Metering>,
    /// Calls that want to go out, where rates are kept here.
    pub wants: Vec<Want>,
    /// How long the turn waited for writes before this one, as far as none of them says so.
    pub waited: Duration,
    /// What becomes of the turn.
    pub then: Then,
}

impl Commit {
    /// A write of facts alone; whatever else belongs to it is added by struct update.
    pub fn new(lease: Lease, now: Millis, facts: Vec<Fact>, then: Then) -> Self {
        let (values, blobs, files) = (Vec::new(), Vec::new(), Vec::new());
        let (partial, metering, wants, waited) = (Partial::AsItIs, None, Vec::new(), Duration::ZERO);
        Self { lease, now, facts, values, blobs, files, partial, metering, wants, waited, then }
    }
}

/// An attachment with its bytes, on their way to where they are kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    /// What it is.
    pub attachment: Attachment,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

impl Upload {
    /// Bytes of this kind. What they are called decides nothing: the same bytes are the same attachment.
    pub fn new(
        media_type: MediaType,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        let bytes = bytes.into();
        let put = Stored { content: Hash::of(&bytes), bytes: bytes.len() as u64 };
        Ok(Self { attachment: filed::named(put, media_type, name)?, bytes })
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {:?}", self.bytes.len(), self.attachment)
    }
}

/// What becomes of the text that was kept of a reply which is still being said (R5.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Partial {
    /// It stays as it is.
    #[default]
    AsItIs,
    /// This is kept too. At the beginning of a reply it takes the place of everything.
    Keep(Said),
    /// It is forgotten: the reply is whole, or begins anew.
    Forget,
}

/// Text of a reply that is still being said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Which model call.
    pub key: ReplayKey,
    /// Under which attempt it was said.
    pub attempt: u32,
    /// How many bytes of text came before.
    pub start: usize,
    /// The text.
    pub text: String,
}

/// An attachment of a session as people look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentView {
    /// What it is.
    pub attachment: Attachment,
    /// How many bytes it has.
    pub bytes: u64,
    /// Where its content lies.
    pub lies: Lies,
}

/// A change of one value of the session; none removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueWrite {
    /// The value's name.
    pub name: String,
    /// Its content.
    pub value: Option<Value>,
}

/// What becomes of a turn with a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// It goes on.
    GoOn,
    /// It goes on if an input waits to join it, otherwise it ends.
    EndUnlessJoined(End),
    /// It ends. The next queued turn begins under the same lease.
    End(End),
    /// It holds still until one of these is resolved or due.
    Park(Vec<Wait>),
}

/// What a commit came to.
#[derive(Debug)]
pub struct Receipt {
    /// Where the facts stand now, in order.
    pub places: Vec<Place>,
    /// The session's last record after the write.
    pub last: Place,
    /// Whether an input waits to join the turn.
    pub input_waits: bool,
    /// Why the turn is to stop, if somebody asked for it.
    pub cancelled: Option<String>,
    /// What became of the wish to reserve, if there was one.
    pub held: Option<Held>,
    /// What became of the calls that want to go out, in their order; nothing if a budget is short.
    pub paced: Vec<Pacing>,
    /// What became of the turn.
    pub after: After,
}

/// What became of a turn with a commit.
#[derive(Debug)]
pub enum After {
    /// It goes on under the same lease.
    GoesOn,
    /// It is parked; the lease is gone.
    Parked,
    /// What it wanted to wait for is there already; it goes on under the same lease.
    Ready,
    /// It is over and so is the lease.
    Ended,
    /// It is over; this is the session's next turn, under a raised fence.
    Next(Box<Work>),
}

/// What became of a resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The resolution that counts: the first one.
    pub first: Resolution,
    /// Whether that is the one that was just given.
    pub yours: bool,
}

/// What became of a cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The turn will stop.
    Requested,
    /// The turn had not begun and is over.
    NeverBegan,
    /// The turn was over before.
    TooLate(End),
}

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Nothing to do.
    Idle,
    /// A turn wants to be driven.
    Ready,
    /// A worker drives a turn.
    Leased,
    /// A turn waits for something outside.
    Parked,
    /// A turn is held back because workers died while it ran; it runs alone next.
    Held,
}

impl SessionState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Ready, Self::Leased, Self::Parked, Self::Held];

    /// One word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Leased => "running",
            Self::Parked => "parked",
            Self::Held => "held",
        }
    }
}

/// The turn of a session that ended last, or the turn that is stuck now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTurn {
    /// Its id.
    pub id: TurnId,
    /// How it ended.
    pub end: LastEnd,
}

/// How the last turn of a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastEnd {
    /// It is over.
    Ended(EndKind),
    /// It is not over, but cannot go on: a person or a deploy has to mend something.
    Stuck,
}

impl LastEnd {
    /// Returns all ends that the last turn of a session can have. An input that joined another turn is no turn of its own.
    pub fn all() -> impl Iterator<Item = Self> {
        let ends = EndKind::ALL.into_iter().filter(|kind| *kind != EndKind::Joined);
        ends.map(Self::Ended).chain([Self::Stuck])
    }

    /// Returns the name of the end, as filters and tables use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ended(kind) => kind.name(),
            Self::Stuck => "stuck",
        }
    }
}

impl FromStr for LastEnd {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::all().find(|end| end.name() == name).ok_or_else(|| {
            let names = Self::all().map(Self::name).collect::<Vec<_>>().join(", ");
            Error::new(Kind::InputInvalid, format!("expected how a turn ended ({names}), got `{name}`"))
        })
    }
}

/// A session as people look at it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// Whose it is.
    pub org: OrgId,
    /// The key its caller knows it by.
    pub key: Option<String>,
    /// How it stands.
    pub state: SessionState,
    /// When it was opened.
    pub created: Millis,
    /// When it last changed.
    pub updated: Millis,
    /// How many inputs it took.
    pub turns: u32,
    /// Its last record.
    pub last: Place,
    /// Its heads by name.
    pub heads: Vec<(String, Option<NodeRef>)>,
    /// Where it was forked from.
    pub forked_from: Option<NodeRef>,
    /// The turn that is driven or parked.
    pub active: Option<TurnId>,
    /// Who drives it.
    pub worker: Option<WorkerId>,
    /// What it waits for.
    pub waits: Vec<Wait>,
    /// When a worker looks at it again by itself.
    pub wake_at: Option<Millis>,
    /// Workers that died while they drove its turn, since the turn's last progress.
    pub deaths: u32,
    /// What models and tools with a price cost in it, as far as prices were known; not known of sessions that are older than the count.
    pub cost: Option<Cost>,
    /// The turn that ended last, or that is stuck now; none before a turn ended.
    pub last_turn: Option<LastTurn>,
}

/// A turn as people look at it.
#[derive(Clone, Debug)]
pub struct TurnView {
    /// Its id.
    pub id: TurnId,
    /// Its session.
    pub session: SessionId,
    /// Which turn of the session, counted from 0.
    pub index: u32,
    /// How it stands.
    pub state: TurnState,
    /// The message it follows.
    pub parent: Option<NodeRef>,
    /// Its first and its last message so far.
    pub span: (Seq, Seq),
    /// How it ended: sealed once, the same for ever (R3.9).
    pub end: Option<End>,
    /// What it took to write it down; not known of one that came from a file, or is older than the count.
    pub writes: Option<Writes>,
    /// The turn that this one retries.
    pub retry_of: Option<TurnId>,
    /// Whether it came from a file without the proof of this database: anybody may have written it.
    pub foreign: bool,
}

/// The writes of a turn: the one that accepted it, and those of the workers that drove it (R14.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// How many there were.
    pub commits: u64,
    /// How long the turn waited for them, as far as a later one could say so.
    pub waited: Duration,
}

/// How a turn stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
    /// Accepted, not begun.
    Queued,
    /// Begun.
    Active,
    /// Over.
    Ended,
}

/// What there is to do for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agenda {
    /// Whether there is a session that it could take now.
    pub has_work: bool,
    /// Whether there is a suspect that it could run alone, if it is old enough.
    pub has_suspect: bool,
    /// When the next parked or held turn is due.
    pub next_wake: Option<Millis>,
    /// When somebody has to be told next that a question waits for them.
    pub next_notice: Option<Millis>,
}

/// A call whose outcome nobody knows.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownCall {
    /// Our id of it, and its idempotency key towards the outside.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// What was passed.
    pub arguments: Value,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// Its claim in the journal.
    pub claim: ClaimRef,
    /// When it was claimed.
    pub since: Millis,
}

/// A turn that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingTurn {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// What it waits for.
    pub wait: Wait,
}

/// A piece of history: the records of one turn that make its transcript, up to and with `cut`.
#[derive(Debug)]
pub struct HistoryTurn {
    /// The records, in order; those after the cut only serve to restore results.
    pub records: Vec<Record>,
    /// The last record that belongs to this branch.
    pub cut: Seq,
}

/// Where to branch a session.
#[derive(Clone, Debug)]
pub struct Fork {
    /// The session to branch.
    pub from: SessionId,
    /// The message to branch after; the main head if none is named.
    pub at: Option<Seq>,
    /// Where the branch lives.
    pub to: ForkTo,
    /// Now.
    pub now: Millis,
}

/// Where a branch lives.
#[derive(Clone, Debug)]
pub enum ForkTo {
    /// In a new session.
    Session {
        /// Its id.
        fresh: SessionId,
        /// The key its caller will know it by.
        key: Option<String>,
    },
    /// In the same session under a new head.
    Head(String),
}

/// How far a cursor over all sessions has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedCursor(pub u64);

/// A record with its session, in the order over all sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRecord {
    /// The cursor to read on from.
    pub cursor: FeedCursor,
    /// The session.
    pub session: SessionId,
    /// The record.
    pub record: Record,
}

/// Takes work in. Accepting the same key twice returns the first turn.
pub trait Inbox: Send + Sync {
    /// Takes an input in.
    fn accept(&self, accept: Accept) -> Answer<'_, Accepted>;

    /// Retries a turn that ended: a new turn with the same input, in the place of the original or in a fork. The same turn again gives
    /// the retry that is under way or has an answer.
    fn retry(&self, retry: Retry) -> Answer<'_, Accepted>;

    /// Opens a session without input.
    fn open(&self, target: Target, now: Millis) -> Answer<'_, SessionId>;

    /// Asks a turn to stop. A late cancel hits nothing else.
    fn cancel(&self, turn: TurnId, reason: String, now: Millis) -> Answer<'_, Cancelled>;

    /// Asks a turn to stop and what it did to be taken back (R6.15). If somebody asked it to stop before, that stands.
    fn abort(&self, turn: TurnId, reason: String, now: Millis) -> Answer<'_, Cancelled>;

    /// Resolves a wait, before, during or after it begins. The first resolution counts.
    fn resolve(
        &self,
        turn: TurnId,
        key: ReplayKey,
        resolution: Resolution,
        now: Millis,
    ) -> Answer<'_, Resolved>;

    /// The key with which somebody outside resolves this wait of a turn.
    fn key_of(&self, turn: TurnId, wait: ReplayKey) -> Answer<'_, CompletionKey>;
}

/// Who works on what. Claiming raises the fence; a write with an old fence changes nothing.
pub trait Turns: Send + Sync {
    /// Takes up to `limit` sessions that want to be driven: ready, due, or left by a worker that is gone.
    fn claim(&self, taker: Taker, now: Millis, limit: usize) -> Answer<'_, Vec<Work>>;

    /// Extends all leases of a worker and says which it still has.
    fn renew(&self, taker: Taker) -> Answer<'_, Vec<(SessionId, Fence)>>;

    /// Writes what became true.
    fn commit(&self, commit: Commit) -> Answer<'_, Receipt>;

    /// Gives a session back, so that another worker takes it at once; a suspect is held back.
    fn hand_back(&self, lease: Lease, now: Millis) -> Answer<'_, ()>;

    /// Takes the suspect that has been due longest, and at `due` at the latest, to run it alone. A worker that has not
    /// `lived` long enough gets none, nor does anybody while another suspect is on trial.
    fn claim_suspect(&self, taker: Taker, lived: Duration, due: Millis) -> Answer<'_, Option<Work>>;

    /// Notes that a suspect runs from now on; says no if its worker still has other sessions.
    fn begin_trial(&self, lease: Lease) -> Answer<'_, bool>;

    /// Notes that a suspect ran alone for its whole window and its worker lives.
    fn end_trial(&self, lease: Lease) -> Answer<'_, ()>;

    /// Notes that a turn blocks its thread. Says whether the session was given back, to be sealed.
    fn report_hang(&self, lease: Lease) -> Answer<'_, bool>;
}

/// The facts of sessions, in order.
pub trait Journal: Send + Sync {
    /// Records of a session after a cursor.
    fn records(&self, session: SessionId, after: Seq, limit: usize) -> Answer<'_, Vec<Record>>;

    /// The records of one turn.
    fn turn_records(&self, turn: TurnId) -> Answer<'_, Vec<Record>>;

    /// Records of all sessions after a cursor, in the order they became durable.
    fn feed(&self, after: FeedCursor, limit: usize) -> Answer<'_, Vec<FeedRecord>>;

    /// Where the feed ends now, for those to whom everything is shown: how much others write is nobody else's business.
    fn feed_end(&self) -> Answer<'_, FeedCursor>;

    /// The turns before and with this message, newest first, until `bytes` of records are read.
    fn history(&self, node: NodeRef, bytes: usize) -> Answer<'_, Vec<HistoryTurn>>;

    /// Inputs that wait to join the turn that runs.
    fn joinable(&self, session: SessionId) -> Answer<'_, Vec<(TurnId, Vec<Part>)>>;

    /// Recomputes the hash chain of a session; says how many records it has.
    fn verify(&self, session: SessionId) -> Answer<'_, u64>;
}

/// What people look at.
pub trait Queries: Send + Sync {
    /// Sessions, newest first, older than `before`.
    fn sessions(&self, before: Option<SessionId>, limit: usize) -> Answer<'_, Vec<SessionView>>;

    /// One session.
    fn session(&self, id: SessionId) -> Answer<'_, SessionView>;

    /// The session with a caller's key.
    fn session_by_key(&self, key: String) -> Answer<'_, SessionView>;

    /// One turn.
    fn turn(&self, id: TurnId) -> Answer<'_, TurnView>;

    /// Turns of a session, in the order they were accepted, from an index on.
    fn turns(&self, session: SessionId, from: u32, limit: usize) -> Answer<'_, Vec<TurnView>>;

    /// Calls whose outcome nobody knows, oldest first.
    fn unknown(&self, limit: usize) -> Answer<'_, Vec<UnknownCall>>;

    /// A page of them, behind the one that was begun at this time and has this id.
    fn unknown_after(
        &self,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Answer<'_, Page<UnknownCall, (Millis, CallId)>>;

    /// Turns that wait for something of this kind, the oldest first.
    fn waiting(&self, kind: WaitKind, limit: usize) -> Answer<'_, Vec<WaitingTurn>>;

    /// Why a turn is to stop, if somebody asked for it. Cheap.
    fn cancel_reason(&self, turn: TurnId) -> Answer<'_, Option<String>>;

    /// Whether there is a session that this worker could take now. Cheap.
    fn has_work(&self, worker: WorkerId, now: Millis) -> Answer<'_, bool>;

    /// When the next parked turn is due.
    fn next_wake(&self) -> Answer<'_, Option<Millis>>;

    /// Both of these in one look, and when the next notice is due.
    fn agenda(&self, worker: WorkerId, now: Millis) -> Answer<'_, Agenda>;

    /// How much there is to do, counted up to a bound.
    fn load(&self) -> Answer<'_, Load>;

    /// A number that changes when another process changed something. Cheap.
    fn changes(&self) -> Answer<'_, u64>;

    /// What the database says of itself.
    fn status(&self) -> Answer<'_, Status>;
}

/// Branches of sessions.
pub trait Trees: Send + Sync {
    /// Makes a new head or a new session at a message. No message is copied. A session that begins where a head of its
    /// parent stands gets the parent's values as they are now; one that begins earlier gets none.
    fn fork(&self, fork: Fork) -> Answer<'_, SessionId>;

    /// Moves a head to an earlier message, or to where the session began: before its first message, or at the message
    /// it was forked from. Nothing is lost.
    fn rewind(&self, session: SessionId, head: String, to: Option<Seq>, now: Millis) -> Answer<'_, ()>;

    /// Removes a session and everything only it uses.
    fn delete(&self, session: SessionId, now: Millis) -> Answer<'_, ()>;

    /// Sessions that were forked from this one and need its history.
    fn forks(&self, session: SessionId) -> Answer<'_, Vec<SessionId>>;

    /// Says how a call of unknown outcome went.
    fn settle(&self, call: CallId, verdict: Verdict, now: Millis) -> Answer<'_, SessionId>;
}

/// Content by hash, and the values of sessions.
pub trait Content: Send + Sync {
    /// The bytes with this hash. Whoever serves one organisation finds none: content is reached by what refers to it.
    fn blob(&self, hash: Hash) -> Answer<'_, Vec<u8>>;

    /// The configuration that a turn began under, or was accepted for.
    fn package(&self, turn: TurnId) -> Answer<'_, Vec<u8>>;

    /// Some bytes of an attachment whose content lies in the database, without reading the others. They are not held
    /// against its hash.
    fn attached(&self, session: SessionId, id: AttachmentId, range: Range<u64>) -> Answer<'_, Vec<u8>>;

    /// An attachment of a session, or of the sessions it was forked from.
    fn attachment(&self, session: SessionId, id: AttachmentId) -> Answer<'_, AttachmentView>;

    /// The attachments that a session itself uses, by id.
    fn attachments(&self, session: SessionId, limit: usize) -> Answer<'_, Vec<AttachmentView>>;

    /// A page of them, behind one.
    fn attachments_after(
        &self,
        session: SessionId,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Answer<'_, Page<AttachmentView, AttachmentId>>;

    /// What was kept of the reply that a turn was getting when it was left.
    fn said(&self, turn: TurnId) -> Answer<'_, Option<Said>>;

    /// A value of a session.
    fn value(&self, session: SessionId, name: String) -> Answer<'_, Option<Value>>;

    /// Names of a session's values that begin with `prefix`.
    fn value_names(&self, session: SessionId, prefix: String, limit: usize) -> Answer<'_, Vec<String>>;

    /// The secret that signs completion keys; made with the database, never shown, and only to its operator.
    fn secret(&self) -> Answer<'_, [u8; 32]>;
}

/// What a database says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Its engine and version.
    pub engine: String,
    /// Where it lives.
    pub place: String,
    /// The version of its schema.
    pub schema: u32,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Bytes it takes.
    pub bytes: u64,
    /// How long this process waited for writes to be durable, where that takes time.
    pub syncs: Option<Spread>,
}

/// How much there is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sessions that wait for a worker.
    pub ready: usize,
    /// Sessions that a worker drives.
    pub leased: usize,
    /// Sessions that are held back because workers died while their turns ran.
    pub held: usize,
    /// Payments that are decided and that their authority has not taken yet.
    pub owed: usize,
    /// Turns that wait for a model provider.
    pub provider_waits: usize,
    /// Sessions by how their last turn ended, where it was not answered.
    pub last_ends: Vec<(LastEnd, usize)>,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The loss of power.
    PowerLoss,
    /// The death of the process, but not the loss of power. Only by an explicit unsafe setting.
    ProcessDeath,
    /// Nothing.
    None,
}

impl Durability {
    /// How it is said to a person.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PowerLoss => "survives power loss",
            Self::ProcessDeath => "UNSAFE: lost with power",
            Self::None => "nothing is kept",
        }
    }
}

/// All facets.
pub trait Store:
    Inbox
    + Turns
    + Journal
    + Queries
    + Trees
    + Content
    + Sweep
    + Outbox
    + Orgs
    + Books
    + Rates
    + Owing
    + Configs
    + Votes
    + Archives
    + Search
{
    /// The same data as somebody with this access has it. What this handle may not do or see, the new one may not
    /// either.
    fn serving(self: Arc<Self>, access: Access) -> Arc<dyn Store>;
}

impl<B: Backend> Store for B {
    fn serving(self: Arc<Self>, access: Access) -> Arc<dyn Store> {
        let access = Backend::access(&*self).narrowed(access);
        Arc::new(Scoped::new(self, access))
    }
}

/// All that a database has to bring: run a unit of work as one transaction, read from a consistent state.
///
/// Everything else follows from [`crate::ledger`]. A wrapper that counts or crashes needs to wrap only these.
pub trait Backend: Send + Sync + 'static {
    /// Runs a unit as one durable transaction. An error undoes all it did.
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static;

    /// Reads from one consistent state.
    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn ReadRows) -> Result<T, Error> + Send + 'static;

    /// A number that changes when another process changed something.
    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>>;

    /// What the database says of itself.
    fn status(&self) -> BoxFuture<'_, Result<Status, Error>>;

    /// With what it is reached.
    fn access(&self) -> Access {
        Access::operator()
    }
}

impl<B: Backend> Inbox for B {
    fn accept(&self, accept: Accept) -> Answer<'_, Accepted> {
        self.write(move |rows| ledger::accept(rows, accept))
    }

    fn retry(&self, retry: Retry) -> Answer<'_, Accepted> {
        self.write(move |rows| ledger::retry(rows, retry))
    }

    fn open(&self, target: Target, now: Millis) -> Answer<'_, SessionId> {
        self.write(move |rows| ledger::open(rows, target, now))
    }

    fn cancel(&self, turn: TurnId, reason: String, now: Millis) -> Answer<'_, Cancelled> {
        self.write(move |rows| ledger::cancel(rows, turn, ledger::Stop { reason, undo: false }, now))
    }

    fn abort(&self, turn: TurnId, reason: String, now: Millis) -> Answer<'_, Cancelled> {
        self.write(move |rows| ledger::cancel(rows, turn, ledger::Stop { reason, undo: true }, now))
    }

    fn resolve(
        &self,
        turn: TurnId,
        key: ReplayKey,
        resolution: Resolution,
        now: Millis,
    ) -> Answer<'_, Resolved> {
        self.write(move |rows| ledger::resolve(rows, turn, &key, resolution, now))
    }

    fn key_of(&self, turn: TurnId, wait: ReplayKey) -> Answer<'_, CompletionKey> {
        self.read(move |rows| ledger::key_of(rows, turn, wait))
    }
}

impl<B: Backend> Turns for B {
    fn claim(&self, taker: Taker, now: Millis, limit: usize) -> Answer<'_, Vec<Work>> {
        self.write(move |rows| ledger::claim(rows, taker, now, limit))
    }

    fn renew(&self, taker: Taker) -> Answer<'_, Vec<(SessionId, Fence)>> {
        self.write(move |rows| ledger::renew(rows, taker))
    }

    fn commit(&self, mut commit: Commit) -> Answer<'_, Receipt> {
        let drafts = std::mem::take(&mut commit.facts).into_iter().map(ledger::Draft::from).collect();
        self.write(move |rows| ledger::commit(rows, commit, drafts))
    }

    fn hand_back(&self, lease: Lease, now: Millis) -> Answer<'_, ()> {
        self.write(move |rows| ledger::hand_back(rows, &lease, now))
    }

    fn claim_suspect(&self, taker: Taker, lived: Duration, due: Millis) -> Answer<'_, Option<Work>> {
        self.write(move |rows| ledger::claim_suspect(rows, taker, lived, due))
    }

    fn begin_trial(&self, lease: Lease) -> Answer<'_, bool> {
        self.write(move |rows| ledger::begin_trial(rows, &lease))
    }

    fn end_trial(&self, lease: Lease) -> Answer<'_, ()> {
        self.write(move |rows| ledger::end_trial(rows, &lease))
    }

    fn report_hang(&self, lease: Lease) -> Answer<'_, bool> {
        self.write(move |rows| ledger::report_hang(rows, &lease))
    }
}

impl<B: Backend> Journal for B {
    fn records(&self, session: SessionId, after: Seq, limit: usize) -> Answer<'_, Vec<Record>> {
        self.read(move |rows| ledger::records(rows, session, after, limit))
    }

    fn turn_records(&self, turn: TurnId) -> Answer<'_, Vec<Record>> {
        self.read(move |rows| ledger::turn_records(rows, turn))
    }

    fn feed(&self, after: FeedCursor, limit: usize) -> Answer<'_, Vec<FeedRecord>> {
        self.read(move |rows| ledger::feed(rows, after, limit))
    }

    fn feed_end(&self) -> Answer<'_, FeedCursor> {
        self.read(|rows| rows.feed_end().map(FeedCursor))
    }

    fn history(&self, node: NodeRef, bytes: usize) -> Answer<'_, Vec<HistoryTurn>> {
        self.read(move |rows| ledger::history(rows, node, bytes))
    }

    fn joinable(&self, session: SessionId) -> Answer<'_, Vec<(TurnId, Vec<Part>)>> {
        self.read(move |rows| ledger::joinable(rows, session))
    }

    fn verify(&self, session: SessionId) -> Answer<'_, u64> {
        self.read(move |rows| ledger::verify(rows, session))
    }
}

impl<B: Backend> Queries for B {
    fn sessions(&self, before: Option<SessionId>, limit: usize) -> Answer<'_, Vec<SessionView>> {
        self.read(move |rows| ledger::sessions(rows, before, limit))
    }

    fn session(&self, id: SessionId) -> Answer<'_, SessionView> {
        self.read(move |rows| ledger::session(rows, id))
    }

    fn session_by_key(&self, key: String) -> Answer<'_, SessionView> {
        self.read(move |rows| ledger::session_by_key(rows, &key))
    }

    fn turn(&self, id: TurnId) -> Answer<'_, TurnView> {
        self.read(move |rows| ledger::turn(rows, id))
    }

    fn turns(&self, session: SessionId, from: u32, limit: usize) -> Answer<'_, Vec<TurnView>> {
        self.read(move |rows| ledger::turns(rows, session, from, limit))
    }

    fn unknown(&self, limit: usize) -> Answer<'_, Vec<UnknownCall>> {
        self.read(move |rows| Ok(ledger::unknown(rows, None, limit)?.items))
    }

    fn unknown_after(
        &self,
        after: Option<(Millis, CallId)>,
        limit: usize,
    ) -> Answer<'_, Page<UnknownCall, (Millis, CallId)>> {
        self.read(move |rows| ledger::unknown(rows, after, limit))
    }

    fn waiting(&self, kind: WaitKind, limit: usize) -> Answer<'_, Vec<WaitingTurn>> {
        self.read(move |rows| ledger::waiting(rows, kind, limit))
    }

    fn cancel_reason(&self, turn: TurnId) -> Answer<'_, Option<String>> {
        self.read(move |rows| ledger::cancel_reason(rows, turn))
    }

    fn has_work(&self, worker: WorkerId, now: Millis) -> Answer<'_, bool> {
        self.read(move |rows| ledger::has_work(rows, worker, now))
    }

    fn next_wake(&self) -> Answer<'_, Option<Millis>> {
        self.read(|rows| ledger::next_wake(rows))
    }

    fn agenda(&self, worker: WorkerId, now: Millis) -> Answer<'_, Agenda> {
        self.read(move |rows| {
            let (has_work, next_wake) = (ledger::has_work(rows, worker, now)?, ledger::next_wake(rows)?);
            let has_suspect = ledger::has_suspect(rows, now)?;
            Ok(Agenda { has_work, has_suspect, next_wake, next_notice: rows.next_notice()? })
        })
    }

    fn load(&self) -> Answer<'_, Load> {
        self.read(|rows| ledger::load(rows))
    }

    fn changes(&self) -> Answer<'_, u64> {
        Backend::changes(self)
    }

    fn status(&self) -> Answer<'_, Status> {
        Backend::status(self)
    }
}

impl<B: Backend> Trees for B {
    fn fork(&self, fork: Fork) -> Answer<'_, SessionId> {
        self.write(move |rows| ledger::fork(rows, fork))
    }

    fn rewind(&self, session: SessionId, head: String, to: Option<Seq>, now: Millis) -> Answer<'_, ()> {
        self.write(move |rows| ledger::rewind(rows, session, &head, to, now))
    }

    fn delete(&self, session: SessionId, now: Millis) -> Answer<'_, ()> {
        self.write(move |rows| ledger::delete(rows, session, now))
    }

    fn forks(&self, session: SessionId) -> Answer<'_, Vec<SessionId>> {
        self.read(move |rows| ledger::forks(rows, session))
    }

    fn settle(&self, call: CallId, verdict: Verdict, now: Millis) -> Answer<'_, SessionId> {
        self.write(move |rows| ledger::settle(rows, call, &verdict, now))
    }
}

impl<B: Backend> Content for B {
    fn blob(&self, hash: Hash) -> Answer<'_, Vec<u8>> {
        self.read(move |rows| ledger::blob(rows, hash))
    }

    fn package(&self, turn: TurnId) -> Answer<'_, Vec<u8>> {
        self.read(move |rows| ledger::package(rows, turn))
    }

    fn attached(&self, session: SessionId, id: AttachmentId, range: Range<u64>) -> Answer<'_, Vec<u8>> {
        self.read(move |rows| ledger::attached(rows, session, id, range))
    }

    fn attachment(&self, session: SessionId, id: AttachmentId) -> Answer<'_, AttachmentView> {
        self.read(move |rows| ledger::attachment(rows, session, id))
    }

    fn attachments(&self, session: SessionId, limit: usize) -> Answer<'_, Vec<AttachmentView>> {
        self.read(move |rows| Ok(ledger::attachments(rows, session, None, limit)?.items))
    }

    fn attachments_after(
        &self,
        session: SessionId,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Answer<'_, Page<AttachmentView, AttachmentId>> {
        self.read(move |rows| ledger::attachments(rows, session, after, limit))
    }

    fn said(&self, turn: TurnId) -> Answer<'_, Option<Said>> {
        self.read(move |rows| ledger::said(rows, turn))
    }

    fn value(&self, session: SessionId, name: String) -> Answer<'_, Option<Value>> {
        self.read(move |rows| ledger::value(rows, session, &name))
    }

    fn value_names(&self, session: SessionId, prefix: String, limit: usize) -> Answer<'_, Vec<String>> {
        self.read(move |rows| ledger::value_names(rows, session, &prefix, limit))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        self.read(|rows| rows.secret())
    }
}

impl<B: Backend> Sweep for B {
    fn sweeps(&self) -> Answer<'_, Sweeps> {
        self.read(|rows| rows.sweeps())
    }

    fn left(&self, limit: usize) -> Answer<'_, Vec<Hash>> {
        self.read(move |rows| ledger::left(rows, limit))
    }

    fn unused(&self, contents: Vec<Hash>) -> Answer<'_, Vec<Hash>> {
        self.read(move |rows| ledger::unused(rows, contents))
    }

    fn condemn(&self, condemn: Condemn) -> Answer<'_, Vec<Hash>> {
        self.write(move |rows| ledger::condemn(rows, &condemn))
    }

    fn acquit(&self, condemn: Condemn) -> Answer<'_, ()> {
        self.write(move |rows| ledger::acquit(rows, &condemn))
    }

    fn forget(&self, contents: Vec<Hash>, worker: WorkerId) -> Answer<'_, ()> {
        self.write(move |rows| ledger::forget(rows, &contents, worker))
    }
}

impl<B: Backend> Books for B {
    fn budgets(&self, limit: usize) -> Answer<'_, Vec<PurseView>> {
        self.read(move |rows| Ok(ledger::budgets(rows, None, limit)?.items))
    }

    fn budgets_after(
        &self,
        after: Option<(OrgId, String)>,
        limit: usize,
    ) -> Answer<'_, Page<PurseView, (OrgId, String)>> {
        self.read(move |rows| ledger::budgets(rows, after.as_ref(), limit))
    }

    fn budgets_are_set(&self) -> Answer<'_, bool> {
        self.read(|rows| rows.budgets_are_set())
    }

    fn awaited(&self, turn: TurnId) -> Answer<'_, Vec<Awaited>> {
        self.read(move |rows| ledger::awaited(rows, turn))
    }

    fn set_budget(&self, purse: Purse, budget: Option<Budget>, now: Millis) -> Answer<'_, ()> {
        self.write(move |rows| ledger::set_budget(rows, &purse, budget, now))
    }
}

impl<B: Backend> Rates for B {
    fn rates(&self, limit: usize) -> Answer<'_, Vec<RateView>> {
        self.read(move |rows| Ok(ledger::rates(rows, None, limit)?.items))
    }

    fn rates_after(
        &self,
        after: Option<(OrgId, String)>,
        limit: usize,
    ) -> Answer<'_, Page<RateView, (OrgId, String)>> {
        self.read(move |rows| ledger::rates(rows, after.as_ref(), limit))
    }
}

impl<B: Backend> Outbox for B {
    fn subscribe(&self, subscriptions: Vec<Subscription>, now: Millis) -> Answer<'_, ()> {
        self.write(move |rows| ledger::subscribe(rows, &subscriptions, now))
    }

    fn outlook(&self, sink: String, now: Millis) -> Answer<'_, Outlook> {
        self.read(move |rows| ledger::outlook(rows, &sink, now))
    }

    fn collect(&self, collect: Collect) -> Answer<'_, Vec<Due>> {
        self.write(move |rows| ledger::collect(rows, &collect))
    }

    fn delivered(&self, attempt: Attempt) -> Answer<'_, ()> {
        self.write(move |rows| ledger::delivered(rows, &attempt))
    }

    fn undelivered(&self, attempt: Attempt, failure: Failure, again: Option<Millis>) -> Answer<'_, ()> {
        self.write(move |rows| ledger::undelivered(rows, &attempt, failure, again))
    }

    fn sinks(&self) -> Answer<'_, Vec<SinkView>> {
        self.read(|rows| ledger::sinks(rows))
    }

    fn deliveries(&self, sink: String, limit: usize) -> Answer<'_, Vec<DeliveryView>> {
        self.read(move |rows| Ok(ledger::deliveries(rows, &sink, None, limit)?.items))
    }

    fn deliveries_after(
        &self,
        sink: String,
        after: Option<DeliveryPlace>,
        limit: usize,
    ) -> Answer<'_, Page<DeliveryView, DeliveryPlace>> {
        self.read(move |rows| ledger::deliveries(rows, &sink, after, limit))
    }

    fn redeliver(&self, sink: String, only: Option<DeliveryId>, now: Millis) -> Answer<'_, u64> {
        self.write(move |rows| ledger::redeliver(rows, &sink, only, now))
    }
}

impl<B: Backend> Configs for B {
    fn put_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
        now: Millis,
    ) -> Answer<'_, StoredConfig> {
        self.write(move |rows| ledger::put_config(rows, kind, &name, &body, now))
    }

    fn replace_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
        last: u32,
        now: Millis,
    ) -> Answer<'_, StoredConfig> {
        self.write(move |rows| ledger::replace_config(rows, kind, &name, &body, last, now))
    }

    fn delete_config(
        &self,
        kind: ConfigKind,
        name: String,
        last: Option<u32>,
        now: Millis,
    ) -> Answer<'_, StoredConfig> {
        self.write(move |rows| ledger::delete_config(rows, kind, &name, last, now))
    }

    fn config(&self, kind: ConfigKind, name: String) -> Answer<'_, Option<StoredConfig>> {
        self.read(move |rows| ledger::config(rows, kind, &name))
    }

    fn configs(&self, kind: ConfigKind, limit: usize) -> Answer<'_, Vec<StoredConfig>> {
        self.read(move |rows| Ok(ledger::configs(rows, kind, None, limit)?.items))
    }

    fn configs_after(
        &self,
        kind: ConfigKind,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Page<StoredConfig, String>> {
        self.read(move |rows| ledger::configs(rows, kind, after.as_deref(), limit))
    }

    fn config_versions(&self, kind: ConfigKind, name: String, limit: usize) -> Answer<'_, Vec<StoredConfig>> {
        self.read(move |rows| Ok(ledger::config_versions(rows, (kind, &name), None, limit)?.items))
    }

    fn config_versions_before(
        &self,
        kind: ConfigKind,
        name: String,
        before: Option<u32>,
        limit: usize,
    ) -> Answer<'_, Page<StoredConfig, u32>> {
        self.read(move |rows| ledger::config_versions(rows, (kind, &name), before, limit))
    }
}

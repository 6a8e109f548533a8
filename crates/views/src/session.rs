//! Sessions: one session, lists with filters, the history of a branch, and where a branch is created.
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::id::{OrgId, SessionId, TurnId, WorkerId};
use outlast_vocab::record::{NodeRef, Record, Seq, TurnEndKind};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Kind, Millis};
use std::str::FromStr;

/// A session, as queries return it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// The organisation that owns it.
    pub org: OrgId,
    /// The caller's key for it.
    pub key: Option<String>,
    /// Its scheduling state.
    pub state: SessionState,
    /// When it was opened.
    pub created: Millis,
    /// When it last changed.
    pub updated: Millis,
    /// How many inputs it accepted.
    pub turns: u32,
    /// Its last record.
    pub last: JournalPosition,
    /// Its heads by name.
    pub heads: Vec<(String, Option<NodeRef>)>,
    /// The message it was forked from.
    pub forked_from: Option<NodeRef>,
    /// The turn that is running or parked.
    pub active: Option<TurnId>,
    /// The worker that runs it.
    pub worker: Option<WorkerId>,
    /// The waits of a parked turn.
    pub waits: Vec<Wait>,
    /// When a worker resumes the parked or held turn if no event arrives first.
    pub wake_at: Option<Millis>,
    /// Workers that died while they drove its turn, since the turn's last progress.
    pub deaths: u32,
    /// What models and priced tools cost in it, where prices were known. `None` for sessions older than the counter.
    pub cost: Option<Cost>,
    /// The turn that ended last, or that is stuck now. `None` before a turn ended.
    pub last_turn: Option<LastTurn>,
}

/// The scheduling state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// There is nothing to do.
    Idle,
    /// A turn waits for a worker.
    Ready,
    /// A worker runs a turn.
    Leased,
    /// A turn waits for something external.
    Parked,
    /// A turn is held back because workers died while it ran. It runs alone next.
    Held,
}

impl SessionState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Ready, Self::Leased, Self::Parked, Self::Held];

    /// Returns the name of the state, as tables show it.
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
    /// The turn ended.
    Ended(TurnEndKind),
    /// The turn has not ended but cannot continue until a person or a deployment fixes the cause.
    Stuck,
}

impl LastEnd {
    /// Returns every end that the last turn of a session can have. An input that joined another turn is not a turn,
    /// so `Joined` is excluded.
    pub fn all() -> impl Iterator<Item = Self> {
        let ends = TurnEndKind::ALL.into_iter().filter(|kind| *kind != TurnEndKind::Joined);
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
            Error::new(Kind::InputInvalid, format!("expected an outcome of a turn ({names}), got `{name}`"))
        })
    }
}

/// Which sessions to list.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// Only sessions in this state.
    pub state: Option<SessionState>,
    /// Only sessions whose last turn ended this way.
    pub last_end: Option<LastEnd>,
    /// Only sessions whose key or first input contains this text, ignoring case.
    pub text: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug)]
pub struct TitledSession {
    /// The session.
    pub session: SessionView,
    /// The title: the first input, or the fork that it came from.
    pub title: String,
}

/// A page of sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionPage {
    /// The sessions, newest first.
    pub sessions: Vec<TitledSession>,
    /// Where the next page begins. `None` at the end.
    pub before: Option<SessionId>,
}

/// A part of the history: the records of one turn that form its transcript, up to and including `last_in_branch`.
#[derive(Debug)]
pub struct HistoryTurn {
    /// The records, in order. Those after the cut serve only to restore results.
    pub records: Vec<Record>,
    /// The last record that belongs to this branch.
    pub last_in_branch: Seq,
}

/// Where a branch is created.
#[derive(Clone, Debug)]
pub enum ForkTo {
    /// In a new session.
    Session {
        /// Its id.
        fresh: SessionId,
        /// The caller's key for it.
        key: Option<String>,
    },
    /// In the same session under a new head.
    Head(String),
}

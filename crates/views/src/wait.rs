//! Waits: why a session does not progress, who can unblock it, and calls whose outcome is unknown.
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::id::{ApprovalId, CallId, SessionId, TurnId, WorkerId};
use outlast_vocab::message::ToolName;
use outlast_vocab::record::{ClaimRef, TurnEnd};
use outlast_vocab::wait::{CompletionKey, Resolution, Wait};
use outlast_vocab::{Failure, Millis};
use serde_json::Value;

/// Why a session or turn is not progressing.
#[derive(Clone, Debug)]
pub struct WaitExplanation {
    /// The session.
    pub session: SessionId,
    /// The turn that blocks the session, or that was asked about.
    pub turn: Option<TurnId>,
    /// The state of the turn.
    pub progress: TurnProgress,
    /// Since when it is in this state.
    pub since: Millis,
    /// What it waits for, each with what unblocks it.
    pub waits: Vec<BlockingWait>,
    /// The number of inputs queued behind it.
    pub queued: usize,
    /// The last turn of an idle session, and how it ended.
    pub last: Option<(TurnId, TurnEnd)>,
}

/// The state of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnProgress {
    /// The session is idle.
    Rests,
    /// The turn has ended.
    Ended(TurnEnd),
    /// It is queued behind another turn of its session.
    Behind(TurnId),
    /// It is ready, and no worker has claimed it yet.
    Ready,
    /// A worker is driving it.
    Driven {
        /// The worker.
        worker: Option<WorkerId>,
        /// The current activity: `the model` or the name of a tool.
        doing: String,
    },
    /// It waits for something external.
    Waits,
    /// It is held back because workers died while running it. It runs alone next.
    Held {
        /// Worker deaths since its last progress.
        deaths: u32,
        /// The earliest time of the next try.
        until: Option<Millis>,
    },
    /// It is stuck: it cannot continue until something is fixed.
    Stuck(Failure),
}

impl TurnProgress {
    /// Returns the name of the state, in one word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Rests => "rests",
            Self::Ended(_) => "ended",
            Self::Behind(_) => "queued",
            Self::Ready => "ready",
            Self::Driven { .. } => "running",
            Self::Waits => "waits",
            Self::Held { .. } => "held",
            Self::Stuck(_) => "stuck",
        }
    }
}

/// One wait of a turn.
#[derive(Clone, Debug)]
pub struct BlockingWait {
    /// The wait.
    pub wait: Wait,
    /// When the turn first parked on it.
    pub since: Millis,
    /// The tool and arguments of the call that waits.
    pub call: Option<(String, serde_json::Value)>,
    /// What unblocks it.
    pub unblocked_by: Unblocker,
}

/// Who or what can unblock a turn.
#[derive(Clone, Debug)]
pub enum Unblocker {
    /// An approval by one of these people, or by anyone if the list is empty.
    Approval {
        /// The id of the approval.
        id: ApprovalId,
        /// Who may approve now.
        who: Vec<String>,
    },
    /// A completion with this key. `None` if the caller may not see the key.
    Completion(Option<CompletionKey>),
    /// Time.
    Time,
    /// The provider, once it answers again. An operator can force a call now.
    Provider {
        /// The provider's name. `None` while the turn only waits for the provider's rate limit.
        name: Option<String>,
        /// The failure of the last attempt, if it is recorded.
        failure: Option<Failure>,
    },
    /// An operator who raises this budget. `None` for turns written by older versions, which do not record it.
    Budget(Option<BudgetAccount>),
    /// A fix by an operator or a deploy. A worker also tries again on its own.
    Retry,
}

impl Unblocker {
    /// Returns the name of the kind, in one word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Approval { .. } => "approval",
            Self::Completion(_) => "completion",
            Self::Time => "time",
            Self::Provider { .. } => "provider",
            Self::Budget(_) => "budget",
            Self::Retry => "retry",
        }
    }
}

/// A turn that waits, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingTurn {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// What it waits for.
    pub wait: Wait,
}

/// The result of resolving a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveResult {
    /// The resolution that is in effect: the first one.
    pub first: Resolution,
    /// Whether that is the resolution of this call.
    pub is_yours: bool,
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownCall {
    /// Outlast's id of the call, which is also its idempotency key for external services.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// The arguments of the call.
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

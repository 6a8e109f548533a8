//! Records: the facts of a session, in the order they became durable. State is a fold over them.
//!
//! A record's body is one version byte and the JSON of its [`Fact`]. Bodies of every released version decode for ever;
//! `tests/fixtures` holds one of each.
use crate::cost::Cost;
use crate::effect::{
    Command, DirectOutcome, EffectKind, ModelOutcome, Outcome, Place, ToolOutcome, Usage, is_default,
};
use crate::error::Failure;
use crate::hook::Patch;
use crate::id::{CallId, SessionId, TurnId, WorkerId};
use crate::key::ReplayKey;
use crate::label::{Labels, Provenance};
use crate::message::{HookName, Message, ModelCallId, ModelName, Part, PluginName, ToolName, ToolResult};
use crate::payment::Payment;
use crate::policy::{Decision, Point, Ruling};
use crate::rate::Paced;
use crate::tool::{EffectClass, PreparedCall, Undo};
use crate::trace::TraceParent;
use crate::wait::{Resolution, Wait};
use crate::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The place of a record in its session, counted from 1 without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A message's place over all sessions: the node of the session tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeRef {
    /// The session whose record it is; a fork refers to its parent's nodes.
    pub session: SessionId,
    /// The record.
    pub seq: Seq,
}

/// A persisted fact with its place and its link in the hash chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the session.
    pub seq: Seq,
    /// The turn it belongs to; facts about the session itself have none.
    pub turn: Option<TurnId>,
    /// When it was written.
    pub at: Millis,
    /// The chain's hash after it.
    pub hash: Hash,
    /// What became true.
    pub fact: Fact,
}

impl Record {
    /// Where the record stands.
    pub fn place(&self) -> Place {
        Place { seq: self.seq, hash: self.hash }
    }
}

/// What became true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The session exists.
    Opened {
        /// The key its caller knows it by.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Where it was forked from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked_from: Option<NodeRef>,
    },
    /// A head was made or moved.
    HeadMoved {
        /// Which head.
        head: String,
        /// Where it stands now; nowhere is before the first message.
        to: Option<NodeRef>,
    },
    /// An input was taken in as a turn.
    Accepted(Accepted),
    /// A worker began the turn.
    Started(Started),
    /// An effect is about to be performed; for a batch this is the claim of each call in it.
    Asked(Asked),
    /// An asked effect has its outcome.
    Answered(Answered),
    /// An effect was asked and answered in one write.
    Performed(Performed),
    /// A call that another lease had begun was taken over: to be performed again, to go on after a wait, or to be ruled
    /// on.
    Reclaimed(Reclaimed),
    /// The turn holds still until one of these is resolved.
    Parked {
        /// What it waits for.
        waits: Vec<Wait>,
    },
    /// The turn cannot go on as it is; it waits for a person or a deploy.
    Stuck {
        /// Why.
        failure: Failure,
    },
    /// Somebody resolved a wait, before, during or after it began.
    Resolved {
        /// Which place of the turn.
        key: ReplayKey,
        /// How.
        resolution: Resolution,
    },
    /// Somebody wants the turn to stop.
    CancelRequested {
        /// Why.
        reason: String,
        /// Whether what it did is to be taken back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        undo: bool,
    },
    /// What was done here can be taken back.
    Undoable(Undoable),
    /// A hook changed something about an effect. Written with the effect, or before it.
    Hooked(Hooked),
    /// A payment of a call came this far.
    Payment(Payment),
    /// A policy decided something besides a call.
    Ruled(Ruled),
    /// A rate made a call wait, let it go then, or refused it.
    Paced(Paced),
    /// Another lease went on with the turn, which the one before did not leave parked.
    Resumed(Resumed),
    /// Attempts of a model call failed, and it has no outcome yet.
    Tried(Tried),
    /// A model call was cut short because the turn was cancelled.
    Interrupted(InterruptedReply),
    /// Whoever may approve a call was reminded of it.
    Reminded {
        /// The wait for the approval.
        key: ReplayKey,
        /// How many reminders have fallen due by now.
        number: u32,
    },
    /// Others may approve a call too from now on.
    Escalated {
        /// The wait for the approval.
        key: ReplayKey,
        /// Who.
        to: Vec<String>,
    },
    /// Calls without a result were given one before the model was asked.
    Repaired {
        /// Which calls, and what was put there.
        calls: Vec<RepairedCall>,
    },
    /// Earlier messages are shown to the model in a shorter form from here on. They stay as they are.
    Compacted(Compacted),
    /// A person said how a call of unknown outcome went.
    Settled(Settled),
    /// The turn is over.
    Ended {
        /// How.
        end: End,
    },
}

/// An input that was taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// What it says.
    pub parts: Vec<Part>,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What it does when a turn is under way.
    #[serde(default, skip_serializing_if = "Delivery::is_next")]
    pub delivery: Delivery,
    /// The fingerprint of the configuration that is to answer it: that of whoever took it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Hash>,
    /// JSON Schema that the turn's answer must fit (R4.9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What it carries for plug-ins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<PluginName, Value>,
    /// The span that caused it, where its caller said so (R14.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// What was said elsewhere before it, which the model is shown as if it had been said here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Message>,
    /// What its sender wants to be shown again with it. Nobody else reads it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub note: Option<Value>,
    /// The turn that this one retries: its answered effects are taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TurnId>,
}

/// What an input does that arrives during a turn (R4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It starts the next turn.
    #[default]
    Next,
    /// It joins the running turn at its next checkpoint, or starts the next turn if there is none.
    Join,
}

impl Delivery {
    #[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
    fn is_next(&self) -> bool {
        *self == Self::Next
    }
}

/// What is shown to the model in a shorter form, and how (R4.10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// Which compaction of the turn.
    pub key: ReplayKey,
    /// The last earlier turn that is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<TurnId>,
    /// How many messages of this turn are shorter.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub here: u32,
    /// How.
    pub shorter: Shorter,
}

/// How messages are made shorter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shorter {
    /// Long results of tools are left out.
    Results,
    /// A summary takes their place.
    Summary {
        /// What a model made of them.
        text: String,
        /// What that cost in tokens.
        #[serde(default, skip_serializing_if = "is_default")]
        usage: Usage,
        /// What that cost in money, where the price was known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
    },
}

/// The beginning of a turn's work. Everything later decisions depend on is pinned here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The version of the kernel that decides in this turn (R3.16).
    pub kernel: u32,
    /// The fingerprint of the configuration.
    pub package: Hash,
    /// The head it appends to.
    pub head: String,
    /// The message it follows; none in an empty session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<NodeRef>,
    /// The untrusted sources of what was said before it, where labels are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
}

/// An effect that is about to be performed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Its path.
    pub key: ReplayKey,
    /// What is asked.
    pub command: Command,
}

/// The outcome of an asked effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Which record asked, and which of its calls.
    pub claim: ClaimRef,
    /// The outcome.
    pub outcome: Outcome,
    /// What the call cost, where its tool has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// One claim: the record that asked, and the call in it for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The record that asked.
    pub asked: Seq,
    /// The call of a batch; 0 for everything else.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub child: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(child: &u32) -> bool {
    *child == 0
}

/// An effect that was asked and answered in one write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Performed {
    /// Its path.
    pub key: ReplayKey,
    /// What was asked.
    pub command: Command,
    /// The outcome.
    pub outcome: Outcome,
    /// Attempts of a model call that failed before the one that gave the outcome, since the turn last held still for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<FailedAttempt>,
    /// What the call cost that is over with it, where its tool has a price. What a model cost stands in its reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Whether the outcome was taken over from the turn that this one retries. Nothing was performed or paid for it here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
}

impl Performed {
    /// An effect that had its outcome at the first attempt.
    pub fn new(key: ReplayKey, command: impl Into<Command>, outcome: impl Into<Outcome>) -> Self {
        let (command, outcome) = (command.into(), outcome.into());
        Self { key, command, outcome, tried: Vec::new(), cost: None, reused: false }
    }
}

/// That another lease went on with a turn: its worker died, lost it or handed it back. Every effect that was answered before is
/// answered from the journal (R3.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// Who went on.
    pub worker: WorkerId,
    /// The number of its lease, the fence of its writes.
    pub lease: u64,
    /// When it took the turn over; the record is part of its first write.
    pub since: Millis,
}

/// Attempts of a model call that failed, where the turn holds still or ends before the call has an outcome (R5.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Which call.
    pub key: ReplayKey,
    /// The attempts, in order.
    pub attempts: Vec<FailedAttempt>,
}

/// An attempt of a model call that gave no whole reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Its number, as live frames and the reply say it.
    pub attempt: u32,
    /// When it began.
    pub from: Millis,
    /// When it had failed.
    pub until: Millis,
    /// Why.
    pub failure: Failure,
}

/// A reply that a cancel cut short: what was streamed of it, and what it is counted as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedReply {
    /// The model call.
    pub key: ReplayKey,
    /// The model that was asked.
    pub model: ModelName,
    /// The text that was streamed. Empty where answers are judged before people see them, or hooks may change them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The tokens that the call is counted as: the most that it could use. The provider did not say how many it used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// The price of these tokens, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl InterruptedReply {
    /// Returns the text with a mark behind it that says that the reply is not complete. Models and people are shown this.
    pub fn marked_text(&self) -> String {
        format!("{}\n\n[interrupted: the turn was cancelled before this reply was complete]", self.text)
    }
}

/// A call that was taken over from an earlier lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaimed {
    /// Which call.
    pub claim: ClaimRef,
    /// Which attempt it is at now, counted from 1.
    pub attempt: u32,
}

/// A call that can be taken back, and how (R6.15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undoable {
    /// The call.
    pub key: ReplayKey,
    /// What takes it back.
    pub undo: Undo,
}

/// A hook's change to an effect (R11.3). What the effect's own record says is what it was with the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooked {
    /// The effect.
    pub key: ReplayKey,
    /// The hook.
    pub hook: HookName,
    /// What it changed.
    pub patch: Patch,
    /// What was there before, where no other record says it: the text of a reply, the result of a call.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "even_null")]
    pub was: Option<Value>,
}

/// What a policy decided at a point of the turn (R11.1). It is not asked again when the turn is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruled {
    /// What it is about: the turn, the model call, its answer, something that a call does, or a call that a call makes.
    pub key: ReplayKey,
    /// Where it decided.
    pub at: Point,
    /// What it decided.
    pub ruling: Ruling,
    /// What somebody is asked about, where it asks; the arguments of a call that a call makes, as they were left by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Value>,
    /// The untrusted sources that may have asked for it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The tool of a call that a call makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
}

impl Ruled {
    /// What was decided of this. The facts are kept where somebody has to be shown them.
    pub fn new(key: ReplayKey, at: Point, ruling: Ruling, facts: &Value, labels: Labels) -> Self {
        let facts = matches!(ruling.decision, Decision::Ask(_)).then(|| facts.clone());
        Self { key, at, ruling, facts, labels, tool: None }
    }

    /// Whether it is about what a model says, and does not let that be said as it stands: not at all, or not yet.
    pub fn holds_back(&self) -> bool {
        self.at == Point::Output && self.ruling.holds_back()
    }

    /// What was decided of a call that a call makes.
    pub fn of_call(key: ReplayKey, tool: ToolName, ruling: Ruling, arguments: Value, labels: Labels) -> Self {
        Self { key, at: Point::Tool, ruling, facts: Some(arguments), labels, tool: Some(tool) }
    }

    /// What somebody is asked about, in the form of a call: the point in place of the tool, its facts in place of the arguments.
    pub fn into_call(self) -> Option<PreparedCall> {
        let Self { key, at, ruling, facts, labels, .. } = self;
        Some(PreparedCall {
            id: CallId::derived(&[key.as_str().as_bytes()]),
            model_id: at.name().parse().ok()?,
            tool: at.name().parse().ok()?,
            class: EffectClass::default(),
            arguments: facts?,
            payload: None,
            ruling: Some(ruling),
            labels,
            provenance: Provenance::default(),
        })
    }
}

/// A call that had no result when the model was to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairedCall {
    /// The id the model gave it.
    pub call: ModelCallId,
    /// Whether its record had the result, or it was marked interrupted.
    pub restored: bool,
}

/// A person's word on a call of unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Which call.
    pub claim: ClaimRef,
    /// What they found out.
    pub verdict: Verdict,
}

/// Whether a call of unknown outcome happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did, with this result.
    Happened(ToolResult),
    /// It did not.
    DidNotHappen,
}

/// How a turn is over (R4.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The model answered.
    Answered {
        /// What it said last.
        text: String,
    },
    /// The model refused.
    Refused {
        /// What it said.
        text: String,
    },
    /// The turn used all the model calls it had.
    OutOfModelCalls {
        /// How many those were.
        limit: u32,
    },
    /// A budget had not enough left for what the turn needed next.
    OutOfBudget {
        /// Which budget.
        budget: String,
        /// What it needed and what was left, for people; records of before do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Somebody cancelled it.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// Somebody aborted it, and what it did was taken back.
    Aborted {
        /// Why.
        reason: String,
        /// How many calls were taken back.
        undone: u32,
        /// How many were not, because what takes them back failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        left: u32,
    },
    /// It cannot go on.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// It was shown to kill or to block its worker.
    Sealed {
        /// Claims that ended without progress.
        claims: u32,
        /// Worker deaths while it was the only turn that ran. Zero in records of older versions, which did not know it.
        #[serde(default, skip_serializing_if = "is_zero")]
        alone: u32,
        /// Whether it blocked its worker's thread while it was the only turn that ran.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hung: bool,
    },
    /// The input joined another turn; that one's end is the answer.
    Joined {
        /// Which.
        into: TurnId,
    },
}

impl End {
    /// Every word that [`End::name`] says.
    pub const NAMES: &[&str] = &[
        "answered",
        "refused",
        "out_of_model_calls",
        "out_of_budget",
        "cancelled",
        "aborted",
        "failed",
        "sealed",
        "joined",
    ];

    /// The answer; every other end is an error.
    pub fn answer(self) -> Result<String, Error> {
        Err(match self {
            Self::Answered { text } => return Ok(text),
            Self::Refused { text } => Error::new(Kind::ModelRejected, format!("the model refused: {text}")),
            Self::OutOfModelCalls { limit } => {
                Error::new(Kind::LimitExceeded, format!("the turn used all its {limit} model calls"))
            }
            Self::OutOfBudget { budget, why } => {
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                Error::new(Kind::BudgetExceeded, format!("not enough is left of the {budget}{why}"))
            }
            Self::Cancelled { reason } => Error::new(Kind::TurnCancelled, reason),
            Self::Aborted { reason, undone, left: 0 } => {
                Error::new(Kind::TurnCancelled, format!("{reason} ({undone} calls were taken back)"))
            }
            Self::Aborted { reason, undone, left } => {
                let detail = format!("{reason} ({undone} calls were taken back, {left} could not be)");
                Error::new(Kind::TurnCancelled, detail)
            }
            Self::Failed { failure } => failure.into(),
            Self::Sealed { claims, alone, hung } => {
                Error::new(Kind::TurnSealed, Self::sealed_because(claims, alone, hung))
            }
            Self::Joined { into } => {
                Error::new(Kind::Internal, format!("the input joined {into}, which has no end"))
            }
        })
    }

    /// Says why a turn was sealed, from the fields of [`End::Sealed`].
    pub fn sealed_because(claims: u32, alone: u32, hung: bool) -> String {
        match (alone, hung) {
            (_, true) => {
                "the turn blocked its worker's thread while it was the only turn that ran".to_owned()
            }
            (0, false) => format!("the turn was claimed {claims} times without progress"),
            (alone, false) => {
                format!("the worker died {alone} times while the turn was the only one that ran")
            }
        }
    }

    /// Returns the kind of end, without its details.
    pub const fn kind(&self) -> EndKind {
        match self {
            Self::Answered { .. } => EndKind::Answered,
            Self::Refused { .. } => EndKind::Refused,
            Self::OutOfModelCalls { .. } => EndKind::OutOfModelCalls,
            Self::OutOfBudget { .. } => EndKind::OutOfBudget,
            Self::Cancelled { .. } => EndKind::Cancelled,
            Self::Aborted { .. } => EndKind::Aborted,
            Self::Failed { .. } => EndKind::Failed,
            Self::Sealed { .. } => EndKind::Sealed,
            Self::Joined { .. } => EndKind::Joined,
        }
    }

    /// One word for tables.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }
}

/// The kind of an [`End`]: how a turn ended, without the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndKind {
    /// The model answered.
    Answered,
    /// The model refused.
    Refused,
    /// The turn used all its model calls.
    OutOfModelCalls,
    /// A budget had not enough left.
    OutOfBudget,
    /// A person or program cancelled the turn.
    Cancelled,
    /// A person or program aborted the turn, and its calls were taken back.
    Aborted,
    /// The turn met an error that it could not pass.
    Failed,
    /// The turn was claimed too often without progress.
    Sealed,
    /// The input joined another turn.
    Joined,
}

impl EndKind {
    /// All kinds, in the order of [`End::NAMES`].
    pub const ALL: [Self; 9] = [
        Self::Answered,
        Self::Refused,
        Self::OutOfModelCalls,
        Self::OutOfBudget,
        Self::Cancelled,
        Self::Aborted,
        Self::Failed,
        Self::Sealed,
        Self::Joined,
    ];

    /// Returns the name of the kind, as tables, filters and the database use it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::OutOfModelCalls => "out_of_model_calls",
            Self::OutOfBudget => "out_of_budget",
            Self::Cancelled => "cancelled",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
            Self::Sealed => "sealed",
            Self::Joined => "joined",
        }
    }

    /// Returns whether a turn that ended so can be retried. An answer stands, also one that refuses. A retry has no more model calls
    /// than its original. What an aborted turn did was taken back, and an input that joined another turn is retried with that.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Failed | Self::Cancelled | Self::Sealed | Self::OutOfBudget => true,
            Self::Answered | Self::Refused | Self::OutOfModelCalls | Self::Aborted | Self::Joined => false,
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A value that is there, be it null: only one that is left away is none.
fn even_null<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

const VERSION: u8 = 1;

impl Fact {
    /// The body as it is stored.
    ///
    /// # Panics
    /// Never: facts are plain data.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(256);
        body.push(VERSION);
        serde_json::to_writer(&mut body, self).expect("facts are plain data");
        body
    }

    /// Reads a stored body of this or an older version.
    pub fn decode(body: &[u8]) -> Result<Self, Error> {
        match body.split_first() {
            Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|cause| {
                Error::new(Kind::RecordCorrupt, "a record's body does not decode").because(cause)
            }),
            Some((&version, _)) if version > VERSION => Err(Error::new(
                Kind::RecordTooNew,
                format!("a record has version {version}, but this program reads up to {VERSION}"),
            )),
            Some((version, _)) => {
                Err(Error::new(Kind::RecordCorrupt, format!("no record ever had version {version}")))
            }
            None => Err(Error::new(Kind::RecordCorrupt, "a record's body is empty")),
        }
    }

    /// What a model or a call of a tool cost that this tells of, where the price was known. Every sum of costs adds up this.
    pub fn cost(&self) -> Option<Cost> {
        match self {
            Self::Performed(Performed {
                outcome:
                    Outcome::ModelCall(ModelOutcome::Reply(reply))
                    | Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply))),
                ..
            }) => reply.cost,
            Self::Performed(performed) => performed.cost,
            Self::Answered(answered) => answered.cost,
            Self::Compacted(Compacted { shorter: Shorter::Summary { cost, .. }, .. }) => *cost,
            Self::Interrupted(interrupted) => interrupted.cost,
            _ => None,
        }
    }

    /// Whether the transcript is built from this fact: such records are the nodes of the session tree.
    pub fn is_node(&self) -> bool {
        match self {
            Self::Accepted(_) | Self::Settled(_) | Self::Compacted(_) => true,
            Self::Performed(performed) => match &performed.outcome {
                Outcome::ModelCall(crate::effect::ModelOutcome::Reply(_)) => true,
                Outcome::Checkpoint(joined) => !joined.is_empty(),
                Outcome::AwaitEvent(_) => performed.key.as_str().ends_with("/completion"),
                _ => false,
            },
            Self::Interrupted(interrupted) => !interrupted.text.is_empty(),
            Self::Asked(asked) => asked.command.kind() == EffectKind::ToolBatch,
            Self::Answered(answered) => {
                matches!(&answered.outcome, Outcome::ToolCall(ToolOutcome::Done(_) | ToolOutcome::Unknown))
            }
            _ => false,
        }
    }

    /// Whether the fact is progress for the poison guard: an effect has an outcome that will not be asked for again.
    pub fn is_progress(&self) -> bool {
        matches!(self, Self::Answered(_) | Self::Performed(_) | Self::Ended { .. })
    }

    /// What the fact is called in events.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "session.opened",
            Self::HeadMoved { .. } => "session.head_moved",
            Self::Accepted(_) => "turn.accepted",
            Self::Started(_) => "turn.started",
            Self::Asked(_) => "effect.asked",
            Self::Answered(_) => "effect.answered",
            Self::Performed(_) => "effect.performed",
            Self::Reclaimed(_) => "effect.reclaimed",
            Self::Parked { .. } => "turn.parked",
            Self::Stuck { .. } => "turn.stuck",
            Self::Resolved { .. } => "wait.resolved",
            Self::CancelRequested { .. } => "turn.cancel_requested",
            Self::Undoable(_) => "effect.undoable",
            Self::Hooked(_) => "effect.hooked",
            Self::Payment(_) => "effect.payment",
            Self::Ruled(_) => "policy.ruled",
            Self::Paced(_) => "effect.paced",
            Self::Resumed(_) => "turn.resumed",
            Self::Tried(_) => "effect.tried",
            Self::Interrupted(_) => "effect.interrupted",
            Self::Reminded { .. } => "approval.reminded",
            Self::Escalated { .. } => "approval.escalated",
            Self::Repaired { .. } => "transcript.repaired",
            Self::Compacted(_) => "context.compacted",
            Self::Settled(_) => "effect.settled",
            Self::Ended { .. } => "turn.ended",
        }
    }
}

/// The chain's hash after a record: it covers every record before it, so none can be changed, removed or reordered
/// without the chain showing it (R3.10).
pub fn chain(before: &Hash, seq: Seq, turn: Option<TurnId>, at: Millis, body: &[u8]) -> Hash {
    let turn = turn.map_or(0, TurnId::to_u128).to_be_bytes();
    let (seq, at) = (seq.0.to_be_bytes(), at.0.to_be_bytes());
    let parts: [&[u8]; 5] = [before.as_bytes(), &seq, &turn, &at, body];
    Hash::of_parts("outlast record v1", parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_newer_version_is_refused_by_name() {
        assert_eq!(Fact::decode(&[9, b'{', b'}']).unwrap_err().kind(), Kind::RecordTooNew);
        for body in [&[][..], &[0], &[1], &[1, b'{', b'}'], b"\x01{\"accepted\":"] {
            assert_eq!(Fact::decode(body).unwrap_err().kind(), Kind::RecordCorrupt, "{body:?}");
        }
    }

    #[test]
    fn what_a_hook_changed_is_read_back_even_if_it_was_null() {
        let patch = Patch::AfterModel(crate::hook::ReplyPatch { text: "hi".to_owned() });
        for was in [None, Some(Value::Null), Some(Value::from("ho"))] {
            let (key, hook) = (ReplayKey::turn(0).model(0), "audit".parse().unwrap());
            let fact = Fact::Hooked(Hooked { key, hook, patch: patch.clone(), was });
            assert_eq!(Fact::decode(&fact.encode()).unwrap(), fact);
        }
    }

    #[test]
    fn the_chain_depends_on_everything_a_record_says() {
        let base = chain(&Hash::ZERO, Seq(1), None, Millis(1), b"a");
        let others = [
            chain(&Hash::of(b""), Seq(1), None, Millis(1), b"a"),
            chain(&Hash::ZERO, Seq(2), None, Millis(1), b"a"),
            chain(&Hash::ZERO, Seq(1), Some(TurnId::from_u128(1)), Millis(1), b"a"),
            chain(&Hash::ZERO, Seq(1), None, Millis(2), b"a"),
            chain(&Hash::ZERO, Seq(1), None, Millis(1), b"b"),
        ];
        assert!(others.iter().all(|other| *other != base));
    }
}

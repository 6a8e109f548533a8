//! Records: the facts of a session, in the order in which they became durable. All state is a fold over them.
//!
//! The body of a record is one version byte and the JSON of its [`Fact`]. Bodies of every released version
//! stay readable; `tests/fixtures` contains one of each.
use crate::cost::Cost;
use crate::effect::{
    Command, DirectOutcome, EffectKind, Environment, JournalPosition, ModelCharge, ModelOutcome, Outcome,
    ToolOutcome, Usage, is_default,
};
use crate::error::Failure;
use crate::hook::HookPatch;
use crate::id::{CallId, SessionId, TurnId, WorkerId};
use crate::key::ReplayKey;
use crate::label::{Labels, Provenance};
use crate::message::{HookName, Message, ModelCallId, ModelName, Part, PluginName, ToolName, ToolResult};
use crate::payment::Payment;
use crate::policy::{PolicyDecision, PolicyPoint, RecordedDecision};
use crate::rate::RateLimited;
use crate::tool::{EffectClass, PreparedCall, UndoCall};
use crate::trace::TraceParent;
use crate::wait::{Resolution, Wait};
use crate::{Error, Hash, Kind, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The position of a record in its session, counted from 1 without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The position of a message across all sessions: a node of the session tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeRef {
    /// The session that owns the record. A fork refers to the nodes of its parent.
    pub session: SessionId,
    /// The record.
    pub seq: Seq,
}

/// A stored fact with its position and its link in the hash chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position in the session.
    pub seq: Seq,
    /// The turn it belongs to, or `None` for a fact about the session itself.
    pub turn: Option<TurnId>,
    /// When it was written.
    pub at: Millis,
    /// The hash of the chain after it.
    pub hash: Hash,
    /// The fact.
    pub fact: Fact,
}

impl Record {
    /// Returns the place of the record.
    pub fn place(&self) -> JournalPosition {
        JournalPosition { seq: self.seq, hash: self.hash }
    }
}

/// Something that became true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "most records are effects, so a box would cost one allocation for each"
)]
pub enum Fact {
    /// The session was opened.
    Opened {
        /// The key that its caller gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The node it was forked from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forked_from: Option<NodeRef>,
    },
    /// A head was created or moved.
    HeadMoved {
        /// The head.
        head: String,
        /// Its new position. `None` is before the first message.
        to: Option<NodeRef>,
    },
    /// An input was accepted as a turn.
    Accepted(TurnAccepted),
    /// A worker started the turn.
    Started(TurnStarted),
    /// An effect is about to be performed. For a batch, this claims each call in it.
    Asked(EffectRequested),
    /// An asked effect has its outcome.
    Answered(EffectAnswered),
    /// An effect was asked and answered in one write.
    Performed(EffectPerformed),
    /// A call that another lease had started was taken over: to perform it again, to continue it after a
    /// wait, or to decide its outcome.
    Reclaimed(CallReclaimed),
    /// The turn parked until one of these waits is resolved.
    Parked {
        /// The waits.
        waits: Vec<Wait>,
    },
    /// The turn cannot continue. It waits for a person or a deploy.
    Stuck {
        /// The reason.
        failure: Failure,
    },
    /// A wait was resolved, before, during or after it began.
    Resolved {
        /// The replay key of the wait.
        key: ReplayKey,
        /// The resolution.
        resolution: Resolution,
    },
    /// A cancellation of the turn was requested.
    CancelRequested {
        /// The reason.
        reason: String,
        /// Whether the effects of the turn are to be undone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        undo: bool,
        /// Whether the turn stops because its client abandoned it. An abandoned turn undoes nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        abandon: bool,
    },
    /// The client of the turn asked for another configuration, which the next model calls use.
    EnvironmentRequested(EnvironmentChange),
    /// A call can be undone.
    Undoable(UndoableCall),
    /// A hook changed an effect. Written with the effect, or before it.
    Hooked(HookApplied),
    /// A payment of a call reached this state.
    Payment(Payment),
    /// A policy decided about something other than a claimed call.
    Ruled(PolicyDecided),
    /// A rate limit delayed a call, let it start after the delay, or denied it.
    Paced(RateLimited),
    /// Another lease resumed the turn, which the previous lease had not parked.
    Resumed(TurnResumed),
    /// Attempts of a model call failed, and the call has no outcome yet.
    Tried(AttemptsFailed),
    /// A request to a model brought no complete reply, and may be charged.
    Interrupted(InterruptedReply),
    /// The approvers of a call were reminded.
    Reminded {
        /// The wait for the approval.
        key: ReplayKey,
        /// The number of reminders due by now.
        number: u32,
    },
    /// Additional people may approve a call now.
    Escalated {
        /// The wait for the approval.
        key: ReplayKey,
        /// The additional approvers.
        to: Vec<String>,
    },
    /// Calls without a result were given one before the next model call.
    Repaired {
        /// The calls, and how each got its result.
        calls: Vec<RepairedCall>,
    },
    /// Earlier messages are shown to the model in a shorter form after this record. The messages themselves
    /// do not change.
    Compacted(CompactionRecord),
    /// A person settled a call of unknown outcome.
    Settled(CallSettled),
    /// The turn is over.
    Ended {
        /// How it ended.
        end: TurnEnd,
    },
}

/// An accepted input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnAccepted {
    /// The content of the input.
    pub parts: Vec<Part>,
    /// The caller's idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How the input is delivered if a turn is running.
    #[serde(default, skip_serializing_if = "InputDelivery::is_next")]
    pub delivery: InputDelivery,
    /// The fingerprint of the configuration that answers it, from the process that accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Hash>,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Data for plug-ins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<PluginName, Value>,
    /// The span that caused it, if the caller named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    /// Messages of an earlier conversation elsewhere. The model sees them like messages of this session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Message>,
    /// The sender's note, which is returned with the input. Outlast does not interpret it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present_or_null")]
    pub note: Option<Value>,
    /// The turn that this one retries. Its answered effects are reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TurnId>,
    /// The fingerprint of the request that brought the input without a key. A repeated request has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Hash>,
    /// The worker of the process that accepted that request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// The fingerprint of what the request added to the agent, such as instructions, tools and options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Hash>,
}

impl TurnAccepted {
    /// An input of plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            parts: vec![Part::text(text)],
            key: None,
            delivery: InputDelivery::Next,
            package: None,
            output: None,
            plugins: BTreeMap::new(),
            traceparent: None,
            before: Vec::new(),
            note: None,
            retry_of: None,
            request: None,
            worker: None,
            layers: None,
        }
    }
}

/// A change of a turn's configuration that its client asked for together with tool results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentChange {
    /// The new configuration.
    pub environment: Environment,
    /// The fingerprint of what the request added to the agent, such as instructions, tools and options.
    pub layers: Hash,
    /// The sender's note, which replaces that of the input.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present_or_null")]
    pub note: Option<Value>,
}

/// How an input is delivered that arrives during a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputDelivery {
    /// It starts the next turn.
    #[default]
    Next,
    /// It joins the running turn at its next checkpoint. Without another checkpoint, it starts the next turn.
    Join,
}

impl InputDelivery {
    #[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
    fn is_next(&self) -> bool {
        *self == Self::Next
    }
}

/// A compaction: what the model sees in a shorter form, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionRecord {
    /// The replay key of the compaction.
    pub key: ReplayKey,
    /// The last earlier turn that is compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<TurnId>,
    /// The number of messages of this turn that are compacted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub here: u32,
    /// The method.
    pub shorter: CompactionMethod,
}

/// The method of a compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionMethod {
    /// Long tool results are left out.
    Results,
    /// A summary replaces the messages.
    Summary {
        /// The summary that a model wrote.
        text: String,
        /// The tokens used for the summary.
        #[serde(default, skip_serializing_if = "is_default")]
        usage: Usage,
        /// The cost of the summary in money, if the price was known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
        /// What is charged if the provider did not report its usage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        estimate: Option<Box<ModelCharge>>,
    },
    /// Long texts, arguments and results are cut after their beginning. Attachments are left out.
    Texts {
        /// The most bytes of a text that stay.
        most: u32,
    },
}

/// The start of a turn. It pins everything that later decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// The kernel version that decides in this turn.
    pub kernel: u32,
    /// The fingerprint of the configuration.
    pub package: Hash,
    /// The head it appends to.
    pub head: String,
    /// The message it follows, or `None` in an empty session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<NodeRef>,
    /// The untrusted sources of the conversation before it, if labels are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
}

/// An effect that is about to be performed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRequested {
    /// Its replay key.
    pub key: ReplayKey,
    /// The request.
    pub command: Command,
}

/// The outcome of an asked effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectAnswered {
    /// The claim that is answered.
    pub claim: ClaimRef,
    /// The outcome.
    pub outcome: Outcome,
    /// The cost of the call, if its tool has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// A claim: the record that asked, and the index of the call in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The record that asked.
    pub asked: Seq,
    /// The index of the call in a batch, or 0 for all other effects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub child: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(child: &u32) -> bool {
    *child == 0
}

/// An effect that was asked and answered in one write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectPerformed {
    /// Its replay key.
    pub key: ReplayKey,
    /// The request.
    pub command: Command,
    /// The outcome.
    pub outcome: Outcome,
    /// Failed attempts of a model call before the successful one, since the turn last parked for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<FailedAttempt>,
    /// The cost of the tool call that this completes, if the tool has a price. The cost of a model call is in
    /// its reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Whether the outcome was reused from the turn that this one retries. In that case, nothing was
    /// performed or paid here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
}

impl EffectPerformed {
    /// Creates an effect that had its outcome at the first attempt.
    pub fn new(key: ReplayKey, command: impl Into<Command>, outcome: impl Into<Outcome>) -> Self {
        let (command, outcome) = (command.into(), outcome.into());
        Self { key, command, outcome, tried: Vec::new(), cost: None, reused: false }
    }
}

/// A new lease on a turn whose worker died, lost it or handed it back. Every effect that was answered before
/// is answered from the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnResumed {
    /// The new worker.
    pub worker: WorkerId,
    /// The number of its lease, which fences its writes.
    pub lease: u64,
    /// When it took over the turn. The record is part of its first write.
    pub since: Millis,
}

/// Failed attempts of a model call, if the turn parks or ends before the call has an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptsFailed {
    /// The replay key of the call.
    pub key: ReplayKey,
    /// The attempts, in order.
    pub attempts: Vec<FailedAttempt>,
}

/// An attempt of a model call without a complete reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Its number, as in live frames and in the reply.
    pub attempt: u32,
    /// When it began.
    pub from: Millis,
    /// When it failed.
    pub until: Millis,
    /// The reason.
    pub failure: Failure,
    /// The model that was asked, if the agent has fallback models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
}

/// A request to a model that brought no complete reply: the streamed text, and the usage that is charged for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedReply {
    /// The model call.
    pub key: ReplayKey,
    /// Why the reply is incomplete.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cause: ReplyInterruption,
    /// The model that was asked.
    pub model: ModelName,
    /// The streamed text of a cancelled reply. Empty if answers are judged before people see them, or if hooks may
    /// change them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The tokens that the request is charged: the most that it could use, because the provider did not report
    /// its usage.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// The price of these tokens, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// Why a reply is incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyInterruption {
    /// The turn was cancelled.
    #[default]
    Cancelled,
    /// The stream broke off or stalled. The call may be tried again.
    BrokeOff,
    /// The result is not known: the worker died, or a tool abandoned the request.
    Lost,
}

impl InterruptedReply {
    /// Returns the text with a mark at its end that says that the reply is incomplete. Models and people see
    /// this form.
    pub fn marked_text(&self) -> String {
        format!("{}\n\n[interrupted: the turn was cancelled before this reply was complete]", self.text)
    }
}

/// A call that was taken over from an earlier lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReclaimed {
    /// The claim of the call.
    pub claim: ClaimRef,
    /// The current attempt, counted from 1.
    pub attempt: u32,
}

/// A call that can be undone, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoableCall {
    /// The call.
    pub key: ReplayKey,
    /// The call that undoes it.
    pub undo: UndoCall,
}

/// A hook's change to an effect. The record of the effect contains the changed form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookApplied {
    /// The effect.
    pub key: ReplayKey,
    /// The hook.
    pub hook: HookName,
    /// The change.
    pub patch: HookPatch,
    /// The previous value, if no other record contains it: the text of a reply, the result of a call.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present_or_null")]
    pub was: Option<Value>,
}

/// A policy decision at a point of the turn. The policy is not asked again when the turn is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyDecided {
    /// The subject: the turn, the model call, its answer, an action of a call, or a nested call.
    pub key: ReplayKey,
    /// The point at which it decided.
    pub at: PolicyPoint,
    /// The decision.
    pub ruling: RecordedDecision,
    /// The facts that a person is asked about, if the decision is to ask. For a nested call, the arguments
    /// after the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Value>,
    /// The untrusted sources that may have caused the action.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The tool of a nested call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
}

impl PolicyDecided {
    /// Creates a decision. The facts are stored only if a person must see them.
    pub fn new(
        key: ReplayKey,
        at: PolicyPoint,
        ruling: RecordedDecision,
        facts: &Value,
        labels: Labels,
    ) -> Self {
        let facts = matches!(ruling.decision, PolicyDecision::Ask(_)).then(|| facts.clone());
        Self { key, at, ruling, facts, labels, tool: None }
    }

    /// Returns whether this is about an answer of a model and refuses or delays it.
    pub fn holds_back(&self) -> bool {
        self.at == PolicyPoint::Output && self.ruling.prevents_action()
    }

    /// Creates a decision about a nested call.
    pub fn of_call(
        key: ReplayKey,
        tool: ToolName,
        ruling: RecordedDecision,
        arguments: Value,
        labels: Labels,
    ) -> Self {
        Self { key, at: PolicyPoint::Tool, ruling, facts: Some(arguments), labels, tool: Some(tool) }
    }

    /// Returns what a person is asked about in the form of a call: the point as the tool, its facts as the
    /// arguments.
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

/// A call that had no result before the next model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairedCall {
    /// The id that the model gave it.
    pub call: ModelCallId,
    /// Whether a record had the result. Otherwise, the call was marked as interrupted.
    pub restored: bool,
}

/// A person's verdict on a call of unknown outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSettled {
    /// The claim of the call.
    pub claim: ClaimRef,
    /// The verdict.
    pub verdict: OutcomeVerdict,
}

/// Whether a call of unknown outcome happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeVerdict {
    /// The call happened, with this result.
    Happened(ToolResult),
    /// The call did not happen.
    DidNotHappen,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The model answered.
    Answered {
        /// The final text.
        text: String,
    },
    /// The model refused.
    Refused {
        /// The text of the refusal.
        text: String,
    },
    /// The turn used all its model calls.
    OutOfModelCalls {
        /// The limit.
        limit: u32,
    },
    /// A budget was too low for the next effect.
    OutOfBudget {
        /// The budget.
        budget: String,
        /// The needed and the remaining amount, for people. Absent in records of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The turn was cancelled.
    Cancelled {
        /// The reason.
        reason: String,
    },
    /// The turn was aborted, and its effects were undone.
    Aborted {
        /// The reason.
        reason: String,
        /// The number of calls that were undone.
        undone: u32,
        /// The number of calls that were not, because their undo failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        left: u32,
    },
    /// The turn was abandoned by its client: it waited for tool results that did not come, or the client went on
    /// elsewhere.
    Abandoned {
        /// The reason.
        reason: String,
    },
    /// The turn failed with an error.
    Failed {
        /// The error.
        failure: Failure,
    },
    /// The turn repeatedly killed or blocked its worker.
    Sealed {
        /// The number of claims that ended without progress.
        claims: u32,
        /// Worker deaths while it was the only running turn. Zero in records of older versions, which did not
        /// count them.
        #[serde(default, skip_serializing_if = "is_zero")]
        alone: u32,
        /// Whether it blocked its worker's thread while it was the only running turn.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hung: bool,
    },
    /// The input joined another turn, whose end is the answer.
    Joined {
        /// The other turn.
        into: TurnId,
    },
}

impl TurnEnd {
    /// All values of [`TurnEnd::name`].
    pub const NAMES: &[&str] = &[
        "answered",
        "refused",
        "out_of_model_calls",
        "out_of_budget",
        "cancelled",
        "aborted",
        "abandoned",
        "failed",
        "sealed",
        "joined",
    ];

    /// Returns the answer. Every other end is an error.
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
            Self::Abandoned { reason } => Error::new(Kind::TurnAbandoned, reason),
            Self::Failed { failure } => failure.into(),
            Self::Sealed { claims, alone, hung } => {
                Error::new(Kind::TurnSealed, Self::sealed_because(claims, alone, hung))
            }
            Self::Joined { into } => {
                Error::new(Kind::Internal, format!("the input joined {into}, which has no end"))
            }
        })
    }

    /// Describes why a turn was sealed, from the fields of [`TurnEnd::Sealed`].
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
    pub const fn kind(&self) -> TurnEndKind {
        match self {
            Self::Answered { .. } => TurnEndKind::Answered,
            Self::Refused { .. } => TurnEndKind::Refused,
            Self::OutOfModelCalls { .. } => TurnEndKind::OutOfModelCalls,
            Self::OutOfBudget { .. } => TurnEndKind::OutOfBudget,
            Self::Cancelled { .. } => TurnEndKind::Cancelled,
            Self::Aborted { .. } => TurnEndKind::Aborted,
            Self::Abandoned { .. } => TurnEndKind::Abandoned,
            Self::Failed { .. } => TurnEndKind::Failed,
            Self::Sealed { .. } => TurnEndKind::Sealed,
            Self::Joined { .. } => TurnEndKind::Joined,
        }
    }

    /// Returns one word for tables.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }
}

/// The kind of an [`TurnEnd`]: how a turn ended, without the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnEndKind {
    /// The model answered.
    Answered,
    /// The model refused.
    Refused,
    /// The turn used all its model calls.
    OutOfModelCalls,
    /// A budget was too low.
    OutOfBudget,
    /// A person or program cancelled the turn.
    Cancelled,
    /// A person or program aborted the turn, and its calls were undone.
    Aborted,
    /// The client abandoned the turn.
    Abandoned,
    /// The turn failed with an error.
    Failed,
    /// The turn repeatedly killed or blocked its worker.
    Sealed,
    /// The input joined another turn.
    Joined,
}

impl TurnEndKind {
    /// All kinds, in the order of [`TurnEnd::NAMES`].
    pub const ALL: [Self; 10] = [
        Self::Answered,
        Self::Refused,
        Self::OutOfModelCalls,
        Self::OutOfBudget,
        Self::Cancelled,
        Self::Aborted,
        Self::Abandoned,
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
            Self::Abandoned => "abandoned",
            Self::Failed => "failed",
            Self::Sealed => "sealed",
            Self::Joined => "joined",
        }
    }

    /// Returns whether a turn with this end can be retried.
    ///
    /// An answer or a refusal is final. A retry has no more model calls than its original. The effects of an
    /// aborted turn were undone. The client of an abandoned turn went on elsewhere. An input that joined another
    /// turn is retried with that turn.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Failed | Self::Cancelled | Self::Sealed | Self::OutOfBudget => true,
            Self::Answered
            | Self::Refused
            | Self::OutOfModelCalls
            | Self::Aborted
            | Self::Abandoned
            | Self::Joined => false,
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Distinguishes an explicit `null` from an absent field.
fn present_or_null<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

const VERSION: u8 = 1;

impl Fact {
    /// Encodes the body as it is stored.
    ///
    /// # Panics
    /// Never panics: facts are plain data.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(256);
        body.push(VERSION);
        serde_json::to_writer(&mut body, self).expect("facts are plain data");
        body
    }

    /// Decodes a stored body of this or an older version.
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

    /// Returns what a request to a model is charged, if this fact is the end of one.
    pub fn charge(&self) -> Option<ModelCharge> {
        match self {
            Self::Performed(EffectPerformed {
                outcome:
                    Outcome::ModelCall(ModelOutcome::Reply(reply))
                    | Outcome::DirectCall(DirectOutcome(ModelOutcome::Reply(reply))),
                ..
            }) => Some(reply.charge()),
            Self::Compacted(CompactionRecord {
                shorter: CompactionMethod::Summary { usage, cost, estimate, .. },
                ..
            }) => Some(estimate.as_deref().copied().unwrap_or(ModelCharge { usage: *usage, cost: *cost })),
            Self::Interrupted(InterruptedReply { usage, cost, .. }) => {
                Some(ModelCharge { usage: *usage, cost: *cost })
            }
            _ => None,
        }
    }

    /// Returns the cost of the model or tool call in this fact, if the price was known. Every total of costs
    /// is a sum of these.
    pub fn cost(&self) -> Option<Cost> {
        match (self.charge(), self) {
            (Some(charge), _) => charge.cost,
            (None, Self::Performed(performed)) => performed.cost,
            (None, Self::Answered(answered)) => answered.cost,
            (None, _) => None,
        }
    }

    /// Returns whether this fact contributes to the transcript. Such records are the nodes of the session
    /// tree.
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

    /// Returns whether this fact is progress for the poison guard: an effect has an outcome that will not be
    /// asked for again.
    pub fn is_progress(&self) -> bool {
        matches!(self, Self::Answered(_) | Self::Performed(_) | Self::Ended { .. })
    }

    /// Returns the name of the fact in events.
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
            Self::EnvironmentRequested(_) => "turn.environment_requested",
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

/// Returns the hash of the chain after a record. It covers every earlier record, so a changed, removed or
/// reordered record breaks the chain.
pub fn chain_hash(before: &Hash, seq: Seq, turn: Option<TurnId>, at: Millis, body: &[u8]) -> Hash {
    let turn = turn.map_or(0, TurnId::to_u128).to_be_bytes();
    let (seq, at) = (seq.0.to_be_bytes(), at.0.to_be_bytes());
    let parts: [&[u8]; 5] = [before.as_bytes(), &seq, &turn, &at, body];
    Hash::of_parts("outlast record v1", parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_record_version_is_refused_by_name() {
        assert_eq!(Fact::decode(&[9, b'{', b'}']).unwrap_err().kind(), Kind::RecordTooNew);
        for body in [&[][..], &[0], &[1], &[1, b'{', b'}'], b"\x01{\"accepted\":"] {
            assert_eq!(Fact::decode(body).unwrap_err().kind(), Kind::RecordCorrupt, "{body:?}");
        }
    }

    #[test]
    fn unknown_effect_kind_is_a_corrupt_record() {
        let body = br#"{"performed":{"key":"turn/0","command":{"exec_code":{"language":"py","code":"1"}},"outcome":{"exec_code":{"result":{"ok":1},"output":""}}}}"#;
        let error = Fact::decode(&[&[1], body.as_slice()].concat()).unwrap_err();
        assert_eq!(error.to_string(), "record.corrupt: a record's body does not decode");
        assert!(format!("{:?}", std::error::Error::source(&error)).contains("unknown variant `exec_code`"));
    }

    #[test]
    fn hook_change_to_null_round_trips() {
        let patch = HookPatch::AfterModel(crate::hook::ReplyPatch { text: "hi".to_owned() });
        for was in [None, Some(Value::Null), Some(Value::from("ho"))] {
            let (key, hook) = (ReplayKey::turn(0).model(0), "audit".parse().unwrap());
            let fact = Fact::Hooked(HookApplied { key, hook, patch: patch.clone(), was });
            assert_eq!(Fact::decode(&fact.encode()).unwrap(), fact);
        }
    }

    #[test]
    fn hash_chain_covers_every_record_field() {
        let base = chain_hash(&Hash::ZERO, Seq(1), None, Millis(1), b"a");
        let others = [
            chain_hash(&Hash::of(b""), Seq(1), None, Millis(1), b"a"),
            chain_hash(&Hash::ZERO, Seq(2), None, Millis(1), b"a"),
            chain_hash(&Hash::ZERO, Seq(1), Some(TurnId::from_u128(1)), Millis(1), b"a"),
            chain_hash(&Hash::ZERO, Seq(1), None, Millis(2), b"a"),
            chain_hash(&Hash::ZERO, Seq(1), None, Millis(1), b"b"),
        ];
        assert!(others.iter().all(|other| *other != base));
    }
}

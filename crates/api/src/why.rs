//! Why a session or turn makes no progress.
use crate::turns::{parse_turn_end, turn_end_json};
use crate::unknown_value;
use outlast_views::{BlockingWait, TurnProgress, Unblocker, WaitExplanation};
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey, SessionId, TurnId, WorkerId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use utoipa::ToSchema;

/// Why a session or turn makes no progress.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Why)]
pub struct WhyResource {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn that blocks the session, or that was asked about. Absent if the session is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub turn: Option<TurnId>,
    /// The state.
    ///
    /// - `rests`: the session is idle.
    /// - `ended`: the turn has ended.
    /// - `queued`: the turn waits behind another turn of the session.
    /// - `ready`: no worker has claimed the turn yet.
    /// - `running`: a worker runs the turn.
    /// - `waits`: the turn waits for something external.
    /// - `held`: the turn is held back because workers died while they ran it.
    /// - `stuck`: the turn cannot continue until something is fixed.
    #[serde(rename = "standing")]
    pub progress: Cow<'static, str>,
    /// Since when it is in this state, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub since: Millis,
    /// The id of the turn that it is queued behind. Only present if `queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub behind: Option<TurnId>,
    /// The id of the worker that runs it. Absent if no worker does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub worker: Option<WorkerId>,
    /// The current activity: `the model`, or the name of a tool. Only present if `running`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// The number of workers that died while they ran the turn, since its last progress. Only present if
    /// `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deaths: Option<u32>,
    /// The earliest time of the next attempt, as a Unix timestamp in milliseconds. The turn then runs alone.
    /// Only present if `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub held_until: Option<Millis>,
    /// Why the turn is stuck. Only present if `stuck`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub failure: Option<Failure>,
    /// How the turn ended: `how`, and the details of that ending. Only present if `ended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub end: Option<Value>,
    /// What the turn waits for.
    pub waits: Vec<BlockingWaitResource>,
    /// The number of inputs that are queued behind it.
    pub queued: usize,
    /// The id of the last turn. Only present if the session is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub last_turn: Option<TurnId>,
    /// How the last turn ended: `how`, and the details of that ending. Only present if the session is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub last_end: Option<Value>,
}

/// Something that a turn waits for, and what unblocks it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = BlockingWait)]
pub struct BlockingWaitResource {
    /// The path in the turn.
    #[schema(value_type = String)]
    pub key: ReplayKey,
    /// The kind of wait: `approval`, `completion`, `event`, `sleep`, `budget`, …
    #[schema(value_type = String)]
    pub kind: WaitKind,
    /// Since when the turn waits, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub since: Millis,
    /// When the wait ends if nothing resolves it first, as a Unix timestamp in milliseconds. Absent if it has
    /// no time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub deadline: Option<Millis>,
    /// The name of the tool whose call waits. Absent if no call waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
    /// What unblocks the turn: `approval`, `completion`, `time`, `provider`, `budget` or `retry`.
    pub moved_by: Cow<'static, str>,
    /// The id of the approval. Only present for `approval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub approval: Option<ApprovalId>,
    /// Who may approve. Absent if anyone may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<String>,
    /// The budget to raise: `agent:NAME`, or the id of a turn, session or organisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub budget: Option<BudgetAccount>,
    /// The name of the model provider that is down. Outlast calls it again at `deadline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The last failure of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub failure: Option<Failure>,
    /// The completion key that unblocks the turn. Only shown to callers with the scope `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<String>,
}

impl From<WaitExplanation> for WhyResource {
    fn from(why: WaitExplanation) -> Self {
        let WaitExplanation { session, turn, progress, since, waits, queued, last } = why;
        let name = progress.name();
        let (mut behind, mut worker, mut doing, mut failure, mut end) = (None, None, None, None, None);
        let (mut deaths, mut held_until) = (None, None);
        match progress {
            TurnProgress::Behind(turn) => behind = Some(turn),
            TurnProgress::Driven { worker: by, doing: what } => (worker, doing) = (by, Some(what)),
            TurnProgress::Held { deaths: died, until } => (deaths, held_until) = (Some(died), until),
            TurnProgress::Stuck(why) => failure = Some(why),
            TurnProgress::Ended(how) => end = Some(turn_end_json(&how)),
            TurnProgress::Rests | TurnProgress::Ready | TurnProgress::Waits => {}
        }
        let waits = waits.into_iter().map(BlockingWaitResource::from).collect();
        let (last_turn, last_end) = last.map(|(turn, end)| (turn, turn_end_json(&end))).unzip();
        Self {
            session,
            turn,
            progress: name.into(),
            since,
            behind,
            worker,
            doing,
            deaths,
            held_until,
            failure,
            end,
            waits,
            queued,
            last_turn,
            last_end,
        }
    }
}

impl From<BlockingWait> for BlockingWaitResource {
    fn from(BlockingWait { wait, since, call, unblocked_by: mover }: BlockingWait) -> Self {
        let (tool, arguments) = call.unzip();
        let moved_by = mover.name();
        let (mut approval, mut who, mut budget, mut completion) = (None, Vec::new(), None, None);
        let (mut provider, mut failure) = (None, None);
        match mover {
            Unblocker::Approval { id, who: may } => (approval, who) = (Some(id), may),
            Unblocker::Budget(account) => budget = account,
            Unblocker::Provider { name, failure: last } => (provider, failure) = (name, last),
            Unblocker::Completion(key) => completion = key.map(|key| key.to_string()),
            Unblocker::Time | Unblocker::Retry => {}
        }
        let Wait { key, kind, deadline } = wait;
        Self {
            key,
            kind,
            since,
            deadline,
            tool,
            arguments,
            moved_by: moved_by.into(),
            approval,
            who,
            budget,
            provider,
            failure,
            completion,
        }
    }
}

impl TryFrom<WhyResource> for WaitExplanation {
    type Error = Error;

    fn try_from(answer: WhyResource) -> Result<Self, Error> {
        let lacks = |what: &str| {
            let detail = format!("the server sent `{}` without {what}", answer.progress);
            Error::new(Kind::ServerAnswerInvalid, detail)
        };
        let progress = match answer.progress.as_ref() {
            "rests" => TurnProgress::Rests,
            "ended" => TurnProgress::Ended(parse_turn_end(answer.end.ok_or_else(|| lacks("how it ended"))?)?),
            "queued" => TurnProgress::Behind(answer.behind.ok_or_else(|| lacks("the turn before it"))?),
            "ready" => TurnProgress::Ready,
            "running" => {
                TurnProgress::Driven { worker: answer.worker, doing: answer.doing.unwrap_or_default() }
            }
            "waits" => TurnProgress::Waits,
            "held" => {
                TurnProgress::Held { deaths: answer.deaths.unwrap_or_default(), until: answer.held_until }
            }
            "stuck" => TurnProgress::Stuck(answer.failure.ok_or_else(|| lacks("why"))?),
            other => return Err(unknown_value("standing", other)),
        };
        let last_end = answer.last_end.map(parse_turn_end).transpose()?;
        Ok(Self {
            session: answer.session,
            turn: answer.turn,
            progress,
            since: answer.since,
            waits: answer.waits.into_iter().map(BlockingWait::try_from).collect::<Result<_, _>>()?,
            queued: answer.queued,
            last: answer.last_turn.zip(last_end),
        })
    }
}

impl TryFrom<BlockingWaitResource> for BlockingWait {
    type Error = Error;

    fn try_from(wait: BlockingWaitResource) -> Result<Self, Error> {
        let BlockingWaitResource { key, kind, since, deadline, tool, arguments, .. } = wait;
        let BlockingWaitResource { moved_by, approval, who, budget, provider, failure, completion, .. } =
            wait;
        let unblocked_by = match (moved_by.as_ref(), approval) {
            ("approval", Some(id)) => Unblocker::Approval { id, who },
            ("completion", _) => Unblocker::Completion(completion.map(|key| key.parse()).transpose()?),
            ("time", _) => Unblocker::Time,
            ("budget", _) => Unblocker::Budget(budget),
            ("provider", _) => Unblocker::Provider { name: provider, failure },
            ("retry", _) => Unblocker::Retry,
            (other, _) => return Err(unknown_value("mover of turns", other)),
        };
        let call = tool.map(|tool| (tool, arguments.unwrap_or_default()));
        Ok(Self { wait: Wait { key, kind, deadline }, since, call, unblocked_by })
    }
}

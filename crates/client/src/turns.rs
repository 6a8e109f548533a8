//! Turns: show, cancel and retry them, and explain why they do not progress.
use crate::Client;
use crate::sessions::{self, parse_end, unknown_value};
use outlast_views::{
    BlockingWait, CancelOutcome, Durability, RetryOutcome, RetryPlace, TurnProgress, TurnView, Unblocker,
    WaitExplanation, WriteCount,
};
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, ReplayKey, SessionId, TurnId, WorkerId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// A turn with its agent and its usage.
#[derive(Clone, Debug)]
pub struct TurnReport {
    /// Its state.
    pub view: TurnView,
    /// Its agent; `None` before it started.
    pub agent: Option<String>,
    /// The tokens of its models.
    pub usage: Usage,
    /// Their cost, where prices are known.
    pub cost: Cost,
    /// The cost of its durability.
    pub durability: Durability,
}

#[derive(Deserialize)]
struct TurnReportJson {
    #[serde(flatten)]
    turn: sessions::TurnJson,
    agent: Option<String>,
    usage: Usage,
    cost: Cost,
    durability: DurabilityJson,
}

#[derive(Deserialize)]
struct DurabilityJson {
    records: usize,
    bytes: usize,
    commits: Option<u64>,
    waited_ms: Option<f64>,
}

impl From<DurabilityJson> for Durability {
    fn from(DurabilityJson { records, bytes, commits, waited_ms }: DurabilityJson) -> Self {
        let waited = waited_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()).unwrap_or_default();
        Self { records, bytes, writes: commits.map(|commits| WriteCount { commits, waited }) }
    }
}

#[derive(Deserialize)]
struct CancelJson {
    outcome: String,
    end: Option<Value>,
}

#[derive(Deserialize)]
struct RetryJson {
    outcome: String,
    session: SessionId,
    turn: TurnId,
    duplicate: bool,
}

#[derive(Deserialize)]
struct WhyJson {
    session: SessionId,
    turn: Option<TurnId>,
    standing: String,
    since: Millis,
    behind: Option<TurnId>,
    worker: Option<WorkerId>,
    doing: Option<String>,
    deaths: Option<u32>,
    held_until: Option<Millis>,
    failure: Option<Failure>,
    end: Option<Value>,
    waits: Vec<BlockedWaitJson>,
    queued: usize,
    last_turn: Option<TurnId>,
    last_end: Option<Value>,
}

#[derive(Deserialize)]
struct BlockedWaitJson {
    key: ReplayKey,
    kind: WaitKind,
    since: Millis,
    deadline: Option<Millis>,
    tool: Option<String>,
    arguments: Option<Value>,
    moved_by: String,
    approval: Option<ApprovalId>,
    #[serde(default)]
    who: Vec<String>,
    budget: Option<BudgetAccount>,
    provider: Option<String>,
    failure: Option<Failure>,
    completion: Option<String>,
}

impl TryFrom<WhyJson> for WaitExplanation {
    type Error = Error;

    fn try_from(answer: WhyJson) -> Result<Self, Error> {
        let lacks = |what: &str| {
            let detail = format!("the server says `{}` without {what}", answer.standing);
            Error::new(Kind::ServerAnswerInvalid, detail)
        };
        let standing = match answer.standing.as_str() {
            "rests" => TurnProgress::Rests,
            "ended" => TurnProgress::Ended(parse_end(answer.end.ok_or_else(|| lacks("how it ended"))?)?),
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
        let last_end = answer.last_end.map(parse_end).transpose()?;
        Ok(Self {
            session: answer.session,
            turn: answer.turn,
            standing,
            since: answer.since,
            waits: answer.waits.into_iter().map(BlockingWait::try_from).collect::<Result<_, _>>()?,
            queued: answer.queued,
            last: answer.last_turn.zip(last_end),
        })
    }
}

impl TryFrom<BlockedWaitJson> for BlockingWait {
    type Error = Error;

    fn try_from(held: BlockedWaitJson) -> Result<Self, Error> {
        let BlockedWaitJson { key, kind, since, deadline, tool, arguments, .. } = held;
        let BlockedWaitJson { moved_by, approval, who, budget, provider, failure, completion, .. } = held;
        let mover = match (moved_by.as_str(), approval) {
            ("approval", Some(id)) => Unblocker::Approval { id, who },
            ("completion", _) => Unblocker::Completion(completion.map(|key| key.parse()).transpose()?),
            ("time", _) => Unblocker::Time,
            ("budget", _) => Unblocker::Budget(budget),
            ("provider", _) => Unblocker::Provider { name: provider, failure },
            ("retry", _) => Unblocker::Retry,
            (other, _) => return Err(unknown_value("mover of turns", other)),
        };
        let call = tool.map(|tool| (tool, arguments.unwrap_or_default()));
        Ok(Self { wait: Wait { key, kind, deadline }, since, call, unblocked_by: mover })
    }
}

impl Client {
    /// Returns a turn.
    pub async fn turn(&self, turn: TurnId) -> Result<TurnReport, Error> {
        let TurnReportJson { turn, agent, usage, cost, durability } =
            self.get(&["v1", "turns", &turn.to_string()], &[]).await?;
        Ok(TurnReport { view: turn.try_into()?, agent, usage, cost, durability: durability.into() })
    }

    /// Returns the package that the turn is pinned to.
    pub async fn package(&self, turn: TurnId) -> Result<PinnedPackage, Error> {
        self.get(&["v1", "turns", &turn.to_string(), "package"], &[]).await
    }

    /// Returns a package by its fingerprint, from an agent of the server or one of the newest turns.
    pub async fn package_by_fingerprint(&self, fingerprint: Hash) -> Result<PinnedPackage, Error> {
        self.get(&["v1", "packages", &fingerprint.to_string()], &[]).await
    }

    /// Asks a turn to stop.
    pub async fn cancel(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        self.request_cancel(turn, json!({ "reason": reason })).await
    }

    /// Asks a turn to stop and to undo its calls.
    pub async fn abort(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        self.request_cancel(turn, json!({ "reason": reason, "undo": true })).await
    }

    async fn request_cancel(&self, turn: TurnId, body: Value) -> Result<CancelOutcome, Error> {
        let stopped: CancelJson = self.post(&["v1", "turns", &turn.to_string(), "cancel"], &body).await?;
        match (stopped.outcome.as_str(), stopped.end) {
            ("requested", _) => Ok(CancelOutcome::Requested),
            ("never_began", _) => Ok(CancelOutcome::EndedBeforeStart),
            ("too_late", Some(ended)) => Ok(CancelOutcome::AlreadyEnded(parse_end(ended)?)),
            (other, _) => Err(unknown_value("way to stop", other)),
        }
    }

    /// Retries a turn. A stuck turn continues; a turn that has ended is retried as a new turn.
    pub async fn retry(&self, turn: TurnId, place: RetryPlace) -> Result<RetryOutcome, Error> {
        let body = json!({ "fork": place == RetryPlace::Fork });
        let answer: RetryJson = self.post(&["v1", "turns", &turn.to_string(), "retry"], &body).await?;
        let RetryJson { outcome, session, turn, duplicate } = answer;
        match outcome.as_str() {
            "woken" => Ok(RetryOutcome::Woken),
            "new_turn" => Ok(RetryOutcome::NewTurn { session, turn, duplicate }),
            other => Err(unknown_value("outcome of a retry", other)),
        }
    }

    /// Explains why a session does not progress.
    pub async fn why(&self, session: SessionId) -> Result<WaitExplanation, Error> {
        let answer: WhyJson = self.get(&["v1", "sessions", &session.to_string(), "why"], &[]).await?;
        answer.try_into()
    }

    /// Explains why a turn does not progress.
    pub async fn why_turn(&self, turn: TurnId) -> Result<WaitExplanation, Error> {
        let answer: WhyJson = self.get(&["v1", "turns", &turn.to_string(), "why"], &[]).await?;
        answer.try_into()
    }
}

//! Turns: show, cancel and retry them, and explain why they do not progress.
use crate::Client;
use crate::sessions::{self, end, unknown};
use outlast_ports::store::{Cancelled, TurnView, Writes};
use outlast_runtime::durability::Durability;
use outlast_runtime::why::{Blocked, Mover, Standing, Why};
use outlast_runtime::worker::{Retried, RetryPlace};
use outlast_vocab::budget::Purse;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::package::Pinned;
use outlast_vocab::wait::{Wait, WaitKind};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, ReplayKey, SessionId, TurnId, WorkerId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// A turn with its agent and its usage.
#[derive(Clone, Debug)]
pub struct Turn {
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
struct Whole {
    #[serde(flatten)]
    turn: sessions::Turn,
    agent: Option<String>,
    usage: Usage,
    cost: Cost,
    durability: Kept,
}

#[derive(Deserialize)]
struct Kept {
    records: usize,
    bytes: usize,
    commits: Option<u64>,
    waited_ms: Option<f64>,
}

impl From<Kept> for Durability {
    fn from(Kept { records, bytes, commits, waited_ms }: Kept) -> Self {
        let waited = waited_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()).unwrap_or_default();
        Self { records, bytes, writes: commits.map(|commits| Writes { commits, waited }) }
    }
}

#[derive(Deserialize)]
struct Stopped {
    outcome: String,
    end: Option<Value>,
}

#[derive(Deserialize)]
struct RetryAnswer {
    outcome: String,
    session: SessionId,
    turn: TurnId,
    duplicate: bool,
}

#[derive(Deserialize)]
struct Answer {
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
    waits: Vec<Held>,
    queued: usize,
    last_turn: Option<TurnId>,
    last_end: Option<Value>,
}

#[derive(Deserialize)]
struct Held {
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
    budget: Option<Purse>,
    provider: Option<String>,
    failure: Option<Failure>,
    completion: Option<String>,
}

impl TryFrom<Answer> for Why {
    type Error = Error;

    fn try_from(answer: Answer) -> Result<Self, Error> {
        let lacks = |what: &str| {
            let detail = format!("the server says `{}` without {what}", answer.standing);
            Error::new(Kind::ServerAnswerInvalid, detail)
        };
        let standing = match answer.standing.as_str() {
            "rests" => Standing::Rests,
            "ended" => Standing::Ended(end(answer.end.ok_or_else(|| lacks("how it ended"))?)?),
            "queued" => Standing::Behind(answer.behind.ok_or_else(|| lacks("the turn before it"))?),
            "ready" => Standing::Ready,
            "running" => Standing::Driven { worker: answer.worker, doing: answer.doing.unwrap_or_default() },
            "waits" => Standing::Waits,
            "held" => Standing::Held { deaths: answer.deaths.unwrap_or_default(), until: answer.held_until },
            "stuck" => Standing::Stuck(answer.failure.ok_or_else(|| lacks("why"))?),
            other => return Err(unknown("standing", other)),
        };
        let last_end = answer.last_end.map(end).transpose()?;
        Ok(Self {
            session: answer.session,
            turn: answer.turn,
            standing,
            since: answer.since,
            waits: answer.waits.into_iter().map(Blocked::try_from).collect::<Result<_, _>>()?,
            queued: answer.queued,
            last: answer.last_turn.zip(last_end),
        })
    }
}

impl TryFrom<Held> for Blocked {
    type Error = Error;

    fn try_from(held: Held) -> Result<Self, Error> {
        let Held { key, kind, since, deadline, tool, arguments, .. } = held;
        let Held { moved_by, approval, who, budget, provider, failure, completion, .. } = held;
        let mover = match (moved_by.as_str(), approval) {
            ("approval", Some(id)) => Mover::Approval { id, who },
            ("completion", _) => Mover::Completion(completion.map(|key| key.parse()).transpose()?),
            ("time", _) => Mover::Time,
            ("budget", _) => Mover::Budget(budget),
            ("provider", _) => Mover::Provider { name: provider, failure },
            ("retry", _) => Mover::Retry,
            (other, _) => return Err(unknown("mover of turns", other)),
        };
        let call = tool.map(|tool| (tool, arguments.unwrap_or_default()));
        Ok(Self { wait: Wait { key, kind, deadline }, since, call, mover })
    }
}

impl Client {
    /// Returns a turn.
    pub async fn turn(&self, turn: TurnId) -> Result<Turn, Error> {
        let Whole { turn, agent, usage, cost, durability } =
            self.get(&["v1", "turns", &turn.to_string()], &[]).await?;
        Ok(Turn { view: turn.try_into()?, agent, usage, cost, durability: durability.into() })
    }

    /// Returns the package that the turn is pinned to.
    pub async fn package(&self, turn: TurnId) -> Result<Pinned, Error> {
        self.get(&["v1", "turns", &turn.to_string(), "package"], &[]).await
    }

    /// Returns a package by its fingerprint, from an agent of the server or one of the newest turns.
    pub async fn package_of(&self, fingerprint: Hash) -> Result<Pinned, Error> {
        self.get(&["v1", "packages", &fingerprint.to_string()], &[]).await
    }

    /// Asks a turn to stop.
    pub async fn cancel(&self, turn: TurnId, reason: &str) -> Result<Cancelled, Error> {
        self.stop(turn, json!({ "reason": reason })).await
    }

    /// Asks a turn to stop and to undo its calls.
    pub async fn abort(&self, turn: TurnId, reason: &str) -> Result<Cancelled, Error> {
        self.stop(turn, json!({ "reason": reason, "undo": true })).await
    }

    async fn stop(&self, turn: TurnId, body: Value) -> Result<Cancelled, Error> {
        let stopped: Stopped = self.post(&["v1", "turns", &turn.to_string(), "cancel"], &body).await?;
        match (stopped.outcome.as_str(), stopped.end) {
            ("requested", _) => Ok(Cancelled::Requested),
            ("never_began", _) => Ok(Cancelled::NeverBegan),
            ("too_late", Some(ended)) => Ok(Cancelled::TooLate(end(ended)?)),
            (other, _) => Err(unknown("way to stop", other)),
        }
    }

    /// Retries a turn. A stuck turn continues; a turn that has ended is retried as a new turn.
    pub async fn retry(&self, turn: TurnId, place: RetryPlace) -> Result<Retried, Error> {
        let body = json!({ "fork": place == RetryPlace::Fork });
        let answer: RetryAnswer = self.post(&["v1", "turns", &turn.to_string(), "retry"], &body).await?;
        let RetryAnswer { outcome, session, turn, duplicate } = answer;
        match outcome.as_str() {
            "woken" => Ok(Retried::Woken),
            "new_turn" => Ok(Retried::NewTurn { session, turn, duplicate }),
            other => Err(unknown("outcome of a retry", other)),
        }
    }

    /// Explains why a session does not progress.
    pub async fn why(&self, session: SessionId) -> Result<Why, Error> {
        let answer: Answer = self.get(&["v1", "sessions", &session.to_string(), "why"], &[]).await?;
        answer.try_into()
    }

    /// Explains why a turn does not progress.
    pub async fn why_turn(&self, turn: TurnId) -> Result<Why, Error> {
        let answer: Answer = self.get(&["v1", "turns", &turn.to_string(), "why"], &[]).await?;
        answer.try_into()
    }
}

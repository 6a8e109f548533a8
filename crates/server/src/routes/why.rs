//! Explains why a session or turn makes no progress.
use crate::caller::{Caller, Reads};
use crate::extract::At;
use crate::problem::{Answer, Problems};
use crate::routes::turns::said;
use crate::shared::Shared;
use axum::Json;
use outlast_runtime::why::{self, Blocked, Mover, Standing};
use outlast_vocab::budget::Purse;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::{Failure, Millis, SessionId, TurnId, WorkerId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(of_session)).routes(routes!(of_turn))
}

/// Why something does not move.
#[derive(Serialize, ToSchema)]
pub(crate) struct Why {
    #[schema(value_type = String)]
    session: SessionId,
    /// The turn that stands in the way, or that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    turn: Option<TurnId>,
    /// `rests`, `ended`, `queued`, `ready`, `running`, `waits`, `held` or `stuck`.
    standing: &'static str,
    /// Since when.
    #[schema(value_type = u64)]
    since: Millis,
    /// The turn that it waits behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    behind: Option<TurnId>,
    /// The worker that drives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    worker: Option<WorkerId>,
    /// What that does now: `the model`, or a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    doing: Option<String>,
    /// Worker deaths while it ran, since its last progress, where it is held back for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    deaths: Option<u32>,
    /// When it is tried again at the earliest, alone, where it is held back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    held_until: Option<Millis>,
    /// Why it is stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    failure: Option<Failure>,
    /// How it ended: `how`, and what that says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
    /// What it waits for.
    waits: Vec<Wait>,
    /// Inputs that wait behind it.
    queued: usize,
    /// The last turn of a session that rests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    last_turn: Option<TurnId>,
    /// How that turn ended: `how`, and what that says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    last_end: Option<Value>,
}

/// One thing that a turn waits for, and what moves it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Wait {
    /// The place in the turn.
    key: String,
    /// For what.
    #[schema(value_type = String)]
    kind: outlast_vocab::wait::WaitKind,
    /// Since when.
    #[schema(value_type = u64)]
    since: Millis,
    /// When it stops waiting by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    deadline: Option<Millis>,
    /// The tool whose call waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// What that call was passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// What moves it: `approval`, `completion`, `time`, `provider`, `budget` or `retry`.
    moved_by: &'static str,
    /// The approval to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    approval: Option<ApprovalId>,
    /// Who may approve; anybody if it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    who: Vec<String>,
    /// The budget to raise: `agent:NAME`, or the id of a turn, session or organisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    budget: Option<Purse>,
    /// The model provider that does not answer. It is called again at `deadline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// How the provider failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    failure: Option<Failure>,
    /// The key that finishes it. Only who may run turns is shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion: Option<String>,
}

impl From<why::Why> for Why {
    fn from(why: why::Why) -> Self {
        let why::Why { session, turn, standing, since, waits, queued, last } = why;
        let name = standing.name();
        let (mut behind, mut worker, mut doing, mut failure, mut end) = (None, None, None, None, None);
        let (mut deaths, mut held_until) = (None, None);
        match standing {
            Standing::Behind(turn) => behind = Some(turn),
            Standing::Driven { worker: by, doing: what } => (worker, doing) = (by, Some(what)),
            Standing::Held { deaths: died, until } => (deaths, held_until) = (Some(died), until),
            Standing::Stuck(why) => failure = Some(why),
            Standing::Ended(how) => end = Some(said(&how)),
            Standing::Rests | Standing::Ready | Standing::Waits => {}
        }
        let waits = waits.into_iter().map(Wait::from).collect();
        let (last_turn, last_end) = last.map(|(turn, end)| (turn, said(&end))).unzip();
        Self {
            session,
            turn,
            standing: name,
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

impl From<Blocked> for Wait {
    fn from(Blocked { wait, since, call, mover }: Blocked) -> Self {
        let (tool, arguments) = call.unzip();
        let moved_by = mover.name();
        let (mut approval, mut who, mut budget, mut completion) = (None, Vec::new(), None, None);
        let (mut provider, mut failure) = (None, None);
        match mover {
            Mover::Approval { id, who: may } => (approval, who) = (Some(id), may),
            Mover::Budget(purse) => budget = purse,
            Mover::Provider { name, failure: last } => (provider, failure) = (name, last),
            Mover::Completion(key) => completion = key.map(|key| key.to_string()),
            Mover::Time | Mover::Retry => {}
        }
        let (key, kind, deadline) = (wait.key.as_str().to_owned(), wait.kind, wait.deadline);
        Self {
            key,
            kind,
            since,
            deadline,
            tool,
            arguments,
            moved_by,
            approval,
            who,
            budget,
            provider,
            failure,
            completion,
        }
    }
}

/// Why a session does not move: what its turn waits for, since when, and who or what can move it.
#[utoipa::path(get, path = "/v1/sessions/{session}/why", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = Why), Problems), security(("key" = ["read"])))]
async fn of_session(caller: Caller<Reads>, At(session): At<SessionId>) -> Answer<Json<Why>> {
    Ok(Json(caller.runtime.why(session).await?.into()))
}

/// Why a turn does not move.
#[utoipa::path(get, path = "/v1/turns/{turn}/why", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = Why), Problems), security(("key" = ["read"])))]
async fn of_turn(caller: Caller<Reads>, At(turn): At<TurnId>) -> Answer<Json<Why>> {
    Ok(Json(caller.runtime.why_turn(turn).await?.into()))
}

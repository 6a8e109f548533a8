//! Explains why a session or turn makes no progress.
use crate::routes::turns::said;
use crate::server_state::ServerState;
use axum::Json;
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::PathParam;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_views::{BlockingWait, TurnProgress, Unblocker, WaitExplanation};
use outlast_vocab::budget::BudgetAccount;
use outlast_vocab::id::ApprovalId;
use outlast_vocab::{Failure, Millis, SessionId, TurnId, WorkerId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(of_session)).routes(routes!(of_turn))
}

/// Why a session or turn makes no progress.
#[derive(Serialize, ToSchema)]
#[schema(as = Why)]
pub(crate) struct WhyResource {
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The id of the turn that blocks the session, or that was asked about. Absent if the session is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    turn: Option<TurnId>,
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
    standing: &'static str,
    /// Since when it is in this state, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    since: Millis,
    /// The id of the turn that it is queued behind. Only present if `queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    behind: Option<TurnId>,
    /// The id of the worker that runs it. Absent if no worker does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    worker: Option<WorkerId>,
    /// The current activity: `the model`, or the name of a tool. Only present if `running`.
    #[serde(skip_serializing_if = "Option::is_none")]
    doing: Option<String>,
    /// The number of workers that died while they ran the turn, since its last progress. Only present if
    /// `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    deaths: Option<u32>,
    /// The earliest time of the next attempt, as a Unix timestamp in milliseconds. The turn then runs alone.
    /// Only present if `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    held_until: Option<Millis>,
    /// Why the turn is stuck. Only present if `stuck`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    failure: Option<Failure>,
    /// How the turn ended: `how`, and the details of that ending. Only present if `ended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
    /// What the turn waits for.
    waits: Vec<BlockingWaitResource>,
    /// The number of inputs that are queued behind it.
    queued: usize,
    /// The id of the last turn. Only present if the session is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    last_turn: Option<TurnId>,
    /// How the last turn ended: `how`, and the details of that ending. Only present if the session is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    last_end: Option<Value>,
}

/// Something that a turn waits for, and what unblocks it.
#[derive(Serialize, ToSchema)]
#[schema(as = BlockingWait)]
pub(crate) struct BlockingWaitResource {
    /// The path in the turn.
    key: String,
    /// The kind of wait: `approval`, `completion`, `event`, `sleep`, `budget`, …
    #[schema(value_type = String)]
    kind: outlast_vocab::wait::WaitKind,
    /// Since when the turn waits, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    since: Millis,
    /// When the wait ends if nothing resolves it first, as a Unix timestamp in milliseconds. Absent if it has
    /// no time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    deadline: Option<Millis>,
    /// The name of the tool whose call waits. Absent if no call waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// The arguments of that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// What unblocks the turn: `approval`, `completion`, `time`, `provider`, `budget` or `retry`.
    moved_by: &'static str,
    /// The id of the approval. Only present for `approval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    approval: Option<ApprovalId>,
    /// Who may approve. Absent if anyone may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    who: Vec<String>,
    /// The budget to raise: `agent:NAME`, or the id of a turn, session or organisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    budget: Option<BudgetAccount>,
    /// The name of the model provider that is down. Outlast calls it again at `deadline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    /// The last failure of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    failure: Option<Failure>,
    /// The completion key that unblocks the turn. Only shown to callers with the scope `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    completion: Option<String>,
}

impl From<WaitExplanation> for WhyResource {
    fn from(why: WaitExplanation) -> Self {
        let WaitExplanation { session, turn, standing, since, waits, queued, last } = why;
        let name = standing.name();
        let (mut behind, mut worker, mut doing, mut failure, mut end) = (None, None, None, None, None);
        let (mut deaths, mut held_until) = (None, None);
        match standing {
            TurnProgress::Behind(turn) => behind = Some(turn),
            TurnProgress::Driven { worker: by, doing: what } => (worker, doing) = (by, Some(what)),
            TurnProgress::Held { deaths: died, until } => (deaths, held_until) = (Some(died), until),
            TurnProgress::Stuck(why) => failure = Some(why),
            TurnProgress::Ended(how) => end = Some(said(&how)),
            TurnProgress::Rests | TurnProgress::Ready | TurnProgress::Waits => {}
        }
        let waits = waits.into_iter().map(BlockingWaitResource::from).collect();
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

/// Returns why a session makes no progress.
///
/// The response says what the turn waits for, since when, and who or what can unblock it.
#[utoipa::path(get, path = "/v1/sessions/{session}/why", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = WhyResource), ProblemResponses), security(("key" = ["read"])))]
async fn of_session(
    caller: Caller<Reads>,
    PathParam(session): PathParam<SessionId>,
) -> ApiResult<Json<WhyResource>> {
    Ok(Json(caller.runtime.why(session).await?.into()))
}

/// Returns why a turn makes no progress.
#[utoipa::path(get, path = "/v1/turns/{turn}/why", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = WhyResource), ProblemResponses), security(("key" = ["read"])))]
async fn of_turn(caller: Caller<Reads>, PathParam(turn): PathParam<TurnId>) -> ApiResult<Json<WhyResource>> {
    Ok(Json(caller.runtime.why_turn(turn).await?.into()))
}

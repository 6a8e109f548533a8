//! Turns: list and show them, send inputs, cancel and retry.
use crate::inputs;
use crate::routes::effects::decision_resource;
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use outlast_api::inputs::{InputReceipt, TurnInputRequest};
use outlast_api::list_page::ListPage;
use outlast_api::turns::{
    CancelRequest, CancelResult, ResumeResource, TurnDetails, TurnListParams, TurnResource, TurnRetryRequest,
    TurnRetryResult, TurnWaitParams, turn_end_json,
};
use outlast_http::caller::{Caller, Operates, Reads, Runs};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{OptionalJsonBody, PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_http::request_headers::RequestHeaders;
use outlast_ports::inbox::{AcceptReceipt, SessionTarget};
use outlast_runtime::Runtime;
use outlast_runtime::agents::agent_registry;
use outlast_runtime::views::timeline::{self, TurnResume};
use outlast_views::{RetryOutcome, RetryPlace};
use outlast_vocab::record::{TurnEnd, TurnResumed};
use outlast_vocab::{Error, Millis, SessionId, TurnId};
use serde_json::Value;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(list, send))
        .routes(routes!(send_to_key))
        .routes(routes!(show))
        .routes(routes!(package))
        .routes(routes!(cancel))
        .routes(routes!(retry))
}

fn resume_resource(TurnResume { seq, by, replayed }: TurnResume) -> ResumeResource {
    let TurnResumed { worker, lease, since } = by;
    ResumeResource { seq, at: since, lease, worker, replayed }
}

fn wait_duration(params: &TurnWaitParams, shared: &ServerState) -> Result<Duration, Error> {
    list_page::wait_limit(params.wait, &shared.http.limits)
}

/// Returns the turns of a session, in the order in which they were accepted.
#[utoipa::path(get, path = "/v1/sessions/{session}/turns", tag = "turns", params(("session" = String, Path), TurnListParams),
    responses((status = 200, body = ListPage<TurnResource>), ProblemResponses), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
    QueryParams(TurnListParams { from, limit, cursor }): QueryParams<TurnListParams>,
) -> ApiResult<Json<ListPage<TurnResource>>> {
    let limit = list_page::page_limit(limit, &shared.http.limits)?;
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "turns");
    let from = list_page::decode_cursor(cursor.as_deref(), &cursors)?.or(from).unwrap_or(0);
    let mut turns = caller.runtime.store().turns(session, from, limit + 1).await?;
    let next = turns.get(limit).map(|next| list_page::encode_cursor(&next.index, &cursors));
    turns.truncate(limit);
    Ok(Json(ListPage { items: turns.into_iter().map(TurnResource::from).collect(), next }))
}

/// Returns a turn with its state, its result and its costs.
#[utoipa::path(get, path = "/v1/turns/{turn}", tag = "turns", params(("turn" = String, Path), TurnWaitParams),
    responses((status = 200, body = TurnDetails), ProblemResponses), security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(turn): PathParam<TurnId>,
    QueryParams(patience): QueryParams<TurnWaitParams>,
) -> ApiResult<Json<TurnDetails>> {
    // Check that the turn exists before waiting for it.
    caller.runtime.store().turn(turn).await?;
    wait_for(&caller.runtime, turn, wait_duration(&patience, &shared)?).await?;
    Ok(Json(turn_details(&caller.runtime, turn).await?))
}

/// Waits for the end of a turn, up to a timeout.
async fn wait_for(runtime: &Runtime, turn: TurnId, patience: Duration) -> Result<Option<TurnEnd>, Error> {
    if patience.is_zero() {
        return Ok(None);
    }
    tokio::time::timeout(patience, runtime.outcome(turn)).await.ok().transpose()
}

async fn turn_details(runtime: &Runtime, id: TurnId) -> Result<TurnDetails, Error> {
    let store = runtime.store().as_ref();
    let turn = store.turn(id).await?;
    let records = store.turn_records(id).await?;
    let pinned = agent_registry::of_turn(store, id).await?;
    let at = |record: Option<&outlast_vocab::record::Record>| record.map_or(Millis(0), |record| record.at);
    let (usage, cost) = outlast_runtime::views::costs::of_turn(&records);
    let durability = runtime.durability(&turn, &records).into();
    let (accepted, updated) = (at(records.first()), at(records.last()));
    let timeline = timeline::of_turn(records);
    Ok(TurnDetails {
        turn: turn.into(),
        agent: pinned.as_ref().map(|pinned| pinned.package.agent.clone()),
        model: pinned.as_ref().map(|pinned| pinned.package.model.to_string()),
        accepted,
        updated,
        usage,
        cost,
        durability,
        decisions: timeline.decisions.into_iter().map(decision_resource).collect(),
        resumes: timeline.resumes.into_iter().map(resume_resource).collect(),
    })
}

/// Returns the package of a turn: the configuration it runs under, with the contracts of its tools.
#[utoipa::path(get, path = "/v1/turns/{turn}/package", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = Object), ProblemResponses), security(("key" = ["read"])))]
async fn package(caller: Caller<Reads>, PathParam(turn): PathParam<TurnId>) -> ApiResult<Json<Value>> {
    let package = caller.runtime.store().package(turn).await?;
    let package = serde_json::from_slice(&package).map_err(|cause| {
        Error::new(
            outlast_vocab::Kind::RecordCorrupt,
            format!("the package of {turn} is not valid JSON: {cause}"),
        )
    })?;
    Ok(Json(package))
}

/// Send an input to a session.
///
/// The input is durable when the response arrives. The status is 202 with a receipt, or 200 if the turn ended
/// within `wait` seconds. To send files, use `multipart/form-data` with this JSON in the field `input` and
/// any number of files.
#[utoipa::path(post, path = "/v1/sessions/{session}/turns", tag = "turns",
    params(("session" = String, Path), TurnWaitParams,
        ("idempotency-key" = Option<String>, Header, description = "Requests with the same key in the same session return the same turn.")),
    request_body(content((TurnInputRequest = "application/json"), (TurnInputRequest = "multipart/form-data"))),
    responses((status = 200, description = "The turn has ended.", body = InputReceipt),
        (status = 202, description = "The input is durable.", body = InputReceipt), ProblemResponses),
    security(("key" = ["run"])))]
async fn send(
    caller: Caller<Runs>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
    QueryParams(patience): QueryParams<TurnWaitParams>,
    headers: HeaderMap,
    incoming: inputs::InputBody,
) -> ApiResult<(StatusCode, Json<InputReceipt>)> {
    let incoming = incoming.receive(&caller.runtime, &shared.http.limits).await?;
    let marks = RequestHeaders::of(&headers)?;
    let input = incoming.into_input(&caller.runtime, SessionTarget::Id(session), marks).await?;
    submit_and_wait(&caller.runtime, input, wait_duration(&patience, &shared)?).await
}

/// The prefix of the session key for a session that an input with an idempotency key opened.
const IDEMPOTENT_SESSION_PREFIX: &str = "idempotency/";

/// Send an input to the session with a `session_key`, or to a new session.
///
/// See `POST /v1/sessions/{session}/turns`.
#[utoipa::path(post, path = "/v1/turns", tag = "turns",
    params(TurnWaitParams,
        ("idempotency-key" = Option<String>, Header, description = "Requests with the same key return the same turn: in the session with the `session_key`, or in the session that the first request opened.")),
    request_body(content((TurnInputRequest = "application/json"), (TurnInputRequest = "multipart/form-data"))),
    responses((status = 200, description = "The turn has ended.", body = InputReceipt),
        (status = 202, description = "The input is durable.", body = InputReceipt), ProblemResponses),
    security(("key" = ["run"])))]
async fn send_to_key(
    caller: Caller<Runs>,
    State(shared): State<ServerState>,
    QueryParams(patience): QueryParams<TurnWaitParams>,
    headers: HeaderMap,
    incoming: inputs::InputBody,
) -> ApiResult<(StatusCode, Json<InputReceipt>)> {
    let incoming = incoming.receive(&caller.runtime, &shared.http.limits).await?;
    let marks = RequestHeaders::of(&headers)?;
    let fresh = caller.runtime.fresh_session();
    let target = match (incoming.session_key(), marks.key.as_deref()) {
        (Some(key), _) => SessionTarget::Key { key: key.to_owned(), fresh },
        // A repeated request goes to the session that the first one opened, and finds its turn there.
        (None, Some(key)) => SessionTarget::Key { key: format!("{IDEMPOTENT_SESSION_PREFIX}{key}"), fresh },
        (None, None) => SessionTarget::New(fresh),
    };
    let input = incoming.into_input(&caller.runtime, target, marks).await?;
    submit_and_wait(&caller.runtime, input, wait_duration(&patience, &shared)?).await
}

async fn submit_and_wait(
    runtime: &Runtime,
    input: outlast_runtime::Input,
    patience: Duration,
) -> ApiResult<(StatusCode, Json<InputReceipt>)> {
    let AcceptReceipt { session, turn, duplicate, place, .. } = runtime.submit(input).await?;
    let end = wait_for(runtime, turn, patience).await?;
    let status = if end.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let end = end.map(|end| turn_end_json(&end));
    Ok((status, Json(InputReceipt { session, turn, duplicate, seq: place.seq, hash: place.hash, end })))
}

/// Cancel a turn.
///
/// The request is durable when the response arrives.
#[utoipa::path(post, path = "/v1/turns/{turn}/cancel", tag = "turns", params(("turn" = String, Path)),
    request_body = Option<CancelRequest>, responses((status = 200, body = CancelResult), ProblemResponses), security(("key" = ["run"])))]
async fn cancel(
    caller: Caller<Runs>,
    PathParam(turn): PathParam<TurnId>,
    OptionalJsonBody(CancelRequest { reason, undo }): OptionalJsonBody<CancelRequest>,
) -> ApiResult<Json<CancelResult>> {
    let runtime = &caller.runtime;
    let reason = reason.unwrap_or_else(|| "cancelled by an operator".to_owned());
    let cancelled =
        if undo { runtime.abort(turn, &reason).await } else { runtime.cancel(turn, &reason).await };
    Ok(Json(cancelled?.into()))
}

/// Retry a turn.
///
/// A turn that is stuck or waits for its model provider continues immediately; fix the cause first. A turn
/// that failed, was cancelled, was sealed or ran out of budget is retried as a new turn with the same input.
/// The new turn reuses the results of the original. Calls with an unknown outcome stay unknown.
#[utoipa::path(post, path = "/v1/turns/{turn}/retry", tag = "turns", params(("turn" = String, Path)),
    request_body = Option<TurnRetryRequest>, responses((status = 202, body = TurnRetryResult), ProblemResponses),
    security(("key" = ["operate"])))]
async fn retry(
    caller: Caller<Operates>,
    PathParam(turn): PathParam<TurnId>,
    OptionalJsonBody(TurnRetryRequest { fork }): OptionalJsonBody<TurnRetryRequest>,
) -> ApiResult<(StatusCode, Json<TurnRetryResult>)> {
    let place = if fork { RetryPlace::Fork } else { RetryPlace::SameHead };
    let result = match caller.runtime.retry_turn(turn, place).await? {
        RetryOutcome::Woken => {
            let session = caller.runtime.store().turn(turn).await?.session;
            TurnRetryResult { outcome: "woken".into(), session, turn, duplicate: false }
        }
        RetryOutcome::NewTurn { session, turn, duplicate } => {
            TurnRetryResult { outcome: "new_turn".into(), session, turn, duplicate }
        }
    };
    Ok((StatusCode::ACCEPTED, Json(result)))
}

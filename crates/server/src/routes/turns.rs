//! Turns: list and show them, send inputs, cancel and retry.
use crate::inputs::{self, TurnInputRequest};
use crate::routes::effects::PolicyDecisionResource;
use crate::routes::sessions::MessageRef;
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use outlast_http::caller::{Caller, Operates, Reads, Runs};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{OptionalJsonBody, PathParam, QueryParams};
use outlast_http::list_page::{self, ListPage};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_http::request_headers::RequestHeaders;
use outlast_ports::inbox::{AcceptReceipt, SessionTarget};
use outlast_runtime::Runtime;
use outlast_runtime::agents::agent_registry;
use outlast_runtime::views::timeline::{self, TurnResume};
use outlast_views::{CancelOutcome, Durability, RetryOutcome, RetryPlace, TurnState, TurnView};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::record::{Seq, TurnEnd, TurnResumed};
use outlast_vocab::{Error, Hash, Millis, SessionId, TurnId, WorkerId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
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

/// A turn: one input, and everything done to answer it.
#[derive(Serialize, ToSchema)]
#[schema(as = Turn)]
pub(crate) struct TurnResource {
    /// The id of the turn.
    #[schema(value_type = String, example = "trn_019a8b6e5c7d7f3a9b1c2d3e4f506172")]
    id: TurnId,
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The index of the turn in the session, counted from 0.
    index: u32,
    /// `queued`, `active` or `ended`.
    state: &'static str,
    /// The message that the turn follows. Absent if the turn starts the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<MessageRef>,
    /// The sequence number of its first message.
    #[schema(value_type = u64)]
    first: Seq,
    /// The sequence number of its last message so far.
    #[schema(value_type = u64)]
    last: Seq,
    /// How the turn ended: `how`, and the details of that ending. Absent if it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
    /// The id of the turn that this one retries. Absent if it is not a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    retry_of: Option<TurnId>,
}

/// A turn with its usage and costs.
#[derive(Serialize, ToSchema)]
pub(crate) struct TurnDetails {
    #[serde(flatten)]
    turn: TurnResource,
    /// The name of the agent that answers. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// The name of the model that the agent uses. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// When the input was accepted, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    accepted: Millis,
    /// When the last record was written, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    updated: Millis,
    /// The tokens that models used.
    #[schema(value_type = Object)]
    usage: Usage,
    /// The cost in US dollars. Calls without a known price are not included.
    #[schema(value_type = String)]
    cost: Cost,
    /// The cost of durability.
    durability: DurabilityCost,
    /// Policy decisions about the turn itself. Decisions about an effect are part of the effect. Absent if
    /// there are no decisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<PolicyDecisionResource>,
    /// Where another lease resumed the turn, in order. Absent if that never happened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resumes: Vec<ResumeResource>,
}

/// A resume of a turn by another lease, after the previous worker died, lost the lease or handed the turn
/// back.
#[derive(Serialize, ToSchema)]
#[schema(as = Resume)]
pub(crate) struct ResumeResource {
    /// The sequence number of the record of the resume, in the first write of the lease.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When the lease took over the turn, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    at: Millis,
    /// The number of the lease, which is the fencing token of its writes.
    lease: u64,
    /// The id of the worker that took over the turn.
    #[schema(value_type = String)]
    worker: WorkerId,
    /// The number of effects that already had an outcome. They were answered from the journal.
    replayed: usize,
}

impl From<TurnResume> for ResumeResource {
    fn from(TurnResume { seq, by: TurnResumed { worker, lease, since }, replayed }: TurnResume) -> Self {
        Self { seq, at: since, lease, worker, replayed }
    }
}

/// The cost of durability for a turn.
#[derive(Serialize, ToSchema)]
pub(crate) struct DurabilityCost {
    /// The number of records written.
    records: usize,
    /// The size of the records in bytes.
    bytes: usize,
    /// The number of writes, including the one that accepted the input. Absent if the turn was imported or is
    /// older than this counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    commits: Option<u64>,
    /// The time that the turn waited for these writes, in milliseconds. The wait for the last write is not
    /// included once the process that ran the turn has exited. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<f64>,
}

impl From<Durability> for DurabilityCost {
    fn from(Durability { records, bytes, writes }: Durability) -> Self {
        let (commits, waited) = writes.map(|writes| (writes.commits, writes.waited)).unzip();
        // Rounded to microseconds, the precision of the measurement.
        let waited_ms = waited.map(|waited| (waited.as_secs_f64() * 1e6).round() / 1e3);
        Self { records, bytes, commits, waited_ms }
    }
}

impl From<TurnView> for TurnResource {
    fn from(turn: TurnView) -> Self {
        let TurnView { id, session, index, state, parent, span: (first, last), end, retry_of, .. } = turn;
        let state = match state {
            TurnState::Queued => "queued",
            TurnState::Active => "active",
            TurnState::Ended => "ended",
        };
        Self {
            id,
            session,
            index,
            state,
            parent: parent.map(MessageRef::from),
            first,
            last,
            end: end.map(|end| said(&end)),
            retry_of,
        }
    }
}

/// Returns how a turn ended, as a flat JSON object.
pub(crate) fn said(end: &TurnEnd) -> Value {
    let mut said = json!({ "how": end.name() });
    let tagged = serde_json::to_value(end).unwrap_or_default();
    let content = tagged.as_object().and_then(|tagged| tagged.values().next()?.as_object().cloned());
    if let Some(said) = said.as_object_mut() {
        said.extend(content.unwrap_or_default());
    }
    said
}

/// Parameters that select turns.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TurnListParams {
    /// The index of the first turn, counted from 0. Defaults to 0.
    from: Option<u32>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page. Takes precedence over `from`.
    cursor: Option<String>,
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
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "turns");
    let from = list_page::decode_cursor(cursor.as_deref(), &cursors)?.or(from).unwrap_or(0);
    let mut turns = caller.runtime.store().turns(session, from, limit + 1).await?;
    let next = turns.get(limit).map(|next| list_page::encode_cursor(&next.index, &cursors));
    turns.truncate(limit);
    Ok(Json(ListPage { items: turns.into_iter().map(TurnResource::from).collect(), next }))
}

/// Parameters for waiting.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TurnWaitParams {
    /// The time to wait for the end of the turn, in seconds, at most 60. Defaults to 0.
    #[param(maximum = 60)]
    wait: Option<u64>,
}

impl TurnWaitParams {
    fn duration(&self, shared: &ServerState) -> Result<Duration, Error> {
        list_page::wait_limit(self.wait, &shared.http.limits)
    }
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
    wait_for(&caller.runtime, turn, patience.duration(&shared)?).await?;
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
    let timeline = timeline::of_turn(&records);
    let durability = runtime.durability(&turn, &records).into();
    Ok(TurnDetails {
        turn: turn.into(),
        agent: pinned.as_ref().map(|pinned| pinned.package.agent.clone()),
        model: pinned.as_ref().map(|pinned| pinned.package.model.to_string()),
        accepted: at(records.first()),
        updated: at(records.last()),
        usage,
        cost,
        durability,
        decisions: timeline.decisions.into_iter().map(PolicyDecisionResource::from).collect(),
        resumes: timeline.resumes.into_iter().map(ResumeResource::from).collect(),
    })
}

/// Returns the package of a turn: the configuration it runs under, with the contracts of its tools.
#[utoipa::path(get, path = "/v1/turns/{turn}/package", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = Object), ProblemResponses), security(("key" = ["read"])))]
async fn package(caller: Caller<Reads>, PathParam(turn): PathParam<TurnId>) -> ApiResult<Json<Value>> {
    let package = caller.runtime.store().package(turn).await?;
    let package = serde_json::from_slice(&package).map_err(|cause| {
        Error::new(outlast_vocab::Kind::RecordCorrupt, format!("the package of {turn} is no JSON: {cause}"))
    })?;
    Ok(Json(package))
}

/// The receipt of an input. The input is durable and will be answered even if the server restarts.
#[derive(Serialize, ToSchema)]
pub(crate) struct InputReceipt {
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// Whether the input was already accepted with the same idempotency key.
    duplicate: bool,
    /// The sequence number of the input's record. The events of the turn start there.
    #[schema(value_type = u64)]
    seq: Seq,
    /// The hash of that record in the hash chain.
    #[schema(value_type = String)]
    hash: Hash,
    /// How the turn ended. Absent if it did not end while the request waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
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
    let incoming = incoming.into_request(&caller.runtime, &shared.http.limits).await?;
    let marks = RequestHeaders::of(&headers)?;
    let input = incoming.into_input(&caller.runtime, SessionTarget::Id(session), marks).await?;
    submit_and_wait(&caller.runtime, input, patience.duration(&shared)?).await
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
    let incoming = incoming.into_request(&caller.runtime, &shared.http.limits).await?;
    let marks = RequestHeaders::of(&headers)?;
    let fresh = caller.runtime.fresh_session();
    let target = match (incoming.session_key(), marks.key.as_deref()) {
        (Some(key), _) => SessionTarget::Key { key: key.to_owned(), fresh },
        // A repeated request goes to the session that the first one opened, and finds its turn there.
        (None, Some(key)) => SessionTarget::Key { key: format!("{IDEMPOTENT_SESSION_PREFIX}{key}"), fresh },
        (None, None) => SessionTarget::New(fresh),
    };
    let input = incoming.into_input(&caller.runtime, target, marks).await?;
    submit_and_wait(&caller.runtime, input, patience.duration(&shared)?).await
}

async fn submit_and_wait(
    runtime: &Runtime,
    input: outlast_runtime::Input,
    patience: Duration,
) -> ApiResult<(StatusCode, Json<InputReceipt>)> {
    let AcceptReceipt { session, turn, duplicate, place, .. } = runtime.submit(input).await?;
    let end = wait_for(runtime, turn, patience).await?;
    let status = if end.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let end = end.map(|end| said(&end));
    Ok((status, Json(InputReceipt { session, turn, duplicate, seq: place.seq, hash: place.hash, end })))
}

/// Options for cancelling a turn.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CancelRequest {
    /// The reason. Defaults to `cancelled by an operator`.
    reason: Option<String>,
    /// Whether to undo the calls of the turn. Only calls of tools that define an undo are undone. Defaults to
    /// `false`.
    undo: bool,
}

/// The result of a cancel request.
#[derive(Serialize, ToSchema)]
pub(crate) struct CancelResult {
    /// The result.
    ///
    /// - `requested`: the turn will stop.
    /// - `never_began`: the turn had not started and has ended now.
    /// - `too_late`: the turn had already ended.
    outcome: &'static str,
    /// How the turn had ended. Only present with `too_late`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
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
    let (outcome, end) = match cancelled? {
        CancelOutcome::Requested => ("requested", None),
        CancelOutcome::EndedBeforeStart => ("never_began", None),
        CancelOutcome::AlreadyEnded(end) => ("too_late", Some(said(&end))),
    };
    Ok(Json(CancelResult { outcome, end }))
}

/// Options for retrying a turn.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TurnRetryRequest {
    /// Whether the retry runs in a new session that forks off before the turn. Only for turns that have
    /// ended. Without it, a turn that later turns follow cannot be retried. Defaults to `false`.
    fork: bool,
}

/// The result of a retry.
#[derive(Serialize, ToSchema)]
pub(crate) struct TurnRetryResult {
    /// `woken` if the same turn continues, `new_turn` if a new turn retries it.
    outcome: &'static str,
    /// The id of the session of `turn`.
    #[schema(value_type = String)]
    session: SessionId,
    /// The id of the turn to follow: the same turn, or the new one.
    #[schema(value_type = String)]
    turn: TurnId,
    /// Whether this retry already existed.
    duplicate: bool,
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
    let answer = match caller.runtime.retry_turn(turn, place).await? {
        RetryOutcome::Woken => {
            let session = caller.runtime.store().turn(turn).await?.session;
            TurnRetryResult { outcome: "woken", session, turn, duplicate: false }
        }
        RetryOutcome::NewTurn { session, turn, duplicate } => {
            TurnRetryResult { outcome: "new_turn", session, turn, duplicate }
        }
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

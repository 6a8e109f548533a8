//! Turns: list and show them, send inputs, cancel and retry.
use crate::caller::{Caller, Operates, Reads, Runs};
use crate::cursor::Cursors;
use crate::extract::{Asked, At, MaySay};
use crate::inputs::{self, Incoming, Marks};
use crate::page::{self, Page};
use crate::problem::{Answer, Problems};
use crate::routes::effects::PointDecision;
use crate::routes::sessions::Node;
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use outlast_ports::store::{Accepted, Cancelled, Target, TurnState, TurnView};
use outlast_runtime::Runtime;
use outlast_runtime::durability::Durability;
use outlast_runtime::outfits;
use outlast_runtime::timeline::{self, Resume};
use outlast_runtime::worker::{Retried, RetryPlace};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::record::{End, Resumed, Seq};
use outlast_vocab::{Error, Hash, Millis, SessionId, TurnId, WorkerId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list, send))
        .routes(routes!(send_anywhere))
        .routes(routes!(show))
        .routes(routes!(package))
        .routes(routes!(cancel))
        .routes(routes!(retry))
}

/// A turn: one input, and everything done to answer it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Turn {
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
    parent: Option<Node>,
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
pub(crate) struct WholeTurn {
    #[serde(flatten)]
    turn: Turn,
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
    durability: Kept,
    /// Policy decisions about the turn itself. Decisions about an effect are part of the effect. Absent if
    /// there are no decisions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<PointDecision>,
    /// Where another lease resumed the turn, in order. Absent if that never happened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resumes: Vec<Resumption>,
}

/// A resume of a turn by another lease, after the previous worker died, lost the lease or handed the turn
/// back.
#[derive(Serialize, ToSchema)]
pub(crate) struct Resumption {
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

impl From<Resume> for Resumption {
    fn from(Resume { seq, by: Resumed { worker, lease, since }, replayed }: Resume) -> Self {
        Self { seq, at: since, lease, worker, replayed }
    }
}

/// The cost of durability for a turn.
#[derive(Serialize, ToSchema)]
pub(crate) struct Kept {
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

impl From<Durability> for Kept {
    fn from(Durability { records, bytes, writes }: Durability) -> Self {
        let (commits, waited) = writes.map(|writes| (writes.commits, writes.waited)).unzip();
        // Rounded to microseconds, the precision of the measurement.
        let waited_ms = waited.map(|waited| (waited.as_secs_f64() * 1e6).round() / 1e3);
        Self { records, bytes, commits, waited_ms }
    }
}

impl From<TurnView> for Turn {
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
            parent: parent.map(Node::from),
            first,
            last,
            end: end.map(|end| said(&end)),
            retry_of,
        }
    }
}

/// Returns how a turn ended, as a flat JSON object.
pub(crate) fn said(end: &End) -> Value {
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
pub(crate) struct Find {
    /// The index of the first turn, counted from 0. Defaults to 0.
    from: Option<u32>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page. Takes precedence over `from`.
    cursor: Option<String>,
}

/// Returns the turns of a session, in the order in which they were accepted.
#[utoipa::path(get, path = "/v1/sessions/{session}/turns", tag = "turns", params(("session" = String, Path), Find),
    responses((status = 200, body = Page<Turn>), Problems), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    At(session): At<SessionId>,
    Asked(Find { from, limit, cursor }): Asked<Find>,
) -> Answer<Json<Page<Turn>>> {
    let limit = page::size(limit, &shared.limits)?;
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "turns");
    let from = page::behind(cursor.as_deref(), &cursors)?.or(from).unwrap_or(0);
    let mut turns = caller.runtime.store().turns(session, from, limit + 1).await?;
    let next = turns.get(limit).map(|next| page::goes_on(&next.index, &cursors));
    turns.truncate(limit);
    Ok(Json(Page { items: turns.into_iter().map(Turn::from).collect(), next }))
}

/// Parameters for waiting.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Patience {
    /// The time to wait for the end of the turn, in seconds, at most 60. Defaults to 0.
    #[param(maximum = 60)]
    wait: Option<u64>,
}

impl Patience {
    fn time(&self, shared: &Shared) -> Result<Duration, Error> {
        page::patience(self.wait, &shared.limits)
    }
}

/// Returns a turn with its state, its result and its costs.
#[utoipa::path(get, path = "/v1/turns/{turn}", tag = "turns", params(("turn" = String, Path), Patience),
    responses((status = 200, body = WholeTurn), Problems), security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    At(turn): At<TurnId>,
    Asked(patience): Asked<Patience>,
) -> Answer<Json<WholeTurn>> {
    // Check that the turn exists before waiting for it.
    caller.runtime.store().turn(turn).await?;
    wait_for(&caller.runtime, turn, patience.time(&shared)?).await?;
    Ok(Json(whole(&caller.runtime, turn).await?))
}

/// Waits for the end of a turn, up to a timeout.
async fn wait_for(runtime: &Runtime, turn: TurnId, patience: Duration) -> Result<Option<End>, Error> {
    if patience.is_zero() {
        return Ok(None);
    }
    tokio::time::timeout(patience, runtime.outcome(turn)).await.ok().transpose()
}

async fn whole(runtime: &Runtime, id: TurnId) -> Result<WholeTurn, Error> {
    let store = runtime.store().as_ref();
    let turn = store.turn(id).await?;
    let records = store.turn_records(id).await?;
    let pinned = outfits::of_turn(store, id).await?;
    let at = |record: Option<&outlast_vocab::record::Record>| record.map_or(Millis(0), |record| record.at);
    let (usage, cost) = outlast_runtime::costs::of_turn(&records);
    let timeline = timeline::of_turn(&records);
    let durability = runtime.durability(&turn, &records).into();
    Ok(WholeTurn {
        turn: turn.into(),
        agent: pinned.as_ref().map(|pinned| pinned.package.agent.clone()),
        model: pinned.as_ref().map(|pinned| pinned.package.model.to_string()),
        accepted: at(records.first()),
        updated: at(records.last()),
        usage,
        cost,
        durability,
        decisions: timeline.decisions.into_iter().map(PointDecision::from).collect(),
        resumes: timeline.resumes.into_iter().map(Resumption::from).collect(),
    })
}

/// Returns the package of a turn: the configuration it runs under, with the contracts of its tools.
#[utoipa::path(get, path = "/v1/turns/{turn}/package", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = Object), Problems), security(("key" = ["read"])))]
async fn package(caller: Caller<Reads>, At(turn): At<TurnId>) -> Answer<Json<Value>> {
    let package = caller.runtime.store().package(turn).await?;
    let package = serde_json::from_slice(&package).map_err(|cause| {
        Error::new(outlast_vocab::Kind::RecordCorrupt, format!("the package of {turn} is no JSON: {cause}"))
    })?;
    Ok(Json(package))
}

/// The receipt of an input. The input is durable and will be answered even if the server restarts.
#[derive(Serialize, ToSchema)]
pub(crate) struct Receipt {
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
    params(("session" = String, Path), Patience,
        ("idempotency-key" = Option<String>, Header, description = "Requests with the same key in the same session return the same turn.")),
    request_body(content((Incoming = "application/json"), (Incoming = "multipart/form-data"))),
    responses((status = 200, description = "The turn has ended.", body = Receipt),
        (status = 202, description = "The input is durable.", body = Receipt), Problems),
    security(("key" = ["run"])))]
async fn send(
    caller: Caller<Runs>,
    State(shared): State<Shared>,
    At(session): At<SessionId>,
    Asked(patience): Asked<Patience>,
    headers: HeaderMap,
    incoming: inputs::Body,
) -> Answer<(StatusCode, Json<Receipt>)> {
    let incoming = incoming.read(&caller.runtime, &shared.limits).await?;
    let marks = Marks::of(&headers)?;
    let input = incoming.input(&caller.runtime, Target::Id(session), marks).await?;
    taken(&caller.runtime, input, patience.time(&shared)?).await
}

/// The prefix of the session key for a session that an input with an idempotency key opened.
const OPENED: &str = "idempotency/";

/// Send an input to the session with a `session_key`, or to a new session.
///
/// See `POST /v1/sessions/{session}/turns`.
#[utoipa::path(post, path = "/v1/turns", tag = "turns",
    params(Patience,
        ("idempotency-key" = Option<String>, Header, description = "Requests with the same key return the same turn: in the session with the `session_key`, or in the session that the first request opened.")),
    request_body(content((Incoming = "application/json"), (Incoming = "multipart/form-data"))),
    responses((status = 200, description = "The turn has ended.", body = Receipt),
        (status = 202, description = "The input is durable.", body = Receipt), Problems),
    security(("key" = ["run"])))]
async fn send_anywhere(
    caller: Caller<Runs>,
    State(shared): State<Shared>,
    Asked(patience): Asked<Patience>,
    headers: HeaderMap,
    incoming: inputs::Body,
) -> Answer<(StatusCode, Json<Receipt>)> {
    let incoming = incoming.read(&caller.runtime, &shared.limits).await?;
    let marks = Marks::of(&headers)?;
    let fresh = caller.runtime.fresh_session();
    let target = match (incoming.session_key(), marks.key.as_deref()) {
        (Some(key), _) => Target::Key { key: key.to_owned(), fresh },
        // A repeated request goes to the session that the first one opened, and finds its turn there.
        (None, Some(key)) => Target::Key { key: format!("{OPENED}{key}"), fresh },
        (None, None) => Target::New(fresh),
    };
    let input = incoming.input(&caller.runtime, target, marks).await?;
    taken(&caller.runtime, input, patience.time(&shared)?).await
}

async fn taken(
    runtime: &Runtime,
    input: outlast_runtime::Input,
    patience: Duration,
) -> Answer<(StatusCode, Json<Receipt>)> {
    let Accepted { session, turn, duplicate, place, .. } = runtime.submit(input).await?;
    let end = wait_for(runtime, turn, patience).await?;
    let status = if end.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let end = end.map(|end| said(&end));
    Ok((status, Json(Receipt { session, turn, duplicate, seq: place.seq, hash: place.hash, end })))
}

/// Options for cancelling a turn.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cancel {
    /// The reason. Defaults to `cancelled by an operator`.
    reason: Option<String>,
    /// Whether to undo the calls of the turn. Only calls of tools that define an undo are undone. Defaults to
    /// `false`.
    undo: bool,
}

/// The result of a cancel request.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stopped {
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
    request_body = Option<Cancel>, responses((status = 200, body = Stopped), Problems), security(("key" = ["run"])))]
async fn cancel(
    caller: Caller<Runs>,
    At(turn): At<TurnId>,
    MaySay(Cancel { reason, undo }): MaySay<Cancel>,
) -> Answer<Json<Stopped>> {
    let runtime = &caller.runtime;
    let reason = reason.unwrap_or_else(|| "cancelled by an operator".to_owned());
    let cancelled =
        if undo { runtime.abort(turn, &reason).await } else { runtime.cancel(turn, &reason).await };
    let (outcome, end) = match cancelled? {
        Cancelled::Requested => ("requested", None),
        Cancelled::NeverBegan => ("never_began", None),
        Cancelled::TooLate(end) => ("too_late", Some(said(&end))),
    };
    Ok(Json(Stopped { outcome, end }))
}

/// Options for retrying a turn.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewRetry {
    /// Whether the retry runs in a new session that forks off before the turn. Only for turns that have
    /// ended. Without it, a turn that later turns follow cannot be retried. Defaults to `false`.
    fork: bool,
}

/// The result of a retry.
#[derive(Serialize, ToSchema)]
pub(crate) struct RetryAnswer {
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
    request_body = Option<NewRetry>, responses((status = 202, body = RetryAnswer), Problems),
    security(("key" = ["operate"])))]
async fn retry(
    caller: Caller<Operates>,
    At(turn): At<TurnId>,
    MaySay(NewRetry { fork }): MaySay<NewRetry>,
) -> Answer<(StatusCode, Json<RetryAnswer>)> {
    let place = if fork { RetryPlace::Fork } else { RetryPlace::SameHead };
    let answer = match caller.runtime.retry_turn(turn, place).await? {
        Retried::Woken => {
            let session = caller.runtime.store().turn(turn).await?.session;
            RetryAnswer { outcome: "woken", session, turn, duplicate: false }
        }
        Retried::NewTurn { session, turn, duplicate } => {
            RetryAnswer { outcome: "new_turn", session, turn, duplicate }
        }
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

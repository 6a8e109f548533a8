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

/// A turn.
#[derive(Serialize, ToSchema)]
pub(crate) struct Turn {
    /// Its id.
    #[schema(value_type = String, example = "trn_019a8b6e5c7d7f3a9b1c2d3e4f506172")]
    id: TurnId,
    /// Its session.
    #[schema(value_type = String)]
    session: SessionId,
    /// Which turn of the session, counted from 0.
    index: u32,
    /// `queued`, `active` or `ended`.
    state: &'static str,
    /// The message it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Node>,
    /// Its first message.
    #[schema(value_type = u64)]
    first: Seq,
    /// Its last message so far.
    #[schema(value_type = u64)]
    last: Seq,
    /// How it ended: `how`, and what that says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
    /// The turn that this one retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    retry_of: Option<TurnId>,
}

/// A turn with what it took.
#[derive(Serialize, ToSchema)]
pub(crate) struct WholeTurn {
    #[serde(flatten)]
    turn: Turn,
    /// The agent that answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// The model that it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// When its input was accepted.
    #[schema(value_type = u64)]
    accepted: Millis,
    /// When its last record was written.
    #[schema(value_type = u64)]
    updated: Millis,
    /// Tokens of its models.
    #[schema(value_type = Object)]
    usage: Usage,
    /// Dollars, as far as prices are known.
    #[schema(value_type = String)]
    cost: Cost,
    /// What its durability cost.
    durability: Kept,
    /// What a policy decided of the turn itself; what it decided of effects is with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<PointDecision>,
    /// Where another lease went on with it, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resumes: Vec<Resumption>,
}

/// That another lease went on with a turn which the one before did not leave parked: its worker died, lost it or handed it back.
#[derive(Serialize, ToSchema)]
pub(crate) struct Resumption {
    /// The record of it, in the first write of the lease.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When the turn was taken over.
    #[schema(value_type = u64)]
    at: Millis,
    /// The number of the lease, the fence of its writes.
    lease: u64,
    /// Who took it over.
    #[schema(value_type = String)]
    worker: WorkerId,
    /// How many effects had their outcome before: they were answered from the journal.
    replayed: usize,
}

impl From<Resume> for Resumption {
    fn from(Resume { seq, by: Resumed { worker, lease, since }, replayed }: Resume) -> Self {
        Self { seq, at: since, lease, worker, replayed }
    }
}

/// What the durability of a turn cost.
#[derive(Serialize, ToSchema)]
pub(crate) struct Kept {
    /// Records that were written.
    records: usize,
    /// Bytes of them.
    bytes: usize,
    /// Writes of it, the one that accepted it among them. Not known of a turn that came from a file, or from a version that did not
    /// count.
    #[serde(skip_serializing_if = "Option::is_none")]
    commits: Option<u64>,
    /// Milliseconds that the turn waited for those writes. A write can only say how long those before it took: once the process that
    /// drove the turn is gone, the last one is not in it.
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

/// Which turns.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Find {
    /// From this turn of the session on, counted from 0.
    from: Option<u32>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` of the page before; counts for more than `from`.
    cursor: Option<String>,
}

/// Turns of a session, in the order they were accepted.
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

/// How long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Patience {
    /// Seconds to wait for the turn's end; at most 60.
    #[param(maximum = 60)]
    wait: Option<u64>,
}

impl Patience {
    fn time(&self, shared: &Shared) -> Result<Duration, Error> {
        page::patience(self.wait, &shared.limits)
    }
}

/// One turn: how it stands or ended, what it cost, what its durability cost.
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

/// The configuration that a turn was accepted for or began under, with the contracts of its tools.
#[utoipa::path(get, path = "/v1/turns/{turn}/package", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = Object), Problems), security(("key" = ["read"])))]
async fn package(caller: Caller<Reads>, At(turn): At<TurnId>) -> Answer<Json<Value>> {
    let package = caller.runtime.store().package(turn).await?;
    let package = serde_json::from_slice(&package).map_err(|cause| {
        Error::new(outlast_vocab::Kind::RecordCorrupt, format!("the package of {turn} is no JSON: {cause}"))
    })?;
    Ok(Json(package))
}

/// An input that is durable and will be answered, whatever happens to the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct Receipt {
    /// The session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// Whether it had been accepted before under the same idempotency key.
    duplicate: bool,
    /// Where the input stands in the journal; its events begin there.
    #[schema(value_type = u64)]
    seq: Seq,
    /// The hash of the chain there.
    #[schema(value_type = String)]
    hash: Hash,
    /// How the turn ended, if it did while the request waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
}

/// Sends an input to a session.
///
/// It is durable when the answer comes: 202 with the receipt, or 200 if the turn ended within `wait` seconds. Files are sent as
/// `multipart/form-data`: a field `input` with this JSON, and any number of files.
#[utoipa::path(post, path = "/v1/sessions/{session}/turns", tag = "turns",
    params(("session" = String, Path), Patience,
        ("idempotency-key" = Option<String>, Header, description = "The same key in the same session is the same turn.")),
    request_body(content((Incoming = "application/json"), (Incoming = "multipart/form-data"))),
    responses((status = 200, description = "The turn is over.", body = Receipt),
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

/// Sends an input to the session with the `session_key` of its body, or to a new one. See
/// `POST /v1/sessions/{session}/turns`.
#[utoipa::path(post, path = "/v1/turns", tag = "turns",
    params(Patience,
        ("idempotency-key" = Option<String>, Header, description = "The same key is the same turn: in the session of the `session_key`, or in the one that the first request under it opened.")),
    request_body(content((Incoming = "application/json"), (Incoming = "multipart/form-data"))),
    responses((status = 200, description = "The turn is over.", body = Receipt),
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

/// Why a turn is to stop.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cancel {
    /// Why; `cancelled by an operator` without it.
    reason: Option<String>,
    /// Whether what it did is to be taken back, as far as its tools name what takes a call back.
    undo: bool,
}

/// What became of a wish to stop.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stopped {
    /// `requested`: it will stop; `never_began`: it had not begun and is over; `too_late`: it was over before.
    outcome: &'static str,
    /// How it had ended, if it was too late.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    end: Option<Value>,
}

/// Asks a turn to stop. The wish is durable when the answer comes.
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

/// How a turn is retried.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewRetry {
    /// Retry a turn that ended in a new session that branches off before it. Without it, a turn that later turns follow is not retried.
    fork: bool,
}

/// What became of a retry.
#[derive(Serialize, ToSchema)]
pub(crate) struct RetryAnswer {
    /// `woken` if the turn goes on, `new_turn` if another turn retries it.
    outcome: &'static str,
    /// The session of the turn that is followed now.
    #[schema(value_type = String)]
    session: SessionId,
    /// The turn that is followed now: the same one, or the new one.
    #[schema(value_type = String)]
    turn: TurnId,
    /// Whether the retry was there before.
    duplicate: bool,
}

/// Retries a turn. One that is stuck goes on, after what it was stuck on is mended. One that ended as failed, cancelled, sealed or out
/// of budget is retried as a new turn with the same input: answered effects are taken over, and calls of unknown outcome stay unknown.
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

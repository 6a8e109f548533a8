//! `/v1/sessions`: list, open, show, fork, rewind and delete sessions.
use crate::caller::{Caller, Operates, Reads, Runs};
use crate::cursor::Cursors;
use crate::extract::{Asked, At, Said};
use crate::page::{self, Page};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_ports::store::{Fork, ForkTo, MAIN, SessionState, SessionView};
use outlast_runtime::listing::{self, Filter, Listed};
use outlast_vocab::cost::Cost;
use outlast_vocab::record::{NodeRef, Seq};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Hash, Kind, Millis, OrgId, SessionId, TurnId, WorkerId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list, open))
        .routes(routes!(show, delete))
        .routes(routes!(fork))
        .routes(routes!(rewind))
}

/// A session.
#[derive(Serialize, ToSchema)]
pub(crate) struct Session {
    /// The id of the session.
    #[schema(value_type = String, example = "ses_019a8b6e5c7d7f3a9b1c2d3e4f506172")]
    id: SessionId,
    /// The id of the organisation that owns the session.
    #[schema(value_type = String)]
    org: OrgId,
    /// The key that the caller chose. Absent if it chose none.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The state of the session.
    ///
    /// - `idle`: there is nothing to do.
    /// - `ready`: a turn waits for a worker.
    /// - `running`: a worker runs a turn.
    /// - `parked`: a turn waits for something external.
    /// - `held`: a turn is held back because workers died while they ran it.
    state: &'static str,
    /// The title: the first input of the session, or the origin of a fork without input.
    title: String,
    /// When the session was created, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    created: Millis,
    /// When the session last changed, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    updated: Millis,
    /// The number of inputs that the session accepted.
    turns: u32,
    /// The sequence number of the last record, which is the cursor of the session's events.
    #[schema(value_type = u64)]
    last: Seq,
    /// The hash of the last record in the hash chain.
    #[schema(value_type = String)]
    hash: Hash,
    /// The heads of the session.
    heads: Vec<Head>,
    /// The message that the session was forked from. Absent if it is not a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<Node>,
    /// The id of the turn that is running or parked. Absent if there is no such turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    active: Option<TurnId>,
    /// The id of the worker that runs the turn. Absent if no worker does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    worker: Option<WorkerId>,
    /// What the turn waits for.
    waits: Vec<Waiting>,
    /// When a worker resumes the turn if nothing else resumes it first, as a Unix timestamp in milliseconds.
    /// Absent if no time is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    wake_at: Option<Millis>,
    /// The number of workers that died while they ran the turn, since its last progress. Absent if it is 0.
    #[serde(skip_serializing_if = "is_zero")]
    deaths: u32,
    /// The ids of the sessions that were forked from this one. Absent in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    forks: Vec<SessionId>,
    /// The cost of models and tools in the session so far, in US dollars. Calls without a known price are not
    /// included. Absent for sessions that are older than this counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "0.0123")]
    cost: Option<Cost>,
    /// How the last turn ended: `answered`, `refused`, `out_of_model_calls`, `out_of_budget`, `cancelled`,
    /// `aborted`, `failed` or `sealed`. `stuck` if the current turn cannot continue. Absent if no turn has
    /// ended yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_end: Option<&'static str>,
    /// The id of the turn that `last_end` is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    last_turn: Option<TurnId>,
}

/// A head of a session: the end of one branch of its messages.
#[derive(Serialize, ToSchema)]
pub(crate) struct Head {
    /// The name of the head.
    name: String,
    /// The message that the head points to. Absent before the first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Node>,
}

/// The position of a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct Node {
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The sequence number in the session.
    #[schema(value_type = u64)]
    seq: Seq,
}

impl From<NodeRef> for Node {
    fn from(NodeRef { session, seq }: NodeRef) -> Self {
        Self { session, seq }
    }
}

/// Something that a turn waits for.
#[derive(Serialize, ToSchema)]
pub(crate) struct Waiting {
    /// The path in the turn.
    key: String,
    /// The kind of wait: `approval`, `completion`, `event`, `sleep`, `budget`, …
    #[schema(value_type = String)]
    kind: outlast_vocab::wait::WaitKind,
    /// When the wait ends if nothing resolves it first, as a Unix timestamp in milliseconds. Absent if it has
    /// no time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    deadline: Option<Millis>,
}

impl From<&Wait> for Waiting {
    fn from(wait: &Wait) -> Self {
        Self { key: wait.key.as_str().to_owned(), kind: wait.kind, deadline: wait.deadline }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl From<Listed> for Session {
    fn from(Listed { session, title }: Listed) -> Self {
        let SessionView { id, org, key, state, created, updated, turns, last, .. } = session;
        let SessionView { heads, forked_from, active, worker, waits, wake_at, .. } = session;
        let SessionView { deaths, cost, last_turn, .. } = session;
        let head = |(name, at): (String, Option<NodeRef>)| Head { name, at: at.map(Node::from) };
        Self {
            id,
            org,
            key,
            state: state.name(),
            title,
            created,
            updated,
            turns,
            last: last.seq,
            hash: last.hash,
            heads: heads.into_iter().map(head).collect(),
            forked_from: forked_from.map(Node::from),
            active,
            worker,
            waits: waits.iter().map(Waiting::from).collect(),
            wake_at,
            deaths,
            forks: Vec::new(),
            cost,
            last_end: last_turn.map(|last| last.end.name()),
            last_turn: last_turn.map(|last| last.id),
        }
    }
}

/// Parameters that filter sessions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Find {
    /// Only return the session with this key.
    key: Option<String>,
    /// Only return sessions in this state: `idle`, `ready`, `running`, `parked` or `held`.
    state: Option<String>,
    /// Only return sessions whose last turn ended like this: `answered`, `failed`, `cancelled`, `sealed`,
    /// `stuck`, …
    last_end: Option<String>,
    /// Only return sessions whose key or first input contains this text.
    search: Option<String>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    cursor: Option<String>,
}

/// Returns sessions, newest first.
///
/// One request examines a limited number of sessions. With a filter, a page can therefore have few items and
/// still have a `next`.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(Find),
    responses((status = 200, body = Page<Session>), Problems), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    Asked(find): Asked<Find>,
) -> Answer<Json<Page<Session>>> {
    let store = caller.runtime.store().as_ref();
    let limit = page::size(find.limit, &shared.limits)?;
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "sessions");
    let before = page::place(find.cursor.as_deref(), &cursors)?;
    let before = before.map(|place| place.parse::<SessionId>()).transpose()?;
    let state = find.state.as_deref().map(state).transpose()?;
    if let Some(key) = find.key {
        let session = match store.session_by_key(key).await {
            Err(error) if error.kind() == Kind::SessionNotFound => return Ok(Json(Page::whole(Vec::new()))),
            found => found?,
        };
        let title = listing::title(store, &session).await?;
        return Ok(Json(Page::whole(vec![Listed { session, title }.into()])));
    }
    let last_end = find.last_end.as_deref().map(str::parse).transpose()?;
    let filter = Filter { state, last_end, text: find.search.filter(|text| !text.is_empty()) };
    let found = listing::page(store, &filter, before, (limit, shared.limits.searched)).await?;
    let next = found.before.map(|before| cursors.sign(&before.to_string()));
    Ok(Json(Page { items: found.sessions.into_iter().map(Session::from).collect(), next }))
}

fn state(text: &str) -> Result<SessionState, Error> {
    let all = SessionState::ALL;
    all.into_iter().find(|state| state.name() == text).ok_or_else(|| {
        let names = all.map(SessionState::name).join(", ");
        Error::new(Kind::InputInvalid, format!("expected a state ({names}), got `{text}`"))
    })
}

/// A session to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// A key for the session. If a session with this key exists, it is returned.
    key: Option<String>,
}

/// Create a session without input.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = NewSession,
    responses((status = 201, body = Session), Problems), security(("key" = ["run"])))]
async fn open(
    caller: Caller<Runs>,
    Said(NewSession { key }): Said<NewSession>,
) -> Answer<(StatusCode, Json<Session>)> {
    let id = caller.runtime.open_session(key).await?;
    Ok((StatusCode::CREATED, Json(found(&caller, id).await?)))
}

async fn found<S>(caller: &Caller<S>, id: SessionId) -> Result<Session, Error> {
    let store = caller.runtime.store().as_ref();
    let session = store.session(id).await?;
    let title = listing::title(store, &session).await?;
    let forks = store.forks(id).await?;
    Ok(Session { forks, ..Listed { session, title }.into() })
}

/// Returns a session with its state, its heads and what it waits for.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = Session), Problems), security(("key" = ["read"])))]
async fn show(caller: Caller<Reads>, At(session): At<SessionId>) -> Answer<Json<Session>> {
    Ok(Json(found(&caller, session).await?))
}

/// Delete a session and everything that only it uses.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 204, description = "The session was deleted."), Problems), security(("key" = ["operate"])))]
async fn delete(caller: Caller<Operates>, At(session): At<SessionId>) -> Answer<StatusCode> {
    caller.runtime.store().delete(session, caller.runtime.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A fork to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFork {
    /// The sequence number of the message to branch after. Defaults to the end of the main head.
    at: Option<u64>,
    /// The key of the new session. Not allowed together with `head`.
    key: Option<String>,
    /// The name of a new head. If set, the branch is created as a head of this session instead of a new
    /// session.
    head: Option<String>,
}

/// Fork a session at a message.
///
/// The fork shares the earlier messages; nothing is copied.
#[utoipa::path(post, path = "/v1/sessions/{session}/fork", tag = "sessions", params(("session" = String, Path)),
    request_body = NewFork, responses((status = 201, body = Session), Problems), security(("key" = ["run"])))]
async fn fork(
    caller: Caller<Runs>,
    At(from): At<SessionId>,
    Said(NewFork { at, key, head }): Said<NewFork>,
) -> Answer<(StatusCode, Json<Session>)> {
    if let (Some(key), Some(head)) = (&key, &head) {
        let detail = format!("a new head has no key; expected `key` or `head`, got `{key}` and `{head}`");
        return Err(Error::new(Kind::InputInvalid, detail).into());
    }
    let fresh = caller.runtime.fresh_session();
    let to = head.map_or(ForkTo::Session { fresh, key }, ForkTo::Head);
    let fork = Fork { from, at: at.map(Seq), to, now: caller.runtime.now() };
    let id = caller.runtime.store().fork(fork).await?;
    Ok((StatusCode::CREATED, Json(found(&caller, id).await?)))
}

/// The new position of a head.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rewind {
    /// The sequence number of the message to move to. 0 is the position before the first message.
    to: u64,
    /// The head to move. Defaults to the main head.
    head: Option<String>,
}

/// Move a head back to a message.
///
/// The later messages are kept.
#[utoipa::path(post, path = "/v1/sessions/{session}/rewind", tag = "sessions", params(("session" = String, Path)),
    request_body = Rewind, responses((status = 200, body = Session), Problems), security(("key" = ["run"])))]
async fn rewind(
    caller: Caller<Runs>,
    At(session): At<SessionId>,
    Said(Rewind { to, head }): Said<Rewind>,
) -> Answer<Json<Session>> {
    let (head, to) = (head.unwrap_or_else(|| MAIN.to_owned()), (to > 0).then_some(Seq(to)));
    caller.runtime.store().rewind(session, head, to, caller.runtime.now()).await?;
    Ok(Json(found(&caller, session).await?))
}

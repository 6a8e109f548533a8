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
    /// Its id.
    #[schema(value_type = String, example = "ses_019a8b6e5c7d7f3a9b1c2d3e4f506172")]
    id: SessionId,
    /// Whose it is.
    #[schema(value_type = String)]
    org: OrgId,
    /// The key its caller knows it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// `idle`, `ready`, `running`, `parked` or `held`.
    state: &'static str,
    /// What was said first in it.
    title: String,
    /// When it was opened, in milliseconds since 1970.
    #[schema(value_type = u64)]
    created: Millis,
    /// When it last changed.
    #[schema(value_type = u64)]
    updated: Millis,
    /// How many inputs it took.
    turns: u32,
    /// Its last record: the cursor of its events.
    #[schema(value_type = u64)]
    last: Seq,
    /// The hash of the chain there.
    #[schema(value_type = String)]
    hash: Hash,
    /// Its heads.
    heads: Vec<Head>,
    /// The message it was forked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<Node>,
    /// The turn that is driven or parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    active: Option<TurnId>,
    /// The worker that drives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    worker: Option<WorkerId>,
    /// What that turn waits for.
    waits: Vec<Waiting>,
    /// When a worker looks at it again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    wake_at: Option<Millis>,
    /// Workers that died while they drove that turn, since its last progress.
    #[serde(skip_serializing_if = "is_zero")]
    deaths: u32,
    /// Sessions that were forked from it; lists leave them away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    forks: Vec<SessionId>,
    /// What models and tools with a price cost in it so far, in US dollars, as far as prices were known; absent of sessions that are older than the count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "0.0123")]
    cost: Option<Cost>,
    /// How its last turn ended: `answered`, `refused`, `out_of_model_calls`, `out_of_budget`, `cancelled`, `aborted`, `failed` or
    /// `sealed`; `stuck` if the turn under way cannot go on. Absent before a turn ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_end: Option<&'static str>,
    /// The turn that ended so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    last_turn: Option<TurnId>,
}

/// A head of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct Head {
    name: String,
    /// The message it stands at; none before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Node>,
}

/// A message's place over all sessions.
#[derive(Serialize, ToSchema)]
pub(crate) struct Node {
    #[schema(value_type = String)]
    session: SessionId,
    #[schema(value_type = u64)]
    seq: Seq,
}

impl From<NodeRef> for Node {
    fn from(NodeRef { session, seq }: NodeRef) -> Self {
        Self { session, seq }
    }
}

/// What a turn waits for.
#[derive(Serialize, ToSchema)]
pub(crate) struct Waiting {
    /// The place in the turn.
    key: String,
    /// `approval`, `completion`, `event`, `sleep`, `budget`, …
    #[schema(value_type = String)]
    kind: outlast_vocab::wait::WaitKind,
    /// When it stops waiting by itself.
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

/// Which sessions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Find {
    /// The one with this key.
    key: Option<String>,
    /// Only those that stand so: `idle`, `ready`, `running`, `parked` or `held`.
    state: Option<String>,
    /// Only those whose last turn ended so: `answered`, `failed`, `cancelled`, `sealed`, `stuck`, …
    last_end: Option<String>,
    /// Only those whose key or first input holds this text.
    search: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Sessions, newest first. A page of a search may have few entries and yet a `next`: it has looked at many.
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

/// A session to be opened.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// A key to know it by; opening it twice gives the same session.
    key: Option<String>,
}

/// Opens a session without input.
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

/// One session: how it stands, its heads, what it waits for.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = Session), Problems), security(("key" = ["read"])))]
async fn show(caller: Caller<Reads>, At(session): At<SessionId>) -> Answer<Json<Session>> {
    Ok(Json(found(&caller, session).await?))
}

/// Deletes a session and everything only it uses.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 204, description = "It is gone."), Problems), security(("key" = ["operate"])))]
async fn delete(caller: Caller<Operates>, At(session): At<SessionId>) -> Answer<StatusCode> {
    caller.runtime.store().delete(session, caller.runtime.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where to branch a session, and where the branch lives.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFork {
    /// The message to branch after; the end of the main head without it.
    at: Option<u64>,
    /// The key of the new session.
    key: Option<String>,
    /// Branch within the session, under this head, instead of making a new session.
    head: Option<String>,
}

/// Branches a session at a message. Nothing is copied.
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

/// Where a head is to stand.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rewind {
    /// The message; 0 is before the first.
    to: u64,
    /// Which head; the main one without it.
    head: Option<String>,
}

/// Moves a head back to a message. Nothing is lost.
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

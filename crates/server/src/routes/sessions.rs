//! `/v1/sessions`: list, open, show, fork, rewind and delete sessions.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_http::caller::{Caller, Operates, Reads, Runs};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page::{self, ListPage};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_runtime::views::session_list;
use outlast_views::{ForkTo, SessionFilter, SessionState, SessionView, TitledSession};
use outlast_vocab::cost::Cost;
use outlast_vocab::record::{NodeRef, Seq};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Error, Hash, Kind, Millis, OrgId, SessionId, TurnId, WorkerId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(list, open))
        .routes(routes!(show, delete))
        .routes(routes!(fork))
        .routes(routes!(rewind))
}

/// A session.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionResource {
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
    heads: Vec<SessionHeadResource>,
    /// The message that the session was forked from. Absent if it is not a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<MessageRef>,
    /// The id of the turn that is running or parked. Absent if there is no such turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    active: Option<TurnId>,
    /// The id of the worker that runs the turn. Absent if no worker does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    worker: Option<WorkerId>,
    /// What the turn waits for.
    waits: Vec<WaitResource>,
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
#[schema(as = SessionHead)]
pub(crate) struct SessionHeadResource {
    /// The name of the head.
    name: String,
    /// The message that the head points to. Absent before the first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<MessageRef>,
}

/// The position of a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageRef {
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The sequence number in the session.
    #[schema(value_type = u64)]
    seq: Seq,
}

impl From<NodeRef> for MessageRef {
    fn from(NodeRef { session, seq }: NodeRef) -> Self {
        Self { session, seq }
    }
}

/// Something that a turn waits for.
#[derive(Serialize, ToSchema)]
#[schema(as = Wait)]
pub(crate) struct WaitResource {
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

impl From<&Wait> for WaitResource {
    fn from(wait: &Wait) -> Self {
        Self { key: wait.key.as_str().to_owned(), kind: wait.kind, deadline: wait.deadline }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl From<TitledSession> for SessionResource {
    fn from(TitledSession { session, title }: TitledSession) -> Self {
        let SessionView { id, org, key, state, created, updated, turns, last, .. } = session;
        let SessionView { heads, forked_from, active, worker, waits, wake_at, .. } = session;
        let SessionView { deaths, cost, last_turn, .. } = session;
        let head = |(name, at): (String, Option<NodeRef>)| SessionHeadResource {
            name,
            at: at.map(MessageRef::from),
        };
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
            forked_from: forked_from.map(MessageRef::from),
            active,
            worker,
            waits: waits.iter().map(WaitResource::from).collect(),
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
pub(crate) struct SessionParams {
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
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(SessionParams),
    responses((status = 200, body = ListPage<SessionResource>), ProblemResponses), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(find): QueryParams<SessionParams>,
) -> ApiResult<Json<ListPage<SessionResource>>> {
    let store = caller.runtime.store().as_ref();
    let limit = list_page::page_limit(find.limit, &shared.http.limits)?;
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "sessions");
    let before = list_page::cursor_position(find.cursor.as_deref(), &cursors)?;
    let before = before.map(|place| place.parse::<SessionId>()).transpose()?;
    let state = find.state.as_deref().map(parse_state).transpose()?;
    if let Some(key) = find.key {
        let session = match store.session_by_key(key).await {
            Err(error) if error.kind() == Kind::SessionNotFound => {
                return Ok(Json(ListPage::single(Vec::new())));
            }
            found => found?,
        };
        let title = session_list::title(store, &session).await?;
        return Ok(Json(ListPage::single(vec![TitledSession { session, title }.into()])));
    }
    let last_end = find.last_end.as_deref().map(str::parse).transpose()?;
    let filter = SessionFilter { state, last_end, text: find.search.filter(|text| !text.is_empty()) };
    let found = session_list::page(store, &filter, before, (limit, shared.http.limits.searched)).await?;
    let next = found.before.map(|before| cursors.sign(&before.to_string()));
    Ok(Json(ListPage { items: found.sessions.into_iter().map(SessionResource::from).collect(), next }))
}

fn parse_state(text: &str) -> Result<SessionState, Error> {
    let all = SessionState::ALL;
    all.into_iter().find(|state| state.name() == text).ok_or_else(|| {
        let names = all.map(SessionState::name).join(", ");
        Error::new(Kind::InputInvalid, format!("expected a state ({names}), got `{text}`"))
    })
}

/// A session to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSessionRequest {
    /// A key for the session. If a session with this key exists, it is returned.
    key: Option<String>,
}

/// Create a session without input.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = NewSessionRequest,
    responses((status = 201, body = SessionResource), ProblemResponses), security(("key" = ["run"])))]
async fn open(
    caller: Caller<Runs>,
    JsonBody(NewSessionRequest { key }): JsonBody<NewSessionRequest>,
) -> ApiResult<(StatusCode, Json<SessionResource>)> {
    let id = caller.runtime.open_session(key).await?;
    Ok((StatusCode::CREATED, Json(read_session(&caller, id).await?)))
}

async fn read_session<S>(caller: &Caller<S>, id: SessionId) -> Result<SessionResource, Error> {
    let store = caller.runtime.store().as_ref();
    let session = store.session(id).await?;
    let title = session_list::title(store, &session).await?;
    let forks = store.forks(id).await?;
    Ok(SessionResource { forks, ..TitledSession { session, title }.into() })
}

/// Returns a session with its state, its heads and what it waits for.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = SessionResource), ProblemResponses), security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    PathParam(session): PathParam<SessionId>,
) -> ApiResult<Json<SessionResource>> {
    Ok(Json(read_session(&caller, session).await?))
}

/// Delete a session and everything that only it uses.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(("session" = String, Path)),
    responses((status = 204, description = "The session was deleted."), ProblemResponses), security(("key" = ["operate"])))]
async fn delete(caller: Caller<Operates>, PathParam(session): PathParam<SessionId>) -> ApiResult<StatusCode> {
    caller.runtime.store().delete(session, caller.runtime.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A fork to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewForkRequest {
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
    request_body = NewForkRequest, responses((status = 201, body = SessionResource), ProblemResponses), security(("key" = ["run"])))]
async fn fork(
    caller: Caller<Runs>,
    PathParam(from): PathParam<SessionId>,
    JsonBody(NewForkRequest { at, key, head }): JsonBody<NewForkRequest>,
) -> ApiResult<(StatusCode, Json<SessionResource>)> {
    if let (Some(key), Some(head)) = (&key, &head) {
        let detail = format!("a new head has no key; expected `key` or `head`, got `{key}` and `{head}`");
        return Err(Error::new(Kind::InputInvalid, detail).into());
    }
    let fresh = caller.runtime.fresh_session();
    let to = head.map_or(ForkTo::Session { fresh, key }, ForkTo::Head);
    let fork = ForkRequest { from, at: at.map(Seq), to, now: caller.runtime.now() };
    let id = caller.runtime.store().fork(fork).await?;
    Ok((StatusCode::CREATED, Json(read_session(&caller, id).await?)))
}

/// The new position of a head.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RewindRequest {
    /// The sequence number of the message to move to. 0 is the position before the first message.
    to: u64,
    /// The head to move. Defaults to the main head.
    head: Option<String>,
}

/// Move a head back to a message.
///
/// The later messages are kept.
#[utoipa::path(post, path = "/v1/sessions/{session}/rewind", tag = "sessions", params(("session" = String, Path)),
    request_body = RewindRequest, responses((status = 200, body = SessionResource), ProblemResponses), security(("key" = ["run"])))]
async fn rewind(
    caller: Caller<Runs>,
    PathParam(session): PathParam<SessionId>,
    JsonBody(RewindRequest { to, head }): JsonBody<RewindRequest>,
) -> ApiResult<Json<SessionResource>> {
    let (head, to) = (head.unwrap_or_else(|| MAIN_HEAD.to_owned()), (to > 0).then_some(Seq(to)));
    caller.runtime.store().rewind(session, head, to, caller.runtime.now()).await?;
    Ok(Json(read_session(&caller, session).await?))
}

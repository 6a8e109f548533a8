//! `/v1/sessions`: list, open, show, fork, rewind and delete sessions.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_api::list_page::ListPage;
use outlast_api::sessions::{
    NewForkRequest, NewSessionRequest, RewindRequest, SessionParams, SessionResource,
};
use outlast_http::caller::{Caller, Operates, Reads, Runs};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::branches::{ForkRequest, MAIN_HEAD};
use outlast_runtime::views::session_list;
use outlast_views::{ForkTo, SessionFilter, SessionState, TitledSession};
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Kind, SessionId};
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
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "sessions");
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
    let found = session_list::page(store, &filter, before, limit, shared.http.limits.searched).await?;
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

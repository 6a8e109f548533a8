//! `/v1/grants`: approvals that apply to the rest of a session.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_api::list_page::{ListPage, PageParams};
use outlast_api::waits::GrantResource;
use outlast_http::caller::{Approves, Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_vocab::id::GrantId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(revoke))
}

/// Returns the approvals that apply to the rest of a session, newest first.
#[utoipa::path(get, path = "/v1/grants", tag = "waits", params(PageParams),
    responses((status = 200, body = ListPage<GrantResource>), ProblemResponses), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<GrantResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().visibility, "grants");
    let (after, limit) = list_page::read(&most, &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(caller.runtime.store().grants_after(after, limit).await?, &cursors)))
}

/// Revoke an approval for the rest of a session.
///
/// The next call requires approval again.
#[utoipa::path(delete, path = "/v1/grants/{grant}", tag = "waits", params(("grant" = String, Path)),
    responses((status = 200, body = GrantResource), ProblemResponses), security(("key" = ["approve"])))]
async fn revoke(
    caller: Caller<Approves>,
    PathParam(grant): PathParam<GrantId>,
) -> ApiResult<Json<GrantResource>> {
    Ok(Json(caller.runtime.approvals().revoke(grant, caller.runtime.now()).await?.into()))
}

//! `/v1/orgs`: the organisations in the database. Only for the default organisation, which operates the
//! server.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_api::access::{NewOrgRequest, OrgResource};
use outlast_api::list_page::{ListPage, PageParams};
use outlast_http::caller::{Administers, Caller};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The start of the error message for other organisations.
const OPERATOR_ONLY: &str = "only the operator may manage organisations";

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(orgs, create))
}

/// Returns all organisations, by name.
///
/// Requires a key of the default organisation.
#[utoipa::path(get, path = "/v1/orgs", tag = "access", params(PageParams),
    responses((status = 200, body = ListPage<OrgResource>), ProblemResponses), security(("key" = ["admin"])))]
async fn orgs(
    caller: Caller<Administers>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<OrgResource>>> {
    let runtime = caller.operator(&shared.http, OPERATOR_ONLY)?;
    let cursors = CursorSigner::of(&shared.secret, runtime.access().visibility, "orgs");
    let (after, limit) =
        list_page::read(&most.or_max_limit(&shared.http.limits), &cursors, &shared.http.limits)?;
    Ok(Json(list_page::of_store(runtime.store().orgs_after(after, limit).await?, &cursors)))
}

/// Create an organisation.
///
/// Requires a key of the default organisation.
#[utoipa::path(post, path = "/v1/orgs", tag = "access", request_body = NewOrgRequest,
    responses((status = 201, body = OrgResource), ProblemResponses), security(("key" = ["admin"])))]
async fn create(
    caller: Caller<Administers>,
    State(shared): State<ServerState>,
    JsonBody(NewOrgRequest { name }): JsonBody<NewOrgRequest>,
) -> ApiResult<(StatusCode, Json<OrgResource>)> {
    let org = caller.operator(&shared.http, OPERATOR_ONLY)?.create_org(name).await?;
    Ok((StatusCode::CREATED, Json(org.into())))
}

//! `/v1/orgs`: the organisations in the database. Only for the default organisation, which operates the
//! server.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_http::caller::{Administers, Caller};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{JsonBody, QueryParams};
use outlast_http::list_page::{ListPage, PageParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_vocab::message::Name;
use outlast_vocab::{Millis, OrgId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The start of the error message for other organisations.
const OPERATOR_ONLY: &str = "organisations are the operator's";

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(orgs, create))
}

/// An organisation.
#[derive(Serialize, ToSchema)]
#[schema(as = Org)]
pub(crate) struct OrgResource {
    /// The id of the organisation.
    #[schema(value_type = String)]
    id: OrgId,
    /// The name of the organisation. Names are unique.
    name: String,
    /// When the organisation was created, as a Unix timestamp in milliseconds. The default organisation
    /// always exists.
    #[schema(value_type = u64)]
    created: Millis,
}

impl From<outlast_views::Org> for OrgResource {
    fn from(outlast_views::Org { id, name, created }: outlast_views::Org) -> Self {
        Self { id, name: name.to_string(), created }
    }
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
    let cursors = CursorSigner::of(&shared.secret, runtime.access().reach, "orgs");
    let (after, limit) = most.or_max_limit(&shared.http.limits).read(&cursors, &shared.http.limits)?;
    Ok(Json(ListPage::of(runtime.store().orgs_after(after, limit).await?, &cursors)))
}

/// An organisation to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrgRequest {
    /// The name of the organisation. Names are unique.
    #[schema(value_type = String, example = "acme")]
    name: Name,
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

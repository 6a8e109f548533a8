//! `/v1/grants`: approvals that apply to the rest of a session.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_http::caller::{Approves, Caller, Reads};
use outlast_http::cursor::CursorSigner;
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::list_page::{ListPage, PageParams};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_views::SessionGrant;
use outlast_vocab::id::GrantId;
use outlast_vocab::label::Labels;
use outlast_vocab::{Millis, SessionId};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(revoke))
}

/// An approval that applies to the rest of a session.
#[derive(Serialize, ToSchema)]
#[schema(as = Grant)]
pub(crate) struct GrantResource {
    /// The id of the grant.
    #[schema(value_type = String)]
    id: GrantId,
    /// The id of the session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The name of the tool.
    tool: String,
    /// The rule that required the approval.
    rule: String,
    /// The untrusted sources of the call that was approved. A call with any other source is not covered.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
    /// Who gave the approval.
    by: Vec<String>,
    /// When the approval was given, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    at: Millis,
}

impl From<SessionGrant> for GrantResource {
    fn from(SessionGrant { id, session, tool, rule, labels, by, at, .. }: SessionGrant) -> Self {
        Self { id, session, tool: tool.to_string(), rule: rule.to_string(), labels, by, at }
    }
}

/// Returns the approvals that apply to the rest of a session, newest first.
#[utoipa::path(get, path = "/v1/grants", tag = "waits", params(PageParams),
    responses((status = 200, body = ListPage<GrantResource>), ProblemResponses), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(most): QueryParams<PageParams>,
) -> ApiResult<Json<ListPage<GrantResource>>> {
    let cursors = CursorSigner::of(&shared.secret, caller.runtime.access().reach, "grants");
    let (after, limit) = most.read(&cursors, &shared.http.limits)?;
    Ok(Json(ListPage::of(caller.runtime.store().grants_after(after, limit).await?, &cursors)))
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

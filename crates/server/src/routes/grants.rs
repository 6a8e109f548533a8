//! `/v1/grants`: approvals that apply to the rest of a session.
use crate::caller::{Approves, Caller, Reads};
use crate::cursor::Cursors;
use crate::extract::{Asked, At};
use crate::page::{Most, Page};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use outlast_ports::votes;
use outlast_vocab::id::GrantId;
use outlast_vocab::label::Labels;
use outlast_vocab::{Millis, SessionId};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(revoke))
}

/// An approval that applies to the rest of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct Grant {
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

impl From<votes::Grant> for Grant {
    fn from(votes::Grant { id, session, tool, rule, labels, by, at, .. }: votes::Grant) -> Self {
        Self { id, session, tool: tool.to_string(), rule: rule.to_string(), labels, by, at }
    }
}

/// Returns the approvals that apply to the rest of a session, newest first.
#[utoipa::path(get, path = "/v1/grants", tag = "waits", params(Most),
    responses((status = 200, body = Page<Grant>), Problems), security(("key" = ["read"])))]
async fn list(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    Asked(most): Asked<Most>,
) -> Answer<Json<Page<Grant>>> {
    let cursors = Cursors::of(&shared.secret, caller.runtime.access().reach, "grants");
    let (after, limit) = most.read(&cursors, &shared.limits)?;
    Ok(Json(Page::of(caller.runtime.store().grants_after(after, limit).await?, &cursors)))
}

/// Revoke an approval for the rest of a session.
///
/// The next call requires approval again.
#[utoipa::path(delete, path = "/v1/grants/{grant}", tag = "waits", params(("grant" = String, Path)),
    responses((status = 200, body = Grant), Problems), security(("key" = ["approve"])))]
async fn revoke(caller: Caller<Approves>, At(grant): At<GrantId>) -> Answer<Json<Grant>> {
    Ok(Json(caller.runtime.approvals().revoke(grant, caller.runtime.now()).await?.into()))
}

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

/// An approval that counts for the rest of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct Grant {
    #[schema(value_type = String)]
    id: GrantId,
    #[schema(value_type = String)]
    session: SessionId,
    /// The tool.
    tool: String,
    /// The rule that asked.
    rule: String,
    /// The untrusted sources of the call it was given for; calls of others are not covered.
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<String>)]
    labels: Labels,
    /// Who gave it.
    by: Vec<String>,
    #[schema(value_type = u64)]
    at: Millis,
}

impl From<votes::Grant> for Grant {
    fn from(votes::Grant { id, session, tool, rule, labels, by, at, .. }: votes::Grant) -> Self {
        Self { id, session, tool: tool.to_string(), rule: rule.to_string(), labels, by, at }
    }
}

/// What was approved for the rest of sessions, the newest first.
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

/// Ends one: somebody is asked again from the next call on.
#[utoipa::path(delete, path = "/v1/grants/{grant}", tag = "waits", params(("grant" = String, Path)),
    responses((status = 200, body = Grant), Problems), security(("key" = ["approve"])))]
async fn revoke(caller: Caller<Approves>, At(grant): At<GrantId>) -> Answer<Json<Grant>> {
    Ok(Json(caller.runtime.approvals().revoke(grant, caller.runtime.now()).await?.into()))
}

//! `/v1/orgs`: the organisations in the database. Only for the default organisation, which operates the
//! server.
use crate::caller::{Administers, Caller};
use crate::cursor::Cursors;
use crate::extract::{Asked, Said};
use crate::page::{Most, Page};
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outlast_vocab::message::Name;
use outlast_vocab::{Millis, OrgId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The start of the error message for other organisations.
const WHOSE: &str = "organisations are the operator's";

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(orgs, create))
}

/// An organisation.
#[derive(Serialize, ToSchema)]
pub(crate) struct Org {
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

impl From<outlast_ports::orgs::Org> for Org {
    fn from(outlast_ports::orgs::Org { id, name, created }: outlast_ports::orgs::Org) -> Self {
        Self { id, name: name.to_string(), created }
    }
}

/// Returns all organisations, by name.
///
/// Requires a key of the default organisation.
#[utoipa::path(get, path = "/v1/orgs", tag = "access", params(Most),
    responses((status = 200, body = Page<Org>), Problems), security(("key" = ["admin"])))]
async fn orgs(
    caller: Caller<Administers>,
    State(shared): State<Shared>,
    Asked(most): Asked<Most>,
) -> Answer<Json<Page<Org>>> {
    let runtime = caller.operator(&shared, WHOSE)?;
    let cursors = Cursors::of(&shared.secret, runtime.access().reach, "orgs");
    let (after, limit) = most.or_all(&shared.limits).read(&cursors, &shared.limits)?;
    Ok(Json(Page::of(runtime.store().orgs_after(after, limit).await?, &cursors)))
}

/// An organisation to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrg {
    /// The name of the organisation. Names are unique.
    #[schema(value_type = String, example = "acme")]
    name: Name,
}

/// Create an organisation.
///
/// Requires a key of the default organisation.
#[utoipa::path(post, path = "/v1/orgs", tag = "access", request_body = NewOrg,
    responses((status = 201, body = Org), Problems), security(("key" = ["admin"])))]
async fn create(
    caller: Caller<Administers>,
    State(shared): State<Shared>,
    Said(NewOrg { name }): Said<NewOrg>,
) -> Answer<(StatusCode, Json<Org>)> {
    let org = caller.operator(&shared, WHOSE)?.create_org(name).await?;
    Ok((StatusCode::CREATED, Json(org.into())))
}

//! `/v1/sessions/{session}/verify`: recomputes the hash chain of a session.
use crate::caller::{Caller, Reads};
use crate::extract::At;
use crate::problem::{Answer, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use outlast_vocab::{Error, Kind, SessionId};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(verify))
}

/// What was found of a session.
#[derive(Serialize, ToSchema)]
pub(crate) struct Verified {
    #[schema(value_type = String)]
    session: SessionId,
    /// How many records it has; absent if it is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    /// What is damaged; absent if it is whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Damage>,
}

/// The first record that does not fit.
#[derive(Serialize, ToSchema)]
pub(crate) struct Damage {
    /// The stable code of the error.
    #[schema(example = "record.corrupt")]
    code: &'static str,
    /// Which record, and what is wrong with it.
    detail: String,
}

/// Recomputes the hash chain of a session, so that no changed, removed or reordered record passes. Damage is an answer.
#[utoipa::path(get, path = "/v1/sessions/{session}/verify", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = Verified), Problems), security(("key" = ["read"])))]
async fn verify(
    caller: Caller<Reads>,
    State(shared): State<Shared>,
    At(session): At<SessionId>,
) -> Answer<Json<Verified>> {
    let _room = shared.verifications.try_acquire().map_err(|_| {
        let detail = "as many sessions are verified as this server may (`verifications`); try again later";
        Error::new(Kind::ServerBusy, detail)
    })?;
    match caller.runtime.store().verify(session).await {
        Ok(records) => Ok(Json(Verified { session, records: Some(records), damage: None })),
        Err(error) if error.kind() == Kind::RecordCorrupt => {
            let damage = Damage { code: error.kind().code(), detail: error.detail().to_owned() };
            Ok(Json(Verified { session, records: None, damage: Some(damage) }))
        }
        Err(error) => Err(error.into()),
    }
}

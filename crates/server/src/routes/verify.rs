//! `/v1/sessions/{session}/verify`: recomputes the hash chain of a session.
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use outlast_api::archive::{ChainDamage, VerificationResult};
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::PathParam;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_vocab::{Error, Kind, SessionId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(verify))
}

/// Verify the hash chain of a session.
///
/// Recomputes the chain and detects records that were changed, removed or reordered. If the session is
/// damaged, the status is 200 and the response contains `damage`.
#[utoipa::path(get, path = "/v1/sessions/{session}/verify", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = VerificationResult), ProblemResponses), security(("key" = ["read"])))]
async fn verify(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
) -> ApiResult<Json<VerificationResult>> {
    let _room = shared.verifications.try_acquire().map_err(|_| {
        let detail = "the maximum number of verifications (`verifications`) is in progress; retry later";
        Error::new(Kind::ServerBusy, detail)
    })?;
    match caller.runtime.store().verify(session).await {
        Ok(records) => Ok(Json(VerificationResult { session, records: Some(records), damage: None })),
        Err(error) if error.kind() == Kind::RecordCorrupt => {
            let damage = ChainDamage { code: error.kind().code().into(), detail: error.detail().to_owned() };
            Ok(Json(VerificationResult { session, records: None, damage: Some(damage) }))
        }
        Err(error) => Err(error.into()),
    }
}

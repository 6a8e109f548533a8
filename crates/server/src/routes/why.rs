//! Explains why a session or turn makes no progress.
use crate::server_state::ServerState;
use axum::Json;
use outlast_api::why::WhyResource;
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::PathParam;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_vocab::{SessionId, TurnId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(of_session)).routes(routes!(of_turn))
}

/// Returns why a session makes no progress.
///
/// The response says what the turn waits for, since when, and who or what can unblock it.
#[utoipa::path(get, path = "/v1/sessions/{session}/why", tag = "sessions", params(("session" = String, Path)),
    responses((status = 200, body = WhyResource), ProblemResponses), security(("key" = ["read"])))]
async fn of_session(
    caller: Caller<Reads>,
    PathParam(session): PathParam<SessionId>,
) -> ApiResult<Json<WhyResource>> {
    Ok(Json(caller.runtime.why(session).await?.into()))
}

/// Returns why a turn makes no progress.
#[utoipa::path(get, path = "/v1/turns/{turn}/why", tag = "turns", params(("turn" = String, Path)),
    responses((status = 200, body = WhyResource), ProblemResponses), security(("key" = ["read"])))]
async fn of_turn(caller: Caller<Reads>, PathParam(turn): PathParam<TurnId>) -> ApiResult<Json<WhyResource>> {
    Ok(Json(caller.runtime.why_turn(turn).await?.into()))
}

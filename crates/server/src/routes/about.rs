//! Routes about the server: health, metrics, the caller's identity, running turns, and pages of error codes.
use crate::metrics::ServerGauges;
use crate::server_state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use outlast_api::about::{CallerIdentity, RunningTurnResource, ServerHealth};
use outlast_api::problem::Problem;
use outlast_http::caller::{Caller, Operates, Reads};
use outlast_http::extract::{PathParam, TextParam};
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_vocab::access::Access;
use outlast_vocab::{Error, Kind};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .routes(routes!(whoami))
        .routes(routes!(running))
        .routes(routes!(error_page))
}

/// Returns whether the process responds.
#[utoipa::path(get, path = "/health/live", tag = "about", responses((status = 200, body = ServerHealth)))]
async fn live() -> Json<ServerHealth> {
    Json(ServerHealth { state: "live".into(), durability: None, schema: None, agents_left_out: None })
}

/// Returns whether the server accepts requests.
///
/// The server is ready if its database responds and it is not shutting down.
#[utoipa::path(get, path = "/health/ready", tag = "about",
    responses((status = 200, body = ServerHealth), ProblemResponses, (status = 503, description = "The server does not accept requests.",
        content((ServerHealth = "application/json"), (Problem = "application/problem+json")))))]
async fn ready(State(shared): State<ServerState>) -> ApiResult<(StatusCode, Json<ServerHealth>)> {
    if *shared.http.stopping.borrow() {
        let stopping =
            ServerHealth { state: "stopping".into(), durability: None, schema: None, agents_left_out: None };
        return Ok((StatusCode::SERVICE_UNAVAILABLE, Json(stopping)));
    }
    let status = shared.http.runtime.store().status().await?;
    let (durability, schema) = (Some(status.durability.name().into()), Some(status.schema));
    let left_out = shared.http.runtime.serving(Access::to(shared.home)).left_out().len();
    let agents_left_out = (left_out > 0).then_some(left_out);
    Ok((StatusCode::OK, Json(ServerHealth { state: "ready".into(), durability, schema, agents_left_out })))
}

/// Returns metrics in the Prometheus text format.
///
/// The metrics include request and stream counts and the load of the worker. Requires a key of the default
/// organisation.
#[utoipa::path(get, path = "/metrics", tag = "about",
    responses((status = 200, body = String, content_type = "text/plain"), ProblemResponses), security(("key" = ["operate"])))]
async fn metrics(
    caller: Caller<Operates>,
    State(shared): State<ServerState>,
) -> ApiResult<impl IntoResponse> {
    let runtime = caller.operator(&shared.http, "metrics contain agents and tools of every organisation")?;
    let store_bytes = runtime.store().status().await?.bytes;
    let gauges = ServerGauges { load: runtime.load(), streams: shared.http.streams.count(), store_bytes };
    let mut text = shared.metrics.text(gauges);
    if let Some(write) = shared.worker_metrics {
        text += &write(&runtime.metrics().await?);
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

/// Returns the owner and the scopes of the caller's API key.
#[utoipa::path(get, path = "/v1/whoami", tag = "about", responses((status = 200, body = CallerIdentity), ProblemResponses),
    security(("key" = ["read"])))]
async fn whoami(caller: Caller<Reads>) -> ApiResult<Json<CallerIdentity>> {
    let access = caller.runtime.access();
    let org = caller.runtime.store().org(access.visibility.home()).await?;
    let (by, scopes) = (access.by.to_string(), access.scopes.to_string());
    Ok(Json(CallerIdentity { org: org.id, name: org.name.to_string(), by, scopes }))
}

/// Returns the turns that this process is running.
///
/// The list does not include turns that are waiting, or turns that another process runs.
#[utoipa::path(get, path = "/v1/running", tag = "about", responses((status = 200, body = Vec<RunningTurnResource>), ProblemResponses),
    security(("key" = ["read"])))]
async fn running(caller: Caller<Reads>) -> ApiResult<Json<Vec<RunningTurnResource>>> {
    let shown = |turn: outlast_runtime::RunningTurn| {
        let outlast_runtime::RunningTurn { session, turn, agent, since } = turn;
        RunningTurnResource { session, turn, agent, since }
    };
    Ok(Json(caller.runtime.running().into_iter().map(shown).collect()))
}

/// Returns the page of an error code.
///
/// The page explains what happened, why, and how to fix it.
#[utoipa::path(get, path = "/errors/{code}", tag = "about", params(("code" = String, Path)),
    responses((status = 200, body = String, content_type = "text/markdown"), ProblemResponses))]
async fn error_page(PathParam(TextParam(code)): PathParam<TextParam>) -> ApiResult<impl IntoResponse> {
    let kind: Kind = code
        .parse()
        .map_err(|_| Error::new(Kind::RouteNotFound, format!("no error has the code `{code}`")))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], kind.page()))
}

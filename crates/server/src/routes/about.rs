//! Routes about the server: health, metrics, the caller's identity, running turns, and pages of error codes.
use crate::caller::{Caller, Operates, Reads};
use crate::extract::{At, Word};
use crate::metrics::Gauges;
use crate::problem::{Answer, Problem, Problems};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use outlast_vocab::access::Access;
use outlast_vocab::{Error, Kind, Millis, OrgId, SessionId, TurnId};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .routes(routes!(whoami))
        .routes(routes!(running))
        .routes(routes!(page))
}

/// How the server is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `live`, `ready` or `stopping`.
    state: &'static str,
    /// What an acknowledged write survives.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
    /// The version of the database's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<u32>,
    /// How many agents cannot be made of what the database has of them; `/v1/configs/agent` says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    agents_left_out: Option<usize>,
}

/// Whether the process answers.
#[utoipa::path(get, path = "/health/live", tag = "about", responses((status = 200, body = Health)))]
async fn live() -> Json<Health> {
    Json(Health { state: "live", durability: None, schema: None, agents_left_out: None })
}

/// Whether the server takes requests: its database answers, and it does not shut down.
#[utoipa::path(get, path = "/health/ready", tag = "about",
    responses((status = 200, body = Health), Problems, (status = 503, description = "It does not.",
        content((Health = "application/json"), (Problem = "application/problem+json")))))]
async fn ready(State(shared): State<Shared>) -> Answer<(StatusCode, Json<Health>)> {
    if *shared.stopping.borrow() {
        let stopping = Health { state: "stopping", durability: None, schema: None, agents_left_out: None };
        return Ok((StatusCode::SERVICE_UNAVAILABLE, Json(stopping)));
    }
    let status = shared.runtime.store().status().await?;
    let (durability, schema) = (Some(status.durability.name()), Some(status.schema));
    let left_out = shared.runtime.serving(Access::to(shared.home)).left_out().len();
    let agents_left_out = (left_out > 0).then_some(left_out);
    Ok((StatusCode::OK, Json(Health { state: "ready", durability, schema, agents_left_out })))
}

/// Counts of requests and streams, and how busy the worker is, in the text form of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "about",
    responses((status = 200, body = String, content_type = "text/plain"), Problems), security(("key" = ["operate"])))]
async fn metrics(caller: Caller<Operates>, State(shared): State<Shared>) -> Answer<impl IntoResponse> {
    let runtime = caller.operator(&shared, "measurements name agents and tools of every organisation")?;
    let store_bytes = runtime.store().status().await?.bytes;
    let gauges = Gauges { load: runtime.load(), streams: shared.streams.count(), store_bytes };
    let mut text = shared.metrics.text(gauges);
    if let Some(write) = shared.exposition {
        text += &write(&runtime.metrics().await?);
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

/// Who asks.
#[derive(Serialize, ToSchema)]
pub(crate) struct Whoami {
    /// The organisation.
    #[schema(value_type = String)]
    org: OrgId,
    /// What that is called.
    name: String,
    /// In whose name things are done.
    by: String,
    /// What may be done, with commas between.
    scopes: String,
}

/// Whose key it is, and what it may do.
#[utoipa::path(get, path = "/v1/whoami", tag = "about", responses((status = 200, body = Whoami), Problems),
    security(("key" = ["read"])))]
async fn whoami(caller: Caller<Reads>) -> Answer<Json<Whoami>> {
    let access = caller.runtime.access();
    let org = caller.runtime.store().org(access.reach.home()).await?;
    let (by, scopes) = (access.by.to_string(), access.scopes.to_string());
    Ok(Json(Whoami { org: org.id, name: org.name.to_string(), by, scopes }))
}

/// A turn that the server drives now.
#[derive(Serialize, ToSchema)]
pub(crate) struct Running {
    /// Its session.
    #[schema(value_type = String)]
    session: SessionId,
    /// The turn.
    #[schema(value_type = String)]
    turn: TurnId,
    /// The agent that answers, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// Since when this process drives it, in milliseconds since 1970.
    #[schema(value_type = u64)]
    since: Millis,
}

/// The turns that this process drives now. One that waits for something is not among them, nor one that another process drives.
#[utoipa::path(get, path = "/v1/running", tag = "about", responses((status = 200, body = Vec<Running>), Problems),
    security(("key" = ["read"])))]
async fn running(caller: Caller<Reads>) -> Answer<Json<Vec<Running>>> {
    let shown = |turn: outlast_runtime::Running| {
        let outlast_runtime::Running { session, turn, agent, since } = turn;
        Running { session, turn, agent, since }
    };
    Ok(Json(caller.runtime.running().into_iter().map(shown).collect()))
}

/// The page of an error: what happened, why, what to do.
#[utoipa::path(get, path = "/errors/{code}", tag = "about", params(("code" = String, Path)),
    responses((status = 200, body = String, content_type = "text/markdown"), Problems))]
async fn page(At(Word(code)): At<Word>) -> Answer<impl IntoResponse> {
    let kind: Kind = code
        .parse()
        .map_err(|_| Error::new(Kind::RouteNotFound, format!("no error has the code `{code}`")))?;
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], kind.page()))
}

//! The models of this API. Each agent is one.
use super::error::OpenAiErrors;
use crate::compat_error::{CompatError, CompatResult};
use axum::Json;
use outlast_http::HttpState;
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::{PathParam, TextParam};
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show))
}

/// An agent, presented as a model.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiModel {
    /// The name of the agent.
    id: String,
    /// Always `model`.
    object: &'static str,
    /// Always 0, because agents have no creation time.
    created: u64,
    /// Always `outlast`.
    owned_by: &'static str,
}

impl OpenAiModel {
    fn of(id: String) -> Self {
        Self { id, object: "model", created: 0, owned_by: "outlast" }
    }
}

/// A list of agents, presented as models.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiModels {
    /// Always `list`.
    object: &'static str,
    /// The agents.
    data: Vec<OpenAiModel>,
}

/// Returns the agents of this server as models.
#[utoipa::path(get, path = "/openai/v1/models", tag = "openai", operation_id = "openai_models",
    responses((status = 200, body = OpenAiModels), OpenAiErrors), security(("key" = ["read"])))]
async fn list(caller: Caller<Reads>) -> CompatResult<Json<OpenAiModels>> {
    let data = caller.runtime.agents().into_iter().map(|agent| OpenAiModel::of(agent.name)).collect();
    Ok(Json(OpenAiModels { object: "list", data }))
}

/// Returns an agent as a model.
#[utoipa::path(get, path = "/openai/v1/models/{model}", tag = "openai", operation_id = "openai_model",
    params(("model" = String, Path)), responses((status = 200, body = OpenAiModel), OpenAiErrors),
    security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    PathParam(TextParam(model)): PathParam<TextParam>,
) -> CompatResult<Json<OpenAiModel>> {
    let names: Vec<String> = caller.runtime.agents().into_iter().map(|agent| agent.name).collect();
    if names.contains(&model) {
        return Ok(Json(OpenAiModel::of(model)));
    }
    let shown = outlast_vocab::message::shown(&model).into_owned();
    let detail = format!("no agent is called `{shown}` here; there are: {}", names.join(", "));
    Err(CompatError::from(Error::new(Kind::AgentNotFound, detail)).about("model"))
}

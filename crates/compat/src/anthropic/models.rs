//! The models of this API. Each agent is one.
use super::error::AnthropicErrors;
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
pub(crate) struct AnthropicModel {
    /// Always `model`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of the agent.
    id: String,
    /// The name of the agent.
    display_name: String,
    /// Always the start of 1970, because agents have no creation time.
    created_at: &'static str,
}

impl AnthropicModel {
    fn of(id: String) -> Self {
        Self { kind: "model", display_name: id.clone(), id, created_at: "1970-01-01T00:00:00Z" }
    }
}

/// A list of agents, presented as models.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicModels {
    /// The agents.
    data: Vec<AnthropicModel>,
    /// The id of the first agent.
    first_id: Option<String>,
    /// The id of the last agent.
    last_id: Option<String>,
    /// Always `false`, because the list has one page.
    has_more: bool,
}

/// Returns the agents of this server as models.
#[utoipa::path(get, path = "/anthropic/v1/models", tag = "anthropic", operation_id = "anthropic_models",
    responses((status = 200, body = AnthropicModels), AnthropicErrors), security(("key" = ["read"])))]
async fn list(caller: Caller<Reads>) -> CompatResult<Json<AnthropicModels>> {
    let names: Vec<String> = caller.runtime.agents().into_iter().map(|agent| agent.name).collect();
    let (first_id, last_id) = (names.first().cloned(), names.last().cloned());
    let data = names.into_iter().map(AnthropicModel::of).collect();
    Ok(Json(AnthropicModels { data, first_id, last_id, has_more: false }))
}

/// Returns an agent as a model.
#[utoipa::path(get, path = "/anthropic/v1/models/{model}", tag = "anthropic", operation_id = "anthropic_model",
    params(("model" = String, Path)), responses((status = 200, body = AnthropicModel), AnthropicErrors),
    security(("key" = ["read"])))]
async fn show(
    caller: Caller<Reads>,
    PathParam(TextParam(model)): PathParam<TextParam>,
) -> CompatResult<Json<AnthropicModel>> {
    if caller.runtime.agents().iter().any(|agent| agent.name == model) {
        return Ok(Json(AnthropicModel::of(model)));
    }
    let shown = outlast_vocab::message::shown(&model).into_owned();
    let error = Error::new(Kind::AgentNotFound, format!("no agent is called `{shown}` here"));
    Err(CompatError::from(error).about("model_id"))
}

//! The Messages API. Its clients send the whole conversation with every request.
//!
//! The conversation continues in its session, as with Chat Completions ([`crate::session_match`]).
use super::blocks::{AnthropicMessage, BlockStream};
use super::error::AnthropicErrors;
use super::message_parser;
use crate::compat_error::{CompatError, CompatResult};
use crate::compat_request::{CompatApi, CompatRequest};
use crate::conversation_items::ConversationItems;
use crate::idempotency::{CompatHeaders, request_headers};
use crate::input_submission::{InputDestination, StartedSegment};
use crate::openai::params::read;
use crate::segment_answer::SegmentAnswer;
use crate::stream;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use outlast_http::HttpState;
use outlast_http::caller::{Caller, Runs};
use outlast_http::extract::JsonBody;
use outlast_http::open_requests::DeliveredEnd;
use outlast_vocab::Error;
use outlast_vocab::limits::ServerLimits;
use outlast_vocab::message::{ToolName, shown};
use outlast_vocab::tool::ClientTool;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Why most parameters are rejected.
const AGENT_DECIDES: &str = "this model is an agent, and its configuration determines it";

/// Parameters that do not change an answer.
const HARMLESS: &[&str] = &["metadata", "service_tier", "inference_geo", "cache_control"];

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<HttpState> {
    OpenApiRouter::new().routes(routes!(create))
}

/// A request for a message. Parameters that are not listed here are rejected if they would change the answer.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CreateMessage {
    /// The name of the agent that answers.
    model: String,
    /// Required by the API, at least 1. It has no effect: the agent's configuration limits the length of
    /// answers.
    max_tokens: u64,
    /// The conversation. Tool results at its end continue the turn that requested them.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Map<String, Value>>,
    /// Instructions for the model, after those of the agent: a text, or a list of text blocks.
    #[serde(default)]
    system: Value,
    /// Tools that the client runs.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Map<String, Value>>>,
    /// How the model chooses tools. Only the type `auto` is supported.
    #[schema(value_type = Option<Object>)]
    tool_choice: Option<Map<String, Value>>,
    /// The format of the answer: a `format` of the type `json_schema`.
    #[schema(value_type = Option<Object>)]
    output_config: Option<Map<String, Value>>,
    /// Whether to stream events. Defaults to `false`.
    stream: Option<bool>,
    /// Other parameters. They are rejected unless they have no effect on the answer.
    #[serde(flatten)]
    #[schema(ignore)]
    rest: Map<String, Value>,
}

/// Send a message to an agent.
///
/// The input is durable before the response starts, and the turn continues if the client disconnects.
/// Requests with the same `Idempotency-Key` share one turn.
#[utoipa::path(post, path = "/anthropic/v1/messages", tag = "anthropic", operation_id = "anthropic_create_message",
    params(("idempotency-key" = Option<String>, Header, description = "Requests with the same key return the same message."),
        ("outlast-repeat" = Option<String>, Header, description = "`never` starts a new turn, even if the request repeats an earlier one.")),
    request_body = CreateMessage,
    responses((status = 200, description = "The message, or a stream of its events.",
        content((Object = "application/json"), (String = "text/event-stream"))), AnthropicErrors),
    security(("key" = ["run"])))]
async fn create(
    caller: Caller<Runs>,
    State(shared): State<HttpState>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Value>,
) -> CompatResult<Response> {
    let headers = request_headers(&headers, CompatApi::Messages, &body)?;
    let request: CreateMessage = read(body)?;
    request.check()?;
    let streams = request.stream == Some(true);
    let open = streams.then(|| shared.streams.open(caller.runtime.access(), &shared.limits)).transpose()?;
    let model = request.model.clone();
    let request = request.into_compat_request(headers, &shared.limits)?;
    let StartedSegment { segment, reader, delivery } = request.start(&shared, &caller.runtime).await?;
    let head = AnthropicMessage { segment, model };
    if let Some(open) = open {
        return Ok(stream::response(&shared, open, reader, Some(delivery), BlockStream::new(head)));
    }
    let answer = SegmentAnswer::complete(reader, segment, &shared).await;
    Ok(delivery.respond(answer.and_then(|answer| head.whole(&answer)), DeliveredEnd::Answer))
}

impl CreateMessage {
    /// Rejects parameters that would change the answer and are not supported.
    fn check(&self) -> CompatResult<()> {
        if self.max_tokens == 0 {
            return Err(CompatError::invalid_param("max_tokens", "expected at least 1, got 0"));
        }
        for (name, value) in &self.rest {
            if !value.is_null() && !HARMLESS.contains(&name.as_str()) && !is_usual(name, value) {
                return Err(CompatError::unsupported(name, AGENT_DECIDES));
            }
        }
        let Some(choice) = &self.tool_choice else { return Ok(()) };
        let auto = choice.get("type") == Some(&json!("auto"));
        let alone = choice.get("disable_parallel_tool_use") == Some(&json!(true));
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        if auto && !(alone && has_tools) {
            return Ok(());
        }
        let why = "only `auto` is supported, with parallel calls";
        Err(CompatError::unsupported("tool_choice", why))
    }

    fn into_compat_request(
        self,
        headers: CompatHeaders,
        limits: &ServerLimits,
    ) -> CompatResult<CompatRequest> {
        let (client_tools, output) = (self.client_tools()?, self.output()?);
        let mut items = ConversationItems::with_instructions(message_parser::system(&self.system)?);
        for (index, message) in self.messages.iter().enumerate() {
            message_parser::message(message, &format!("messages[{index}]"), &mut items)?;
        }
        Ok(CompatRequest {
            api: CompatApi::Messages,
            agent: Some(self.model),
            items,
            client_tools,
            output,
            note: None,
            destination: InputDestination::Matched,
            provider_wait_s: Some(limits.wire_provider_wait_s()),
            headers,
        })
    }

    fn client_tools(&self) -> CompatResult<Vec<ClientTool>> {
        let mut tools = Vec::new();
        for (index, tool) in self.tools.iter().flatten().enumerate() {
            let place = format!("tools[{index}]");
            let kind = tool.get("type").and_then(Value::as_str).unwrap_or("custom");
            if kind != "custom" {
                let why = format!("only tools of the client are supported, not `{}`", shown(kind));
                return Err(CompatError::unsupported(format!("{place}.type"), why));
            }
            let text = |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default();
            let about = |error: Error| CompatError::from(error).about(format!("{place}.name"));
            let name: ToolName = text("name").parse().map_err(about)?;
            let Some(input) = tool.get("input_schema").filter(|schema| schema.is_object()).cloned() else {
                return Err(CompatError::invalid_param(
                    format!("{place}.input_schema"),
                    "expected a JSON Schema",
                ));
            };
            tools.push(ClientTool { name, description: text("description").to_owned(), input });
        }
        Ok(tools)
    }

    /// Returns the JSON Schema that the answer must match.
    fn output(&self) -> CompatResult<Option<Value>> {
        let Some(config) = &self.output_config else { return Ok(None) };
        let other = config.iter().find(|(name, value)| *name != "format" && !value.is_null());
        if let Some((name, value)) = other {
            let why = format!("{AGENT_DECIDES}; this says `{}`", shown(&value.to_string()));
            return Err(CompatError::unsupported(format!("output_config.{name}"), why));
        }
        let format = config.get("format").unwrap_or(&Value::Null);
        match (format["type"].as_str(), format.get("schema")) {
            (None, _) if format.is_null() => Ok(None),
            (Some("json_schema"), Some(schema)) if schema.is_object() => Ok(Some(schema.clone())),
            _ => Err(CompatError::invalid_param(
                "output_config.format",
                "expected the type `json_schema` and a `schema`",
            )),
        }
    }
}

/// Returns whether the value of a parameter is its default.
fn is_usual(name: &str, value: &Value) -> bool {
    match name {
        "temperature" | "top_p" => value.as_f64().is_some_and(|value| (value - 1.0).abs() < f64::EPSILON),
        "stop_sequences" | "mcp_servers" => *value == json!([]),
        "thinking" => *value == json!({ "type": "disabled" }),
        _ => false,
    }
}

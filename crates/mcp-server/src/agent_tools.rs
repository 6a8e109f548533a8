//! Agents as tools: their names, input schemas and output schemas.
use outlast_runtime::agents::agent_registry::AgentView;
use outlast_vocab::{Error, Kind, TurnId};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The arguments of a call of an agent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentCallArguments {
    pub(crate) message: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) schema: Option<Value>,
    pub(crate) turn: Option<TurnId>,
}

impl AgentCallArguments {
    /// Parses the arguments of a call.
    pub(crate) fn read(arguments: Option<JsonObject>) -> Result<Self, Error> {
        serde_json::from_value(Value::Object(arguments.unwrap_or_default()))
            .map_err(|cause| Error::new(Kind::InputInvalid, format!("the arguments are invalid: {cause}")))
    }
}

/// Describes an agent as a tool.
pub(crate) fn agent_tool(agent: &AgentView) -> Tool {
    let package = &agent.pinned.package;
    let tools: Vec<&str> = package.tools.iter().map(outlast_vocab::message::ToolName::as_str).collect();
    let uses = if tools.is_empty() { String::new() } else { format!(" It can use: {}.", tools.join(", ")) };
    let description = format!(
        "Sends a message to the agent `{}`, which answers in a session that outlives this connection.{uses}",
        agent.name
    );
    let mut tool = Tool::new(agent.name.clone(), description, arguments_schema());
    tool.output_schema = Some(result_schema());
    // The effects of an agent depend on its tools, so these are the safe hints.
    tool.annotations = Some(ToolAnnotations::new().read_only(false).open_world(true));
    tool
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(members) => Arc::new(members),
        _ => Arc::default(),
    }
}

fn arguments_schema() -> Arc<JsonObject> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    object(json!({
        "type": "object",
        "properties": {
            "message": text("The message to the agent."),
            "session": text("The session to continue: the `session` of an earlier result, or a name that you choose for a new session. Without it, the agent does not know earlier calls."),
            "idempotency_key": text("A key of your choice for this request. If you repeat a request with the same key, it does not run again, and you get the same answer."),
            "schema": { "type": "object", "description": "A JSON Schema that the answer must match." },
            "turn": text("The `turn` of an earlier result, to wait for it instead of sending a message."),
        },
        "additionalProperties": false
    }))
}

fn result_schema() -> Arc<JsonObject> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    object(json!({
        "type": "object",
        "properties": {
            "status": text("`answered`, `refused`, `waiting`, `running`, or another ending of the turn."),
            "session": text("The session, for further calls."),
            "turn": text("The turn."),
            "answer": { "description": "The answer as a JSON value, if a `schema` was given." },
            "waits": { "type": "array", "description": "What the turn waits for.", "items": { "type": "object" } },
            "error": { "type": "object", "description": "What went wrong: a stable `code`, its `class`, and `detail`." },
        },
        "required": ["status"]
    }))
}

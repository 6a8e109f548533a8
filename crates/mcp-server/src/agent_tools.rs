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
            .map_err(|cause| Error::new(Kind::InputInvalid, format!("the arguments do not fit: {cause}")))
    }
}

/// Describes an agent as a tool.
pub(crate) fn agent_tool(agent: &AgentView) -> Tool {
    let package = &agent.pinned.package;
    let tools: Vec<&str> = package.tools.iter().map(outlast_vocab::message::ToolName::as_str).collect();
    let uses = if tools.is_empty() { String::new() } else { format!(" It can use: {}.", tools.join(", ")) };
    let description = format!(
        "Asks the agent `{}`, which answers in a session that outlives this connection.{uses}",
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
            "message": text("What to say to the agent."),
            "session": text("The session to go on with: the `session` of an earlier result, or a name of your own that opens \
                one. Without it the agent knows nothing of earlier calls."),
            "idempotency_key": text("Any text that stands for this request. The same key again is the same turn: it is not run \
                twice, and its answer is given again."),
            "schema": { "type": "object", "description": "A JSON Schema that the answer must fit." },
            "turn": text("Waits for a turn again, by the `turn` of an earlier result, instead of saying something."),
        },
        "additionalProperties": false
    }))
}

fn result_schema() -> Arc<JsonObject> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    object(json!({
        "type": "object",
        "properties": {
            "status": text("`answered`, `refused`, `waiting`, `running`, or how else the turn ended."),
            "session": text("The session, to go on with."),
            "turn": text("The turn."),
            "answer": { "description": "The answer as a value, where a `schema` was given." },
            "waits": { "type": "array", "description": "What the turn waits for.", "items": { "type": "object" } },
            "error": { "type": "object", "description": "What went wrong: a stable `code`, its `class`, and `detail`." },
        },
        "required": ["status"]
    }))
}

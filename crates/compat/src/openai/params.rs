//! Parses parameters of requests. Errors name the parameter, and parameters that would change the answer are
//! never ignored.
use crate::compat_error::{CompatError, CompatResult};
use outlast_vocab::message::{ToolName, shown};
use outlast_vocab::tool::ClientTool;
use outlast_vocab::{Error, Kind};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Why most parameters are rejected.
const AGENT_DECIDES: &str = "this model is an agent, and its configuration determines it";

/// Parameters that do not change an answer.
const HARMLESS: &[&str] = &[
    "user",
    "store",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "service_tier",
    "include",
    "truncation",
    "stream_options",
];

/// Parses a body. The error names the parameter.
pub(crate) fn read<T: DeserializeOwned>(body: Value) -> CompatResult<T> {
    serde_path_to_error::deserialize(body).map_err(|cause| {
        let (place, cause) = (cause.path().to_string(), cause.inner().to_string());
        match (place.as_str(), missing(&cause)) {
            (".", Some(name)) => CompatError::invalid_param(name, cause.as_str()),
            (".", None) => Error::new(Kind::InputInvalid, format!("the body is invalid: {cause}")).into(),
            (place, _) => CompatError::invalid_param(place, format!("`{place}` is invalid: {cause}")),
        }
    })
}

/// Returns the missing parameter that an error is about.
fn missing(cause: &str) -> Option<&str> {
    cause.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Rejects unknown parameters, unless they change nothing.
pub(crate) fn check_rest(rest: &Map<String, Value>) -> CompatResult<()> {
    for (name, value) in rest {
        let says_nothing = value.is_null() || HARMLESS.contains(&name.as_str()) || is_usual(name, value);
        if !says_nothing {
            return Err(CompatError::unsupported(name, AGENT_DECIDES));
        }
    }
    Ok(())
}

/// Returns whether the value of a parameter is its default.
fn is_usual(name: &str, value: &Value) -> bool {
    let is = |number: f64| value.as_f64().is_some_and(|value| (value - number).abs() < f64::EPSILON);
    match name {
        "temperature" | "top_p" | "n" => is(1.0),
        "presence_penalty" | "frequency_penalty" | "top_logprobs" => is(0.0),
        "logprobs" => *value == json!(false),
        "logit_bias" => *value == json!({}),
        "reasoning" => value.as_object().is_some_and(|members| members.values().all(Value::is_null)),
        "stop" | "functions" => *value == json!([]),
        "modalities" => *value == json!(["text"]),
        "verbosity" => *value == json!("medium"),
        _ => false,
    }
}

/// Rejects settings of how tools are chosen, unless they match the default behaviour.
pub(crate) fn check_choice(
    choice: Option<&Value>,
    parallel: Option<bool>,
    has_tools: bool,
) -> CompatResult<()> {
    if let Some(choice) = choice.filter(|choice| !choice.is_null() && **choice != json!("auto")) {
        let why = format!("only `auto` is supported, not `{}`", shown(&choice.to_string()));
        return Err(CompatError::unsupported("tool_choice", why));
    }
    if parallel == Some(false) && has_tools {
        return Err(CompatError::unsupported("parallel_tool_calls", "parallel calls cannot be disabled"));
    }
    Ok(())
}

/// Parses a function that the client runs.
pub(crate) fn function(function: &Map<String, Value>, place: &str) -> CompatResult<ClientTool> {
    let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
    let name: ToolName = name
        .parse()
        .map_err(|error: outlast_vocab::Error| CompatError::from(error).about(format!("{place}.name")))?;
    let description = function.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    let input = match function.get("parameters") {
        None | Some(Value::Null) => json!({ "type": "object", "properties": {} }),
        Some(schema) => schema.clone(),
    };
    Ok(ClientTool { name, description, input })
}

/// Returns the JSON Schema that an answer must match. `schema` finds it in a format of type `json_schema`.
pub(crate) fn format(
    format: &Value,
    schema: impl FnOnce(&Value) -> Value,
    place: &str,
) -> CompatResult<Option<Value>> {
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(json!({ "type": "object" }))),
        Some("json_schema") => match schema(format) {
            Value::Null => Err(CompatError::invalid_param(
                format!("{place}.schema"),
                "expected a JSON Schema, got nothing",
            )),
            schema => Ok(Some(schema)),
        },
        other => {
            let why = format!(
                "expected `text`, `json_object` or `json_schema`, got `{}`",
                shown(other.unwrap_or("nothing"))
            );
            Err(CompatError::unsupported(format!("{place}.type"), why))
        }
    }
}

//! Adds the formats of parameters to the OpenAPI document: id patterns and allowed values.
//!
//! The routes themselves parse parameters. This information is for client authors, client generators and
//! fuzzers.
use axum::http::StatusCode;
use outlast_vocab::id::{
    ApprovalId, AttachmentId, CallId, DeliveryId, GrantId, IdKind, KeyId, OrgId, SessionId, TurnId,
};
use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::{OpenApi, PathItem, RefOr, Schema};

/// Parameters that are ids, by name.
const IDS: [(&str, IdKind); 7] = [
    ("session", SessionId::NOUN),
    ("turn", TurnId::NOUN),
    ("approval", ApprovalId::NOUN),
    ("grant", GrantId::NOUN),
    ("attachment", AttachmentId::NOUN),
    ("call", CallId::NOUN),
    ("delivery", DeliveryId::NOUN),
];

/// Parameters with a fixed set of values, by name.
const ALLOWED_VALUES: [(&str, &[&str]); 6] = [
    ("kind", &["agent", "harness", "capability"]),
    ("by", &["session", "agent", "model", "source", "tool", "day"]),
    ("per", &["day"]),
    ("state", &["idle", "ready", "running", "parked", "held"]),
    (
        "last_end",
        &[
            "answered",
            "refused",
            "out_of_model_calls",
            "out_of_budget",
            "cancelled",
            "aborted",
            "abandoned",
            "failed",
            "sealed",
            "stuck",
        ],
    ),
    ("role", &["user", "assistant", "tool"]),
];

/// Adds patterns and allowed values to all parameters.
pub(crate) fn add_formats(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter {
                    add_format(path, parameter);
                }
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    by_method(item).map(|(_, operation)| operation)
}

fn by_method(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let all = [("get", get), ("put", put), ("post", post), ("delete", delete), ("patch", patch)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Gives every operation a unique id and every response a description, which client generators require.
pub(crate) fn name(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in by_method(item) {
            // Operations of the compatible APIs set their own ids.
            if !(path.starts_with("/openai/") || path.starts_with("/anthropic/")) {
                operation.operation_id = Some(derive_operation_id(method, path));
            }
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    status_text(status).clone_into(&mut response.description);
                }
            }
        }
    }
}

/// Returns the operation id: `get` and `/v1/sessions/{session}/why` become `get_sessions_session_why`.
fn derive_operation_id(method: &str, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !["", "v1"].contains(word));
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

/// Returns the description of a status, for routes that give none.
fn status_text(status: &str) -> &'static str {
    let known = status.parse::<u16>().ok().and_then(|status| StatusCode::from_u16(status).ok());
    known.and_then(|status| status.canonical_reason()).unwrap_or("The answer.")
}

fn add_format(path: &str, parameter: &mut Parameter) {
    let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema else { return };
    let name = parameter.name.as_str();
    let words = ALLOWED_VALUES.iter().find(|(of, _)| *of == name).map(|(_, words)| *words);
    schema.enum_values = words.map(|words| words.iter().map(|word| Value::from(*word)).collect());
    schema.pattern = match (path, name) {
        ("/v1/keys/{key}", "key") => Some(id_pattern(KeyId::NOUN)),
        ("/v1/budgets/{of}", "of") => Some(budget_owner_pattern()),
        _ => IDS.iter().find(|(of, _)| *of == name).map(|(_, noun)| id_pattern(*noun)),
    };
}

fn id_pattern(noun: IdKind) -> String {
    format!("^{}_[0-9a-f]{{32}}$", noun.prefix)
}

fn budget_owner_pattern() -> String {
    let ids = [TurnId::NOUN, SessionId::NOUN, OrgId::NOUN].map(|noun| noun.prefix).join("|");
    format!("^(agent:.+|({ids})_[0-9a-f]{{32}})$")
}

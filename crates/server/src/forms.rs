//! How parameters look, as the document tells it: ids with their prefix, words of which there are few.
//!
//! The routes parse them; whoever writes a client, or tries to break the server, reads it here.
use outlast_vocab::id::{
    ApprovalId, AttachmentId, CallId, DeliveryId, GrantId, KeyId, Noun, OrgId, SessionId, TurnId,
};
use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::{OpenApi, PathItem, RefOr, Schema};

/// Parameters that are ids, by their name.
const IDS: [(&str, Noun); 7] = [
    ("session", SessionId::NOUN),
    ("turn", TurnId::NOUN),
    ("approval", ApprovalId::NOUN),
    ("grant", GrantId::NOUN),
    ("attachment", AttachmentId::NOUN),
    ("call", CallId::NOUN),
    ("delivery", DeliveryId::NOUN),
];

/// Parameters of which there are few, by their name.
const WORDS: [(&str, &[&str]); 5] = [
    ("kind", &["agent", "harness", "capability"]),
    ("by", &["session", "agent", "model", "source", "tool", "day"]),
    ("per", &["day"]),
    ("state", &["idle", "ready", "running", "parked"]),
    ("role", &["user", "assistant", "tool"]),
];

/// Tells the forms of all parameters.
pub(crate) fn tell(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter {
                    tell_one(path, parameter);
                }
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

fn tell_one(path: &str, parameter: &mut Parameter) {
    let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema else { return };
    let name = parameter.name.as_str();
    let words = WORDS.iter().find(|(of, _)| *of == name).map(|(_, words)| *words);
    schema.enum_values = words.map(|words| words.iter().map(|word| Value::from(*word)).collect());
    schema.pattern = match (path, name) {
        ("/v1/keys/{key}", "key") => Some(form(KeyId::NOUN)),
        ("/v1/budgets/{of}", "of") => Some(purse()),
        _ => IDS.iter().find(|(of, _)| *of == name).map(|(_, noun)| form(*noun)),
    };
}

fn form(noun: Noun) -> String {
    format!("^{}_[0-9a-f]{{32}}$", noun.prefix)
}

fn purse() -> String {
    let ids = [TurnId::NOUN, SessionId::NOUN, OrgId::NOUN].map(|noun| noun.prefix).join("|");
    format!("^(agent:.+|({ids})_[0-9a-f]{{32}})$")
}

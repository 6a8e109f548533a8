//! Renders requests.
use crate::wire::calls::{OWN_ID, as_object};
use crate::wire::files::{Shown, show};
use crate::wire::schema::told;
use crate::wire::{Answering, Ask, Rendered, prefix, proof, raw};
use outlast_vocab::effect::ToolChoice;
use outlast_vocab::message::{Message, ModelCallId, Part, ToolResult, ToolUse};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The signature that the API accepts for a call that another model made.
const NO_PROOF: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    contents: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<Value>,
    generation_config: Value,
}

/// Renders the body of a request.
pub(crate) fn render(ask: &Ask<'_>) -> Rendered {
    let Ask { request, names, .. } = *ask;
    let schema = request.call.output.as_ref();
    // Older models take tools or a schema, not both.
    let by_schema = schema.is_some() && (names.is_empty() || !is_old(ask.model));
    let mut system = Cow::Borrowed(request.system);
    if let Some(schema) = schema
        && !by_schema
    {
        system = Cow::Owned(format!("{system}\n\n{}", told(schema)));
    }
    let system_instruction = (!system.is_empty()).then(|| raw(&json!({ "parts": [{ "text": system }] })));
    let contents = conversation(ask);
    let tools = (!names.is_empty()).then(|| {
        let functions = names.iter().map(|(name, contract)| {
            json!({ "name": name, "description": contract.description, "parametersJsonSchema": ask.schema(&contract.input) })
        });
        raw(&json!([{ "functionDeclarations": functions.collect::<Vec<_>>() }]))
    });
    let prefix = prefix(tools.as_deref(), system_instruction.as_deref(), &contents);
    let tool_config = tools.as_ref().and_then(|_| {
        let config = match &request.call.choice {
            ToolChoice::Auto => return None,
            ToolChoice::Required => json!({ "mode": "ANY" }),
            ToolChoice::None => json!({ "mode": "NONE" }),
            ToolChoice::Only(tool) => json!({ "mode": "ANY", "allowedFunctionNames": [names.outward(tool)] }),
        };
        Some(json!({ "functionCallingConfig": config }))
    });
    let generation_config = generation(ask, schema.filter(|_| by_schema));
    let body = Body { contents, system_instruction, tools, tool_config, generation_config };
    let body = serde_json::to_vec(&body).expect("what is sent is plain data");
    Rendered { body, prefix, answering: Answering::default() }
}

fn is_old(model: &str) -> bool {
    ["gemini-1", "gemini-2", "gemma"].iter().any(|old| model.starts_with(old))
}

fn generation(ask: &Ask<'_>, schema: Option<&Value>) -> Value {
    let options = &ask.request.call.options;
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
    if let Some(tokens) = options.tokens_most {
        set("maxOutputTokens", json!(tokens));
    }
    if let Some(milli) = options.temperature_milli {
        set("temperature", json!(f64::from(milli) / 1_000.0));
    }
    if let Some(schema) = schema {
        set("responseMimeType", json!("application/json"));
        set("responseJsonSchema", ask.schema(schema));
    }
    if ask.traits.thinks {
        set("thinkingConfig", thinking(ask.model, options.variant.as_deref()));
    }
    Value::Object(config)
}

/// Returns the thinking configuration for a variant such as `high` or `8000` (thinking tokens).
fn thinking(model: &str, variant: Option<&str>) -> Value {
    let mut config = json!({ "includeThoughts": true });
    let budget = variant.and_then(|variant| variant.parse::<u32>().ok());
    match (variant, budget) {
        (None, _) => {}
        (_, Some(budget)) => config["thinkingBudget"] = json!(budget),
        (Some(level), None) if !is_old(model) => config["thinkingLevel"] = json!(level),
        (Some(level), None) => {
            let budget = match level {
                "none" | "off" => 0,
                "minimal" | "low" => 1_024,
                "medium" => 8_192,
                _ => 24_576,
            };
            config["thinkingBudget"] = json!(budget);
        }
    }
    config
}

/// Renders the conversation. Adjacent messages of one role are merged.
fn conversation(ask: &Ask<'_>) -> Vec<Box<RawValue>> {
    let mut said: Vec<(Role, Vec<Value>)> = Vec::new();
    for message in ask.request.messages() {
        let (role, mut parts) = match message {
            Message::User { parts } => {
                (Role::User, parts.iter().filter_map(|part| shown(ask, part)).collect())
            }
            Message::Assistant { parts, calls } => {
                let mut content: Vec<Value> = parts.iter().filter_map(|part| replied(ask, part)).collect();
                content.extend(calls.iter().enumerate().map(|(place, call)| called(ask, place, call)));
                (Role::Model, content)
            }
            Message::Tool { call, tool, result } => {
                let response = match result {
                    ToolResult::Ok(value) => json!({ "output": value }),
                    ToolResult::Err(_) => json!({ "error": result.text() }),
                };
                let mut answer = json!({ "name": ask.names.outward(tool), "response": response });
                identify(call, &mut answer);
                (Role::Function, vec![json!({ "functionResponse": answer })])
            }
        };
        match said.last_mut() {
            Some((last, content)) if *last == role => content.append(&mut parts),
            _ if parts.is_empty() => {}
            _ => said.push((role, parts)),
        }
    }
    said.iter().map(|(role, parts)| raw(&json!({ "role": role.name(), "parts": parts }))).collect()
}

/// The role of a message. Function results have the role of the user and are not merged with other messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Model,
    Function,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::User | Self::Function => "user",
            Self::Model => "model",
        }
    }
}

/// Sets the id of a call, if the provider assigned one.
fn identify(id: &ModelCallId, call: &mut Value) {
    if !id.as_str().starts_with(OWN_ID) {
        call["id"] = json!(id);
    }
}

fn called(ask: &Ask<'_>, place: usize, call: &ToolUse) -> Value {
    let mut asked = json!({ "name": ask.names.outward(&call.tool), "args": as_object(&call.arguments) });
    identify(&call.id, &mut asked);
    let mut part = json!({ "functionCall": asked });
    // The first of several parallel calls carries the signature, and newer models require one.
    match proof::open(ask.provider.name, call.signature.as_deref()) {
        Some(signature) => part["thoughtSignature"] = json!(signature),
        None if place == 0 && !is_old(ask.model) => part["thoughtSignature"] = json!(NO_PROOF),
        None => {}
    }
    part
}

fn takes(media_type: &str) -> bool {
    let kind = media_type.split('/').next().unwrap_or_default();
    matches!(kind, "audio" | "video")
        || matches!(
            media_type,
            "image/png" | "image/jpeg" | "image/webp" | "image/heic" | "image/heif" | "application/pdf"
        )
}

fn text_part(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!({ "text": text }))
}

fn shown(ask: &Ask<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_part(text),
        Part::Attachment { attachment } => match show(attachment, ask.request.files, takes) {
            Shown::Text(text) => text_part(&text),
            Shown::Bytes { media_type, base64, .. } => {
                Some(json!({ "inlineData": { "mimeType": media_type, "data": base64 } }))
            }
        },
        Part::Reasoning { .. } | Part::Sealed { .. } => None,
    }
}

fn replied(ask: &Ask<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_part(text),
        Part::Reasoning { text, signature } => {
            let signature = proof::open(ask.provider.name, signature.as_deref())?;
            Some(json!({ "text": text, "thought": true, "thoughtSignature": signature }))
        }
        Part::Sealed { provider, data } => (provider == ask.provider.name).then(|| data.clone()),
        Part::Attachment { .. } => None,
    }
}

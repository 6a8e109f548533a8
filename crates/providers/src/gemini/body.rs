//! Renders requests.
use crate::api_parts::attachment_parts::{
    RenderedAttachment, instruction_text, link_note, render_attachment,
};
use crate::api_parts::streaming_calls::{OWN_ID_PREFIX, as_object};
use crate::api_parts::strict_schema::schema_instructions;
use crate::api_parts::{ApiRequest, DecodeSettings, RenderedRequest, cache_prefix, raw_json, signatures};
use outlast_vocab::effect::ToolChoice;
use outlast_vocab::message::{Message, ModelCallId, Part, ToolResult, ToolUse};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The signature that the API accepts for a call that another model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiRequestBody {
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
pub(crate) fn render(ask: &ApiRequest<'_>) -> RenderedRequest {
    let ApiRequest { request, names, .. } = *ask;
    let schema = request.call.output.as_ref();
    // Older models take tools or a schema, not both.
    let by_schema = schema.is_some() && (names.is_empty() || !is_legacy_model(ask.model));
    let mut system = Cow::Borrowed(request.system);
    if let Some(schema) = schema
        && !by_schema
    {
        system = Cow::Owned(format!("{system}\n\n{}", schema_instructions(schema)));
    }
    let system_instruction =
        (!system.is_empty()).then(|| raw_json(&json!({ "parts": [{ "text": system }] })));
    let contents = conversation(ask);
    let tools = (!names.is_empty()).then(|| {
        let functions = names.iter().map(|(name, contract)| {
            json!({ "name": name, "description": contract.description, "parametersJsonSchema": ask.schema(&contract.input) })
        });
        raw_json(&json!([{ "functionDeclarations": functions.collect::<Vec<_>>() }]))
    });
    let prefix = cache_prefix(tools.as_deref(), system_instruction.as_deref(), &contents);
    let tool_config = tools.as_ref().and_then(|_| {
        let config = match &request.call.choice {
            ToolChoice::Auto => return None,
            ToolChoice::Required => json!({ "mode": "ANY" }),
            ToolChoice::None => json!({ "mode": "NONE" }),
            ToolChoice::Only(tool) => {
                json!({ "mode": "ANY", "allowedFunctionNames": [names.api_name(tool)] })
            }
        };
        Some(json!({ "functionCallingConfig": config }))
    });
    let generation_config = generation(ask, schema.filter(|_| by_schema));
    let body = GeminiRequestBody { contents, system_instruction, tools, tool_config, generation_config };
    let body = serde_json::to_vec(&body).expect("what is sent is plain data");
    RenderedRequest { body, prefix, decode_settings: DecodeSettings::default() }
}

fn is_legacy_model(model: &str) -> bool {
    ["gemini-1", "gemini-2", "gemma"].iter().any(|old| model.starts_with(old))
}

fn generation(ask: &ApiRequest<'_>, schema: Option<&Value>) -> Value {
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
        (Some(level), None) if !is_legacy_model(model) => config["thinkingLevel"] = json!(level),
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
fn conversation(ask: &ApiRequest<'_>) -> Vec<Box<RawValue>> {
    let mut said: Vec<(GeminiRole, Vec<Value>)> = Vec::new();
    for message in ask.request.messages() {
        let (role, mut parts) = match message {
            Message::User { parts } => {
                (GeminiRole::User, parts.iter().filter_map(|part| user_part(ask, part)).collect())
            }
            Message::Assistant { parts, calls } => {
                let mut content: Vec<Value> = parts.iter().filter_map(|part| reply_part(ask, part)).collect();
                content.extend(
                    calls.iter().enumerate().map(|(place, call)| function_call_part(ask, place, call)),
                );
                (GeminiRole::Model, content)
            }
            Message::Tool { call, tool, result } => {
                let response = match result {
                    ToolResult::Ok(value) => json!({ "output": value }),
                    ToolResult::Err(_) => json!({ "error": result.text() }),
                };
                let mut answer = json!({ "name": ask.names.api_name(tool), "response": response });
                set_call_id(call, &mut answer);
                (GeminiRole::Function, vec![json!({ "functionResponse": answer })])
            }
        };
        match said.last_mut() {
            Some((last, content)) if *last == role => content.append(&mut parts),
            _ if parts.is_empty() => {}
            _ => said.push((role, parts)),
        }
    }
    said.iter().map(|(role, parts)| raw_json(&json!({ "role": role.name(), "parts": parts }))).collect()
}

/// The role of a message. Function results have the role of the user and are not merged with other messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GeminiRole {
    User,
    Model,
    Function,
}

impl GeminiRole {
    const fn name(self) -> &'static str {
        match self {
            Self::User | Self::Function => "user",
            Self::Model => "model",
        }
    }
}

/// Sets the id of a call, if the provider assigned one.
fn set_call_id(id: &ModelCallId, call: &mut Value) {
    if !id.as_str().starts_with(OWN_ID_PREFIX) {
        call["id"] = json!(id);
    }
}

fn function_call_part(ask: &ApiRequest<'_>, place: usize, call: &ToolUse) -> Value {
    let mut asked = json!({ "name": ask.names.api_name(&call.tool), "args": as_object(&call.arguments) });
    set_call_id(&call.id, &mut asked);
    let mut part = json!({ "functionCall": asked });
    // The first of several parallel calls carries the signature, and newer models require one.
    match signatures::untag_signature(ask.provider.name, call.signature.as_deref()) {
        Some(signature) => part["thoughtSignature"] = json!(signature),
        None if place == 0 && !is_legacy_model(ask.model) => part["thoughtSignature"] = json!(NO_SIGNATURE),
        None => {}
    }
    part
}

fn accepts_media_type(media_type: &str) -> bool {
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

fn user_part(ask: &ApiRequest<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_part(text),
        Part::Instruction { text } => text_part(&instruction_text(text)),
        // The API opens only files of its own store.
        Part::Link { link } => text_part(&link_note(link)),
        Part::Attachment { attachment } => {
            match render_attachment(attachment, ask.request.files, accepts_media_type) {
                RenderedAttachment::Text(text) => text_part(&text),
                RenderedAttachment::Bytes { media_type, base64, .. } => {
                    Some(json!({ "inlineData": { "mimeType": media_type, "data": base64 } }))
                }
            }
        }
        Part::Reasoning { .. } | Part::Sealed { .. } => None,
    }
}

fn reply_part(ask: &ApiRequest<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_part(text),
        Part::Reasoning { text, signature } => {
            let signature = signatures::untag_signature(ask.provider.name, signature.as_deref())?;
            Some(json!({ "text": text, "thought": true, "thoughtSignature": signature }))
        }
        Part::Sealed { provider, data } => (provider == ask.provider.name).then(|| data.clone()),
        Part::Attachment { .. } | Part::Instruction { .. } | Part::Link { .. } => None,
    }
}

//! Renders requests.
use crate::api_parts::attachment_parts::{
    RenderedAttachment, instruction_text, is_picture_or_pdf, render_attachment,
};
use crate::api_parts::streaming_calls::as_text;
use crate::api_parts::strict_schema::{StrictMode, schema_instructions};
use crate::api_parts::{ApiRequest, DecodeSettings, RenderedRequest, cache_prefix, raw_json};
use outlast_vocab::effect::ToolChoice;
use outlast_vocab::message::{LinkKind, Message, Part, ToolUse};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

#[derive(Serialize)]
struct ResponsesRequestBody<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<Box<RawValue>>,
    input: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    include: Vec<&'static str>,
    prompt_cache_key: String,
    store: bool,
    stream: bool,
}

/// Renders the body of a request.
pub(crate) fn render(ask: &ApiRequest<'_>) -> RenderedRequest {
    let ApiRequest { request, names, traits, .. } = *ask;
    let options = &request.call.options;
    let format = request.call.output.as_ref().and_then(|schema| text_format(ask, schema));
    let mut system = Cow::Borrowed(request.system);
    if let (Some(schema), None) = (&request.call.output, &format) {
        system = Cow::Owned(format!("{system}\n\n{}", schema_instructions(schema)));
    }
    let instructions = (!system.is_empty()).then(|| raw_json(&system));
    let mut input = Vec::new();
    for message in request.messages() {
        push_message(ask, message, &mut input);
    }
    let tools = (!names.is_empty()).then(|| {
        let tools = names.iter().map(|(name, contract)| {
            json!({
                "type": "function",
                "name": name,
                "description": contract.description,
                "parameters": ask.schema(&contract.input),
                "strict": false,
            })
        });
        raw_json(&tools.collect::<Vec<_>>())
    });
    let prefix = cache_prefix(tools.as_deref(), instructions.as_deref(), &input);
    let reasoning = traits.thinks.then(|| match &options.variant {
        Some(effort) => json!({ "effort": effort, "summary": "auto" }),
        None => json!({ "summary": "auto" }),
    });
    let body = ResponsesRequestBody {
        model: ask.model,
        instructions,
        input,
        tool_choice: tools.as_ref().and_then(|_| match &request.call.choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(json!("required")),
            ToolChoice::None => Some(json!("none")),
            ToolChoice::Only(tool) => Some(json!({ "type": "function", "name": names.api_name(tool) })),
        }),
        tools,
        text: format.map(|format| json!({ "format": format })),
        max_output_tokens: options.tokens_most,
        temperature: options.temperature_milli.map(|milli| f64::from(milli) / 1_000.0),
        reasoning,
        include: if traits.thinks { vec!["reasoning.encrypted_content"] } else { Vec::new() },
        prompt_cache_key: request.session.to_string(),
        store: false,
        stream: true,
    };
    let body = serde_json::to_vec(&body).expect("what is sent is plain data");
    RenderedRequest { body, prefix, decode_settings: DecodeSettings::default() }
}

fn text_format(ask: &ApiRequest<'_>, schema: &Value) -> Option<Value> {
    let (strict, schema) = match StrictMode::OpenAi.convert(schema) {
        Some(schema) => (true, schema),
        None if schema["type"] == "object" => (false, ask.schema(schema)),
        None => return None,
    };
    Some(json!({ "type": "json_schema", "name": "answer", "strict": strict, "schema": schema }))
}

/// Renders a message as items.
fn push_message(ask: &ApiRequest<'_>, message: &Message, items: &mut Vec<Box<RawValue>>) {
    match message {
        Message::User { parts } => {
            let content: Vec<Value> = parts.iter().filter_map(|part| content(ask, part)).collect();
            items.push(raw_json(&json!({ "role": "user", "content": content })));
        }
        Message::Assistant { parts, calls } => push_reply(ask, parts, calls, items),
        Message::Tool { call, result, .. } => items.push(raw_json(&json!({
            "type": "function_call_output", "call_id": call, "output": result.text(),
        }))),
    }
}

/// Renders a reply in its original order. Reasoning precedes the call that it led to.
fn push_reply(ask: &ApiRequest<'_>, parts: &[Part], calls: &[ToolUse], items: &mut Vec<Box<RawValue>>) {
    let mut calls = calls.iter();
    let mut given = 0;
    let mut call_until = |until: usize, items: &mut Vec<Box<RawValue>>| {
        while given < until
            && let Some(call) = calls.next()
        {
            given += 1;
            items.push(raw_json(&json!({
                "type": "function_call",
                "call_id": call.id,
                "name": ask.names.api_name(&call.tool),
                "arguments": as_text(&call.arguments),
            })));
        }
    };
    for part in parts {
        match part {
            Part::Text { text } if !text.is_empty() => {
                let content = json!([{ "type": "output_text", "text": text }]);
                items.push(raw_json(&json!({ "type": "message", "role": "assistant", "content": content })));
            }
            Part::Sealed { provider, data } if provider == ask.provider.name => {
                let after = data["after_calls"].as_u64().and_then(|after| usize::try_from(after).ok());
                call_until(after.unwrap_or(0), items);
                items.push(raw_json(&data["item"]));
            }
            Part::Text { .. }
            | Part::Sealed { .. }
            | Part::Reasoning { .. }
            | Part::Attachment { .. }
            | Part::Instruction { .. }
            | Part::Link { .. } => {}
        }
    }
    call_until(usize::MAX, items);
}

fn content(ask: &ApiRequest<'_>, part: &Part) -> Option<Value> {
    let text = |text: &str| json!({ "type": "input_text", "text": text });
    match part {
        Part::Text { text: said } => Some(text(said)),
        Part::Instruction { text: said } => Some(text(&instruction_text(said))),
        Part::Link { link } => Some(match link.kind {
            LinkKind::Image => {
                let detail = link.detail.as_deref().unwrap_or("auto");
                json!({ "type": "input_image", "detail": detail, "image_url": link.url })
            }
            LinkKind::File => json!({ "type": "input_file", "file_url": link.url }),
        }),
        Part::Attachment { attachment } => {
            Some(match render_attachment(attachment, ask.request.files, is_picture_or_pdf) {
                RenderedAttachment::Text(instead) => text(&instead),
                RenderedAttachment::Bytes { media_type, name, base64 } => {
                    let url = RenderedAttachment::data_url(media_type, &base64);
                    if media_type.starts_with("image/") {
                        json!({ "type": "input_image", "detail": "auto", "image_url": url })
                    } else {
                        json!({ "type": "input_file", "filename": name, "file_data": url })
                    }
                }
            })
        }
        Part::Reasoning { .. } | Part::Sealed { .. } => None,
    }
}

//! Renders requests.
use crate::Api;
use crate::api_parts::attachment_parts::{
    RenderedAttachment, instruction_text, is_picture_or_pdf, link_note, render_attachment,
};
use crate::api_parts::streaming_calls::as_text;
use crate::api_parts::strict_schema::{StrictMode, schema_instructions};
use crate::api_parts::{ApiRequest, DecodeSettings, RenderedRequest, cache_prefix, raw_json, signatures};
use outlast_vocab::effect::ToolChoice;
use outlast_vocab::message::{LinkKind, Message, Part, text_of};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

#[derive(Serialize)]
struct ChatRequestBody<'a> {
    model: &'a str,
    messages: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    #[serde(flatten)]
    going_on: Option<ContinuationOptions>,
    stream: bool,
    stream_options: Value,
}

/// Makes self-hosted servers continue the last message. Servers that always do so ignore it.
#[derive(Serialize)]
struct ContinuationOptions {
    continue_final_message: bool,
    add_generation_prompt: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum ChatMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: ChatContent<'a>,
    },
    Assistant {
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Value>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChatContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
}

/// Renders the body of a request.
pub(crate) fn render(ask: &ApiRequest<'_>) -> RenderedRequest {
    let ApiRequest { request, provider, names, .. } = *ask;
    let options = &request.call.options;
    let is_openai = provider.api != Api::OpenAiCompatible;
    let response_format = request.call.output.as_ref().and_then(|schema| response_format(ask, schema));
    let mut system = Cow::Borrowed(request.system);
    if let (Some(schema), None) = (&request.call.output, &response_format) {
        system = Cow::Owned(format!("{system}\n\n{}", schema_instructions(schema)));
    }
    let system = (!system.is_empty()).then(|| raw_json(&ChatMessage::System { content: &system }));
    let mut messages: Vec<Box<RawValue>> = request
        .messages()
        .filter_map(|message| chat_message(ask, message))
        .map(|said| raw_json(&said))
        .collect();
    if !request.partial_text.is_empty() {
        let content = Some(Cow::Borrowed(request.partial_text));
        messages.push(raw_json(&ChatMessage::Assistant {
            content,
            reasoning_content: None,
            tool_calls: Vec::new(),
        }));
    }
    let tools = (!names.is_empty()).then(|| {
        let tools = names.iter().map(|(name, contract)| {
            let function = json!({
                "name": name, "description": contract.description, "parameters": ask.schema(&contract.input)
            });
            json!({ "type": "function", "function": function })
        });
        raw_json(&tools.collect::<Vec<_>>())
    });
    let prefix = cache_prefix(tools.as_deref(), system.as_deref(), &messages);
    let body = ChatRequestBody {
        model: ask.model,
        messages: system.into_iter().chain(messages).collect(),
        tool_choice: tools.as_ref().and_then(|_| match &request.call.choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(json!("required")),
            ToolChoice::None => Some(json!("none")),
            ToolChoice::Only(tool) => {
                Some(json!({ "type": "function", "function": { "name": names.api_name(tool) } }))
            }
        }),
        tools,
        response_format,
        max_completion_tokens: options.tokens_most.filter(|_| is_openai),
        max_tokens: options.tokens_most.filter(|_| !is_openai),
        temperature: options.temperature_milli.map(|milli| f64::from(milli) / 1_000.0),
        reasoning_effort: options.variant.as_deref(),
        prompt_cache_key: is_openai.then(|| request.session.to_string()),
        going_on: (!request.partial_text.is_empty())
            .then_some(ContinuationOptions { continue_final_message: true, add_generation_prompt: false }),
        stream: true,
        stream_options: json!({ "include_usage": true }),
    };
    let body = serde_json::to_vec(&body).expect("what is sent is plain data");
    RenderedRequest { body, prefix, decode_settings: DecodeSettings::default() }
}

fn response_format(ask: &ApiRequest<'_>, schema: &Value) -> Option<Value> {
    let (strict, schema) = match StrictMode::OpenAi.convert(schema) {
        Some(schema) => (true, schema),
        None if schema["type"] == "object" => (false, ask.schema(schema)),
        None => return None,
    };
    let format = json!({ "name": "answer", "strict": strict, "schema": schema });
    Some(json!({ "type": "json_schema", "json_schema": format }))
}

fn chat_message<'a>(ask: &ApiRequest<'a>, message: &'a Message) -> Option<ChatMessage<'a>> {
    match message {
        Message::User { parts } => Some(ChatMessage::User { content: content(ask, parts) }),
        Message::Assistant { parts, calls } => {
            let text = text_of(parts);
            let thoughts: String = parts.iter().filter_map(|part| own_reasoning(ask, part)).collect();
            let tool_calls: Vec<Value> = calls
                .iter()
                .map(|call| {
                    let function = json!({ "name": ask.names.api_name(&call.tool), "arguments": as_text(&call.arguments) });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            // Some servers reject an empty message, and to the others it means nothing.
            if text.is_empty() && tool_calls.is_empty() {
                return None;
            }
            let reasoning_content = (!thoughts.is_empty()).then_some(thoughts);
            let content = (!text.is_empty()).then_some(text);
            Some(ChatMessage::Assistant { content, reasoning_content, tool_calls })
        }
        Message::Tool { call, result, .. } => {
            Some(ChatMessage::Tool { tool_call_id: call.as_str(), content: result.text() })
        }
    }
}

/// Returns a reasoning text if it came from this provider.
fn own_reasoning<'a>(ask: &ApiRequest<'_>, part: &'a Part) -> Option<&'a str> {
    match part {
        Part::Reasoning { text, signature } => {
            signatures::untag_signature(ask.provider.name, signature.as_deref()).map(|_| text.as_str())
        }
        Part::Text { .. }
        | Part::Sealed { .. }
        | Part::Attachment { .. }
        | Part::Instruction { .. }
        | Part::Link { .. } => None,
    }
}

fn content<'a>(ask: &ApiRequest<'a>, parts: &'a [Part]) -> ChatContent<'a> {
    if parts.iter().all(|part| matches!(part, Part::Text { .. })) {
        return ChatContent::Text(text_of(parts));
    }
    let shown = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(json!({ "type": "text", "text": text })),
        Part::Instruction { text } => Some(json!({ "type": "text", "text": instruction_text(text) })),
        Part::Link { link } => Some(match link.kind {
            LinkKind::Image => {
                let mut image = json!({ "url": link.url });
                if let Some(detail) = &link.detail {
                    image["detail"] = json!(detail);
                }
                json!({ "type": "image_url", "image_url": image })
            }
            LinkKind::File => json!({ "type": "text", "text": link_note(link) }),
        }),
        Part::Attachment { attachment } => {
            Some(match render_attachment(attachment, ask.request.files, is_picture_or_pdf) {
                RenderedAttachment::Text(text) => json!({ "type": "text", "text": text }),
                RenderedAttachment::Bytes { media_type, name, base64 } => {
                    let url = RenderedAttachment::data_url(media_type, &base64);
                    if media_type.starts_with("image/") {
                        json!({ "type": "image_url", "image_url": { "url": url } })
                    } else {
                        json!({ "type": "file", "file": { "filename": name, "file_data": url } })
                    }
                }
            })
        }
        Part::Reasoning { .. } | Part::Sealed { .. } => None,
    });
    ChatContent::Parts(shown.collect())
}

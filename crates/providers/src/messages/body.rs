//! Renders requests. Cache breakpoints mark the end of the current prompt and the end of the previous one.
use crate::api_parts::attachment_parts::{
    RenderedAttachment, instruction_text, is_picture_or_pdf, render_attachment,
};
use crate::api_parts::streaming_calls::as_object;
use crate::api_parts::strict_schema::{StrictMode, schema_instructions};
use crate::api_parts::{ApiRequest, DecodeSettings, RenderedRequest, cache_prefix, raw_json, signatures};
use crate::claude::ClaudeVersion;
use outlast_vocab::effect::ToolChoice;
use outlast_vocab::message::{LinkKind, Message, Part, ToolResult};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The name of the tool whose arguments are the answer, for models that take no schema.
const ANSWER_TOOL: &str = "final_answer";

/// The minimum of thinking tokens.
const THINKING_TOKENS_MIN: u32 = 1_024;

/// The maximum of thinking tokens, so that [`ClaudeVersion::answer_tokens_default`] leaves room for the answer.
const THINKING_TOKENS_MAX: u32 = 24_000;

#[derive(Serialize)]
struct MessagesRequestBody<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Value>,
    messages: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    stream: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MessagesRole {
    User,
    Assistant,
}

/// Adjacent messages of one role, which the API takes as one message.
struct RoleMessage {
    role: MessagesRole,
    content: Vec<Value>,
}

impl RoleMessage {
    fn raw(&self) -> Box<RawValue> {
        let role = if self.role == MessagesRole::User { "user" } else { "assistant" };
        raw_json(&json!({ "role": role, "content": self.content }))
    }

    /// Sets a cache breakpoint on the last block that can have one.
    fn with_cache_breakpoint(mut self) -> Self {
        let can_be =
            |block: &&mut Value| !matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
        if let Some(block) = self.content.iter_mut().rev().find(can_be) {
            set_cache_breakpoint(block);
        }
        self
    }
}

fn set_cache_breakpoint(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// How the answer is constrained to its schema.
enum AnswerConstraint {
    Free,
    Schema(Value),
    Tool(Value),
    Instructions,
}

/// Renders the body of a request.
pub(crate) fn render(ask: &ApiRequest<'_>) -> RenderedRequest {
    let ApiRequest { request, names, .. } = *ask;
    let options = &request.call.options;
    let claude = ClaudeVersion::of(ask.model);
    // The API accepts the beginning of a reply only without thinking.
    let variant = options.variant.as_deref().filter(|_| request.partial_text.is_empty());
    let max_tokens = options.tokens_most.unwrap_or_else(|| claude.answer_tokens_default());
    let ThinkingConfig { config: thinking, effort } = thinking(claude, variant, max_tokens);
    // The API accepts no temperature with thinking.
    let temperature = options.temperature_milli.filter(|_| thinking.is_none());
    let form = if request.partial_text.is_empty() {
        answer_constraint(ask, claude, thinking.is_some())
    } else {
        // A reply with a beginning can have neither a schema nor a forced call.
        request.call.output.as_ref().map_or(AnswerConstraint::Free, |_| AnswerConstraint::Instructions)
    };
    let answer_tool = matches!(form, AnswerConstraint::Tool(_)).then(|| ANSWER_TOOL.to_owned());

    let mut tools: Vec<Value> = names
        .iter()
        .map(|(name, contract)| {
            json!({ "name": name, "description": contract.description, "input_schema": ask.schema(&contract.input) })
        })
        .collect();
    if let AnswerConstraint::Tool(schema) = &form {
        let description = "Gives the answer. Call this last, once, with the whole of it.";
        tools.push(json!({ "name": ANSWER_TOOL, "description": description, "input_schema": schema }));
    }
    let mut system = Cow::Borrowed(request.system);
    if let (Some(schema), AnswerConstraint::Instructions) = (&request.call.output, &form) {
        system = Cow::Owned(format!("{system}\n\n{}", schema_instructions(schema)));
    }
    let withheld = &request.partial_text[request.partial_text.trim_end().len()..];
    let mut said = conversation(ask);
    let rendered: Vec<Box<RawValue>> = said.iter().map(RoleMessage::raw).collect();
    let prefix = cache_prefix(
        (!tools.is_empty()).then(|| raw_json(&tools)).as_deref(),
        (!system.is_empty()).then(|| raw_json(&system)).as_deref(),
        &rendered,
    );

    let tool_choice = tool_choice(ask, &form);
    let system = (!system.is_empty()).then(|| {
        let mut block = json!({ "type": "text", "text": system });
        set_cache_breakpoint(&mut block);
        json!([block])
    });
    if system.is_none()
        && let Some(last) = tools.last_mut()
    {
        set_cache_breakpoint(last);
    }
    let mut messages = rendered;
    // The end of the current prompt, for the next call to read, and the end of the previous prompt.
    let ends: Vec<usize> =
        (0..said.len()).filter(|place| said[*place].role == MessagesRole::User).rev().take(2).collect();
    for place in ends {
        let unmarked =
            RoleMessage { role: MessagesRole::User, content: std::mem::take(&mut said[place].content) };
        messages[place] = unmarked.with_cache_breakpoint().raw();
    }
    if let Some(begun) = Some(request.partial_text.trim_end()).filter(|begun| !begun.is_empty()) {
        let content = vec![json!({ "type": "text", "text": begun })];
        messages.push(RoleMessage { role: MessagesRole::Assistant, content }.raw());
    }
    let format = match form {
        AnswerConstraint::Schema(schema) => Some(json!({ "type": "json_schema", "schema": schema })),
        AnswerConstraint::Free | AnswerConstraint::Tool(_) | AnswerConstraint::Instructions => None,
    };
    let body = MessagesRequestBody {
        model: ask.model,
        max_tokens,
        tools: (!tools.is_empty()).then_some(tools),
        system,
        messages,
        tool_choice,
        temperature: temperature.map(|milli| f64::from(milli) / 1_000.0),
        thinking,
        output_config: match (effort, format) {
            (None, None) => None,
            (Some(effort), None) => Some(json!({ "effort": effort })),
            (None, Some(format)) => Some(json!({ "format": format })),
            (Some(effort), Some(format)) => Some(json!({ "effort": effort, "format": format })),
        },
        stream: true,
    };
    let body = serde_json::to_vec(&body).expect("what is sent is plain data");
    RenderedRequest {
        body,
        prefix,
        decode_settings: DecodeSettings { withheld: withheld.to_owned(), answer_tool },
    }
}

/// The thinking configuration and the effort level.
#[derive(Default)]
struct ThinkingConfig<'a> {
    config: Option<Value>,
    effort: Option<&'a str>,
}

/// Returns the thinking configuration for a variant such as `high` or `8000` (thinking tokens), within the token limit
/// of the reply.
///
/// Thinking tokens count as tokens of the reply, as in every API. At least a quarter is left for the answer. If too few
/// tokens are left, thinking is off.
fn thinking(claude: ClaudeVersion, variant: Option<&str>, most: u32) -> ThinkingConfig<'_> {
    let Some(variant) = variant else { return ThinkingConfig::default() };
    if matches!(variant, "none" | "off") {
        return ThinkingConfig::default();
    }
    if claude.has_effort_levels() {
        let mut adaptive = json!({ "type": "adaptive" });
        if claude.hides_reasoning() {
            adaptive["display"] = json!("summarized");
        }
        // A number of tokens is not an effort level; the model decides.
        let effort = Some(variant).filter(|variant| variant.parse::<u32>().is_err());
        return ThinkingConfig { config: Some(adaptive), effort };
    }
    let tokens = variant.parse().unwrap_or(match variant {
        "minimal" | "low" => 2_048,
        "medium" => 8_192,
        _ => 24_000,
    });
    let tokens = tokens.clamp(THINKING_TOKENS_MIN, THINKING_TOKENS_MAX).min(most - most / 4);
    if tokens < THINKING_TOKENS_MIN {
        return ThinkingConfig::default();
    }
    ThinkingConfig { config: Some(json!({ "type": "enabled", "budget_tokens": tokens })), effort: None }
}

fn answer_constraint(ask: &ApiRequest<'_>, claude: ClaudeVersion, thinks: bool) -> AnswerConstraint {
    let Some(schema) = &ask.request.call.output else { return AnswerConstraint::Free };
    match StrictMode::Anthropic.convert(schema) {
        Some(strict) if claude.supports_schema() => AnswerConstraint::Schema(strict),
        // A thinking model cannot be forced to call a tool.
        _ if schema["type"] == "object" && !thinks => AnswerConstraint::Tool(ask.schema(schema)),
        _ => AnswerConstraint::Instructions,
    }
}

fn tool_choice(ask: &ApiRequest<'_>, form: &AnswerConstraint) -> Option<Value> {
    if ask.names.is_empty() && !matches!(form, AnswerConstraint::Tool(_)) {
        return None;
    }
    match (&ask.request.call.choice, form) {
        (ToolChoice::Auto, AnswerConstraint::Tool(_)) if ask.names.is_empty() => {
            Some(json!({ "type": "tool", "name": ANSWER_TOOL }))
        }
        (ToolChoice::None, AnswerConstraint::Tool(_)) => Some(json!({ "type": "tool", "name": ANSWER_TOOL })),
        (ToolChoice::Auto, AnswerConstraint::Tool(_)) | (ToolChoice::Required, _) => {
            Some(json!({ "type": "any" }))
        }
        (ToolChoice::Only(tool), _) => Some(json!({ "type": "tool", "name": ask.names.api_name(tool) })),
        (ToolChoice::None, _) => Some(json!({ "type": "none" })),
        (ToolChoice::Auto, _) => None,
    }
}

/// Renders the conversation. Adjacent messages of one role are merged.
fn conversation(ask: &ApiRequest<'_>) -> Vec<RoleMessage> {
    let mut said: Vec<RoleMessage> = Vec::new();
    for message in ask.request.messages() {
        let (role, mut content) = match message {
            Message::User { parts } => {
                (MessagesRole::User, parts.iter().filter_map(|part| user_block(ask, part)).collect())
            }
            Message::Assistant { parts, calls } => {
                let mut content: Vec<Value> =
                    parts.iter().filter_map(|part| reply_block(ask, part)).collect();
                content.extend(calls.iter().map(|call| {
                    let name = ask.names.api_name(&call.tool);
                    json!({ "type": "tool_use", "id": call.id, "name": name, "input": as_object(&call.arguments) })
                }));
                (MessagesRole::Assistant, content)
            }
            Message::Tool { call, result, .. } => {
                let mut block =
                    json!({ "type": "tool_result", "tool_use_id": call, "content": result.text() });
                if matches!(result, ToolResult::Err(_)) {
                    block["is_error"] = json!(true);
                }
                (MessagesRole::User, vec![block])
            }
        };
        match said.last_mut() {
            Some(last) if last.role == role => last.content.append(&mut content),
            _ if content.is_empty() => {}
            _ => said.push(RoleMessage { role, content }),
        }
    }
    said
}

fn text_block(text: &str) -> Option<Value> {
    // The API rejects blank text.
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

fn user_block(ask: &ApiRequest<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_block(text),
        Part::Instruction { text } => text_block(&instruction_text(text)),
        Part::Link { link } => {
            let source = json!({ "type": "url", "url": link.url });
            Some(match link.kind {
                LinkKind::Image => json!({ "type": "image", "source": source }),
                LinkKind::File => json!({ "type": "document", "source": source, "title": link.name }),
            })
        }
        Part::Attachment { attachment } => {
            match render_attachment(attachment, ask.request.files, is_picture_or_pdf) {
                RenderedAttachment::Text(text) => text_block(&text),
                RenderedAttachment::Bytes { media_type, name, base64 } => {
                    let source = json!({ "type": "base64", "media_type": media_type, "data": base64 });
                    Some(if media_type.starts_with("image/") {
                        json!({ "type": "image", "source": source })
                    } else {
                        json!({ "type": "document", "source": source, "title": name })
                    })
                }
            }
        }
        Part::Reasoning { .. } | Part::Sealed { .. } => None,
    }
}

fn reply_block(ask: &ApiRequest<'_>, part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_block(text),
        Part::Reasoning { text, signature } => {
            let signature = signatures::untag_signature(ask.provider.name, signature.as_deref())?;
            Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        Part::Sealed { provider, data } => (provider == ask.provider.name).then(|| data.clone()),
        Part::Attachment { .. } | Part::Instruction { .. } | Part::Link { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variant: &str, most: u32, tokens: Option<u32>) {
        let how = thinking(ClaudeVersion::of("claude-sonnet-4-5"), Some(variant), most).config;
        assert_eq!(how, tokens.map(|tokens| json!({ "type": "enabled", "budget_tokens": tokens })));
    }

    #[test]
    fn thinking_budget_fits_inside_max_tokens() {
        check("high", 32_000, Some(24_000));
        check("high", 8_192, Some(6_144));
        check("low", 8_192, Some(2_048));
        check("low", 1_400, Some(1_050));
        check("high", 1_000, None);
    }
}

//! Conversation content in the format of the semantic conventions. It is only exported if enabled.
use outlast_vocab::effect::{Reply, StopReason};
use outlast_vocab::limits::TELEMETRY_CONTENT_BYTES;
use outlast_vocab::message::{CallArguments, Part};
use serde_json::{Value, json};

/// Whether spans contain the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentExport {
    /// Content is left out.
    #[default]
    Omitted,
    /// Inputs, replies, arguments and results are included.
    Included,
}

/// Formats an input.
pub(crate) fn of_input(parts: &[Part]) -> String {
    truncated_json(&json!([{ "role": "user", "parts": of_parts(parts) }]))
}

/// Formats the answer of a turn.
pub(crate) fn of_answer(said: &str) -> String {
    truncated_json(&json!([{ "role": "assistant", "parts": [{ "type": "text", "content": said }] }]))
}

/// Formats a reply.
pub(crate) fn of_reply(reply: &Reply) -> String {
    let mut parts = of_parts(&reply.parts);
    parts.extend(reply.calls.iter().map(|call| {
        let arguments = match &call.arguments {
            CallArguments::Json(value) => value.clone(),
            CallArguments::Broken(text) => Value::String(text.clone()),
        };
        json!({ "type": "tool_call", "id": call.id.as_str(), "name": call.tool.as_str(), "arguments": arguments })
    }));
    let finish_reason = finish_reason(reply.stop);
    truncated_json(&json!([{ "role": "assistant", "parts": parts, "finish_reason": finish_reason }]))
}

/// Formats arguments or a result.
pub(crate) fn of_value(value: &Value) -> String {
    truncated_json(value)
}

/// Returns the finish reason of the conventions.
pub(crate) fn finish_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::End => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refusal => "content_filter",
    }
}

fn of_parts(parts: &[Part]) -> Vec<Value> {
    let of_part = |part: &Part| match part {
        Part::Text { text } => Some(json!({ "type": "text", "content": text })),
        Part::Instruction { text } => Some(json!({ "type": "instruction", "content": text })),
        Part::Link { link } => Some(json!({ "type": "uri", "modality": link.kind.name(), "uri": link.url })),
        Part::Reasoning { text, .. } => Some(json!({ "type": "reasoning", "content": text })),
        Part::Attachment { attachment } => Some(json!({
            "type": "file", "mime_type": attachment.media_type.as_str(), "file_id": attachment.id.to_string()
        })),
        // Only its provider can read it.
        Part::Sealed { .. } => None,
    };
    parts.iter().filter_map(of_part).collect()
}

fn truncated_json(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > TELEMETRY_CONTENT_BYTES {
        text.truncate(text.floor_char_boundary(TELEMETRY_CONTENT_BYTES));
        text.push('…');
    }
    text
}

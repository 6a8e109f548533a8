//! A response as a JSON object: the parameters of the request, and the output so far.
use super::error::TURN_ERROR;
use crate::response_segment::{OWN_CALL, ResponseSegment};
use crate::segment_answer::{AnswerItem, SegmentAnswer};
use crate::segment_event::{SegmentEnd, SegmentOutcome};
use crate::segment_projector::{PendingClientCall, ProjectedInput};
use crate::segment_reader::RecordedSegment;
use outlast_vocab::effect::Usage;
use outlast_vocab::message::{Link, LinkKind, Message, Part, text_of};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Failure, Kind, Millis, SessionId};
use serde_json::{Map, Value, json};

/// The prefix of response ids.
pub(crate) const RESPONSE: &str = "resp_";
/// The prefix of conversation ids.
pub(crate) const CONVERSATION: &str = "conv_";

/// Returns the conversation id of a session.
pub(crate) fn conversation_id(session: SessionId) -> String {
    format!("{CONVERSATION}{:032x}", session.to_u128())
}

/// The fields of a response that do not depend on its outcome.
#[derive(Clone)]
pub(crate) struct OpenAiResponse {
    pub(crate) segment: ResponseSegment,
    pub(crate) session: SessionId,
    pub(crate) began: Millis,
    /// The parameters of the request, from the note of the turn.
    pub(crate) note: Map<String, Value>,
}

impl OpenAiResponse {
    /// Reads the fields from the journal.
    pub(crate) fn of(segment: ResponseSegment, past: &RecordedSegment) -> Self {
        let mut note = match &past.projector.input().note {
            Some(Value::Object(note)) => note.clone(),
            _ => Map::new(),
        };
        if let Some(package) = &past.package {
            note.entry("model").or_insert_with(|| json!(package.agent));
        }
        Self { segment, session: past.session, began: past.projector.began(), note }
    }

    /// Returns the response.
    pub(crate) fn response(&self, answer: &SegmentAnswer) -> Value {
        let said = |name: &str| self.note.get(name).cloned().unwrap_or(Value::Null);
        let or = |name: &str, usual: Value| self.note.get(name).cloned().unwrap_or(usual);
        let over = answer.end.as_ref();
        let previous = match self.segment.number {
            0 => said("previous_response_id"),
            number => json!(ResponseSegment { number: number - 1, ..self.segment }.id(RESPONSE)),
        };
        let mut response = json!({
            "id": self.segment.id(RESPONSE),
            "object": "response",
            "created_at": seconds(self.began),
            "status": status(over),
            "background": or("background", json!(false)),
            "error": error(over),
            "incomplete_details": incomplete_reason(over),
            "instructions": said("instructions"),
            "max_output_tokens": null,
            "metadata": or("metadata", json!({})),
            "model": said("model"),
            "output": self.output(answer),
            "parallel_tool_calls": true,
            "previous_response_id": previous,
            "conversation": { "id": conversation_id(self.session) },
            "store": true,
            "temperature": null,
            "text": or("text", json!({ "format": { "type": "text" } })),
            "tool_choice": "auto",
            "tools": or("tools", json!([])),
            "top_p": null,
            "truncation": "auto",
            "usage": over.map(|over| usage(&over.usage)),
        });
        if let Some(over) =
            over.filter(|over| matches!(over.outcome, SegmentOutcome::Answered | SegmentOutcome::ClientCalls))
        {
            response["completed_at"] = json!(seconds(over.at));
        }
        response
    }

    /// Returns the id of an item.
    pub(crate) fn item_id(&self, kind: &str, item: usize) -> String {
        let ResponseSegment { turn, number } = self.segment;
        format!("{kind}_{:032x}_{number}_{item}", turn.to_u128())
    }

    fn output(&self, answer: &SegmentAnswer) -> Value {
        answer.items.iter().enumerate().map(|(index, item)| self.item(index, item)).collect()
    }

    /// Returns an item of the output.
    pub(crate) fn item(&self, index: usize, item: &AnswerItem) -> Value {
        match item {
            AnswerItem::Text { text, is_complete: is_whole } => json!({
                "id": self.item_id("msg", index),
                "type": "message",
                "role": "assistant",
                "status": if *is_whole { "completed" } else { "in_progress" },
                "content": if text.is_empty() && !is_whole { json!([]) } else { json!([part(text)]) },
            }),
            AnswerItem::Call(call) => json!({
                "id": self.item_id("fc", index),
                "type": "function_call",
                "call_id": call.id.to_string(),
                "name": call.tool,
                "arguments": call.arguments.to_string(),
                "status": "completed",
            }),
            AnswerItem::Tool { asked, result } => {
                let (output, failure) = match result {
                    Some(outlast_vocab::message::ToolResult::Err(failure)) => (None, Some(failure)),
                    Some(result) => (Some(result.text().into_owned()), None),
                    None => (None, None),
                };
                let status = match (result, failure) {
                    (None, _) => "in_progress",
                    (Some(_), Some(_)) => "failed",
                    (Some(_), None) => "completed",
                };
                json!({
                    "id": self.item_id(OWN_CALL, index),
                    "type": "mcp_call",
                    "server_label": "outlast",
                    "name": asked.tool,
                    "arguments": asked.arguments.to_string(),
                    "output": output,
                    "error": failure.map(tool_error),
                    "status": status,
                })
            }
        }
    }
}

fn tool_error(failure: &Failure) -> Value {
    json!({ "type": "mcp_tool_execution_error", "content": [{ "type": "text", "text": failure.to_string() }] })
}

/// Returns the content part for a text.
pub(crate) fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// Converts a time to whole seconds since 1970.
pub(crate) fn seconds(at: Millis) -> u64 {
    at.0 / 1_000
}

fn status(over: Option<&SegmentEnd>) -> &'static str {
    match over.map(|over| &over.outcome) {
        None => "in_progress",
        Some(SegmentOutcome::Answered | SegmentOutcome::ClientCalls) => "completed",
        Some(SegmentOutcome::Refused | SegmentOutcome::Length) => "incomplete",
        Some(SegmentOutcome::Cancelled(_)) => "cancelled",
        Some(SegmentOutcome::Failed(_)) => "failed",
    }
}

fn error(over: Option<&SegmentEnd>) -> Value {
    match over.map(|over| &over.outcome) {
        Some(SegmentOutcome::Failed(failure) | SegmentOutcome::Cancelled(failure)) => {
            json!({ "type": TURN_ERROR, "code": failure.code, "message": failure.detail })
        }
        _ => Value::Null,
    }
}

fn incomplete_reason(over: Option<&SegmentEnd>) -> Value {
    match over.map(|over| &over.outcome) {
        Some(SegmentOutcome::Refused) => json!({ "reason": "content_filter" }),
        Some(SegmentOutcome::Length) => json!({ "reason": "max_output_tokens" }),
        _ => Value::Null,
    }
}

fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, cache_write, output, reasoning } = *usage;
    let (read, said) = (input + cache_read + cache_write, output + reasoning);
    json!({
        "input_tokens": read,
        "input_tokens_details": { "cached_tokens": cache_read, "cache_write_tokens": cache_write },
        "output_tokens": said,
        "output_tokens_details": { "reasoning_tokens": reasoning },
        "total_tokens": read + said,
    })
}

/// Returns the input items of a segment.
pub(crate) fn input_items(asked: &OpenAiResponse, past: &RecordedSegment) -> Vec<Value> {
    let before = usize::try_from(asked.segment.number).unwrap_or(usize::MAX);
    if before > 0 {
        let stop = past.projector.stops().get(before - 1);
        let calls = stop.map(|stop| stop.calls.as_slice()).unwrap_or_default();
        let output = |(index, stopped): (usize, &PendingClientCall)| output_item(asked, index, stopped);
        return calls.iter().enumerate().map(output).collect();
    }
    let ProjectedInput { before, parts, .. } = past.projector.input();
    let mut items = Vec::new();
    for message in before {
        message_items(asked, message, &mut items);
    }
    let input = Message::User { parts: parts.clone() };
    message_items(asked, &input, &mut items);
    items
}

fn output_item(asked: &OpenAiResponse, index: usize, stopped: &PendingClientCall) -> Value {
    let output = match &stopped.resolution {
        Some(Resolution::Ok(Value::String(text))) => text.clone(),
        Some(Resolution::Ok(value)) => value.to_string(),
        Some(Resolution::Err(failure)) => failure.to_string(),
        Some(Resolution::Timeout) => {
            Failure::new(Kind::WaitTimedOut, "it was not completed before its deadline").to_string()
        }
        Some(Resolution::Cancelled) | None => String::new(),
    };
    function_output(&asked.item_id("in", index), &stopped.call.id.to_string(), &output)
}

fn function_output(id: &str, call: &str, output: &str) -> Value {
    json!({ "id": id, "type": "function_call_output", "call_id": call, "output": output, "status": "completed" })
}

fn input_part(part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => Some(json!({ "type": "input_text", "text": text })),
        Part::Attachment { attachment } => {
            Some(json!({ "type": "input_file", "file_id": attachment.id, "filename": attachment.name }))
        }
        Part::Link { link: Link { url, kind: LinkKind::Image, detail, .. } } => {
            Some(json!({ "type": "input_image", "image_url": url, "detail": detail }))
        }
        Part::Link { link: Link { url, kind: LinkKind::File, name, .. } } => {
            Some(json!({ "type": "input_file", "file_url": url, "filename": name }))
        }
        Part::Instruction { .. } | Part::Reasoning { .. } | Part::Sealed { .. } => None,
    }
}

/// Converts a message of the conversation to items.
fn message_items(asked: &OpenAiResponse, message: &Message, items: &mut Vec<Value>) {
    let id = |items: &Vec<Value>| asked.item_id("in", items.len());
    match message {
        Message::User { parts } => items.push(json!({
            "id": id(items), "type": "message", "role": "user", "status": "completed",
            "content": parts.iter().filter_map(input_part).collect::<Vec<Value>>(),
        })),
        Message::Assistant { parts, calls } => {
            let text = text_of(parts);
            if !text.is_empty() {
                items.push(json!({
                    "id": id(items), "type": "message", "role": "assistant", "status": "completed",
                    "content": [part(&text)],
                }));
            }
            for call in calls {
                let arguments = match &call.arguments {
                    outlast_vocab::message::CallArguments::Json(value) => value.to_string(),
                    outlast_vocab::message::CallArguments::Broken(text) => text.clone(),
                };
                items.push(json!({
                    "id": id(items), "type": "function_call", "call_id": call.id, "name": call.tool,
                    "arguments": arguments, "status": "completed",
                }));
            }
        }
        Message::Tool { call, result, .. } => {
            items.push(function_output(&id(items), call.as_str(), &result.text()));
        }
    }
}

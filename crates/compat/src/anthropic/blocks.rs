//! Answers in Anthropic's format: content blocks, as a whole or as stream events.
use super::error;
use crate::compat_error::{CompatError, CompatResult, ErrorContents};
use crate::response_segment::ResponseSegment;
use crate::segment_answer::{AnswerItem, SegmentAnswer};
use crate::segment_event::{ClientCall, SegmentEvent, SegmentEventKind, SegmentOutcome};
use crate::stream::{StreamFormat, StreamLine};
use outlast_vocab::TurnId;
use outlast_vocab::effect::Usage;
use serde_json::{Value, json};

/// The prefix of message ids.
const MESSAGE: &str = "msg_";

/// The fields of a message that do not depend on its outcome.
pub(super) struct AnthropicMessage {
    pub(super) segment: ResponseSegment,
    pub(super) model: String,
}

impl AnthropicMessage {
    /// Returns a message with this content.
    fn message(&self, content: &[Value], reason: Option<&str>, used: &Usage) -> Value {
        json!({
            "id": self.segment.id(MESSAGE), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": reason, "stop_sequence": null, "usage": usage(used),
        })
    }

    /// Returns the complete message.
    pub(super) fn whole(&self, answer: &SegmentAnswer) -> CompatResult<Value> {
        let Some(over) = &answer.end else { return Ok(Value::Null) };
        let block = |item: &AnswerItem| match item {
            AnswerItem::Text { text, .. } if !text.is_empty() => {
                Some(json!({ "type": "text", "text": text }))
            }
            AnswerItem::Call(call) => Some(tool_use(call, &call.arguments)),
            // Calls of the agent's own tools are not shown to the client.
            AnswerItem::Text { .. } | AnswerItem::Tool { .. } => None,
        };
        let content: Vec<Value> = answer.items.iter().filter_map(block).collect();
        Ok(self.message(&content, Some(reason(&over.outcome, self.segment.turn)?), &over.usage))
    }
}

fn tool_use(call: &ClientCall, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": call.id.to_string(), "name": call.tool, "input": input })
}

fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, cache_write, output, reasoning } = *usage;
    json!({
        "input_tokens": input, "cache_creation_input_tokens": cache_write, "cache_read_input_tokens": cache_read,
        "output_tokens": output + reasoning,
    })
}

/// Returns the stop reason of a message. Fails if the API has none for this end.
fn reason(how: &SegmentOutcome, turn: TurnId) -> CompatResult<&'static str> {
    match how {
        SegmentOutcome::Answered => Ok("end_turn"),
        SegmentOutcome::ClientCalls => Ok("tool_use"),
        SegmentOutcome::Refused => Ok("refusal"),
        SegmentOutcome::Length => Ok("max_tokens"),
        SegmentOutcome::Cancelled(failure) | SegmentOutcome::Failed(failure) => {
            Err(CompatError::ended_turn(turn, failure))
        }
    }
}

/// Converts the events of a segment to stream events.
pub(super) struct BlockStream {
    head: AnthropicMessage,
    /// The index of the current or next block.
    index: usize,
}

impl BlockStream {
    pub(super) fn new(head: AnthropicMessage) -> Self {
        Self { head, index: 0 }
    }

    fn start(&self, block: &Value) -> StreamLine {
        let data = json!({ "type": "content_block_start", "index": self.index, "content_block": block });
        StreamLine::named("content_block_start", &data)
    }

    fn delta(&self, delta: &Value) -> StreamLine {
        let data = json!({ "type": "content_block_delta", "index": self.index, "delta": delta });
        StreamLine::named("content_block_delta", &data)
    }

    fn stop(&mut self) -> StreamLine {
        let data = json!({ "type": "content_block_stop", "index": self.index });
        self.index += 1;
        StreamLine::named("content_block_stop", &data)
    }
}

impl StreamFormat for BlockStream {
    fn opening(&mut self) -> CompatResult<Vec<StreamLine>> {
        let message = self.head.message(&[], None, &Usage::default());
        Ok(vec![StreamLine::named("message_start", &json!({ "type": "message_start", "message": message }))])
    }

    fn convert(&mut self, event: &SegmentEvent) -> CompatResult<Vec<StreamLine>> {
        Ok(match &event.kind {
            SegmentEventKind::TextStarted => vec![self.start(&json!({ "type": "text", "text": "" }))],
            SegmentEventKind::Text(piece) => {
                vec![self.delta(&json!({ "type": "text_delta", "text": piece }))]
            }
            SegmentEventKind::TextCompleted(_) => vec![self.stop()],
            SegmentEventKind::Call(call) => {
                let start = self.start(&tool_use(call, &json!({})));
                let delta = json!({ "type": "input_json_delta", "partial_json": call.arguments.to_string() });
                vec![start, self.delta(&delta), self.stop()]
            }
            SegmentEventKind::Ended(over) => {
                let delta = json!({ "stop_reason": reason(&over.outcome, self.head.segment.turn)?, "stop_sequence": null });
                let end = json!({ "type": "message_delta", "delta": delta, "usage": usage(&over.usage) });
                let stop = StreamLine::named("message_stop", &json!({ "type": "message_stop" }));
                vec![StreamLine::named("message_delta", &end), stop]
            }
            SegmentEventKind::ToolStarted(_) | SegmentEventKind::ToolFinished(_) => Vec::new(),
        })
    }

    fn failure(&mut self, contents: &ErrorContents<'_>) -> StreamLine {
        StreamLine::named("error", &error::body(contents))
    }
}

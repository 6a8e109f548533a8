//! Answers in Anthropic's format: content blocks, as a whole or as stream events.
use super::error;
use crate::wire::gather::{Gathered, Item};
use crate::wire::leg::Leg;
use crate::wire::refusal::{Answer, Complaint, Refusal};
use crate::wire::stream::{Line, Voice};
use crate::wire::told::{ClientCall, How, Told, What};
use outlast_vocab::TurnId;
use outlast_vocab::effect::Usage;
use serde_json::{Value, json};

/// The prefix of message ids.
const MESSAGE: &str = "msg_";

/// The fields of a message that do not depend on its outcome.
pub(super) struct Head {
    pub(super) leg: Leg,
    pub(super) model: String,
}

impl Head {
    /// Returns a message with this content.
    fn message(&self, content: &[Value], reason: Option<&str>, used: &Usage) -> Value {
        json!({
            "id": self.leg.id(MESSAGE), "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": reason, "stop_sequence": null, "usage": usage(used),
        })
    }

    /// Returns the complete message.
    pub(super) fn whole(&self, gathered: &Gathered) -> Answer<Value> {
        let Some(over) = &gathered.over else { return Ok(Value::Null) };
        let block = |item: &Item| match item {
            Item::Text { text, .. } if !text.is_empty() => {
                Some(json!({ "type": "text", "text": text, "citations": null }))
            }
            Item::Call(call) => Some(tool_use(call, &call.arguments)),
            // Calls of the agent's own tools are not shown to the client.
            Item::Text { .. } | Item::Tool { .. } => None,
        };
        let content: Vec<Value> = gathered.items.iter().filter_map(block).collect();
        Ok(self.message(&content, Some(reason(&over.how, self.leg.turn)?), &over.usage))
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
fn reason(how: &How, turn: TurnId) -> Answer<&'static str> {
    match how {
        How::Answered => Ok("end_turn"),
        How::ForClient => Ok("tool_use"),
        How::Refused => Ok("refusal"),
        How::Length => Ok("max_tokens"),
        How::Cancelled => Err(Refusal::cancelled(turn)),
        How::Failed(failure) => Err(Refusal::failed(turn, failure)),
    }
}

/// Converts the events of a segment to stream events.
pub(super) struct Blocks {
    head: Head,
    /// The index of the current or next block.
    index: usize,
}

impl Blocks {
    pub(super) fn new(head: Head) -> Self {
        Self { head, index: 0 }
    }

    fn start(&self, block: &Value) -> Line {
        let data = json!({ "type": "content_block_start", "index": self.index, "content_block": block });
        Line::named("content_block_start", &data)
    }

    fn delta(&self, delta: &Value) -> Line {
        let data = json!({ "type": "content_block_delta", "index": self.index, "delta": delta });
        Line::named("content_block_delta", &data)
    }

    fn stop(&mut self) -> Line {
        let data = json!({ "type": "content_block_stop", "index": self.index });
        self.index += 1;
        Line::named("content_block_stop", &data)
    }
}

impl Voice for Blocks {
    fn begins(&mut self) -> Answer<Vec<Line>> {
        let message = self.head.message(&[], None, &Usage::default());
        Ok(vec![Line::named("message_start", &json!({ "type": "message_start", "message": message }))])
    }

    fn says(&mut self, told: &Told) -> Answer<Vec<Line>> {
        Ok(match &told.what {
            What::TextBegins => vec![self.start(&json!({ "type": "text", "text": "" }))],
            What::Text(piece) => vec![self.delta(&json!({ "type": "text_delta", "text": piece }))],
            What::TextEnds(_) => vec![self.stop()],
            What::Call(call) => {
                let start = self.start(&tool_use(call, &json!({})));
                let delta = json!({ "type": "input_json_delta", "partial_json": call.arguments.to_string() });
                vec![start, self.delta(&delta), self.stop()]
            }
            What::Over(over) => {
                let delta =
                    json!({ "stop_reason": reason(&over.how, self.head.leg.turn)?, "stop_sequence": null });
                let end = json!({ "type": "message_delta", "delta": delta, "usage": usage(&over.usage) });
                let stop = Line::named("message_stop", &json!({ "type": "message_stop" }));
                vec![Line::named("message_delta", &end), stop]
            }
            What::ToolBegins(_) | What::ToolEnds(_) => Vec::new(),
        })
    }

    fn fails(&mut self, complaint: &Complaint<'_>) -> Line {
        Line::named("error", &error::body(complaint))
    }
}

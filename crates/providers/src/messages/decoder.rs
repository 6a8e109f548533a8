//! Decodes replies: blocks that start, grow and stop between the start and the stop of a message.
use crate::failure::{Provider, Refused};
use crate::wire::calls::Calls;
use crate::wire::names::Names;
use crate::wire::{Answering, Decode, Pieces, proof, say, think};
use outlast_vocab::Error;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::stream::ModelEvent;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: u64,
        content_block: Value,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: Ending,
        usage: Option<Counted>,
    },
    MessageStop,
    Ping,
    Error {
        error: Refused,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<Counted>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Arguments { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Ending {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Counted {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(alias = "reasoning_tokens")]
    thinking_tokens: Option<u64>,
}

/// A block that has not stopped yet.
enum Block {
    Text,
    Thinking { signature: String },
    Call { given: Value },
    Other,
}

/// The state of decoding a streamed reply.
pub(crate) struct Messages<'a> {
    provider: Provider<'a>,
    names: Names<'a>,
    answer_tool: Option<String>,
    withheld: String,
    blocks: BTreeMap<u64, Block>,
    calls: Calls,
    usage: Usage,
    stop: Option<StopReason>,
}

impl<'a> Messages<'a> {
    /// Creates the state before the first event.
    pub(crate) fn new(provider: Provider<'a>, names: Names<'a>, answering: Answering) -> Self {
        Self {
            provider,
            names,
            answer_tool: answering.answer_tool,
            withheld: answering.withheld,
            blocks: BTreeMap::new(),
            calls: Calls::default(),
            usage: Usage::default(),
            stop: None,
        }
    }

    fn start(&mut self, index: u64, block: Value, out: &mut Pieces) {
        let text = |key: &str| block[key].as_str().unwrap_or_default();
        let begun = match block["type"].as_str() {
            Some("text") => {
                self.say(text("text"), out);
                Block::Text
            }
            Some("thinking") => {
                think(text("thinking"), out);
                Block::Thinking { signature: text("signature").to_owned() }
            }
            Some("redacted_thinking") => {
                let provider = self.provider.name.to_owned();
                out.push_back(ModelEvent::Sealed { provider, data: block });
                Block::Other
            }
            Some("tool_use") => {
                let call = self.calls.at(index);
                (call.id, call.name) = (text("id").to_owned(), text("name").to_owned());
                Block::Call { given: block["input"].clone() }
            }
            _ => Block::Other,
        };
        self.blocks.insert(index, begun);
        if out.is_empty() {
            out.push_back(ModelEvent::Working);
        }
    }

    fn grow(&mut self, index: u64, delta: Delta, out: &mut Pieces) {
        match (self.blocks.get_mut(&index), delta) {
            (Some(Block::Text), Delta::Text { text }) => self.say(&text, out),
            (Some(Block::Thinking { .. }), Delta::Thinking { thinking }) => think(&thinking, out),
            (Some(Block::Thinking { signature }), Delta::Signature { signature: more }) => {
                signature.push_str(&more);
            }
            (Some(Block::Call { .. }), Delta::Arguments { partial_json }) => {
                self.calls.at(index).arguments.push_str(&partial_json);
            }
            _ => {}
        }
        if out.is_empty() {
            out.push_back(ModelEvent::Working);
        }
    }

    fn stop(&mut self, index: u64, out: &mut Pieces) {
        match self.blocks.remove(&index) {
            Some(Block::Thinking { signature }) if !signature.is_empty() => {
                let signature = Some(proof::seal(self.provider.name, &signature));
                out.push_back(ModelEvent::Reasoning { text: String::new(), signature });
            }
            // Arguments that are not streamed are complete at the start.
            Some(Block::Call { given }) => {
                let call = self.calls.at(index);
                if call.arguments.is_empty() && given.as_object().is_some_and(|given| !given.is_empty()) {
                    call.arguments = given.to_string();
                }
            }
            _ => {}
        }
        if out.is_empty() {
            out.push_back(ModelEvent::Working);
        }
    }

    /// Emits text without the white space that was withheld from the request and that the model repeats.
    fn say(&mut self, text: &str, out: &mut Pieces) {
        let mut text = Cow::Borrowed(text);
        while let (Some(known), Some(said)) = (self.withheld.chars().next(), text.chars().next()) {
            if known != said {
                self.withheld.clear();
                break;
            }
            self.withheld.remove(0);
            text = Cow::Owned(text[said.len_utf8()..].to_owned());
        }
        say(&text, out);
    }

    fn count(&mut self, tokens: &Counted) {
        let Usage { input, cache_read, cache_write, output, reasoning } = &mut self.usage;
        let counted = [
            (input, tokens.input_tokens),
            (cache_read, tokens.cache_read_input_tokens),
            (cache_write, tokens.cache_creation_input_tokens),
            (output, tokens.output_tokens),
        ];
        for (bucket, count) in counted {
            *bucket = count.unwrap_or(*bucket);
        }
        if let Some(thought) =
            tokens.output_tokens_details.as_ref().and_then(|details| details.thinking_tokens)
        {
            *reasoning = thought;
        }
    }

    fn end(&mut self, out: &mut Pieces) {
        // Without a stop reason the reply may be incomplete.
        let Some(mut stop) = self.stop else { return };
        if let Some(answer) = self.answer_tool.as_deref().and_then(|tool| self.calls.take_answer(tool)) {
            say(&answer, out);
            stop = if stop == StopReason::ToolUse { StopReason::End } else { stop };
        }
        let stop = self.calls.finish(stop, &self.names, out);
        let usage = Usage { output: self.usage.output.saturating_sub(self.usage.reasoning), ..self.usage };
        out.push_back(ModelEvent::Usage(usage));
        out.push_back(ModelEvent::End(stop));
    }
}

fn stop(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        _ => StopReason::End,
    }
}

impl Decode for Messages<'_> {
    fn event(&mut self, _: Option<&str>, data: &str, out: &mut Pieces) -> Result<(), Error> {
        let event: Event = serde_json::from_str(data).map_err(|cause| self.provider.garbled(data, &cause))?;
        match event {
            Event::MessageStart { message } => {
                if let Some(tokens) = message.usage {
                    self.count(&tokens);
                }
            }
            Event::ContentBlockStart { index, content_block } => self.start(index, content_block, out),
            Event::ContentBlockDelta { index, delta } => self.grow(index, delta, out),
            Event::ContentBlockStop { index } => self.stop(index, out),
            Event::MessageDelta { delta, usage } => {
                if let Some(tokens) = usage {
                    self.count(&tokens);
                }
                self.stop = delta.stop_reason.map(|reason| stop(&reason)).or(self.stop);
            }
            Event::MessageStop => self.end(out),
            Event::Error { error } => return Err(self.provider.failed_midway(&error)),
            Event::Ping | Event::Unknown => {}
        }
        if out.is_empty() {
            out.push_back(ModelEvent::Alive);
        }
        Ok(())
    }

    fn close(&mut self, _: &mut Pieces) {}
}

//! Decodes replies: blocks that start, grow and stop between the start and the stop of a message.
use crate::api_error::{ApiErrorBody, ProviderLabel};
use crate::api_parts::streaming_calls::StreamingCalls;
use crate::api_parts::tool_names::ApiToolNames;
use crate::api_parts::{DecodeSettings, PendingEvents, ReplyDecoder, push_reasoning, push_text, signatures};
use outlast_vocab::Error;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::stream::ModelEvent;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum MessagesEvent {
    MessageStart {
        message: MessageStartBody,
    },
    ContentBlockStart {
        index: u64,
        content_block: Value,
    },
    ContentBlockDelta {
        index: u64,
        delta: BlockDelta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: MessageEnd,
        usage: Option<AnthropicUsage>,
    },
    MessageStop,
    Ping,
    Error {
        error: ApiErrorBody,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct MessageStartBody {
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum BlockDelta {
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
struct MessageEnd {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputTokenDetails>,
}

#[derive(Deserialize)]
struct OutputTokenDetails {
    #[serde(alias = "reasoning_tokens")]
    thinking_tokens: Option<u64>,
}

/// A block that has not stopped yet.
enum OpenBlock {
    Text,
    Thinking { signature: String },
    ToolCall { given: Value },
    Other,
}

/// The state of decoding a streamed reply.
pub(crate) struct MessagesDecoder<'a> {
    provider: ProviderLabel<'a>,
    names: ApiToolNames<'a>,
    answer_tool: Option<String>,
    withheld: String,
    blocks: BTreeMap<u64, OpenBlock>,
    calls: StreamingCalls,
    usage: Usage,
    stop: Option<StopReason>,
}

impl<'a> MessagesDecoder<'a> {
    /// Creates the state before the first event.
    pub(crate) fn new(
        provider: ProviderLabel<'a>,
        names: ApiToolNames<'a>,
        answering: DecodeSettings,
    ) -> Self {
        Self {
            provider,
            names,
            answer_tool: answering.answer_tool,
            withheld: answering.withheld,
            blocks: BTreeMap::new(),
            calls: StreamingCalls::default(),
            usage: Usage::default(),
            stop: None,
        }
    }

    fn start_block(&mut self, index: u64, block: Value, out: &mut PendingEvents) {
        let text = |key: &str| block[key].as_str().unwrap_or_default();
        let begun = match block["type"].as_str() {
            Some("text") => {
                self.say(text("text"), out);
                OpenBlock::Text
            }
            Some("thinking") => {
                push_reasoning(text("thinking"), out);
                OpenBlock::Thinking { signature: text("signature").to_owned() }
            }
            Some("redacted_thinking") => {
                let provider = self.provider.name.to_owned();
                out.push_back(ModelEvent::Sealed { provider, data: block });
                OpenBlock::Other
            }
            Some("tool_use") => {
                let call = self.calls.at(index);
                (call.id, call.name) = (text("id").to_owned(), text("name").to_owned());
                OpenBlock::ToolCall { given: block["input"].clone() }
            }
            _ => OpenBlock::Other,
        };
        self.blocks.insert(index, begun);
        if out.is_empty() {
            out.push_back(ModelEvent::HiddenProgress);
        }
    }

    fn extend_block(&mut self, index: u64, delta: BlockDelta, out: &mut PendingEvents) {
        match (self.blocks.get_mut(&index), delta) {
            (Some(OpenBlock::Text), BlockDelta::Text { text }) => self.say(&text, out),
            (Some(OpenBlock::Thinking { .. }), BlockDelta::Thinking { thinking }) => {
                push_reasoning(&thinking, out);
            }
            (Some(OpenBlock::Thinking { signature }), BlockDelta::Signature { signature: more }) => {
                signature.push_str(&more);
            }
            (Some(OpenBlock::ToolCall { .. }), BlockDelta::Arguments { partial_json }) => {
                self.calls.at(index).arguments.push_str(&partial_json);
            }
            _ => {}
        }
        if out.is_empty() {
            out.push_back(ModelEvent::HiddenProgress);
        }
    }

    fn stop_block(&mut self, index: u64, out: &mut PendingEvents) {
        match self.blocks.remove(&index) {
            Some(OpenBlock::Thinking { signature }) if !signature.is_empty() => {
                let signature = Some(signatures::tag_signature(self.provider.name, &signature));
                out.push_back(ModelEvent::Reasoning { text: String::new(), signature });
            }
            // Arguments that are not streamed are complete at the start.
            Some(OpenBlock::ToolCall { given }) => {
                let call = self.calls.at(index);
                if call.arguments.is_empty() && given.as_object().is_some_and(|given| !given.is_empty()) {
                    call.arguments = given.to_string();
                }
            }
            _ => {}
        }
        if out.is_empty() {
            out.push_back(ModelEvent::HiddenProgress);
        }
    }

    /// Emits text without the white space that was withheld from the request and that the model repeats.
    fn say(&mut self, text: &str, out: &mut PendingEvents) {
        let mut text = Cow::Borrowed(text);
        while let (Some(known), Some(said)) = (self.withheld.chars().next(), text.chars().next()) {
            if known != said {
                self.withheld.clear();
                break;
            }
            self.withheld.remove(0);
            text = Cow::Owned(text[said.len_utf8()..].to_owned());
        }
        push_text(&text, out);
    }

    fn count(&mut self, tokens: &AnthropicUsage) {
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

    fn end(&mut self, out: &mut PendingEvents) {
        // Without a stop reason the reply may be incomplete.
        let Some(mut stop) = self.stop else { return };
        if let Some(answer) = self.answer_tool.as_deref().and_then(|tool| self.calls.take_answer(tool)) {
            push_text(&answer, out);
            stop = if stop == StopReason::ToolUse { StopReason::End } else { stop };
        }
        let stop = self.calls.finish(stop, &self.names, out);
        let usage = Usage { output: self.usage.output.saturating_sub(self.usage.reasoning), ..self.usage };
        out.push_back(ModelEvent::Usage(usage));
        out.push_back(ModelEvent::End(stop));
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        _ => StopReason::End,
    }
}

impl ReplyDecoder for MessagesDecoder<'_> {
    fn event(&mut self, _: Option<&str>, data: &str, out: &mut PendingEvents) -> Result<(), Error> {
        let event: MessagesEvent =
            serde_json::from_str(data).map_err(|cause| self.provider.unexpected_event(data, &cause))?;
        match event {
            MessagesEvent::MessageStart { message } => {
                if let Some(tokens) = message.usage {
                    self.count(&tokens);
                }
            }
            MessagesEvent::ContentBlockStart { index, content_block } => {
                self.start_block(index, content_block, out);
            }
            MessagesEvent::ContentBlockDelta { index, delta } => self.extend_block(index, delta, out),
            MessagesEvent::ContentBlockStop { index } => self.stop_block(index, out),
            MessagesEvent::MessageDelta { delta, usage } => {
                if let Some(tokens) = usage {
                    self.count(&tokens);
                }
                self.stop = delta.stop_reason.map(|reason| stop_reason(&reason)).or(self.stop);
            }
            MessagesEvent::MessageStop => self.end(out),
            MessagesEvent::Error { error } => return Err(self.provider.stream_error(&error)),
            MessagesEvent::Ping | MessagesEvent::Unknown => {}
        }
        if out.is_empty() {
            out.push_back(ModelEvent::KeepAlive);
        }
        Ok(())
    }

    fn close(&mut self, _: &mut PendingEvents) {}
}

//! Decodes replies: chunks, a last one with the usage, and `[DONE]`.
use crate::api_error::{ApiErrorBody, ProviderLabel};
use crate::api_parts::streaming_calls::StreamingCalls;
use crate::api_parts::tool_names::ApiToolNames;
use crate::api_parts::{PendingEvents, ReplyDecoder, push_reasoning, push_text, signatures};
use outlast_vocab::Error;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::stream::ModelEvent;
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct ChatChunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<ChatChoice<'a>>,
    usage: Option<OpenAiUsage>,
    error: Option<ApiErrorBody>,
}

#[derive(Deserialize)]
struct ChatChoice<'a> {
    #[serde(borrow, default)]
    delta: ChatDelta<'a>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
struct ChatDelta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Cow<'a, str>>,
}

/// The token counts of a reply, in the format of both OpenAI APIs.
#[derive(Deserialize)]
pub(crate) struct OpenAiUsage {
    #[serde(alias = "input_tokens", default)]
    prompt_tokens: u64,
    #[serde(alias = "output_tokens", default)]
    completion_tokens: u64,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<PromptTokenDetails>,
    #[serde(alias = "output_tokens_details")]
    completion_tokens_details: Option<CompletionTokenDetails>,
}

#[derive(Deserialize)]
struct PromptTokenDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionTokenDetails {
    reasoning_tokens: Option<u64>,
}

impl From<OpenAiUsage> for Usage {
    fn from(tokens: OpenAiUsage) -> Self {
        let read = tokens.prompt_tokens_details;
        let cache_read = read.as_ref().and_then(|read| read.cached_tokens).unwrap_or(0);
        let cache_write = read.and_then(|read| read.cache_write_tokens).unwrap_or(0);
        let reasoning = tokens.completion_tokens_details.and_then(|said| said.reasoning_tokens).unwrap_or(0);
        Self {
            input: tokens.prompt_tokens.saturating_sub(cache_read).saturating_sub(cache_write),
            cache_read,
            cache_write,
            output: tokens.completion_tokens.saturating_sub(reasoning),
            reasoning,
        }
    }
}

/// The state of decoding a streamed reply.
pub(crate) struct ChatDecoder<'a> {
    provider: ProviderLabel<'a>,
    names: ApiToolNames<'a>,
    calls: StreamingCalls,
    usage: Option<Usage>,
    stop: Option<StopReason>,
    has_reasoning: bool,
    refused: bool,
    ended: bool,
}

impl<'a> ChatDecoder<'a> {
    /// Creates the state before the first event.
    pub(crate) fn new(provider: ProviderLabel<'a>, names: ApiToolNames<'a>) -> Self {
        let calls = StreamingCalls::default();
        Self {
            provider,
            names,
            calls,
            usage: None,
            stop: None,
            has_reasoning: false,
            refused: false,
            ended: false,
        }
    }

    fn choice(&mut self, choice: ChatChoice<'_>, out: &mut PendingEvents) {
        let ChatChoice { delta, finish_reason } = choice;
        if let Some(thought) = delta.reasoning_content.or(delta.reasoning)
            && !thought.is_empty()
        {
            self.has_reasoning = true;
            push_reasoning(&thought, out);
        }
        if let Some(text) = delta.content
            && !text.is_empty()
        {
            self.end_reasoning(out);
            push_text(&text, out);
        }
        if let Some(refusal) = delta.refusal
            && !refusal.is_empty()
        {
            self.refused = true;
            push_text(&refusal, out);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.end_reasoning(out);
            self.call(call);
            out.push_back(ModelEvent::HiddenProgress);
        }
        self.stop = finish_reason.map(|reason| stop(&reason)).or(self.stop);
    }

    fn call(&mut self, delta: CallDelta<'_>) {
        // A server without indexes sends its calls complete, one after the other.
        let index = delta.index.unwrap_or(self.calls.len() as u64);
        let call = self.calls.at(index);
        if let Some(id) = delta.id
            && call.id.is_empty()
        {
            call.id = id.into_owned();
        }
        if let Some(function) = delta.function {
            call.name.push_str(&function.name.unwrap_or_default());
            call.arguments.push_str(&function.arguments.unwrap_or_default());
        }
    }

    /// Signs the reasoning with this provider's name, so that it is only sent back to this provider.
    fn end_reasoning(&mut self, out: &mut PendingEvents) {
        if std::mem::take(&mut self.has_reasoning) {
            let signature = Some(signatures::tag_signature(self.provider.name, ""));
            out.push_back(ModelEvent::Reasoning { text: String::new(), signature });
        }
    }

    fn end(&mut self, stop: StopReason, out: &mut PendingEvents) {
        self.ended = true;
        self.end_reasoning(out);
        let stop = self.calls.finish(stop, &self.names, out);
        out.extend(self.usage.take().map(ModelEvent::Usage));
        out.push_back(ModelEvent::End(if self.refused { StopReason::Refusal } else { stop }));
    }
}

fn stop(reason: &str) -> StopReason {
    match reason {
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::Length,
        "content_filter" => StopReason::Refusal,
        _ => StopReason::End,
    }
}

impl ReplyDecoder for ChatDecoder<'_> {
    fn event(&mut self, _: Option<&str>, data: &str, out: &mut PendingEvents) -> Result<(), Error> {
        if data.trim() == "[DONE]" {
            // Without a finish reason the reply may be incomplete.
            if let Some(stop) = self.stop {
                self.end(stop, out);
            }
            return Ok(());
        }
        let chunk: ChatChunk<'_> =
            serde_json::from_str(data).map_err(|cause| self.provider.unexpected_event(data, &cause))?;
        if let Some(error) = chunk.error {
            return Err(self.provider.stream_error(&error));
        }
        self.usage = chunk.usage.map(Usage::from).or(self.usage);
        // One choice was requested; ignore any others.
        if let Some(choice) = chunk.choices.into_iter().next() {
            self.choice(choice, out);
        }
        if out.is_empty() {
            out.push_back(ModelEvent::KeepAlive);
        }
        Ok(())
    }

    fn close(&mut self, out: &mut PendingEvents) {
        // Some servers end the body without `[DONE]`. The finish reason shows that the reply is complete.
        if let Some(stop) = self.stop
            && !self.ended
        {
            self.end(stop, out);
        }
    }
}

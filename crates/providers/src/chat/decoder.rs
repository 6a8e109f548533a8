//! Decodes replies: chunks, a last one with the usage, and `[DONE]`.
use crate::failure::{Provider, Refused};
use crate::wire::calls::Calls;
use crate::wire::names::Names;
use crate::wire::{Decode, Pieces, proof, say, think};
use outlast_vocab::Error;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::stream::ModelEvent;
use serde::Deserialize;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Counted>,
    error: Option<Refused>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Delta<'a>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
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
pub(crate) struct Counted {
    #[serde(alias = "input_tokens", default)]
    prompt_tokens: u64,
    #[serde(alias = "output_tokens", default)]
    completion_tokens: u64,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<ReadTokens>,
    #[serde(alias = "output_tokens_details")]
    completion_tokens_details: Option<SaidTokens>,
}

#[derive(Deserialize)]
struct ReadTokens {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct SaidTokens {
    reasoning_tokens: Option<u64>,
}

impl From<Counted> for Usage {
    fn from(tokens: Counted) -> Self {
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
pub(crate) struct Chat<'a> {
    provider: Provider<'a>,
    names: Names<'a>,
    calls: Calls,
    usage: Option<Usage>,
    stop: Option<StopReason>,
    thinks: bool,
    refused: bool,
    ended: bool,
}

impl<'a> Chat<'a> {
    /// Creates the state before the first event.
    pub(crate) fn new(provider: Provider<'a>, names: Names<'a>) -> Self {
        let calls = Calls::default();
        Self { provider, names, calls, usage: None, stop: None, thinks: false, refused: false, ended: false }
    }

    fn choice(&mut self, choice: Choice<'_>, out: &mut Pieces) {
        let Choice { delta, finish_reason } = choice;
        if let Some(thought) = delta.reasoning_content.or(delta.reasoning)
            && !thought.is_empty()
        {
            self.thinks = true;
            think(&thought, out);
        }
        if let Some(text) = delta.content
            && !text.is_empty()
        {
            self.end_thought(out);
            say(&text, out);
        }
        if let Some(refusal) = delta.refusal
            && !refusal.is_empty()
        {
            self.refused = true;
            say(&refusal, out);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.end_thought(out);
            self.call(call);
            out.push_back(ModelEvent::Working);
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
    fn end_thought(&mut self, out: &mut Pieces) {
        if std::mem::take(&mut self.thinks) {
            let signature = Some(proof::seal(self.provider.name, ""));
            out.push_back(ModelEvent::Reasoning { text: String::new(), signature });
        }
    }

    fn end(&mut self, stop: StopReason, out: &mut Pieces) {
        self.ended = true;
        self.end_thought(out);
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

impl Decode for Chat<'_> {
    fn event(&mut self, _: Option<&str>, data: &str, out: &mut Pieces) -> Result<(), Error> {
        if data.trim() == "[DONE]" {
            // Without a finish reason the reply may be incomplete.
            if let Some(stop) = self.stop {
                self.end(stop, out);
            }
            return Ok(());
        }
        let chunk: Chunk<'_> =
            serde_json::from_str(data).map_err(|cause| self.provider.garbled(data, &cause))?;
        if let Some(error) = chunk.error {
            return Err(self.provider.failed_midway(&error));
        }
        self.usage = chunk.usage.map(Usage::from).or(self.usage);
        // One choice was requested; ignore any others.
        if let Some(choice) = chunk.choices.into_iter().next() {
            self.choice(choice, out);
        }
        if out.is_empty() {
            out.push_back(ModelEvent::Alive);
        }
        Ok(())
    }

    fn close(&mut self, out: &mut Pieces) {
        // Some servers end the body without `[DONE]`. The finish reason shows that the reply is complete.
        if let Some(stop) = self.stop
            && !self.ended
        {
            self.end(stop, out);
        }
    }
}

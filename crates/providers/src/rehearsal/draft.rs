//! A reply while it is put together: gives calls their ids and counts what the reply costs.
use super::cue::Cue;
use outlast_ports::model::ModelRequest;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::message::{Arguments, Message, ToolName, ToolUse, json_size};
use outlast_vocab::stream::ModelEvent;
use std::borrow::Cow;

/// About how many bytes of text make a token.
const TOKEN_BYTES: usize = 4;

/// A reply to a request.
pub(super) struct Draft<'a> {
    request: ModelRequest<'a>,
    cues: Vec<Cue<'a>>,
    output_bytes: usize,
    reasoning_bytes: usize,
    /// The number of the next call, once there was one.
    next_call: Option<usize>,
}

impl<'a> Draft<'a> {
    /// An empty reply.
    pub(super) fn new(request: ModelRequest<'a>) -> Self {
        Self { request, cues: Vec::with_capacity(4), output_bytes: 0, reasoning_bytes: 0, next_call: None }
    }

    /// Speaks.
    pub(super) fn say(&mut self, text: Cow<'a, str>) {
        self.output_bytes += text.len();
        self.cues.push(Cue::Say(text));
    }

    /// Thinks aloud.
    pub(super) fn think(&mut self, text: String) {
        self.reasoning_bytes += text.len();
        self.cues.push(Cue::Give(ModelEvent::Reasoning { text, signature: None }));
    }

    /// Asks for a tool. Ids go on counting where the conversation stopped, so no two calls of it share one.
    pub(super) fn call(&mut self, tool: ToolName, arguments: Arguments) {
        self.output_bytes += tool.as_str().len();
        self.output_bytes += match &arguments {
            Arguments::Json(value) => json_size(value),
            Arguments::Broken(text) => text.len(),
        };
        let number = self.next_call.unwrap_or_else(|| calls_in(&self.request));
        self.next_call = Some(number + 1);
        let id = format!("call_{number}").parse().expect("a word and a number make a call id");
        self.cues.push(Cue::Give(ModelEvent::Call(ToolUse::new(id, tool, arguments))));
    }

    /// Does something else.
    pub(super) fn cue(&mut self, cue: Cue<'a>) {
        self.cues.push(cue);
    }

    /// Breaks off: the stream ends without an end.
    pub(super) fn cut(self) -> Vec<Cue<'a>> {
        self.cues
    }

    /// Ends as a model does: with its calls, or with what it said.
    pub(super) fn end(self) -> Vec<Cue<'a>> {
        let stop = if self.next_call.is_some() { StopReason::ToolUse } else { StopReason::End };
        self.stop(stop)
    }

    /// Ends for this reason.
    pub(super) fn stop(mut self, stop: StopReason) -> Vec<Cue<'a>> {
        let read: usize = self.request.messages().map(Message::size).sum();
        let usage = Usage {
            input: tokens(self.request.system.len() + read),
            output: tokens(self.output_bytes),
            reasoning: tokens(self.reasoning_bytes),
            ..Usage::default()
        };
        self.cues.push(Cue::Give(ModelEvent::Usage(usage)));
        self.cues.push(Cue::Give(ModelEvent::End(stop)));
        self.cues
    }
}

fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}

fn calls_in(request: &ModelRequest<'_>) -> usize {
    let calls = |message: &Message| match message {
        Message::Assistant { calls, .. } => calls.len(),
        Message::User { .. } | Message::Tool { .. } => 0,
    };
    request.messages().map(calls).sum()
}

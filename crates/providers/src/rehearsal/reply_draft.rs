//! A reply while it is composed. Assigns the ids of calls and counts tokens.
use super::reply_actions::ReplyAction;
use outlast_ports::model::ModelRequest;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::message::{CallArguments, Message, ToolName, ToolUse, json_size};
use outlast_vocab::stream::ModelEvent;
use std::borrow::Cow;

/// The estimated number of bytes per token.
const TOKEN_BYTES: usize = 4;

/// A reply to a request.
pub(super) struct ReplyDraft<'a> {
    request: ModelRequest<'a>,
    cues: Vec<ReplyAction<'a>>,
    output_bytes: usize,
    reasoning_bytes: usize,
    /// The number of the next call, after the first one.
    next_call: Option<usize>,
}

impl<'a> ReplyDraft<'a> {
    /// Creates an empty reply.
    pub(super) fn new(request: ModelRequest<'a>) -> Self {
        Self { request, cues: Vec::with_capacity(4), output_bytes: 0, reasoning_bytes: 0, next_call: None }
    }

    /// Adds text.
    pub(super) fn say(&mut self, text: Cow<'a, str>) {
        self.output_bytes += text.len();
        self.cues.push(ReplyAction::Say(text));
    }

    /// Adds reasoning.
    pub(super) fn think(&mut self, text: String) {
        self.reasoning_bytes += text.len();
        self.cues.push(ReplyAction::Emit(ModelEvent::Reasoning { text, signature: None }));
    }

    /// Adds a tool call. Ids continue the numbering of the conversation, so they are unique in it.
    pub(super) fn call(&mut self, tool: ToolName, arguments: CallArguments) {
        self.output_bytes += tool.as_str().len();
        self.output_bytes += match &arguments {
            CallArguments::Json(value) => json_size(value),
            CallArguments::Broken(text) => text.len(),
        };
        let number = self.next_call.unwrap_or_else(|| calls_in(&self.request));
        self.next_call = Some(number + 1);
        let id = format!("call_{number}").parse().expect("a word and a number make a call id");
        self.cues.push(ReplyAction::Emit(ModelEvent::Call(ToolUse::new(id, tool, arguments))));
    }

    /// Adds a cue.
    pub(super) fn push_action(&mut self, cue: ReplyAction<'a>) {
        self.cues.push(cue);
    }

    /// Ends the stream abruptly, without an end event.
    pub(super) fn into_cut_reply(self) -> Vec<ReplyAction<'a>> {
        self.cues
    }

    /// Ends the reply normally, with its calls or its text.
    pub(super) fn into_reply(self) -> Vec<ReplyAction<'a>> {
        let stop = if self.next_call.is_some() { StopReason::ToolUse } else { StopReason::End };
        self.into_stopped_reply(stop)
    }

    /// Ends the reply with this stop reason.
    pub(super) fn into_stopped_reply(mut self, stop: StopReason) -> Vec<ReplyAction<'a>> {
        let read: usize = self.request.messages().map(Message::size).sum();
        let usage = Usage {
            input: tokens(self.request.system.len() + read),
            output: tokens(self.output_bytes),
            reasoning: tokens(self.reasoning_bytes),
            ..Usage::default()
        };
        self.cues.push(ReplyAction::Emit(ModelEvent::Usage(usage)));
        self.cues.push(ReplyAction::Emit(ModelEvent::End(stop)));
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

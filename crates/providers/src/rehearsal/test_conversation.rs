//! A conversation for tests: the messages so far, the available tools, and the model's reply.
use super::Rehearsal;
use futures_util::StreamExt;
use outlast_ports::model::{ModelProvider, ModelRequest};
use outlast_vocab::effect::{Generation, ModelCall, ToolChoice};
use outlast_vocab::message::{CallArguments, Message, Part, ToolResult, ToolUse};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::tool::{EffectClass, ToolContract};
use outlast_vocab::{Error, Failure, Hash, Kind};
use serde_json::{Value, json};

/// A conversation and the tools of its session.
pub(super) struct TestConversation {
    call: ModelCall,
    history: Vec<Message>,
    turn: Vec<Message>,
    tools: Vec<ToolContract>,
}

impl TestConversation {
    pub(super) fn new() -> Self {
        let model = "rehearsal/test".parse().unwrap();
        let (choice, options) = (ToolChoice::default(), Generation::default());
        let call = ModelCall { model, at: None, tools: Hash::ZERO, choice, options, output: None };
        Self { call, history: Vec::new(), turn: Vec::new(), tools: Vec::new() }
    }

    pub(super) fn tools(mut self, names: &[&str]) -> Self {
        let contract = |name: &&str| ToolContract {
            class: EffectClass::Pure,
            ..ToolContract::new(name.parse().unwrap(), "", json!({}))
        };
        self.tools = names.iter().map(contract).collect();
        self
    }

    pub(super) fn user(mut self, text: &str) -> Self {
        self.turn.push(Message::user(text));
        self
    }

    pub(super) fn assistant(mut self, text: &str) -> Self {
        self.turn.push(Message::Assistant { parts: vec![Part::text(text)], calls: vec![] });
        self
    }

    /// Adds tool calls of the model with their results. `Err` is the detail of a failure.
    pub(super) fn called(mut self, calls: &[(&str, Value, Result<Value, &str>)]) -> Self {
        let id = |index: usize| format!("id_{index}").parse().unwrap();
        let asked = calls.iter().enumerate().map(|(index, (tool, arguments, _))| {
            ToolUse::new(id(index), tool.parse().unwrap(), CallArguments::Json(arguments.clone()))
        });
        self.turn.push(Message::Assistant { parts: vec![], calls: asked.collect() });
        let answered = calls.iter().enumerate().map(|(index, (tool, _, result))| Message::Tool {
            call: id(index),
            tool: tool.parse().unwrap(),
            result: match result {
                Ok(value) => ToolResult::Ok(value.clone()),
                Err(detail) => ToolResult::Err(Failure::new(Kind::ToolFailed, *detail)),
            },
        });
        self.turn.extend(answered);
        self
    }

    /// Ends the turn; what follows is the next one.
    pub(super) fn end_turn(mut self) -> Self {
        self.history.append(&mut self.turn);
        self
    }

    pub(super) fn request(&self) -> ModelRequest<'_> {
        ModelRequest {
            history: &self.history,
            turn: &self.turn,
            tools: &self.tools,
            ..ModelRequest::empty(&self.call)
        }
    }

    /// Returns the model's events, one per line, with adjacent words joined.
    pub(super) fn reply_text(&self, rehearsal: &Rehearsal) -> String {
        let pieces: Vec<_> = block_on(rehearsal.stream(self.request()).collect());
        let mut events: Vec<Result<ModelEvent, Error>> = Vec::new();
        for piece in pieces {
            match (events.last_mut(), piece) {
                (Some(Ok(ModelEvent::Text(text))), Ok(ModelEvent::Text(word))) => text.push_str(&word),
                (_, piece) => events.push(piece),
            }
        }
        events.iter().map(|piece| show(piece) + "\n").collect()
    }
}

/// Runs a future to completion.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Formats an event as one line.
pub(super) fn show(piece: &Result<ModelEvent, Error>) -> String {
    match piece {
        Ok(ModelEvent::Text(text)) => format!("text {text:?}"),
        Ok(ModelEvent::Reasoning { text, .. }) => format!("think {text:?}"),
        Ok(ModelEvent::Call(ToolUse { id, tool, arguments: CallArguments::Json(value), .. })) => {
            format!("{id} {tool} {value}")
        }
        Ok(ModelEvent::Call(ToolUse { id, tool, arguments: CallArguments::Broken(text), .. })) => {
            format!("{id} {tool} broken {text:?}")
        }
        Ok(ModelEvent::Sealed { provider, data }) => format!("sealed by {provider} {data}"),
        Ok(ModelEvent::KeepAlive) => "alive".to_owned(),
        Ok(ModelEvent::HiddenProgress) => "working".to_owned(),
        Ok(ModelEvent::PromptChanged(at)) => format!("{at} changed"),
        Ok(ModelEvent::Usage(usage)) => format!("usage {} -> {}", usage.input, usage.output),
        Ok(ModelEvent::End(stop)) => format!("end {stop:?}"),
        Err(error) => match error.pause() {
            Some(pause) => format!("error {error} retry after {pause:?}"),
            None => format!("error {error}"),
        },
    }
}

//! What an invariant is shown of a run.
use super::calls::Calls;
use super::left::Left;
use super::point::Crash;
use outlast_vocab::message::{Message, ToolName, ToolResult};
use outlast_vocab::record::End;
use outlast_vocab::tool::EffectClass;
use outlast_vocab::{CallId, Kind};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// What happened in a run, as the journal tells it after the last crash, and as the tools did it.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// Where the process died in this run.
    pub crash: Crash,
    /// How each input ended, in the order they were sent.
    pub ends: Vec<End>,
    /// The conversation.
    pub transcript: Vec<Message>,
    /// The calls of tools, in the order they were claimed.
    pub calls: Vec<SeenCall>,
    /// The session's values.
    pub values: BTreeMap<String, Value>,
}

/// One call of a tool, over all its attempts.
#[derive(Clone, Debug, Serialize)]
pub struct SeenCall {
    /// Its idempotency key.
    pub key: CallId,
    /// The tool.
    pub tool: ToolName,
    /// What was passed.
    pub arguments: Value,
    /// What the tool promises.
    pub class: EffectClass,
    /// How often the tool really began.
    pub runs: usize,
    /// What the model was told; none if the turn ended before.
    pub result: Option<ToolResult>,
}

impl Seen {
    pub(super) fn of(crash: Crash, left: &Left, calls: &Calls) -> Self {
        let runs = calls.runs();
        let result = |id: &_| {
            left.transcript.iter().find_map(|message| match message {
                Message::Tool { call, result, .. } if call == id => Some(result.clone()),
                _ => None,
            })
        };
        let seen = |claimed: &super::left::Claimed| SeenCall {
            key: claimed.call.id,
            tool: claimed.call.tool.clone(),
            arguments: claimed.call.arguments.clone(),
            class: claimed.call.class,
            runs: runs.iter().filter(|run| run.call == claimed.call.id).count(),
            result: result(&claimed.call.model_id),
        };
        Self {
            crash,
            ends: left.ends.iter().flatten().cloned().collect(),
            transcript: left.transcript.clone(),
            calls: left.claimed.iter().map(seen).collect(),
            values: left.values.clone(),
        }
    }

    /// The answer to the last input; empty if that ended otherwise.
    pub fn answer(&self) -> &str {
        match self.ends.last() {
            Some(End::Answered { text }) => text,
            _ => "",
        }
    }

    /// The calls of a tool.
    pub fn calls_of<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a SeenCall> {
        self.calls.iter().filter(move |call| call.tool.as_str() == tool)
    }

    /// Whether there is a call whose outcome nobody knows. It may have happened or not.
    pub fn has_unknown(&self) -> bool {
        self.calls.iter().any(SeenCall::is_unknown)
    }
}

impl SeenCall {
    /// Whether nobody knows if it happened.
    pub fn is_unknown(&self) -> bool {
        matches!(&self.result, Some(ToolResult::Err(failure)) if failure.code == Kind::ToolOutcomeUnknown)
    }
}

/// What an invariant may give: nothing if it panics instead, or an error that says what does not hold.
pub trait Verdict {
    /// What does not hold.
    fn verdict(self) -> Result<(), String>;
}

impl Verdict for () {
    fn verdict(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> Verdict for Result<(), E> {
    fn verdict(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

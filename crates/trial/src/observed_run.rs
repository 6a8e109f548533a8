//! The view of a run that an invariant receives.
use crate::crash_point::Crash;
use crate::end_state::EndState;
use crate::tool_runs::ToolRunLog;
use outlast_vocab::message::{Message, ToolName, ToolResult};
use outlast_vocab::record::TurnEnd;
use outlast_vocab::tool::EffectClass;
use outlast_vocab::{CallId, Kind};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// A run as an invariant sees it: the journal after the last crash, and the real tool runs.
#[derive(Clone, Debug, Serialize)]
pub struct ObservedRun {
    /// The points at which the process died in this run.
    pub crash: Crash,
    /// How each input ended, in the order in which they were sent.
    pub ends: Vec<TurnEnd>,
    /// The conversation.
    pub transcript: Vec<Message>,
    /// The tool calls, in the order in which they were claimed.
    pub calls: Vec<ObservedCall>,
    /// The session's values.
    pub values: BTreeMap<String, Value>,
}

/// One tool call, with all its attempts.
#[derive(Clone, Debug, Serialize)]
pub struct ObservedCall {
    /// Its idempotency key.
    pub key: CallId,
    /// The tool.
    pub tool: ToolName,
    /// The arguments.
    pub arguments: Value,
    /// The effect class of the tool.
    pub class: EffectClass,
    /// How often the tool really started.
    pub runs: usize,
    /// The result that the model received; `None` if the turn ended first.
    pub result: Option<ToolResult>,
}

impl ObservedRun {
    pub(crate) fn of(crash: Crash, left: &EndState, calls: &ToolRunLog) -> Self {
        let runs = calls.runs();
        let result = |id: &_| {
            left.transcript.iter().find_map(|message| match message {
                Message::Tool { call, result, .. } if call == id => Some(result.clone()),
                _ => None,
            })
        };
        let seen = |claimed: &crate::end_state::ClaimedCall| ObservedCall {
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
            calls: left.claimed_calls.iter().map(seen).collect(),
            values: left.values.clone(),
        }
    }

    /// Returns the answer to the last input, or an empty string if the input ended in another way.
    pub fn answer(&self) -> &str {
        match self.ends.last() {
            Some(TurnEnd::Answered { text }) => text,
            _ => "",
        }
    }

    /// Returns the calls of a tool.
    pub fn calls_of<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a ObservedCall> {
        self.calls.iter().filter(move |call| call.tool.as_str() == tool)
    }

    /// Returns whether any call has an unknown outcome: it may or may not have happened.
    pub fn has_unknown(&self) -> bool {
        self.calls.iter().any(ObservedCall::is_unknown)
    }
}

impl ObservedCall {
    /// Returns whether the outcome of the call is unknown.
    pub fn is_unknown(&self) -> bool {
        matches!(&self.result, Some(ToolResult::Err(failure)) if failure.code == Kind::ToolOutcomeUnknown)
    }
}

/// The return type of an invariant: nothing if it panics on failure, or a result whose error explains the failure.
pub trait InvariantResult {
    /// Returns an error that explains the failure.
    fn into_result(self) -> Result<(), String>;
}

impl InvariantResult for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> InvariantResult for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

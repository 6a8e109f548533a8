//! What is told of a leg, in the words that all wires share.
use super::leg::CallRef;
use outlast_vocab::effect::Usage;
use outlast_vocab::message::{ToolName, ToolResult};
use outlast_vocab::{Failure, Millis};
use serde_json::Value;

/// One thing that is told of a leg, and of which item of its answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// Counted from 0 in the leg. The end of the leg has the number that the next item would have.
    pub(crate) item: usize,
    pub(crate) what: What,
}

/// What is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// The model begins to speak.
    TextBegins,
    /// A piece of what it says.
    Text(String),
    /// It has said this.
    TextEnds(String),
    /// A tool of the agent was asked for.
    ToolBegins(ToolAsked),
    /// It gave this.
    ToolEnds(ToolResult),
    /// The client has to run a tool.
    Call(ClientCall),
    /// The leg is over.
    Over(Over),
}

/// A call of a tool of the agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolAsked {
    pub(crate) tool: ToolName,
    pub(crate) arguments: Value,
}

/// A call that the client runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientCall {
    pub(crate) id: CallRef,
    pub(crate) tool: ToolName,
    pub(crate) arguments: Value,
}

/// The end of a leg.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Over {
    pub(crate) how: How,
    /// Tokens of the leg.
    pub(crate) usage: Usage,
    pub(crate) at: Millis,
}

/// How a leg ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    /// With an answer.
    Answered,
    /// With calls for the client.
    ForClient,
    /// The model refused.
    Refused,
    /// The model ran out of tokens.
    Length,
    /// Somebody cancelled the turn.
    Cancelled,
    /// It failed.
    Failed(Failure),
}

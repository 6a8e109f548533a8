//! The events of a segment, independent of the API.
use super::leg::CallRef;
use outlast_vocab::effect::Usage;
use outlast_vocab::message::{ToolName, ToolResult};
use outlast_vocab::{Failure, Millis};
use serde_json::Value;

/// An event of a segment, and the item of the answer that it is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// The index in the segment, starting at 0. [`What::Over`] has the index that the next item would have.
    pub(crate) item: usize,
    pub(crate) what: What,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// A text starts.
    TextBegins,
    /// A piece of the text.
    Text(String),
    /// The text is complete.
    TextEnds(String),
    /// One of the agent's own tools was called.
    ToolBegins(ToolAsked),
    /// The result of that call.
    ToolEnds(ToolResult),
    /// A call for the client.
    Call(ClientCall),
    /// The segment is over.
    Over(Over),
}

/// A call of one of the agent's own tools.
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

/// The end of a segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Over {
    pub(crate) how: How,
    /// The tokens that the segment used.
    pub(crate) usage: Usage,
    pub(crate) at: Millis,
}

/// How a segment ended.
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
    /// The turn was cancelled.
    Cancelled,
    /// The turn failed.
    Failed(Failure),
}

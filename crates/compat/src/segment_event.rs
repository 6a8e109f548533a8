//! The events of a segment, independent of the API.
use super::response_segment::ClientCallId;
use outlast_vocab::effect::Usage;
use outlast_vocab::message::{ToolName, ToolResult};
use outlast_vocab::{Failure, Millis};
use serde_json::Value;

/// An event of a segment, and the item of the answer that it is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SegmentEvent {
    /// The index in the segment, starting at 0. [`SegmentEventKind::Ended`] has the index that the next item would have.
    pub(crate) item: usize,
    pub(crate) kind: SegmentEventKind,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentEventKind {
    /// A text starts.
    TextStarted,
    /// A piece of the text.
    Text(String),
    /// The text is complete.
    TextCompleted(String),
    /// One of the agent's own tools was called.
    ToolStarted(AgentToolCall),
    /// The result of that call.
    ToolFinished(ToolResult),
    /// A call for the client.
    Call(ClientCall),
    /// The segment is over.
    Ended(SegmentEnd),
}

/// A call of one of the agent's own tools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentToolCall {
    pub(crate) tool: ToolName,
    pub(crate) arguments: Value,
}

/// A call that the client runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientCall {
    pub(crate) id: ClientCallId,
    pub(crate) tool: ToolName,
    pub(crate) arguments: Value,
}

/// The end of a segment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SegmentEnd {
    pub(crate) outcome: SegmentOutcome,
    /// The tokens that the segment used.
    pub(crate) usage: Usage,
    pub(crate) at: Millis,
}

/// How a segment ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentOutcome {
    /// With an answer.
    Answered,
    /// With calls for the client.
    ClientCalls,
    /// The model refused.
    Refused,
    /// The model ran out of tokens.
    Length,
    /// The turn was cancelled, for this reason.
    Cancelled(Failure),
    /// The turn failed.
    Failed(Failure),
}

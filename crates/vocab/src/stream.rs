//! The events of a provider's stream.
use crate::effect::{StopReason, Usage};
use crate::message::ToolUse;
use serde_json::Value;

/// One event of a streamed reply. A stream is complete only if it ends with [`ModelEvent::End`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning {
        /// The reasoning.
        text: String,
        /// The provider's proof, once it is given.
        signature: Option<String>,
    },
    /// A block that only this provider can read.
    Sealed {
        /// The provider.
        provider: String,
        /// The unchanged block.
        data: Value,
    },
    /// A complete tool call.
    Call(ToolUse),
    /// The usage so far. A later event replaces an earlier one.
    Usage(Usage),
    /// The prompt begins differently from the previous one, so the provider's cache covers only the part
    /// before this: the tools, the system prompt, or a message by its number.
    PromptChanged(String),
    /// The connection is alive: a ping or a comment.
    KeepAlive,
    /// The reply makes progress that cannot be shown yet: arguments of a call, an empty thought.
    HiddenProgress,
    /// The reply is complete.
    End(StopReason),
}

//! What a provider's stream says, one piece at a time.
use crate::effect::{StopReason, Usage};
use crate::message::ToolUse;
use serde_json::Value;

/// One piece of a reply. A stream is whole only when it ends with [`ModelEvent::End`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// More text.
    Text(String),
    /// More of what the model thinks.
    Reasoning {
        /// The thought.
        text: String,
        /// The provider's proof, once it has given one.
        signature: Option<String>,
    },
    /// A block that only this provider can read.
    Sealed {
        /// The provider.
        provider: String,
        /// The block, as it came.
        data: Value,
    },
    /// A whole tool call.
    Call(ToolUse),
    /// What it cost so far; a later one replaces an earlier one.
    Usage(Usage),
    /// The prompt does not begin as the one before did, so the provider's cache serves it only up to here: the tools, the
    /// system prompt, or a message by its number.
    PromptChanged(String),
    /// The connection is alive, and nothing more: a ping or a comment.
    Alive,
    /// The reply comes nearer, and there is nothing to show yet: arguments of a call, an empty thought.
    Working,
    /// The reply is whole.
    End(StopReason),
}

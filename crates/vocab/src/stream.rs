//! What a provider's stream says, one piece at a time.
use crate::effect::{StopReason, Usage};
use crate::message::ToolUse;

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
    /// A whole tool call.
    Call(ToolUse),
    /// What it cost so far; a later one replaces an earlier one.
    Usage(Usage),
    /// The reply is whole.
    End(StopReason),
}

//! The messages that a model would get now, and their size in tokens.
use outlast_vocab::effect::Usage;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Parameters of the context.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ContextParams {
    /// The head to read. Defaults to the main head.
    pub head: Option<String>,
    /// Whether to return the whole text of each message instead of its start. Defaults to `false`.
    #[serde(default)]
    pub whole: bool,
}

/// The messages that a model would get now, and their size.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Context)]
pub struct ContextResource {
    /// The approximate number of tokens in total. One token is counted per four bytes.
    pub tokens: usize,
    /// The tokens of each part, largest first.
    pub parts: Vec<ContextPart>,
    /// The messages, in order.
    pub messages: Vec<ContextMessage>,
    /// The number of files in the messages. Files are not included in `tokens`.
    pub files: usize,
    /// How often older messages were compacted.
    pub compactions: usize,
    /// The tokens that the last model call used. Absent if there was no model call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub last_usage: Option<Usage>,
}

/// The tokens of one part of the context.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContextPart {
    /// `user`, `assistant`, or the name of the tool that returned the results.
    pub who: String,
    /// The approximate number of tokens.
    pub tokens: usize,
}

/// A message of the context.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ContextMessage {
    /// `user`, `assistant`, or the name of the tool that returned the result.
    pub who: String,
    /// The approximate number of tokens.
    pub tokens: usize,
    /// The text of the message: its first 200 characters, or all of it with `whole`.
    pub text: String,
}

//! The prompt that a model would receive for a session.
use crate::Client;
use outlast_vocab::effect::Usage;
use outlast_vocab::{Error, SessionId};
use serde::Deserialize;

/// The prompt that a model would receive, by part.
#[derive(Clone, Debug, Deserialize)]
pub struct PromptView {
    /// The estimated tokens of the whole prompt.
    pub tokens: usize,
    /// The estimated tokens of each part.
    pub parts: Vec<PromptShare>,
    /// The messages, in order.
    pub messages: Vec<PromptViewMessage>,
    /// The number of files, which are not included in the tokens.
    pub files: usize,
    /// How often older messages were compacted.
    pub compactions: usize,
    /// The usage of the last model call.
    pub last_usage: Option<Usage>,
}

/// The size of one part.
#[derive(Clone, Debug, Deserialize)]
pub struct PromptShare {
    /// `user`, `assistant`, or the name of the tool.
    pub who: String,
    /// The estimated tokens.
    pub tokens: usize,
}

/// A message.
#[derive(Clone, Debug, Deserialize)]
pub struct PromptViewMessage {
    /// `user`, `assistant`, or the name of the tool.
    pub who: String,
    /// The estimated tokens.
    pub tokens: usize,
    /// The text.
    pub text: String,
}

impl Client {
    /// Returns the prompt that a model would receive for a head, with full messages.
    pub async fn context(&self, session: SessionId, head: &str) -> Result<PromptView, Error> {
        let query = [("head", head.to_owned()), ("whole", true.to_string())];
        self.get(&["v1", "sessions", &session.to_string(), "context"], &query).await
    }
}

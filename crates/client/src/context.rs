//! What a model would be shown of a session.
use crate::Client;
use outlast_vocab::effect::Usage;
use outlast_vocab::{Error, SessionId};
use serde::Deserialize;

/// What a model would be shown, part by part.
#[derive(Clone, Debug, Deserialize)]
pub struct Context {
    /// Tokens of all of it, about.
    pub tokens: usize,
    /// Tokens of each part.
    pub parts: Vec<Share>,
    /// The messages, in order.
    pub messages: Vec<Shown>,
    /// Files among them, which are not counted.
    pub files: usize,
    /// How often older messages were made shorter.
    pub compactions: usize,
    /// What the last call of a model used.
    pub last_usage: Option<Usage>,
}

/// What one part takes.
#[derive(Clone, Debug, Deserialize)]
pub struct Share {
    /// `user`, `assistant`, or the tool whose results they are.
    pub who: String,
    /// Tokens, about.
    pub tokens: usize,
}

/// A message.
#[derive(Clone, Debug, Deserialize)]
pub struct Shown {
    /// `user`, `assistant`, or the tool whose result it is.
    pub who: String,
    /// Tokens, about.
    pub tokens: usize,
    /// What it says.
    pub text: String,
}

impl Client {
    /// What a model would be shown of a head, with all of each message.
    pub async fn context(&self, session: SessionId, head: &str) -> Result<Context, Error> {
        let query = [("head", head.to_owned()), ("whole", true.to_string())];
        self.get(&["v1", "sessions", &session.to_string(), "context"], &query).await
    }
}

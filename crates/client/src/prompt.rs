//! The prompt that a model would receive for a session.
use crate::Client;
use outlast_api::context::{ContextParams, ContextResource};
use outlast_vocab::{Error, SessionId};

impl Client {
    /// Returns the prompt that a model would receive for a head, with full messages.
    pub async fn context(&self, session: SessionId, head: &str) -> Result<ContextResource, Error> {
        let params = ContextParams { head: Some(head.to_owned()), whole: true };
        self.get(&["v1", "sessions", &session.to_string(), "context"], &params).await
    }
}

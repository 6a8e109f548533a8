//! Full-text search in messages.
use crate::Client;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};

/// A search hit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageHit {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The position of the message in the session.
    pub seq: Seq,
    /// When it became durable.
    pub at: Millis,
    /// `user` or `assistant`.
    pub role: String,
    /// The text around the first matching word.
    pub excerpt: String,
}

impl Client {
    /// Returns up to this many messages that contain all of these words, newest first.
    pub async fn search(
        &self,
        words: &str,
        session: Option<SessionId>,
        most: usize,
    ) -> Result<Vec<MessageHit>, Error> {
        let mut query = vec![("q", words.to_owned())];
        query.extend(session.map(|session| ("session", session.to_string())));
        self.list(&["v1", "search"], &query, most).await
    }
}

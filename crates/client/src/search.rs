//! Messages by their words.
use crate::Client;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};

/// A message that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hit {
    /// In which session.
    pub session: SessionId,
    /// In which turn.
    pub turn: TurnId,
    /// Its number in that session.
    pub seq: Seq,
    /// When it became durable.
    pub at: Millis,
    /// `user` or `assistant`.
    pub role: String,
    /// What stands around the first word that was found.
    pub excerpt: String,
}

impl Client {
    /// Up to so many messages that have all of these words, the newest first.
    pub async fn search(
        &self,
        words: &str,
        session: Option<SessionId>,
        most: usize,
    ) -> Result<Vec<Hit>, Error> {
        let mut query = vec![("q", words.to_owned())];
        query.extend(session.map(|session| ("session", session.to_string())));
        self.list(&["v1", "search"], &query, most).await
    }
}

//! Full-text search in messages.
use crate::Client;
use outlast_api::messages::{SearchHit, SearchParams};
use outlast_vocab::{Error, SessionId};

impl Client {
    /// Returns up to this many messages that contain all of these words, newest first.
    pub async fn search(
        &self,
        words: &str,
        session: Option<SessionId>,
        most: usize,
    ) -> Result<Vec<SearchHit>, Error> {
        let session = session.map(|session| session.to_string());
        let params = SearchParams { q: words.to_owned(), session, ..SearchParams::default() };
        self.list(&["v1", "search"], &params, most).await
    }
}

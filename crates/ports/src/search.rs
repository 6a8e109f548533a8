//! Full-text search over messages: inputs and replies that the caller may see.
//!
//! The index is written in the same transaction as the message, so results are always up to date.
use crate::ResultFuture;
use crate::journal::FeedCursor;
use outlast_vocab::Millis;
use outlast_vocab::id::{SessionId, TurnId};
use outlast_vocab::record::Seq;
use outlast_vocab::search_terms::SearchTerms;

/// A search query.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// The words to find.
    pub terms: SearchTerms,
    /// Searches only this session.
    pub session: Option<SessionId>,
    /// Returns only messages before this position. `None` starts at the newest message.
    pub before: Option<FeedCursor>,
    /// The maximum number of results.
    pub limit: usize,
}

/// A message that matches a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageMatch {
    /// Its position among all records, for pagination.
    pub position: FeedCursor,
    /// Its session.
    pub session: SessionId,
    /// Its turn.
    pub turn: TurnId,
    /// Its sequence number in the session.
    pub seq: Seq,
    /// When it was written.
    pub at: Millis,
    /// Whether it is an input; otherwise it is a reply.
    pub is_input: bool,
    /// Its text.
    pub text: String,
}

/// Full-text search over messages.
pub trait MessageSearch: Send + Sync {
    /// Returns the messages that contain the words, newest first.
    fn find(&self, find: SearchQuery) -> ResultFuture<'_, Vec<MessageMatch>>;
}

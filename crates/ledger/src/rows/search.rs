//! The search index.
use super::{RecordRow, RowAccess, SessionNo, SessionRow};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::record::Seq;
use outlast_vocab::search_terms::SearchTerms;

/// Searches messages.
pub trait SearchQueries: RowAccess {
    /// Returns records with matching words at or before a position, newest first. Searches the sessions within this
    /// reach, or one session if given.
    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error>;
}

/// Maintains the search index.
pub trait SearchWrites: RowAccess {
    /// Indexes a record of a session under these words, which are separated by spaces.
    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error>;
    /// Removes a record from the search index. `words` are the words it was indexed under.
    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error>;
}

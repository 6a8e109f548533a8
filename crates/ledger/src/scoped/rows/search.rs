//! Messages are found in visible sessions.
use super::VisibleRows;
use crate::rows::{QueryRows, RecordRow, Rows, SearchQueries, SearchWrites, SessionNo, SessionRow};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::record::Seq;
use outlast_vocab::search_terms::SearchTerms;
use std::ops::{Deref, DerefMut};

impl<R: Deref<Target: QueryRows>> SearchQueries for VisibleRows<'_, R> {
    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error> {
        let mut visible = Vec::new();
        for (position, row) in self.rows.search(self.narrow(of), session, wanted, before, limit)? {
            if self.is_visible(row.session)? {
                self.record_seen(&row);
                visible.push((position, row));
            }
        }
        Ok(visible)
    }
}

impl<R: DerefMut<Target: Rows>> SearchWrites for VisibleRows<'_, R> {
    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        self.may_write(session.no)?;
        self.rows.index_words(session, seq, words)
    }

    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        self.may_write(session.no)?;
        self.rows.unindex_words(session, seq, words)
    }
}

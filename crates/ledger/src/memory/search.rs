//! The search index.
use super::Tables;
use crate::rows::{RecordRow, SearchQueries, SearchWrites, SessionNo, SessionRow};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::record::Seq;
use outlast_vocab::search_terms::SearchTerms;

impl SearchQueries for Tables {
    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error> {
        let matching = self.search_words.range(..before).rev().filter(|(_, words)| wanted.fits(words));
        let rows = matching.filter_map(|(position, _)| Some((*position, self.log.get(position)?.clone())));
        let visible = rows.filter(|(_, row)| {
            self.covers(of, row.session) && session.is_none_or(|session| session == row.session)
        });
        Ok(visible.take(limit).collect())
    }
}

impl SearchWrites for Tables {
    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        if let Some(position) = self.log_order.get(&(session.no, seq)).copied() {
            self.set(|tables| &mut tables.search_words, position, Some(words.to_owned()));
        }
        Ok(())
    }

    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, _words: &str) -> Result<(), Error> {
        if let Some(position) = self.log_order.get(&(session.no, seq)).copied() {
            self.set(|tables| &mut tables.search_words, position, None);
        }
        Ok(())
    }
}

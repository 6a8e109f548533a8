//! The search index: words are stored and deleted with their messages, and found by callers who may read them.
use super::{lookup, required_row, session_row, turn_by_no};
use crate::rows::{QueryRows, Rows, SearchWrites, SessionRow};
use outlast_ports::journal::FeedCursor;
use outlast_ports::search::{MessageMatch, SearchQuery};
use outlast_vocab::access::Scope;
use outlast_vocab::record::{Fact, Seq};
use outlast_vocab::search_terms;
use outlast_vocab::{Error, limits::Limits};

/// Indexes the words of a record that was just appended.
pub(super) fn index_record(
    rows: &mut dyn SearchWrites,
    session: &SessionRow,
    seq: Seq,
    fact: &Fact,
) -> Result<(), Error> {
    match search_terms::of_fact(fact) {
        Some(words) => rows.index_words(session, seq, &words),
        None => Ok(()),
    }
}

/// Removes the words of a session that is about to be deleted, so that no trace stays in the index.
pub(super) fn unindex_session(rows: &mut dyn Rows, session: &SessionRow) -> Result<(), Error> {
    let mut after = Seq(0);
    loop {
        let page = lookup::records(rows, session.id, after, Limits::default().page_rows)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for record in &page {
            if let Some(words) = search_terms::of_fact(&record.fact) {
                rows.unindex_words(session, record.seq, &words)?;
            }
        }
    }
}

/// Returns messages that contain these words, newest first.
pub fn find(rows: &dyn QueryRows, find: &SearchQuery) -> Result<Vec<MessageMatch>, Error> {
    let SearchQuery { terms: wanted, session, before, limit } = find;
    rows.access().require(Scope::Read)?;
    let session = session.map(|id| session_row(rows, id)).transpose()?.map(|session| session.no);
    let before = before.map_or(u64::MAX, |FeedCursor(before)| before);
    let mut found = Vec::new();
    for (position, row) in rows.search(rows.access().visibility, session, wanted, before, *limit)? {
        let turn = turn_by_no(rows, required_row("turn", row.turn)?)?.id;
        let session = required_row("session", rows.session(row.session)?)?.id;
        let record = lookup::decode(rows, row, Some(turn))?;
        let is_input = matches!(record.fact, Fact::Accepted(_));
        let text = search_terms::text_of_fact(&record.fact).unwrap_or_default();
        let (seq, at, position) = (record.seq, record.at, FeedCursor(position));
        found.push(MessageMatch { position, session, turn, seq, at, is_input, text });
    }
    Ok(found)
}

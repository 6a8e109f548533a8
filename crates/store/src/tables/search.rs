//! The search index.
use super::Tables;
use super::column::{count, limit, read_count};
use super::journal::{read_record, record};
use outlast_ledger::rows::{LATEST, RecordRow, SearchQueries, SearchWrites, SessionNo, SessionRow};
use outlast_vocab::Error;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::record::Seq;
use outlast_vocab::search_terms::SearchTerms;
use rusqlite::params;

/// The number of records after which the words of messages are indexed. Indexing one message at a time costs
/// ten times as much.
const INDEX_BATCH_RECORDS: u64 = 512;

impl SearchQueries for Tables<'_> {
    fn search(
        &self,
        of: OrgVisibility,
        session: Option<SessionNo>,
        wanted: &SearchTerms,
        before: u64,
        most: usize,
    ) -> Result<Vec<(u64, RecordRow)>, Error> {
        let before = count(before.min(LATEST.0));
        let mut found = Vec::new();
        // Messages that are not indexed yet are newer than all indexed ones.
        let words_of_users = "SELECT pos, place, words FROM heard WHERE pos < ?1 ORDER BY pos DESC";
        let words_of_users =
            self.all(words_of_users, [before], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let words_of_users =
            words_of_users.into_iter().filter(|(_, place, words): &(i64, String, String)| {
                owner_terms(of, session).all(|whose| place.split(' ').any(|part| part == whose))
                    && wanted.fits(words)
            });
        for (position, ..) in words_of_users.take(most) {
            found.extend(self.one(record!("WHERE pos = ?1"), [position], read_record)?);
        }
        let sql = record!(
            "WHERE pos IN (SELECT rowid FROM said WHERE said MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC LIMIT ?3)
             ORDER BY pos DESC"
        );
        let query = match_expression(of, session, wanted);
        found.extend(self.all(sql, params![query, before, limit(most - found.len())], read_record)?);
        Ok(found)
    }
}

impl SearchWrites for Tables<'_> {
    fn index_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        self.run(
            "INSERT INTO heard (pos, place, words)
             VALUES ((SELECT pos FROM records WHERE session = ?1 AND seq = ?2), ?3, ?4)",
            params![session.no.0, count(seq.0), place(session), words],
        )?;
        let span = "SELECT max(pos) - (SELECT min(pos) FROM heard) FROM heard";
        let waiting = self.one(span, [], |row| read_count(row, 0))?.unwrap_or(0);
        if waiting >= INDEX_BATCH_RECORDS {
            self.run("INSERT INTO said (rowid, place, words) SELECT pos, place, words FROM heard", [])?;
            self.run("DELETE FROM heard", [])?;
        }
        Ok(())
    }

    fn unindex_words(&mut self, session: &SessionRow, seq: Seq, words: &str) -> Result<(), Error> {
        let position = "SELECT pos FROM records WHERE session = ?1 AND seq = ?2";
        let position = self.one(position, params![session.no.0, count(seq.0)], |row| row.get::<_, i64>(0))?;
        if self.run("DELETE FROM heard WHERE pos = ?1", [position])? == 0 {
            // The index stores no text, so a deletion must contain the words.
            self.run(
                "INSERT INTO said (said, rowid, place, words) VALUES ('delete', ?1, ?2, ?3)",
                params![position, place(session), words],
            )?;
        }
        Ok(())
    }
}

/// Returns the owners whose messages are searched, as in the index.
fn owner_terms(of: OrgVisibility, session: Option<SessionNo>) -> impl Iterator<Item = String> {
    let org = match of {
        OrgVisibility::Org(org) => Some(format!("o{:032x}", org.to_u128())),
        OrgVisibility::Everything => None,
    };
    org.into_iter().chain(session.map(|SessionNo(no)| format!("s{no}")))
}

/// Returns the search query in the syntax of the index. Words contain no character with a special meaning.
fn match_expression(of: OrgVisibility, session: Option<SessionNo>, wanted: &SearchTerms) -> String {
    let whose = owner_terms(of, session).map(|whose| format!("place : \"{whose}\""));
    let words: Vec<String> = wanted.words().iter().map(|word| format!("\"{word}\"")).collect();
    let words = format!("words : ({} *)", words.join(" AND "));
    whose.chain([words]).collect::<Vec<_>>().join(" AND ")
}

/// Returns the owner of a session's messages, as in the full-text index.
fn place(session: &SessionRow) -> String {
    crate::schema::place(session.org.to_u128(), session.no.0)
}

//! Values of sessions.
use super::Tables;
use super::column::limit;
use crate::error::from_sqlite;
use outlast_ledger::rows::{SessionNo, ValueRows, ValueWrites};
use outlast_vocab::Error;
use rusqlite::params;

impl ValueRows for Tables<'_> {
    fn value(&self, session: SessionNo, name: &str) -> Result<Option<String>, Error> {
        let sql = "SELECT json FROM session_values WHERE session = ?1 AND name = ?2";
        self.one(sql, params![session.0, name], |row| row.get(0))
    }

    fn value_names(&self, session: SessionNo, prefix: &str, most: usize) -> Result<Vec<String>, Error> {
        let sql = "SELECT name FROM session_values WHERE session = ?1 AND name >= ?2 ORDER BY name LIMIT ?3";
        let mut statement = self.prepared(sql)?;
        let params = params![session.0, prefix, limit(most)];
        let names = statement.query_map(params, |row| row.get::<_, String>(0)).map_err(from_sqlite)?;
        let begins =
            |name: &rusqlite::Result<String>| name.as_ref().map_or(true, |name| name.starts_with(prefix));
        names.take_while(begins).collect::<rusqlite::Result<_>>().map_err(from_sqlite)
    }
}

impl ValueWrites for Tables<'_> {
    fn put_value(&mut self, session: SessionNo, name: &str, json: Option<&str>) -> Result<(), Error> {
        match json {
            Some(json) => self.run(
                "INSERT INTO session_values (session, name, json) VALUES (?1, ?2, ?3)
                 ON CONFLICT (session, name) DO UPDATE SET json = ?3",
                params![session.0, name, json],
            ),
            None => self
                .run("DELETE FROM session_values WHERE session = ?1 AND name = ?2", params![session.0, name]),
        }?;
        Ok(())
    }
}

//! Reads and writes rows, inside a transaction that the caller begins and ends.
//!
//! A module per concern implements the traits of [`outlast_ledger::rows`], with its statements and the conversion of its
//! rows. `column` converts single values to columns and back, and `row_cache` caches rows for the writer. Every statement
//! is prepared once per connection. Columns that never change are written once, by the insert.
mod approvals;
mod audit;
mod calls;
mod column;
mod configs;
mod contents;
mod journal;
mod leases;
mod limits;
mod orgs;
mod payments;
mod row_cache;
mod search;
mod sessions;
mod signatures;
mod sinks;
#[cfg(test)]
mod tests;
mod turns;
mod values;
mod waits;

pub(crate) use row_cache::RowCache;

use crate::error::from_sqlite;
use crate::sqlite::SharedState;
use outlast_ledger::rows::{self, QueryRows, ReadRows, RowAccess, Rows};
use outlast_vocab::{Error, WorkerId};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row};
use std::fmt::Display;

/// The tables as one transaction sees them.
pub(crate) struct Tables<'c> {
    conn: &'c Connection,
    shared: &'c SharedState,
    cache: Option<&'c RowCache>,
}

impl<'c> Tables<'c> {
    /// Creates the tables of a connection inside a read transaction.
    pub(crate) fn new(conn: &'c Connection, shared: &'c SharedState) -> Self {
        Self { conn, shared, cache: None }
    }

    /// Creates the tables of the writer's connection, with its cached rows.
    pub(crate) fn writing(conn: &'c Connection, shared: &'c SharedState, held: &'c RowCache) -> Self {
        Self { conn, shared, cache: Some(held) }
    }

    /// Returns a cached row, or the row that a query finds, which is then cached.
    fn cached_or<T>(
        &self,
        recall: impl FnOnce(&RowCache) -> Option<T>,
        find: impl FnOnce() -> Result<Option<T>, Error>,
        keep: impl FnOnce(&RowCache, &T),
    ) -> Result<Option<T>, Error> {
        if let Some(row) = self.cache.and_then(recall) {
            return Ok(Some(row));
        }
        let found = find()?;
        if let (Some(held), Some(row)) = (self.cache, &found) {
            keep(held, row);
        }
        Ok(found)
    }

    /// Updates the cache, if there is one.
    fn update_cache(&self, change: impl FnOnce(&RowCache)) {
        if let Some(held) = self.cache {
            change(held);
        }
    }

    /// Returns the row that a query finds, if any.
    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        self.prepared(sql)?.query_row(params, read).optional().map_err(from_sqlite)
    }

    /// Returns all rows that a query finds.
    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = self.prepared(sql)?;
        let rows = statement.query_map(params, read).map_err(from_sqlite)?;
        rows.collect::<rusqlite::Result<_>>().map_err(from_sqlite)
    }

    /// Changes rows and returns their number.
    fn run(&self, sql: &str, params: impl Params) -> Result<usize, Error> {
        self.prepared(sql)?.execute(params).map_err(from_sqlite)
    }

    /// Inserts a row and returns its number. Fails if the id already has a row.
    fn insert(&self, id: impl Display, sql: &str, params: impl Params) -> Result<i64, Error> {
        let inserted = self.prepared(sql)?.insert(params);
        inserted.map_err(|cause| if is_taken(&cause) { rows::taken(id) } else { from_sqlite(cause) })
    }

    fn prepared(&self, sql: &str) -> Result<CachedStatement<'c>, Error> {
        self.conn.prepare_cached(sql).map_err(from_sqlite)
    }
}

impl RowAccess for Tables<'_> {}

impl ReadRows for Tables<'_> {}

impl QueryRows for Tables<'_> {}

impl Rows for Tables<'_> {}

/// Returns whether a row was refused because its id exists. The ledger checks all other unique columns.
fn is_taken(cause: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(_, Some(said)) = cause else { return false };
    let column = said.strip_prefix("UNIQUE constraint failed: ");
    matches!(column, Some("sessions.id" | "turns.id"))
}

/// Returns whether the death of a worker may matter: it holds a lease, deletes content, or delivers.
pub(crate) fn has_duties(conn: &Connection, worker: WorkerId) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM sessions WHERE state = 2 AND worker = ?1
               UNION ALL SELECT 1 FROM outside WHERE uses = 0 AND worker = ?1
               UNION ALL SELECT 1 FROM deliveries WHERE worker = ?1 LIMIT 1";
    let found =
        conn.query_row(sql, [column::id(worker.to_u128())], |_| Ok(())).optional().map_err(from_sqlite)?;
    Ok(found.is_some())
}

//! Connections for reading. A query runs on the caller's thread and sees one consistent state.
//!
//! The data of a query is nearly always in memory. Passing it to another thread and waking the caller would
//! cost several times as much as reading. So there is no reader thread, only a few open connections.
use crate::connection;
use crate::error::{catch_panic, from_sqlite};
use crate::sqlite::SharedState;
use crate::tables::Tables;
use outlast_vocab::Error;
use rusqlite::Connection;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Idle connections that stay open.
const IDLE_CONNECTIONS_MAX: usize = 4;

/// The idle connections.
#[derive(Default)]
pub(crate) struct ReaderPool {
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    /// Runs a query on an idle or a new connection.
    pub(crate) fn read<T>(
        &self,
        shared: &SharedState,
        query: impl FnOnce(&Tables<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let reused = self.idle().pop();
        let conn = match reused {
            Some(conn) => conn,
            None => connection::reader(&shared.location, shared.busy_timeout)?,
        };
        run(&conn, "BEGIN")?;
        let answer = catch_panic(|| query(&Tables::new(&conn, shared)));
        // Nothing was written, so a failed rollback loses nothing.
        if run(&conn, "ROLLBACK").is_ok() {
            let mut idle = self.idle();
            if idle.len() < IDLE_CONNECTIONS_MAX {
                idle.push(conn);
            }
        }
        answer
    }

    /// Closes the idle connections.
    pub(crate) fn close(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(conn: &Connection, sql: &str) -> Result<(), Error> {
    conn.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(from_sqlite)?;
    Ok(())
}

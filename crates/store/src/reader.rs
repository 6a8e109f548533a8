//! Connections that read. A query runs where it is asked and answers from one consistent state.
//!
//! What a query reads is nearly always in memory; handing it to a thread and waking its caller again costs several times
//! the reading. So there is no thread, only a few connections that are kept open.
use crate::connect;
use crate::error::{caught, failure};
use crate::sqlite::Shared;
use crate::tables::Tables;
use outlast_vocab::Error;
use rusqlite::Connection;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Connections that are kept open while nobody reads.
const KEPT: usize = 4;

/// The connections that nobody reads from right now.
#[derive(Default)]
pub(crate) struct Readers {
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// Runs a query on a connection of its own.
    pub(crate) fn read<T>(
        &self,
        shared: &Shared,
        query: impl FnOnce(&Tables<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let kept = self.idle().pop();
        let conn = match kept {
            Some(conn) => conn,
            None => connect::reader(&shared.place, shared.busy_timeout)?,
        };
        run(&conn, "BEGIN")?;
        let answer = caught(|| query(&Tables::new(&conn, shared)));
        // Nothing was written, so there is nothing that could fail to be kept.
        if run(&conn, "ROLLBACK").is_ok() {
            let mut idle = self.idle();
            if idle.len() < KEPT {
                idle.push(conn);
            }
        }
        answer
    }

    /// Closes the connections that are kept.
    pub(crate) fn close(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(conn: &Connection, sql: &str) -> Result<(), Error> {
    conn.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(failure)?;
    Ok(())
}

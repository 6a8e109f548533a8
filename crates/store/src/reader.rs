//! Threads that read. Each has a connection of its own, opened at its first query, and answers each query from one
//! consistent state.
use crate::connect;
use crate::error::failure;
use crate::queue::Queued;
use crate::sqlite::Shared;
use crate::tables::Tables;
use outlast_vocab::Error;
use rusqlite::Connection;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// A query that tells its caller what it found, or why it could not look.
pub(crate) type Query = Box<dyn FnOnce(Result<&Tables<'_>, Error>) + Send>;

/// Answers queries until nobody can ask any more.
pub(crate) fn serve(shared: &Shared, queries: &Arc<Mutex<Receiver<Queued<Query>>>>) {
    let mut kept = None;
    loop {
        let next = queries.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(queued) = next else { return };
        answer(shared, &mut kept, queued.take());
    }
}

fn answer(shared: &Shared, kept: &mut Option<Connection>, query: Query) {
    let begun = opened(shared, kept).and_then(|conn| run(conn, "BEGIN").map(|()| conn));
    match begun {
        Ok(conn) => {
            query(Ok(&Tables::new(conn, shared)));
            // Nothing was written, so there is nothing that could fail to be kept.
            let _ended = run(conn, "ROLLBACK");
        }
        Err(error) => query(Err(error)),
    }
}

fn opened<'c>(shared: &Shared, kept: &'c mut Option<Connection>) -> Result<&'c Connection, Error> {
    let conn = match kept.take() {
        Some(conn) => conn,
        None => connect::reader(&shared.path, shared.busy_timeout)?,
    };
    Ok(kept.insert(conn))
}

fn run(conn: &Connection, sql: &str) -> Result<(), Error> {
    conn.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(failure)?;
    Ok(())
}

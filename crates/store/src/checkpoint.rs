//! Checkpoints: when the write-ahead log moves into the database file.
//!
//! A checkpoint costs two syncs and some milliseconds, so it waits until the writer is idle or the log is
//! long. The log restarts from its beginning once all of it has moved and no reader needs it.
use crate::error::from_sqlite;
use outlast_vocab::Error;
use rusqlite::Connection;
use std::time::Duration;

/// How long the writer must be idle before a checkpoint.
pub(crate) const IDLE: Duration = Duration::from_millis(200);

/// The fewest pages in the log that are worth a checkpoint while idle.
const IDLE_PAGES: i64 = 1_000;
/// The pages in the log after which a checkpoint runs between two writes.
const BUSY_PAGES: i64 = 6_000;
/// The pages in the log after which a checkpoint waits for readers, so that the log can restart.
const LONG_PAGES: i64 = 24_000;
/// How long a checkpoint waits for readers.
const READER_TIMEOUT: Duration = Duration::from_millis(250);

/// The log of one database, as its writer sees it.
pub(crate) struct WalCheckpointer {
    busy_timeout: Duration,
    /// Pages in the log.
    pages: i64,
    /// Pages that have moved or were tried: pages that a reader still needs are not tried again at once.
    attempted_pages: i64,
}

impl WalCheckpointer {
    /// Creates a log of unknown length. `busy_timeout` is the usual timeout of the connection.
    pub(crate) fn new(busy_timeout: Duration) -> Self {
        Self { busy_timeout, pages: 0, attempted_pages: 0 }
    }

    /// Measures the log after a commit, and runs a checkpoint if the log is long.
    pub(crate) fn after_commit(&mut self, conn: &Connection) -> Result<(), Error> {
        self.ask(conn, "PRAGMA wal_checkpoint(NOOP)")?;
        if self.pages - self.attempted_pages >= BUSY_PAGES {
            return self.checkpoint(conn);
        }
        Ok(())
    }

    /// Returns whether a checkpoint while idle is worthwhile.
    pub(crate) fn should_checkpoint_idle(&self) -> bool {
        self.pages - self.attempted_pages >= IDLE_PAGES
    }

    /// Runs a checkpoint, which moves as much as readers allow.
    pub(crate) fn checkpoint(&mut self, conn: &Connection) -> Result<(), Error> {
        if self.pages < LONG_PAGES {
            self.ask(conn, "PRAGMA wal_checkpoint(PASSIVE)")?;
        } else {
            conn.busy_timeout(READER_TIMEOUT).map_err(from_sqlite)?;
            let moved = self.ask(conn, "PRAGMA wal_checkpoint(TRUNCATE)");
            conn.busy_timeout(self.busy_timeout).map_err(from_sqlite)?;
            moved?;
        }
        self.attempted_pages = self.pages;
        Ok(())
    }

    fn ask(&mut self, conn: &Connection, pragma: &str) -> Result<(), Error> {
        let mut statement = conn.prepare_cached(pragma).map_err(from_sqlite)?;
        let (pages, moved) =
            statement.query_one([], |row| Ok((row.get(1)?, row.get(2)?))).map_err(from_sqlite)?;
        self.pages = pages;
        self.attempted_pages =
            if pages < self.attempted_pages { moved } else { self.attempted_pages.max(moved) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::params;

    fn database() -> (tempfile::TempDir, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let conn = Connection::open(folder.path().join("log.db")).unwrap();
        conn.pragma_update(None, "journal_mode", "WAL").unwrap();
        conn.pragma_update(None, "synchronous", "OFF").unwrap();
        conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(())).unwrap();
        conn.execute_batch("CREATE TABLE rows (bytes BLOB)").unwrap();
        (folder, conn)
    }

    /// Adds this many pages to the log, in transactions of a hundred.
    fn write(conn: &Connection, wal: &mut WalCheckpointer, pages: usize) {
        for _ in 0..pages / 100 {
            conn.execute("INSERT INTO rows VALUES (?1)", params![vec![7_u8; 98 * 4_096]]).unwrap();
            wal.after_commit(conn).unwrap();
        }
    }

    #[test]
    fn short_wal_is_not_checkpointed() {
        let (_folder, conn) = database();
        let mut wal = WalCheckpointer::new(Duration::ZERO);
        write(&conn, &mut wal, 500);
        assert!(!wal.should_checkpoint_idle());
        write(&conn, &mut wal, 1_000);
        assert!(wal.should_checkpoint_idle());
        wal.checkpoint(&conn).unwrap();
        assert!(!wal.should_checkpoint_idle());
    }

    #[test]
    fn wal_size_is_bounded_under_load() {
        let (folder, conn) = database();
        let mut wal = WalCheckpointer::new(Duration::ZERO);
        write(&conn, &mut wal, 30_000);
        let bytes = std::fs::metadata(folder.path().join("log.db-wal")).unwrap().len();
        assert!(bytes < 7_000 * 4_200, "{bytes}");
    }

    #[test]
    fn long_reader_blocks_wal_reset_until_it_ends() {
        let (folder, conn) = database();
        let mut wal = WalCheckpointer::new(Duration::ZERO);
        let reader = Connection::open(folder.path().join("log.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM rows").unwrap();
        write(&conn, &mut wal, 30_000);
        assert!(wal.pages > LONG_PAGES);
        reader.execute_batch("COMMIT").unwrap();
        write(&conn, &mut wal, 7_000);
        assert!(wal.pages < BUSY_PAGES, "{}", wal.pages);
    }
}

//! Checkpoints: when the write-ahead log moves into the database file.
//!
//! A checkpoint costs two syncs and some milliseconds, so it waits until the writer is idle or the log is
//! long. The log restarts from its beginning once all of it has moved and no reader needs it.
use crate::error::failure;
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
const READERS: Duration = Duration::from_millis(250);

/// The log of one database, as its writer sees it.
pub(crate) struct Wal {
    busy_timeout: Duration,
    /// Pages in the log.
    pages: i64,
    /// Pages that have moved or were tried: pages that a reader still needs are not tried again at once.
    tried: i64,
}

impl Wal {
    /// Creates a log of unknown length. `busy_timeout` is the usual timeout of the connection.
    pub(crate) fn new(busy_timeout: Duration) -> Self {
        Self { busy_timeout, pages: 0, tried: 0 }
    }

    /// Measures the log after a commit, and runs a checkpoint if the log is long.
    pub(crate) fn grew(&mut self, conn: &Connection) -> Result<(), Error> {
        self.ask(conn, "PRAGMA wal_checkpoint(NOOP)")?;
        if self.pages - self.tried >= BUSY_PAGES {
            return self.move_over(conn);
        }
        Ok(())
    }

    /// Returns whether a checkpoint while idle is worthwhile.
    pub(crate) fn is_worth_moving(&self) -> bool {
        self.pages - self.tried >= IDLE_PAGES
    }

    /// Runs a checkpoint, which moves as much as readers allow.
    pub(crate) fn move_over(&mut self, conn: &Connection) -> Result<(), Error> {
        if self.pages < LONG_PAGES {
            self.ask(conn, "PRAGMA wal_checkpoint(PASSIVE)")?;
        } else {
            conn.busy_timeout(READERS).map_err(failure)?;
            let moved = self.ask(conn, "PRAGMA wal_checkpoint(TRUNCATE)");
            conn.busy_timeout(self.busy_timeout).map_err(failure)?;
            moved?;
        }
        self.tried = self.pages;
        Ok(())
    }

    fn ask(&mut self, conn: &Connection, pragma: &str) -> Result<(), Error> {
        let mut statement = conn.prepare_cached(pragma).map_err(failure)?;
        let (pages, moved) =
            statement.query_one([], |row| Ok((row.get(1)?, row.get(2)?))).map_err(failure)?;
        self.pages = pages;
        self.tried = if pages < self.tried { moved } else { self.tried.max(moved) };
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
    fn write(conn: &Connection, wal: &mut Wal, pages: usize) {
        for _ in 0..pages / 100 {
            conn.execute("INSERT INTO rows VALUES (?1)", params![vec![7_u8; 98 * 4_096]]).unwrap();
            wal.grew(conn).unwrap();
        }
    }

    #[test]
    fn a_short_log_is_left_alone() {
        let (_folder, conn) = database();
        let mut wal = Wal::new(Duration::ZERO);
        write(&conn, &mut wal, 500);
        assert!(!wal.is_worth_moving());
        write(&conn, &mut wal, 1_000);
        assert!(wal.is_worth_moving());
        wal.move_over(&conn).unwrap();
        assert!(!wal.is_worth_moving());
    }

    #[test]
    fn a_log_does_not_grow_for_ever_under_load() {
        let (folder, conn) = database();
        let mut wal = Wal::new(Duration::ZERO);
        write(&conn, &mut wal, 30_000);
        let bytes = std::fs::metadata(folder.path().join("log.db-wal")).unwrap().len();
        assert!(bytes < 7_000 * 4_200, "{bytes}");
    }

    #[test]
    fn a_reader_that_stays_holds_the_log_and_one_that_goes_frees_it() {
        let (folder, conn) = database();
        let mut wal = Wal::new(Duration::ZERO);
        let reader = Connection::open(folder.path().join("log.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM rows").unwrap();
        write(&conn, &mut wal, 30_000);
        assert!(wal.pages > LONG_PAGES);
        reader.execute_batch("COMMIT").unwrap();
        write(&conn, &mut wal, 7_000);
        assert!(wal.pages < BUSY_PAGES, "{}", wal.pages);
    }
}

//! A workload that knows which commits were acknowledged, and the checks after a crash.
use outlast_disk::{Disk, Mount};
use rusqlite::{Connection, OpenFlags, params};
use std::time::Duration;

/// The database file.
pub(crate) const FILE: &str = "work.db";

/// The number of commits in the workload.
pub(crate) const COMMITS: i64 = 12;

/// When a commit becomes durable.
#[derive(Clone, Copy)]
pub(crate) enum Syncs {
    /// Before it is acknowledged.
    Full,
    /// With the next checkpoint.
    Normal,
}

pub(crate) fn open(mount: &Mount) -> rusqlite::Result<Connection> {
    open_with(mount, Syncs::Full)
}

fn open_with(mount: &Mount, syncs: Syncs) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags_and_vfs(FILE, OpenFlags::default(), mount.vfs())?;
    conn.busy_timeout(Duration::from_millis(100))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(
        None,
        "synchronous",
        match syncs {
            Syncs::Full => "FULL",
            Syncs::Normal => "NORMAL",
        },
    )?;
    Ok(conn)
}

/// Creates the tables of the workload.
pub(crate) fn prepare(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(
        "BEGIN;
         CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY, filler BLOB);
         CREATE TABLE IF NOT EXISTS total (one INTEGER PRIMARY KEY CHECK (one = 1), sum INTEGER);
         INSERT OR IGNORE INTO total VALUES (1, 0);
         COMMIT;",
    )
}

/// Makes one atomic commit over several pages: adds a row and updates the sum of all rows.
pub(crate) fn add(conn: &Connection, n: i64) -> rusqlite::Result<()> {
    let filler = vec![u8::try_from(n % 251).unwrap(); 6_000];
    let whole = conn.unchecked_transaction()?;
    whole.prepare_cached("INSERT INTO numbers VALUES (?1, ?2)")?.execute(params![n, filler])?;
    whole.prepare_cached("UPDATE total SET sum = sum + ?1")?.execute([n])?;
    whole.commit()
}

/// Adds numbers starting at 1 until all are added or an operation fails. A second connection reads and checkpoints at
/// intervals. Returns the last acknowledged number.
pub(crate) fn work(mount: &Mount, syncs: Syncs) -> (i64, rusqlite::Result<()>) {
    let mut acknowledged = 0;
    let ended = (|| {
        let writer = open_with(mount, syncs)?;
        writer.pragma_update(None, "wal_autocheckpoint", 25)?;
        prepare(&writer)?;
        let other = open_with(mount, syncs)?;
        for n in 1..=COMMITS {
            add(&writer, n)?;
            acknowledged = n;
            if n % 4 == 0 {
                other.query_row("SELECT sum FROM total", [], |row| row.get::<_, i64>(0))?;
                let kind = if n % 8 == 0 { "TRUNCATE" } else { "PASSIVE" };
                other.query_row(&format!("PRAGMA wal_checkpoint({kind})"), [], |_| Ok(()))?;
            }
        }
        Ok(())
    })();
    (acknowledged, ended)
}

/// Returns the number of changes that the whole workload makes.
pub(crate) fn changes(syncs: Syncs) -> u64 {
    let mount = Disk::new().mount();
    let (acknowledged, ended) = work(&mount, syncs);
    assert_eq!((acknowledged, ended), (COMMITS, Ok(())));
    mount.changes()
}

/// Opens the database after a crash and returns the last number. Checks its integrity, and that no number before it is
/// missing.
pub(crate) fn recover(disk: &Disk) -> i64 {
    let mount = disk.mount();
    let conn = open(&mount).unwrap();
    let result: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(result, "ok");
    prepare(&conn).unwrap();
    let numbers: Vec<i64> = conn
        .prepare("SELECT n FROM numbers WHERE length(filler) = 6000 ORDER BY n")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let last = numbers.last().copied().unwrap_or_default();
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "a beginning without gaps");
    let sum: i64 = conn.query_row("SELECT sum FROM total", [], |row| row.get(0)).unwrap();
    assert_eq!(sum, last * (last + 1) / 2, "a commit is there wholly or not at all");
    last
}

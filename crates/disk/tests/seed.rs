//! SQLite's own randomness. It belongs to the whole program, so this test has one to itself.
use outlast_disk::{Disk, seed_sqlite};
use rusqlite::{Connection, OpenFlags};

/// The log of a small database, which has two random numbers in its header, and a random number that SQL asked for.
fn run(seed: u64) -> (Option<Vec<u8>>, i64) {
    seed_sqlite(seed);
    let disk = Disk::new();
    let mount = disk.mount();
    let conn = Connection::open_with_flags_and_vfs("seed.db", OpenFlags::default(), mount.vfs()).unwrap();
    conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n); INSERT INTO t VALUES (1)").unwrap();
    let drawn = conn.query_row("SELECT random()", [], |row| row.get(0)).unwrap();
    (disk.read("seed.db-wal"), drawn)
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let first = run(7);
    assert_eq!(run(7), first);
    let (log, drawn) = run(8);
    assert_ne!(log, first.0);
    assert_ne!(drawn, first.1);
    let folder = Connection::open_in_memory().unwrap();
    assert_eq!(
        folder.query_row("SELECT 1", [], |row| row.get(0)),
        Ok(1),
        "the default VFS is the system's again"
    );
}

//! Tests of state that is global to the program: SQLite's randomness and its list of VFSs. They need their own test
//! binary.
use outlast_disk::{Disk, seed_sqlite};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeSet;

/// Returns the log of a small database, whose header contains two random numbers, and a random number from SQL.
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
fn same_seed_gives_same_disk_contents() {
    let first = run(7);
    assert_eq!(run(7), first);
    let (log, drawn) = run(8);
    assert_ne!(log, first.0);
    assert_ne!(drawn, first.1);
}

#[test]
fn mount_name_is_reused_after_its_connections_close() {
    let disk = Disk::new();
    let names = |count| (0..count).map(|_| disk.mount().vfs().to_owned()).collect::<BTreeSet<_>>();
    let mount = disk.mount();
    let taken = mount.vfs().to_owned();
    let conn = Connection::open_with_flags_and_vfs("app.db", OpenFlags::default(), mount.vfs()).unwrap();
    drop(mount);
    // The other test may hold a name at the same time.
    let free = names(100);
    assert!(free.len() <= 3 && !free.contains(&taken), "{taken}, {free:?}");
    drop(conn);
    let all: Vec<_> = (0..10).map(|_| disk.mount()).collect();
    assert!(all.iter().any(|mount| mount.vfs() == taken));
}

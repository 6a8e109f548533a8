//! Processes and their connections: what they share, and what is left when one ends.
use crate::workload::{self, COMMITS, FILE, Syncs, add, changes, open, prepare, recover, work};
use outlast_disk::{CrashMode, Disk, Mount, PowerLossEffect};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use std::time::{Duration, Instant};

fn sum(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row("SELECT sum FROM total", [], |row| row.get(0))
}

/// Checkpoints the log. Returns whether a reader blocked it.
fn checkpoint(conn: &Connection, kind: &str) -> bool {
    conn.query_row(&format!("PRAGMA wal_checkpoint({kind})"), [], |row| row.get(0)).unwrap()
}

/// Creates a disk with a prepared database, and a process with a connection to it.
fn prepared() -> (Disk, Mount, Connection) {
    let disk = Disk::new();
    let mount = disk.mount();
    let conn = open(&mount).unwrap();
    prepare(&conn).unwrap();
    (disk, mount, conn)
}

fn code(result: rusqlite::Result<()>) -> Option<ErrorCode> {
    result.unwrap_err().sqlite_error_code()
}

#[test]
fn two_processes_write_one_database_in_turns() {
    let (disk, _mount, first) = prepared();
    let mount = disk.mount();
    let second = open(&mount).unwrap();
    for n in 1..=20 {
        add(if n % 2 == 0 { &first } else { &second }, n).unwrap();
        assert_eq!(sum(&first), sum(&second));
    }
    assert!(!checkpoint(&second, "TRUNCATE"));
    add(&first, 21).unwrap();
    assert_eq!(sum(&second), Ok(21 * 22 / 2));
    assert_eq!(recover(&disk), 21);
}

#[test]
fn reader_keeps_one_snapshot_and_the_wal() {
    let (disk, _mount, writer) = prepared();
    let mount = disk.mount();
    let reader = open(&mount).unwrap();
    add(&writer, 1).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(sum(&reader), Ok(1));
    add(&writer, 2).unwrap();
    assert_eq!(sum(&reader), Ok(1));
    assert!(checkpoint(&writer, "TRUNCATE"), "the reader is in the way");
    mount.kill();
    assert!(!checkpoint(&writer, "TRUNCATE"), "a dead reader is not");
    assert_eq!(disk.read("work.db-wal").unwrap(), []);
}

#[test]
fn writer_excludes_others_until_dead_and_closed() {
    let (disk, mount, writer) = prepared();
    let other_mount = disk.mount();
    let other = open(&other_mount).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; UPDATE total SET sum = 1000").unwrap();
    assert_eq!(code(add(&other, 1)), Some(ErrorCode::DatabaseBusy));
    mount.kill();
    assert_eq!(
        code(add(&other, 1)),
        Some(ErrorCode::SystemIoFailure),
        "it could still change the shared memory"
    );
    drop(writer);
    add(&other, 1).unwrap();
    assert_eq!(recover(&disk), 1);
}

/// SQLite rolls the transaction back in the call that reports the death.
#[test]
fn process_killed_inside_a_commit_blocks_no_writer() {
    let (disk, mount, writer) = prepared();
    let other_mount = disk.mount();
    let other = open(&other_mount).unwrap();
    mount.crash_at_change(mount.changes() + 3, CrashMode::Before);
    assert_eq!(code(add(&writer, 1)), Some(ErrorCode::SystemIoFailure));
    add(&other, 1).unwrap();
    drop(writer);
    add(&other, 2).unwrap();
    assert_eq!(recover(&disk), 2);
}

#[test]
fn a_power_loss_ends_all_processes() {
    let (disk, mount, writer) = prepared();
    let other_mount = disk.mount();
    let other = open(&other_mount).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; UPDATE total SET sum = 1000").unwrap();
    disk.lose_power(&mut |_| PowerLossEffect::Kept);
    assert!(mount.is_dead() && other_mount.is_dead());
    assert_eq!(code(add(&other, 1)), Some(ErrorCode::SystemIoFailure));
    // The connections of dead processes can be closed at any time, because they hold nothing.
    assert_eq!(recover(&disk), 0);
    drop((writer, other));
    assert_eq!(recover(&disk), 0);
}

#[test]
fn busy_wait_uses_simulated_time() {
    let (disk, _mount, writer) = prepared();
    let other_mount = disk.mount();
    let other = open(&other_mount).unwrap();
    other.busy_timeout(Duration::from_secs(100)).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    assert_eq!(code(add(&other, 1)), Some(ErrorCode::DatabaseBusy));
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
}

#[test]
fn process_killed_inside_a_transaction_blocks_no_writer() {
    let (disk, mount, writer) = prepared();
    writer.execute_batch("BEGIN IMMEDIATE; UPDATE total SET sum = 1000").unwrap();
    mount.kill();
    let next_mount = disk.mount();
    let next = open(&next_mount).unwrap();
    add(&next, 1).unwrap();
    drop(writer);
    add(&next, 2).unwrap();
    assert_eq!(recover(&disk), 2);
}

#[test]
fn a_dead_process_reads_and_changes_nothing() {
    let (disk, mount, conn) = prepared();
    add(&conn, 1).unwrap();
    let (before, files) = (mount.changes(), disk.read("work.db-wal"));
    assert!(!mount.is_dead());
    mount.kill();
    assert!(mount.is_dead());
    assert_eq!(sum(&conn).unwrap_err().sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
    assert_eq!(code(add(&conn, 2)), Some(ErrorCode::SystemIoFailure));
    assert!(open(&mount).is_err(), "nor does it open anything");
    drop(conn);
    assert_eq!((mount.changes(), disk.read("work.db-wal")), (before, files));
    assert_eq!(recover(&disk), 1);
}

#[test]
fn last_connection_to_close_removes_the_wal() {
    let (disk, _mount, conn) = prepared();
    let second = disk.mount();
    let other = open(&second).unwrap();
    drop(conn);
    assert_eq!(disk.names(), [FILE, "work.db-wal"]);
    drop(other);
    assert_eq!(disk.names(), [FILE]);
    assert_eq!(disk.used(), disk.read(FILE).unwrap().len() as u64);
}

#[test]
fn connections_outlive_their_dropped_mount() {
    let (disk, mount, conn) = prepared();
    let name = mount.vfs().to_owned();
    drop(mount);
    let found = Connection::open_with_flags_and_vfs(FILE, OpenFlags::default(), name.as_str());
    assert!(found.is_err());
    add(&conn, 1).unwrap();
    drop(conn);
    assert_eq!(recover(&disk), 1);
}

#[test]
fn unnamed_temporary_databases_work() {
    let mount = Disk::new().mount();
    let conn = Connection::open_with_flags_and_vfs("", OpenFlags::default(), mount.vfs()).unwrap();
    conn.execute_batch("PRAGMA cache_size = 1; CREATE TABLE t (b)").unwrap();
    conn.execute("INSERT INTO t VALUES (zeroblob(1000000))", []).unwrap();
    assert!(mount.changes() > 0, "it was too large for the cache");
    assert_eq!(conn.query_row("SELECT length(b) FROM t", [], |row| row.get(0)), Ok(1_000_000));
}

/// SQLite does not sleep on this disk, so a thread that finds it busy retries at once.
#[test]
fn processes_on_several_threads_wait_for_each_other() {
    let (disk, _mount, conn) = prepared();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mount = disk.mount();
                let conn =
                    Connection::open_with_flags_and_vfs(FILE, OpenFlags::default(), mount.vfs()).unwrap();
                for _ in 0..20 {
                    while conn.execute("UPDATE total SET sum = sum + 1", []).is_err_and(|error| {
                        // Two threads that start to read at the same time may run out of retries. That is temporary
                        // too.
                        let busy = [ErrorCode::DatabaseBusy, ErrorCode::FileLockingProtocolFailed];
                        assert!(
                            error.sqlite_error_code().is_some_and(|code| busy.contains(&code)),
                            "{error}"
                        );
                        std::thread::yield_now();
                        true
                    }) {}
                }
            });
        }
    });
    assert_eq!(sum(&conn), Ok(60));
}

#[test]
fn disk_copy_changes_independently() {
    let (disk, _mount, conn) = prepared();
    add(&conn, 1).unwrap();
    let fork = Disk::from(disk.snapshot());
    add(&conn, 2).unwrap();
    assert_eq!(recover(&fork), 1);
    assert_eq!(recover(&disk), 2);
}

#[test]
fn clock_returns_the_time_that_was_set() {
    let (disk, _mount, conn) = prepared();
    disk.set_time(1_000_000_000_123);
    let time: (String, f64) = conn
        .query_row("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now'), julianday('now')", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(time.0, "2001-09-09 01:46:40.123");
    assert!((time.1 - 2_452_161.574_075).abs() < 0.000_001, "{}", time.1);
}

#[test]
fn a_rollback_journal_works_with_several_processes() {
    let disk = Disk::new();
    let mounts = [disk.mount(), disk.mount()];
    let [first, second] = mounts
        .each_ref()
        .map(|mount| Connection::open_with_flags_and_vfs(FILE, OpenFlags::default(), mount.vfs()).unwrap());
    prepare(&first).unwrap();
    add(&first, 1).unwrap();
    add(&second, 2).unwrap();
    second.execute_batch("BEGIN; SELECT * FROM total").unwrap();
    first
        .execute_batch(
            "BEGIN; UPDATE total SET sum = sum + 3; INSERT INTO numbers VALUES (3, zeroblob(6000))",
        )
        .unwrap();
    assert_eq!(code(second.execute_batch("UPDATE total SET sum = 0")), Some(ErrorCode::DatabaseBusy));
    assert_eq!(
        code(first.execute_batch("COMMIT")),
        Some(ErrorCode::DatabaseBusy),
        "the reader is in the way"
    );
    second.execute_batch("ROLLBACK").unwrap();
    first.execute_batch("COMMIT").unwrap();
    assert_eq!(sum(&second), Ok(6));
    drop((first, second));
    assert_eq!(recover(&disk), 3);
}

#[test]
fn same_work_makes_identical_disk_changes() {
    assert_eq!(changes(Syncs::Full), changes(Syncs::Full));
    let disks = [Disk::new(), Disk::new()];
    for disk in &disks {
        assert_eq!(work(&disk.mount(), Syncs::Full), (COMMITS, Ok(())));
    }
    assert_eq!(disks[0].names(), disks[1].names());
    assert_eq!(disks[0].read(workload::FILE), disks[1].read(workload::FILE));
}

#[test]
fn missing_file_is_not_created_implicitly() {
    let mount = Disk::new().mount();
    let found =
        Connection::open_with_flags_and_vfs("none.db", OpenFlags::SQLITE_OPEN_READ_WRITE, mount.vfs());
    assert_eq!(
        found.unwrap_err().sqlite_error().map(|error| error.extended_code),
        Some(ffi::SQLITE_CANTOPEN)
    );
    assert_eq!(mount.changes(), 0);
}

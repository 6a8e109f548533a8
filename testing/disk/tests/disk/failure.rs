//! Changes that fail while the process keeps running.
use crate::workload::{COMMITS, Syncs, add, changes, open, prepare, recover, work};
use outlast_disk::{ChangeFailure, Disk, Mount, PowerLossEffect};
use rusqlite::{Connection, ffi};

/// Returns the extended code of an error.
fn code<T>(result: rusqlite::Result<T>) -> i32 {
    let error = result.err().expect("a failure");
    error.sqlite_error().expect("an error of SQLite").extended_code
}

fn prepared() -> (Disk, Mount, Connection) {
    let disk = Disk::new();
    let mount = disk.mount();
    let conn = open(&mount).unwrap();
    prepare(&conn).unwrap();
    add(&conn, 1).unwrap();
    (disk, mount, conn)
}

#[test]
fn full_disk_rejects_commit_and_keeps_earlier_ones() {
    let (disk, _mount, conn) = prepared();
    let limit = disk.used() + 1_000;
    disk.set_size_limit(Some(limit));
    assert_eq!(code(add(&conn, 2)), ffi::SQLITE_FULL);
    assert_eq!(conn.query_row("SELECT count(*) FROM numbers", [], |row| row.get(0)), Ok(1));
    assert_eq!(disk.used(), limit, "what had room was written");
    disk.set_size_limit(None);
    add(&conn, 2).unwrap();
    assert_eq!(recover(&disk), 2);
}

#[test]
fn failed_operation_returns_its_sqlite_code() {
    for (failure, expected) in [
        (ChangeFailure::Full, ffi::SQLITE_FULL),
        (ChangeFailure::WriteError, ffi::SQLITE_IOERR_WRITE),
        (ChangeFailure::ShortWrite { sectors: 2 }, ffi::SQLITE_IOERR_WRITE),
        (ChangeFailure::SyncError, ffi::SQLITE_IOERR_FSYNC),
    ] {
        let (disk, mount, conn) = prepared();
        mount.fail_once_at(mount.changes(), failure);
        assert_eq!(code(add(&conn, 2)), expected, "{failure:?}");
        add(&conn, 2).unwrap();
        mount.fail_from(mount.changes(), failure);
        assert_eq!(code(add(&conn, 3)), expected, "{failure:?}");
        assert_eq!(code(add(&conn, 3)), expected, "{failure:?} lasts");
        mount.cancel_planned_faults();
        add(&conn, 3).unwrap();
        assert_eq!(recover(&disk), 3);
    }
}

/// A failed commit may exist after a restart, but no acknowledged commit is missing.
#[test]
fn failure_at_any_change_loses_no_commit() {
    for failure in [
        ChangeFailure::Full,
        ChangeFailure::WriteError,
        ChangeFailure::ShortWrite { sectors: 5 },
        ChangeFailure::SyncError,
    ] {
        for at in 0..changes(Syncs::Full) {
            let disk = Disk::new();
            let mount = disk.mount();
            mount.fail_once_at(at, failure);
            let (acknowledged, ended) = work(&mount, Syncs::Full);
            assert!(ended.is_err() || acknowledged == COMMITS, "{failure:?} at {at}");
            // The process has closed its connections, if it could. Now the power is cut.
            disk.lose_power(&mut |_| PowerLossEffect::Dropped);
            let left = recover(&disk);
            assert!(
                left == acknowledged || left == acknowledged + 1,
                "{failure:?} at {at}: {acknowledged}, {left}"
            );
        }
    }
}

/// Shows why a sync must not be retried. The process sees the commit fail. After a restart, SQLite finds it in the
/// system's cache and builds on it. The sync of the next commit succeeds, although the failed commit never reached the
/// device.
#[test]
fn later_sync_does_not_repair_a_failed_one() {
    let (disk, mount, conn) = prepared();
    mount.fail_once_at(mount.changes(), ChangeFailure::SyncError);
    assert_eq!(code(add(&conn, 2)), ffi::SQLITE_IOERR_FSYNC);
    mount.kill();
    drop(conn);

    let mount = disk.mount();
    let conn = open(&mount).unwrap();
    assert_eq!(
        conn.query_row("SELECT max(n) FROM numbers", [], |row| row.get(0)),
        Ok(2),
        "the system shows it"
    );
    add(&conn, 3).unwrap();

    let before = disk.snapshot();
    disk.lose_power(&mut |unsynced| {
        assert!(unsynced.sync_failed);
        PowerLossEffect::Dropped
    });
    assert_eq!(recover(&disk), 1, "an acknowledged commit is lost with the one it stands on");
    let lucky = Disk::from(before);
    lucky.lose_power(&mut |_| PowerLossEffect::Kept);
    assert_eq!(recover(&lucky), 3);
}

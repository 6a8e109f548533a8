//! Bytes that change without the knowledge of any process.
use crate::workload::{FILE, Syncs, open, work};
use outlast_disk::{Disk, PowerLossEffect};

fn worked() -> Disk {
    let disk = Disk::new();
    work(&disk.mount(), Syncs::Full).1.unwrap();
    disk
}

/// Returns the result of SQLite's integrity check.
fn check(disk: &Disk) -> rusqlite::Result<String> {
    open(&disk.mount())?.query_row("PRAGMA integrity_check", [], |row| row.get(0))
}

#[test]
fn corruption_survives_power_loss_and_fails_integrity_check() {
    let disk = worked();
    let good = disk.read(FILE).unwrap();
    disk.corrupt(FILE, 4_096, &[0xff; 100]);
    disk.lose_power(&mut |_| PowerLossEffect::Dropped);
    let bad = disk.read(FILE).unwrap();
    assert_eq!(
        (&bad[..4_096], &bad[4_096..4_196], &bad[4_196..]),
        (&good[..4_096], &[0xff; 100][..], &good[4_196..])
    );
    assert_ne!(check(&disk), Ok("ok".to_owned()));
}

#[test]
#[should_panic(expected = "expected a file `none.db` to corrupt, found none")]
fn missing_file_cannot_be_corrupted() {
    worked().corrupt("none.db", 0, &[1]);
}

#[test]
#[should_panic(expected = "expected `work.db` to have 1000000001 bytes to corrupt, found ")]
fn bytes_past_the_end_cannot_be_corrupted() {
    worked().corrupt(FILE, 1_000_000_000, &[1]);
}

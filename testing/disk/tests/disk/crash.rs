//! A crash at every change: the process dies, or the power is cut.
use crate::workload::{COMMITS, Syncs, changes, recover, work};
use outlast_disk::{CrashMode, Disk, PowerLossEffect, UnsyncedChange, UnsyncedChangeKind};
use outlast_random::SeededRandom;

/// The ways to die at a change.
const DEATHS: [CrashMode; 3] = [CrashMode::Before, CrashMode::Torn { sectors: 3 }, CrashMode::After];

/// Returns the disk after a death at a change, and the last number that was acknowledged.
fn die(at: u64, death: CrashMode, syncs: Syncs) -> (Disk, i64) {
    let disk = Disk::new();
    let mount = disk.mount();
    mount.crash_at_change(at, death);
    let (acknowledged, ended) = work(&mount, syncs);
    assert!(mount.is_dead(), "change {at} is one of the workload");
    assert!(ended.is_err() || acknowledged == COMMITS, "after its death nothing works");
    (disk, acknowledged)
}

#[test]
fn kill_at_any_change_loses_no_commit() {
    for at in 0..changes(Syncs::Full) {
        for death in DEATHS {
            let (disk, acknowledged) = die(at, death, Syncs::Full);
            let left = recover(&disk);
            assert!(
                left == acknowledged || left == acknowledged + 1,
                "{death:?} at {at}: acknowledged {acknowledged}, found {left}"
            );
        }
    }
}

/// Decides the effect of a power loss on each change in turn.
type Pattern = Box<dyn FnMut(UnsyncedChange<'_>) -> PowerLossEffect>;

fn patterns() -> Vec<Pattern> {
    let is_log = |unsynced: UnsyncedChange<'_>| unsynced.file.ends_with("-wal");
    let is_write =
        |unsynced: UnsyncedChange<'_>| matches!(unsynced.change_kind, UnsyncedChangeKind::Write { .. });
    let mut asked = 0;
    let every_other = move |_: UnsyncedChange<'_>| {
        asked += 1;
        asked % 2 == 0
    };
    let mut patterns: Vec<Pattern> = vec![
        Box::new(|_| PowerLossEffect::Dropped),
        Box::new(|_| PowerLossEffect::Kept),
        kept_if(every_other),
        kept_if(is_log),
        kept_if(move |unsynced| !is_log(unsynced)),
        kept_if(is_write),
        Box::new(|_| PowerLossEffect::Torn { sectors: 0b111 }),
        Box::new(|_| PowerLossEffect::Torn { sectors: !0b111 }),
    ];
    patterns.extend((1..=3).map(|seed| {
        let mut random = SeededRandom::new(seed, 0);
        Box::new(move |_: UnsyncedChange<'_>| match random.below(3) {
            0 => PowerLossEffect::Dropped,
            1 => PowerLossEffect::Kept,
            _ => PowerLossEffect::Torn { sectors: random.number() },
        }) as Pattern
    }));
    patterns
}

fn kept_if(mut is_kept: impl FnMut(UnsyncedChange<'_>) -> bool + 'static) -> Pattern {
    Box::new(move |unsynced| if is_kept(unsynced) { PowerLossEffect::Kept } else { PowerLossEffect::Dropped })
}

/// Cuts the power at every change in every way. Returns how often an acknowledged commit was lost.
fn cut_everywhere(syncs: Syncs) -> usize {
    let mut losses = 0;
    for at in 0..changes(syncs) {
        let (disk, acknowledged) = die(at, DEATHS[usize::try_from(at).unwrap() % DEATHS.len()], syncs);
        let before = disk.snapshot();
        for mut choose in patterns() {
            let disk = Disk::from(before.clone());
            disk.lose_power(&mut choose);
            let left = recover(&disk);
            assert!(left <= acknowledged + 1, "nobody asked for {left}");
            losses += usize::from(left < acknowledged);
        }
    }
    losses
}

#[test]
fn power_loss_with_full_sync_loses_no_commit() {
    assert_eq!(cut_everywhere(Syncs::Full), 0);
}

/// Shows that the disk can lose data. Otherwise the test above would prove nothing.
#[test]
fn power_loss_with_normal_sync_loses_commits() {
    assert_ne!(cut_everywhere(Syncs::Normal), 0);
}

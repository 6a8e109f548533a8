//! The bytes of one file: as the operating system shows them, and as a power loss may leave them.
use std::ops::Range;
use std::sync::Arc;

/// The sector size in bytes. A device writes a sector completely or not at all.
pub(crate) const SECTOR: usize = 512;

/// A file. Its visible bytes are always `durable_bytes` with all changes of `pending` applied.
#[derive(Clone, Default)]
pub(crate) struct DiskFile {
    visible_bytes: Arc<Vec<u8>>,
    /// The bytes that certainly survive a power loss, before the changes in `pending`.
    durable_bytes: Arc<Vec<u8>>,
    /// The changes, in the order in which they were made.
    pending: Vec<PendingChange>,
}

#[derive(Clone)]
struct PendingChange {
    change: FileChange,
    sync_state: ChangeSyncState,
}

#[derive(Clone)]
enum FileChange {
    Write { offset: usize, bytes: Arc<[u8]> },
    Truncate { to: usize },
}

/// How far a change got towards the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangeSyncState {
    /// The next sync will write it.
    Unsynced,
    /// A sync failed while writing it. The system marked it clean, so no later sync writes it.
    LostByFailedSync,
    /// It is on the device. It stays in the list only because an earlier change is not.
    Synced,
}

/// A change that a power loss may undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsyncedChange<'a> {
    /// The name of its file.
    pub file: &'a str,
    /// The change.
    pub change_kind: UnsyncedChangeKind,
    /// Whether a sync failed since. Later syncs did not make it durable, even if they succeeded.
    pub sync_failed: bool,
}

/// The kind of an unsynced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsyncedChangeKind {
    /// Bytes were written.
    Write {
        /// The offset of the first byte.
        offset: usize,
        /// The number of sectors of the file that it touches.
        sectors: usize,
    },
    /// The file was truncated, or extended with zeros, to this length.
    Truncate {
        /// The new length.
        to: usize,
    },
}

/// The effect of a power loss on an unsynced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerLossEffect {
    /// The change had reached the device.
    Kept,
    /// The change is lost.
    Dropped,
    /// Only some sectors of a write arrived: sector `i` if bit `i % 64` is set. For a truncate, bit 0 decides.
    Torn {
        /// One bit per sector.
        sectors: u64,
    },
}

impl DiskFile {
    pub(crate) fn len(&self) -> usize {
        self.visible_bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.visible_bytes
    }

    /// Copies the bytes at `offset` and returns their number.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let there = self.visible_bytes.get(offset..).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        count
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.change(FileChange::Write { offset, bytes: bytes.into() }, ChangeSyncState::Unsynced);
    }

    pub(crate) fn truncate(&mut self, to: usize) {
        self.change(FileChange::Truncate { to }, ChangeSyncState::Unsynced);
    }

    fn change(&mut self, change: FileChange, standing: ChangeSyncState) {
        change.apply(Arc::make_mut(&mut self.visible_bytes), |_| true);
        self.pending.push(PendingChange { change, sync_state: standing });
    }

    /// Makes the changes durable, except those that a failed sync left behind.
    pub(crate) fn sync(&mut self) {
        for pending in &mut self.pending {
            if pending.sync_state == ChangeSyncState::Unsynced {
                pending.sync_state = ChangeSyncState::Synced;
            }
        }
        // Changes after a forsaken one must be applied again after it, in case a power loss keeps it.
        let certain =
            self.pending.iter().take_while(|pending| pending.sync_state == ChangeSyncState::Synced).count();
        if certain > 0 {
            let safe = Arc::make_mut(&mut self.durable_bytes);
            for pending in self.pending.drain(..certain) {
                pending.change.apply(safe, |_| true);
            }
        }
    }

    /// Records a failed sync. The system marks the pages clean, so the next sync does not write them.
    pub(crate) fn record_failed_sync(&mut self) {
        for pending in &mut self.pending {
            if pending.sync_state == ChangeSyncState::Unsynced {
                pending.sync_state = ChangeSyncState::LostByFailedSync;
            }
        }
    }

    /// Cuts the power. `choose` decides about each change that is not durable.
    pub(crate) fn lose_power(
        &mut self,
        name: &str,
        choose: &mut dyn FnMut(UnsyncedChange<'_>) -> PowerLossEffect,
    ) {
        for PendingChange { change, sync_state: standing } in self.pending.drain(..) {
            let fate = match standing {
                ChangeSyncState::Synced => PowerLossEffect::Kept,
                ChangeSyncState::Unsynced | ChangeSyncState::LostByFailedSync => choose(UnsyncedChange {
                    file: name,
                    change_kind: change.to_change_kind(),
                    sync_failed: standing == ChangeSyncState::LostByFailedSync,
                }),
            };
            let arrives = match fate {
                PowerLossEffect::Kept => u64::MAX,
                PowerLossEffect::Dropped => continue,
                PowerLossEffect::Torn { sectors } => sectors,
            };
            change.apply(Arc::make_mut(&mut self.durable_bytes), |sector| arrives >> (sector % 64) & 1 == 1);
        }
        self.visible_bytes = Arc::clone(&self.durable_bytes);
    }

    /// Changes bytes without the knowledge of any process. No earlier write undoes it, synced or not.
    pub(crate) fn corrupt(&mut self, offset: usize, bytes: &[u8]) {
        self.change(FileChange::Write { offset, bytes: bytes.into() }, ChangeSyncState::Synced);
    }
}

impl FileChange {
    fn to_change_kind(&self) -> UnsyncedChangeKind {
        match self {
            Self::Write { offset, bytes } => {
                UnsyncedChangeKind::Write { offset: *offset, sectors: sectors(*offset, bytes.len()).count() }
            }
            Self::Truncate { to } => UnsyncedChangeKind::Truncate { to: *to },
        }
    }

    /// Applies the change, or only the sectors that arrive.
    fn apply(&self, file: &mut Vec<u8>, arrives: impl Fn(usize) -> bool) {
        match self {
            Self::Write { offset, bytes } => {
                for (number, part) in sectors(*offset, bytes.len()).enumerate() {
                    if arrives(number) {
                        put(file, offset + part.start, &bytes[part]);
                    }
                }
            }
            Self::Truncate { to } => {
                if arrives(0) {
                    file.resize(*to, 0);
                }
            }
        }
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

/// Returns the part of a write in the first `count` sectors that it touches.
pub(crate) fn first_sectors(offset: usize, bytes: &[u8], count: usize) -> &[u8] {
    let end = sectors(offset, bytes.len()).take(count).last().map_or(0, |part| part.end);
    &bytes[..end]
}

/// Splits a write at the sectors of the file. Returns ranges of its bytes.
fn sectors(offset: usize, length: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        (start < length).then(|| {
            let end = length.min(start + SECTOR - (offset + start) % SECTOR);
            std::mem::replace(&mut start, end)..end
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[(usize, &[u8])]) -> DiskFile {
        let mut file = DiskFile::default();
        for (offset, bytes) in parts {
            file.write(*offset, bytes);
        }
        file
    }

    fn after_power_loss(file: &DiskFile, fate: PowerLossEffect) -> Vec<u8> {
        let mut file = file.clone();
        file.lose_power("file", &mut |_| fate);
        file.bytes().to_vec()
    }

    #[test]
    fn write_is_visible_immediately_durable_after_sync() {
        let mut file = written(&[(0, b"abc")]);
        assert_eq!(file.bytes(), b"abc");
        assert_eq!(after_power_loss(&file, PowerLossEffect::Dropped), b"");
        file.sync();
        assert_eq!(after_power_loss(&file, PowerLossEffect::Dropped), b"abc");
    }

    #[test]
    fn dropped_write_before_a_kept_one_leaves_zeros() {
        let mut file = written(&[(0, b"abc"), (4, b"e")]);
        let mut first = true;
        file.lose_power("file", &mut |_| {
            if std::mem::take(&mut first) { PowerLossEffect::Dropped } else { PowerLossEffect::Kept }
        });
        assert_eq!(file.bytes(), b"\0\0\0\0e");
    }

    #[test]
    fn torn_write_keeps_whole_sectors() {
        let mut file = written(&[(0, &[1; 3 * SECTOR])]);
        file.sync();
        file.write(SECTOR - 2, &[2; SECTOR + 4]);
        file.lose_power("file", &mut |unsynced| {
            assert_eq!(unsynced.change_kind, UnsyncedChangeKind::Write { offset: SECTOR - 2, sectors: 3 });
            PowerLossEffect::Torn { sectors: 0b101 }
        });
        let mut expected = vec![1; 3 * SECTOR];
        expected[SECTOR - 2..SECTOR].fill(2);
        expected[2 * SECTOR..2 * SECTOR + 2].fill(2);
        assert_eq!(file.bytes(), expected);
        assert_eq!(first_sectors(SECTOR - 2, &[2; SECTOR + 4], 2), [2; SECTOR + 2]);
    }

    #[test]
    fn a_truncate_can_be_lost() {
        let mut file = written(&[(0, b"abc")]);
        file.sync();
        file.truncate(1);
        assert_eq!(file.bytes(), b"a");
        assert_eq!(after_power_loss(&file, PowerLossEffect::Dropped), b"abc");
        assert_eq!(after_power_loss(&file, PowerLossEffect::Kept), b"a");
    }

    #[test]
    fn only_rewritten_data_is_durable_after_failed_sync() {
        let mut file = written(&[(0, b"ab")]);
        file.record_failed_sync();
        file.write(1, b"xy");
        file.sync();
        assert_eq!(file.bytes(), b"axy", "the system still shows it");
        assert_eq!(after_power_loss(&file, PowerLossEffect::Dropped), b"\0xy");
        // If it arrived after all, it arrived before the bytes that were synced later.
        assert_eq!(after_power_loss(&file, PowerLossEffect::Kept), b"axy");
        let mut asked = Vec::new();
        file.lose_power("file", &mut |unsynced| {
            asked.push(unsynced.sync_failed);
            PowerLossEffect::Kept
        });
        assert_eq!(asked, [true]);
    }

    #[test]
    fn corrupt_bytes_survive_power_loss() {
        let mut file = written(&[(0, b"abc")]);
        file.corrupt(1, b"X");
        assert_eq!(file.bytes(), b"aXc");
        assert_eq!(after_power_loss(&file, PowerLossEffect::Kept), b"aXc");
        assert_eq!(after_power_loss(&file, PowerLossEffect::Dropped), b"\0X");
        file.sync();
        assert_eq!(after_power_loss(&file, PowerLossEffect::Dropped), b"aXc");
    }
}

//! The bytes of one file: as the operating system shows them, and as a power loss may leave them.
use std::ops::Range;
use std::sync::Arc;

/// What a device writes at once: a sector arrives as a whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// A file. What it shows is always `safe` with every change of `pending` made to it.
#[derive(Clone, Default)]
pub(crate) struct File {
    now: Arc<Vec<u8>>,
    /// What is certain to be there after a power loss, before the changes in `pending`.
    safe: Arc<Vec<u8>>,
    /// Changes in the order they were made.
    pending: Vec<Pending>,
}

#[derive(Clone)]
struct Pending {
    change: Change,
    standing: Standing,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Arc<[u8]> },
    Truncate { to: usize },
}

/// How far a change got on its way to the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The next sync takes it along.
    Unsynced,
    /// A sync failed while it was on its way. The system took it off its list, so no later sync takes it along.
    Forsaken,
    /// It is on the device. It waits in the list only because one that is not comes before it.
    Synced,
}

/// A change that a power loss may undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsynced<'a> {
    /// The name of its file.
    pub file: &'a str,
    /// What was changed.
    pub what: What,
    /// Whether a sync failed since. Later syncs, though they succeeded, did not make it durable.
    pub forsaken: bool,
}

/// What an unsynced change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Bytes were written.
    Write {
        /// Where the first of them went.
        offset: usize,
        /// How many sectors of the file they touch.
        sectors: usize,
    },
    /// The file was cut, or grew with zeros, to this length.
    Truncate {
        /// Its length since.
        to: usize,
    },
}

/// What a power loss does to an unsynced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It had reached the device.
    Kept,
    /// It is gone.
    Dropped,
    /// Of a write, only some sectors arrived: sector `i` if bit `i % 64` is set. A truncate goes by bit 0.
    Torn {
        /// One bit for each sector.
        sectors: u64,
    },
}

impl File {
    pub(crate) fn len(&self) -> usize {
        self.now.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.now
    }

    /// Copies what is there at `offset` and says how many bytes it was.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let there = self.now.get(offset..).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        count
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.change(Change::Write { offset, bytes: bytes.into() }, Standing::Unsynced);
    }

    pub(crate) fn truncate(&mut self, to: usize) {
        self.change(Change::Truncate { to }, Standing::Unsynced);
    }

    fn change(&mut self, change: Change, standing: Standing) {
        change.apply(Arc::make_mut(&mut self.now), |_| true);
        self.pending.push(Pending { change, standing });
    }

    /// Makes durable what no failed sync has left behind.
    pub(crate) fn sync(&mut self) {
        for pending in &mut self.pending {
            if pending.standing == Standing::Unsynced {
                pending.standing = Standing::Synced;
            }
        }
        // What comes after a forsaken change must be made again after it, should a power loss keep that one.
        let certain = self.pending.iter().take_while(|pending| pending.standing == Standing::Synced).count();
        if certain > 0 {
            let safe = Arc::make_mut(&mut self.safe);
            for pending in self.pending.drain(..certain) {
                pending.change.apply(safe, |_| true);
            }
        }
    }

    /// A sync failed. The system counts the pages as clean from here on, so the next sync has nothing to do for them.
    pub(crate) fn forsake(&mut self) {
        for pending in &mut self.pending {
            if pending.standing == Standing::Unsynced {
                pending.standing = Standing::Forsaken;
            }
        }
    }

    /// The power is cut: `choose` says what becomes of each change that is not durable.
    pub(crate) fn lose_power(&mut self, name: &str, choose: &mut dyn FnMut(Unsynced<'_>) -> Fate) {
        for Pending { change, standing } in self.pending.drain(..) {
            let fate = match standing {
                Standing::Synced => Fate::Kept,
                Standing::Unsynced | Standing::Forsaken => choose(Unsynced {
                    file: name,
                    what: change.what(),
                    forsaken: standing == Standing::Forsaken,
                }),
            };
            let arrives = match fate {
                Fate::Kept => u64::MAX,
                Fate::Dropped => continue,
                Fate::Torn { sectors } => sectors,
            };
            change.apply(Arc::make_mut(&mut self.safe), |sector| arrives >> (sector % 64) & 1 == 1);
        }
        self.now = Arc::clone(&self.safe);
    }

    /// Changes bytes behind everybody's back. Nothing that was written before undoes it, synced or not.
    pub(crate) fn corrupt(&mut self, offset: usize, bytes: &[u8]) {
        self.change(Change::Write { offset, bytes: bytes.into() }, Standing::Synced);
    }
}

impl Change {
    fn what(&self) -> What {
        match self {
            Self::Write { offset, bytes } => {
                What::Write { offset: *offset, sectors: sectors(*offset, bytes.len()).count() }
            }
            Self::Truncate { to } => What::Truncate { to: *to },
        }
    }

    /// Makes the change, or those sectors of it that arrive.
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

/// The part of these bytes that lies in the first sectors they touch.
pub(crate) fn first_sectors(offset: usize, bytes: &[u8], count: usize) -> &[u8] {
    let end = sectors(offset, bytes.len()).take(count).last().map_or(0, |part| part.end);
    &bytes[..end]
}

/// The parts of a write that lie in different sectors of the file, as ranges of its bytes.
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

    fn written(parts: &[(usize, &[u8])]) -> File {
        let mut file = File::default();
        for (offset, bytes) in parts {
            file.write(*offset, bytes);
        }
        file
    }

    fn after_power_loss(mut file: File, fate: Fate) -> Vec<u8> {
        file.lose_power("file", &mut |_| fate);
        file.bytes().to_vec()
    }

    #[test]
    fn a_write_is_seen_at_once_and_durable_after_a_sync() {
        let mut file = written(&[(0, b"abc")]);
        assert_eq!(file.bytes(), b"abc");
        assert_eq!(after_power_loss(file.clone(), Fate::Dropped), b"");
        file.sync();
        assert_eq!(after_power_loss(file, Fate::Dropped), b"abc");
    }

    #[test]
    fn a_change_that_is_kept_after_one_that_is_dropped_leaves_a_gap_of_zeros() {
        let mut file = written(&[(0, b"abc"), (4, b"e")]);
        let mut first = true;
        file.lose_power("file", &mut |_| if std::mem::take(&mut first) { Fate::Dropped } else { Fate::Kept });
        assert_eq!(file.bytes(), b"\0\0\0\0e");
    }

    #[test]
    fn a_torn_write_arrives_by_whole_sectors_of_the_file() {
        let mut file = written(&[(0, &[1; 3 * SECTOR])]);
        file.sync();
        file.write(SECTOR - 2, &[2; SECTOR + 4]);
        file.lose_power("file", &mut |unsynced| {
            assert_eq!(unsynced.what, What::Write { offset: SECTOR - 2, sectors: 3 });
            Fate::Torn { sectors: 0b101 }
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
        assert_eq!(after_power_loss(file.clone(), Fate::Dropped), b"abc");
        assert_eq!(after_power_loss(file, Fate::Kept), b"a");
    }

    #[test]
    fn after_a_failed_sync_only_what_is_written_anew_becomes_durable() {
        let mut file = written(&[(0, b"ab")]);
        file.forsake();
        file.write(1, b"xy");
        file.sync();
        assert_eq!(file.bytes(), b"axy", "the system still shows it");
        assert_eq!(after_power_loss(file.clone(), Fate::Dropped), b"\0xy");
        // Should it have arrived after all, then before what was synced later.
        assert_eq!(after_power_loss(file.clone(), Fate::Kept), b"axy");
        let mut asked = Vec::new();
        file.lose_power("file", &mut |unsynced| {
            asked.push(unsynced.forsaken);
            Fate::Kept
        });
        assert_eq!(asked, [true]);
    }

    #[test]
    fn corrupt_bytes_stay_whatever_becomes_of_the_writes_before_them() {
        let mut file = written(&[(0, b"abc")]);
        file.corrupt(1, b"X");
        assert_eq!(file.bytes(), b"aXc");
        assert_eq!(after_power_loss(file.clone(), Fate::Kept), b"aXc");
        assert_eq!(after_power_loss(file.clone(), Fate::Dropped), b"\0X");
        file.sync();
        assert_eq!(after_power_loss(file, Fate::Dropped), b"aXc");
    }
}

//! The memory that the connections of one database share in WAL mode, and its eight locks.
//!
//! SQLite keeps the index of its log there, and reads and writes it in place. The memory is dropped when the last
//! handle releases it. On a real system, the first process to open the backing file truncates it instead.
use crate::machine::HandleId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The number of SQLite's locks on the shared memory.
const LOCKS: usize = 8;

/// The lock for appending to the log.
const WRITER: usize = 0;

/// One region of the memory. Atomic, because several owners may change it. SQLite's locks order the accesses.
pub(crate) type Region = Arc<[AtomicU64]>;

/// How a lock is held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShmLockMode {
    Shared,
    Exclusive,
}

/// The shared memory of one database.
#[derive(Default)]
pub(crate) struct WalSharedMemory {
    regions: Vec<Region>,
    users: BTreeSet<HandleId>,
    locks: [BTreeMap<HandleId, ShmLockMode>; LOCKS],
}

impl WalSharedMemory {
    pub(crate) fn join(&mut self, handle: HandleId) {
        self.users.insert(handle);
    }

    pub(crate) fn is_used_by(&self, handle: HandleId) -> bool {
        self.users.contains(&handle)
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns the region with this number, if it exists.
    pub(crate) fn region(&self, number: usize) -> Option<Region> {
        self.regions.get(number).cloned()
    }

    /// Returns whether one of these regions is part of this memory, and not of one that was dropped.
    pub(crate) fn has_one_of(&self, regions: &[Region]) -> bool {
        regions.iter().any(|region| self.regions.iter().any(|own| Arc::ptr_eq(own, region)))
    }

    /// Allocates all regions up to this number, of this size in bytes.
    pub(crate) fn extend(&mut self, number: usize, bytes: usize) {
        while self.regions.len() <= number {
            self.regions.push((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect());
        }
    }

    /// Takes all of these locks, or none.
    pub(crate) fn lock(&mut self, handle: HandleId, slots: Range<usize>, hold: ShmLockMode) -> bool {
        let free = |lock: &BTreeMap<HandleId, ShmLockMode>| {
            let mut others = lock.iter().filter(|(other, _)| **other != handle);
            match hold {
                ShmLockMode::Shared => others.all(|(_, held)| *held == ShmLockMode::Shared),
                ShmLockMode::Exclusive => others.next().is_none(),
            }
        };
        let granted = self.locks[slots.clone()].iter().all(free);
        if granted {
            for lock in &mut self.locks[slots] {
                lock.insert(handle, hold);
            }
        }
        granted
    }

    pub(crate) fn unlock(&mut self, handle: HandleId, slots: Range<usize>) {
        for lock in &mut self.locks[slots] {
            lock.remove(&handle);
        }
    }

    /// Returns whether the handle may append to the log.
    pub(crate) fn is_written_by(&self, handle: HandleId) -> bool {
        self.locks[WRITER].get(&handle) == Some(&ShmLockMode::Exclusive)
    }

    /// Removes a handle and its locks.
    pub(crate) fn leave(&mut self, handle: HandleId) {
        self.unlock(handle, 0..LOCKS);
        self.users.remove(&handle);
    }
}

/// Returns the range of locks that SQLite names, or `None` if it is invalid.
pub(crate) fn slots(first: usize, count: usize) -> Option<Range<usize>> {
    let end = first.checked_add(count)?;
    (end <= LOCKS).then_some(first..end)
}

/// Returns whether these locks include the one for appending to the log.
pub(crate) fn are_for_writing(slots: &Range<usize>) -> bool {
    slots.contains(&WRITER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HandleId = HandleId::of(1);
    const B: HandleId = HandleId::of(2);

    #[test]
    fn lock_is_shared_or_exclusive() {
        let mut shm = WalSharedMemory::default();
        assert!(shm.lock(A, 3..4, ShmLockMode::Shared) && shm.lock(B, 3..4, ShmLockMode::Shared));
        assert!(!shm.lock(A, 3..4, ShmLockMode::Exclusive));
        shm.unlock(B, 3..4);
        assert!(shm.lock(A, 3..4, ShmLockMode::Exclusive));
        assert!(!shm.lock(B, 3..4, ShmLockMode::Shared));
        shm.leave(A);
        assert!(shm.lock(B, 3..4, ShmLockMode::Shared));
    }

    #[test]
    fn lock_range_is_taken_atomically() {
        let mut shm = WalSharedMemory::default();
        assert!(shm.lock(A, 5..6, ShmLockMode::Shared));
        assert!(!shm.lock(B, 4..8, ShmLockMode::Exclusive));
        assert!(shm.lock(A, 4..5, ShmLockMode::Exclusive), "none was taken");
    }

    #[test]
    fn shared_memory_has_eight_locks() {
        assert_eq!(slots(0, 8), Some(0..8));
        assert_eq!((slots(1, 8), slots(usize::MAX, 1)), (None, None));
    }
}

//! SQLite's locks on a database file: many handles may read, one of them may prepare to write, and only one may write.
//!
//! A handle holds a lock. This module does not know whether its process is alive.
use crate::machine::HandleId;
use std::collections::BTreeMap;

/// The lock level of a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileLockLevel {
    #[default]
    None,
    Shared,
    Reserved,
    /// Waits for the last readers to finish. New readers are rejected.
    Pending,
    Exclusive,
}

/// The locks on one file.
#[derive(Default)]
pub(crate) struct FileLocks {
    held: BTreeMap<HandleId, FileLockLevel>,
}

impl FileLocks {
    /// Raises the lock of a handle, if the other locks allow it.
    pub(crate) fn raise(&mut self, handle: HandleId, want: FileLockLevel) -> bool {
        let own = self.level(handle);
        if own >= want {
            return true;
        }
        let others = self.held.iter().filter(|(other, _)| **other != handle).map(|(_, level)| *level);
        let others = others.max().unwrap_or_default();
        let (granted, level) = match want {
            FileLockLevel::None | FileLockLevel::Shared => (others < FileLockLevel::Pending, want),
            FileLockLevel::Reserved => (others < FileLockLevel::Reserved, want),
            // Readers keep the file. The handle that reserved it keeps new readers out until they are done.
            FileLockLevel::Pending | FileLockLevel::Exclusive
                if others == FileLockLevel::Shared && own == FileLockLevel::Reserved =>
            {
                self.held.insert(handle, FileLockLevel::Pending);
                (false, own)
            }
            FileLockLevel::Pending | FileLockLevel::Exclusive => (others == FileLockLevel::None, want),
        };
        if granted {
            self.held.insert(handle, level);
        }
        granted
    }

    pub(crate) fn lower(&mut self, handle: HandleId, to: FileLockLevel) {
        if to == FileLockLevel::None {
            self.held.remove(&handle);
        } else if self.level(handle) > to {
            self.held.insert(handle, to);
        }
    }

    /// Returns whether a handle is about to write.
    pub(crate) fn are_reserved(&self) -> bool {
        self.held.values().any(|level| *level >= FileLockLevel::Reserved)
    }

    fn level(&self, handle: HandleId) -> FileLockLevel {
        self.held.get(&handle).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileLockLevel::{Exclusive, None, Reserved, Shared};

    const A: HandleId = HandleId::of(1);
    const B: HandleId = HandleId::of(2);
    const C: HandleId = HandleId::of(3);

    #[test]
    fn many_read_while_one_prepares_to_write() {
        let mut locks = FileLocks::default();
        assert!(locks.raise(A, Shared) && locks.raise(B, Shared) && !locks.are_reserved());
        assert!(locks.raise(A, Reserved) && locks.are_reserved());
        assert!(!locks.raise(B, Reserved), "one prepares");
        assert!(locks.raise(C, Shared), "others still come to read");
    }

    #[test]
    fn pending_writer_blocks_new_readers() {
        let mut locks = FileLocks::default();
        assert!(locks.raise(A, Shared) && locks.raise(A, Reserved) && locks.raise(B, Shared));
        assert!(!locks.raise(A, Exclusive));
        assert!(!locks.raise(C, Shared), "no new reader");
        locks.lower(B, None);
        assert!(locks.raise(A, Exclusive));
        assert!(!locks.raise(C, Shared));
        locks.lower(A, Shared);
        assert!(locks.raise(C, Shared));
    }

    #[test]
    fn failed_exclusive_lock_keeps_the_shared_lock() {
        let mut locks = FileLocks::default();
        assert!(locks.raise(A, Shared) && locks.raise(B, Shared));
        assert!(!locks.raise(A, Exclusive));
        assert!(locks.raise(C, Shared));
    }
}

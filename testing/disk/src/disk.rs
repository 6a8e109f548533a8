//! The public interface of the disk.
use crate::file::{DiskFile, PowerLossEffect, UnsyncedChange};
use crate::machine::{SharedMachine, SimMachine, lock};
use crate::mount::Mount;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A disk in memory, with its machine. A clone is the same disk.
#[derive(Clone, Default)]
pub struct Disk {
    machine: SharedMachine,
}

/// All files of a disk at one moment, with their unsynced changes. Files are copied on write.
#[derive(Clone)]
pub struct DiskSnapshot {
    files: BTreeMap<String, DiskFile>,
}

impl Disk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a process on the machine. All processes see the same files, locks and shared memory.
    pub fn mount(&self) -> Mount {
        Mount::new(Arc::clone(&self.machine))
    }

    /// Cuts the power. All processes die, locks and shared memory are lost, and the remaining contents of the files are
    /// durable.
    ///
    /// `choose` decides about each change that is not durable. Files are visited in the order of their names, and
    /// changes in the order in which they were made.
    pub fn lose_power(&self, choose: &mut dyn FnMut(UnsyncedChange<'_>) -> PowerLossEffect) {
        lock(&self.machine).lose_power(choose);
    }

    /// Returns the current files. A disk created from them has no processes, as if all had been killed now.
    pub fn snapshot(&self) -> DiskSnapshot {
        DiskSnapshot { files: lock(&self.machine).files() }
    }

    /// Returns the names of all files, in order.
    pub fn names(&self) -> Vec<String> {
        lock(&self.machine).names.keys().cloned().collect()
    }

    /// Returns what a process would read from a file, or `None` if it does not exist.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        lock(&self.machine).file(name).map(|file| file.bytes().to_vec())
    }

    /// Replaces bytes of a file without the knowledge of any process, like a faulty device. The new bytes are durable.
    ///
    /// # Panics
    /// If the file does not exist, or is too short.
    pub fn corrupt(&self, name: &str, offset: usize, bytes: &[u8]) {
        let mut machine = lock(&self.machine);
        let file = machine
            .file_mut(name)
            .unwrap_or_else(|| panic!("expected a file `{name}` to corrupt, found none"));
        let (end, length) = (offset + bytes.len(), file.len());
        assert!(end <= length, "expected `{name}` to have {end} bytes to corrupt, found {length}");
        file.corrupt(offset, bytes);
    }

    /// Sets the total size limit of all files. A write over the limit fails with `SQLITE_FULL`. `None` means unlimited.
    pub fn set_size_limit(&self, bytes: Option<u64>) {
        lock(&self.machine).total_size_limit = bytes;
    }

    /// Returns the total size of all files in bytes.
    pub fn used(&self) -> u64 {
        lock(&self.machine).used() as u64
    }

    /// Sets the time that SQLite sees (`datetime('now')`), in milliseconds since 1970. It does not advance until it is
    /// set again.
    pub fn set_time(&self, millis: i64) {
        lock(&self.machine).time = millis;
    }
}

impl From<DiskSnapshot> for Disk {
    fn from(snapshot: DiskSnapshot) -> Self {
        Self { machine: Arc::new(Mutex::new(SimMachine::of(snapshot.files))) }
    }
}

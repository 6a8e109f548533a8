//! The disk as its user holds it.
use crate::file::{Fate, File, Unsynced};
use crate::machine::{Machine, Shared, lock};
use crate::mount::Mount;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A disk in memory, with the machine it is in. A clone is the same disk.
#[derive(Clone, Default)]
pub struct Disk {
    machine: Shared,
}

/// All files of a disk at one moment, with what was not yet synced. Files are copied only when one side changes them.
#[derive(Clone)]
pub struct Snapshot {
    files: BTreeMap<String, File>,
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a process on the machine. All processes see the same files, locks and shared memory.
    pub fn mount(&self) -> Mount {
        Mount::new(Arc::clone(&self.machine))
    }

    /// Cuts the power. `choose` is asked about each change that is not durable, file by file in the order of their names
    /// and in the order in which they were made. All processes are dead afterwards, locks and shared memory are gone, and
    /// what is left of the files is durable.
    pub fn lose_power(&self, choose: &mut dyn FnMut(Unsynced<'_>) -> Fate) {
        lock(&self.machine).lose_power(choose);
    }

    /// The files as they are now. A disk made of them has no processes, as if all had been killed at this moment.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { files: lock(&self.machine).files() }
    }

    /// The names of all files, in order.
    pub fn names(&self) -> Vec<String> {
        lock(&self.machine).names.keys().cloned().collect()
    }

    /// What a process would read from a file, or nothing if there is no such file.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        lock(&self.machine).file(name).map(|file| file.bytes().to_vec())
    }

    /// Replaces bytes of a file behind the back of every process, as a bad device would. They count as durable.
    ///
    /// # Panics
    /// If there is no such file, or it does not reach so far.
    pub fn corrupt(&self, name: &str, offset: usize, bytes: &[u8]) {
        let mut machine = lock(&self.machine);
        let file = machine
            .file_mut(name)
            .unwrap_or_else(|| panic!("expected a file `{name}` to corrupt, found none"));
        let (end, length) = (offset + bytes.len(), file.len());
        assert!(end <= length, "expected `{name}` to have {end} bytes to corrupt, found {length}");
        file.corrupt(offset, bytes);
    }

    /// How many bytes all files may take together; a write that would make them take more is `SQLITE_FULL`. `None` is as
    /// many as they like.
    pub fn set_room(&self, bytes: Option<u64>) {
        lock(&self.machine).room = bytes;
    }

    /// The bytes that all files take together.
    pub fn used(&self) -> u64 {
        lock(&self.machine).used() as u64
    }

    /// What the clock shows to SQLite (`datetime('now')`), in milliseconds since 1970. It stands still until it is set
    /// again.
    pub fn set_time(&self, millis: i64) {
        lock(&self.machine).time = millis;
    }
}

impl From<Snapshot> for Disk {
    fn from(snapshot: Snapshot) -> Self {
        Self { machine: Arc::new(Mutex::new(Machine::of(snapshot.files))) }
    }
}

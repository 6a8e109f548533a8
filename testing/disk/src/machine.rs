//! One machine: its files, processes, open handles, locks and shared memory. One mutex guards all of it. The operations
//! of SQLite are in `vfs_ops`.
use crate::faults::{ChangeOutcome, FaultInjector, NumberedChangeKind};
use crate::file::{DiskFile, PowerLossEffect, UnsyncedChange};
use crate::file_locks::{FileLockLevel, FileLocks};
use crate::wal_shared_memory::{Region, WalSharedMemory};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessId(u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HandleId(u64);

#[cfg(test)]
impl HandleId {
    pub(crate) const fn of(number: u64) -> Self {
        Self(number)
    }
}

/// A shared reference to the machine.
pub(crate) type SharedMachine = Arc<Mutex<SimMachine>>;

/// A machine. See the module documentation.
#[derive(Default)]
pub(crate) struct SimMachine {
    pub(crate) names: BTreeMap<String, FileId>,
    pub(crate) nodes: BTreeMap<FileId, OpenFileNode>,
    pub(crate) handles: BTreeMap<HandleId, MachineHandle>,
    processes: BTreeMap<ProcessId, MachineProcess>,
    /// The last id. Ids are never reused.
    ids: u64,
    /// The total size limit of all files in bytes.
    pub(crate) total_size_limit: Option<u64>,
    /// The current time in milliseconds since 1970.
    pub(crate) time: i64,
}

/// A file with its system state while it is open. It outlives its name while a handle is open.
#[derive(Default)]
pub(crate) struct OpenFileNode {
    pub(crate) file: DiskFile,
    pub(crate) locks: FileLocks,
    pub(crate) shm: Option<WalSharedMemory>,
}

/// An open file of a process.
pub(crate) struct MachineHandle {
    pub(crate) process: ProcessId,
    pub(crate) file: FileId,
    /// The shared memory that SQLite may access through this handle. It is kept until the handle is closed, even if its
    /// process is dead.
    pub(crate) mapped: Vec<Region>,
    /// Whether its process died while it appended to the log, and SQLite does not know yet.
    pub(crate) died_writing: bool,
}

#[derive(Default)]
struct MachineProcess {
    is_dead: bool,
    faults: FaultInjector,
}

/// Locks the machine. A poisoned lock is safe to use, because no operation leaves the machine inconsistent.
pub(crate) fn lock(machine: &SharedMachine) -> MutexGuard<'_, SimMachine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimMachine {
    /// Creates a machine with these files and no processes.
    pub(crate) fn of(files: BTreeMap<String, DiskFile>) -> Self {
        let mut machine = Self::default();
        for (name, file) in files {
            let id = machine.add(OpenFileNode { file, ..OpenFileNode::default() });
            machine.names.insert(name, id);
        }
        machine
    }

    /// Returns the current files that have a name.
    pub(crate) fn files(&self) -> BTreeMap<String, DiskFile> {
        self.names.iter().map(|(name, id)| (name.clone(), self.node(*id).file.clone())).collect()
    }

    pub(crate) fn file(&self, name: &str) -> Option<&DiskFile> {
        self.names.get(name).map(|id| &self.node(*id).file)
    }

    pub(crate) fn file_mut(&mut self, name: &str) -> Option<&mut DiskFile> {
        let id = *self.names.get(name)?;
        Some(&mut self.node_mut(id).file)
    }

    pub(crate) fn start(&mut self) -> ProcessId {
        let id = ProcessId(self.id());
        self.processes.insert(id, MachineProcess::default());
        id
    }

    /// Removes a process whose mount is gone, unless it has open files. Returns whether it was removed.
    pub(crate) fn remove_if_closed(&mut self, process: ProcessId) -> bool {
        let idle = self.handles.values().all(|handle| handle.process != process);
        if idle {
            self.processes.remove(&process);
        }
        idle
    }

    pub(crate) fn is_dead(&self, process: ProcessId) -> bool {
        self.processes.get(&process).is_none_or(|process| process.is_dead)
    }

    pub(crate) fn faults(&mut self, process: ProcessId) -> &mut FaultInjector {
        &mut self.processes.get_mut(&process).expect("a process is kept while it is mounted").faults
    }

    /// Counts a change of a running process, and kills the process if that was planned.
    pub(crate) fn count_process_change(
        &mut self,
        process: ProcessId,
        kind: NumberedChangeKind,
    ) -> ChangeOutcome {
        let verdict = self.faults(process).count_change(kind);
        if matches!(verdict, ChangeOutcome::Dies(_)) {
            self.kill(process);
        }
        verdict
    }

    /// Kills a process. Its locks are released at once, and its writes stay.
    pub(crate) fn kill(&mut self, process: ProcessId) {
        let Some(found) = self.processes.get_mut(&process) else { return };
        found.is_dead = true;
        let own: Vec<HandleId> = self
            .handles
            .iter()
            .filter_map(|(id, handle)| (handle.process == process).then_some(*id))
            .collect();
        for id in own {
            self.release_handle(id);
        }
    }

    /// Releases the locks and the shared memory of a handle whose process died.
    fn release_handle(&mut self, id: HandleId) {
        let Some(handle) = self.handles.get_mut(&id) else { return };
        let Some(node) = self.nodes.get_mut(&handle.file) else { return };
        node.locks.lower(id, FileLockLevel::None);
        handle.died_writing |= node.shm.as_ref().is_some_and(|shm| shm.is_written_by(id));
        node.leave_shm(id);
    }

    /// Cuts the power. Files without a name are lost with the processes that had them open.
    pub(crate) fn lose_power(&mut self, choose: &mut dyn FnMut(UnsyncedChange<'_>) -> PowerLossEffect) {
        for process in self.processes.values_mut() {
            process.is_dead = true;
        }
        let mut nodes = std::mem::take(&mut self.nodes);
        for (name, id) in &self.names {
            let mut file = nodes.remove(id).expect("a name stands for a file").file;
            file.lose_power(name, choose);
            self.nodes.insert(*id, OpenFileNode { file, ..OpenFileNode::default() });
        }
    }

    /// Returns the total size of all files in bytes.
    pub(crate) fn used(&self) -> usize {
        self.nodes.values().map(|node| node.file.len()).sum()
    }

    pub(crate) fn add(&mut self, node: OpenFileNode) -> FileId {
        let id = FileId(self.id());
        self.nodes.insert(id, node);
        id
    }

    pub(crate) fn open(&mut self, process: ProcessId, file: FileId) -> HandleId {
        let id = HandleId(self.id());
        self.handles.insert(id, MachineHandle { process, file, mapped: Vec::new(), died_writing: false });
        id
    }

    pub(crate) fn close(&mut self, id: HandleId) {
        let Some(handle) = self.handles.remove(&id) else { return };
        let Some(node) = self.nodes.get_mut(&handle.file) else { return };
        node.locks.lower(id, FileLockLevel::None);
        node.leave_shm(id);
        let is_named = self.names.values().any(|file| *file == handle.file);
        let is_open = self.handles.values().any(|other| other.file == handle.file);
        if !is_named && !is_open {
            self.nodes.remove(&handle.file);
        }
    }

    pub(crate) fn node(&self, id: FileId) -> &OpenFileNode {
        self.nodes.get(&id).expect("a file is kept while it has a name or a living handle")
    }

    pub(crate) fn node_mut(&mut self, id: FileId) -> &mut OpenFileNode {
        self.nodes.get_mut(&id).expect("a file is kept while it has a name or a living handle")
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }
}

impl OpenFileNode {
    pub(crate) fn leave_shm(&mut self, handle: HandleId) {
        if let Some(shm) = &mut self.shm {
            shm.leave(handle);
            if shm.is_unused() {
                self.shm = None;
            }
        }
    }
}

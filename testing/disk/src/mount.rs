//! The public interface of a process.
use crate::faults::{ChangeFailure, CrashMode, FailureDuration, FaultInjector};
use crate::machine::{SharedMachine, lock};
use crate::vfs::{RegisteredVfs, VfsProcess};

/// A process that has the disk mounted. Its connections are those that were opened with its VFS:
///
/// ```
/// # use rusqlite::{Connection, OpenFlags};
/// let mount = outlast_disk::Disk::new().mount();
/// let conn = Connection::open_with_flags_and_vfs("app.db", OpenFlags::default(), mount.vfs())?;
/// # conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n)")?;
/// # Ok::<(), rusqlite::Error>(())
/// ```
///
/// Its changes are numbered from 0: each write, truncate, sync, delete and create.
pub struct Mount {
    process: VfsProcess,
    registered_vfs: RegisteredVfs,
}

impl Mount {
    pub(crate) fn new(machine: SharedMachine) -> Self {
        let id = lock(&machine).start();
        let process = VfsProcess { machine, id };
        Self { registered_vfs: RegisteredVfs::new(process.clone()), process }
    }

    /// Returns the VFS name by which SQLite finds this process. The name is unregistered when the mount is dropped.
    pub fn vfs(&self) -> &str {
        self.registered_vfs.name()
    }

    /// Kills the process, like `kill -9`. Its locks are released at once, and its writes stay.
    ///
    /// All further operations of its connections fail with an input/output error and change nothing. Only data in
    /// SQLite's own memory can still be read.
    ///
    /// Before another process writes to the same file, close all connections that were inside a write. Until then,
    /// SQLite could still change the shared memory, so writes of that process are refused.
    pub fn kill(&self) {
        lock(&self.process.machine).kill(self.process.id);
    }

    /// Returns whether the process was killed, or the power was cut.
    pub fn is_dead(&self) -> bool {
        lock(&self.process.machine).is_dead(self.process.id)
    }

    /// Returns the number of changes that the process has made or tried to make. The next change has this number.
    pub fn changes(&self) -> u64 {
        self.faults(|faults| faults.changes())
    }

    /// Kills the process at the change with this number.
    pub fn crash_at_change(&self, change: u64, death: CrashMode) {
        self.faults(|faults| faults.plan_death(change, death));
    }

    /// Makes one change fail: the first with at least this number to which the failure applies.
    pub fn fail_once_at(&self, change: u64, failure: ChangeFailure) {
        self.faults(|faults| faults.plan_failure(change, failure, FailureDuration::Once));
    }

    /// Makes every change with at least this number fail to which the failure applies.
    pub fn fail_from(&self, change: u64, failure: ChangeFailure) {
        self.faults(|faults| faults.plan_failure(change, failure, FailureDuration::Permanently));
    }

    /// Cancels all planned failures and crashes.
    pub fn cancel_planned_faults(&self) {
        self.faults(FaultInjector::clear);
    }

    fn faults<T>(&self, ask: impl FnOnce(&mut FaultInjector) -> T) -> T {
        ask(lock(&self.process.machine).faults(self.process.id))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.registered_vfs.unregister_vfs();
    }
}

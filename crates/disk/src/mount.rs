//! A process as its user holds it.
use crate::faults::{Death, Failure, Faults, Lasts};
use crate::machine::{Shared, lock};
use crate::vfs::{Process, Registered};

/// A process that has the disk mounted. Its connections are those that are opened with its VFS:
///
/// ```
/// # use rusqlite::{Connection, OpenFlags};
/// let mount = outlast_disk::Disk::new().mount();
/// let conn = Connection::open_with_flags_and_vfs("app.db", OpenFlags::default(), mount.vfs())?;
/// # conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n)")?;
/// # Ok::<(), rusqlite::Error>(())
/// ```
///
/// What it changes is numbered from 0: each write, truncate, sync, delete and create.
pub struct Mount {
    process: Process,
    registered: Registered,
}

impl Mount {
    pub(crate) fn new(machine: Shared) -> Self {
        let id = lock(&machine).start();
        let process = Process { machine, id };
        Self { registered: Registered::new(process.clone()), process }
    }

    /// The name by which SQLite finds this process. It is gone when the mount is dropped.
    pub fn vfs(&self) -> &str {
        self.registered.name()
    }

    /// Kills the process, as `kill -9` does: its locks are free at once, what it wrote stays. Everything that is still
    /// asked through its connections fails with an input/output error and changes nothing; only what SQLite has in its
    /// own memory can still be read.
    ///
    /// Close a connection that was in the middle of a write before another process writes to the same file. Until then
    /// that process is refused, because SQLite could still change the memory they share.
    pub fn kill(&self) {
        lock(&self.process.machine).kill(self.process.id);
    }

    /// Whether the process was killed, or the power was cut.
    pub fn is_dead(&self) -> bool {
        lock(&self.process.machine).is_dead(self.process.id)
    }

    /// How many changes the process has made or tried to. The next one has this number.
    pub fn changes(&self) -> u64 {
        self.faults(|faults| faults.changes())
    }

    /// Lets the process die at the change with this number.
    pub fn die_at(&self, change: u64, death: Death) {
        self.faults(|faults| faults.plan_death(change, death));
    }

    /// Lets one change fail: the first with this or a higher number that can fail in this way.
    pub fn fail(&self, change: u64, failure: Failure) {
        self.faults(|faults| faults.plan_failure(change, failure, Lasts::Once));
    }

    /// Lets every change with this or a higher number fail that can fail in this way.
    pub fn fail_from(&self, change: u64, failure: Failure) {
        self.faults(|faults| faults.plan_failure(change, failure, Lasts::FromThereOn));
    }

    /// Takes back whatever is planned to go wrong.
    pub fn heal(&self) {
        self.faults(Faults::clear);
    }

    fn faults<T>(&self, ask: impl FnOnce(&mut Faults) -> T) -> T {
        ask(lock(&self.process.machine).faults(self.process.id))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.registered.withdraw();
    }
}

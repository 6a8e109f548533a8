//! Detects dead workers. Each worker locks a separate file as long as its process lives, even if it is
//! stopped. The operating system releases the lock when the process ends, for whatever reason.
//!
//! A worker is dead if its file exists and its lock is free. A missing file proves nothing, because the
//! worker may never have created one. So a file stays as long as its worker holds a lease or deletes content.
//! The worker removes its file when it ends without either; otherwise, the next worker that starts removes
//! it.
use crate::connection::{io_error_kind, sibling_path};
use outlast_vocab::{Error, Kind, WorkerId};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Decides whether a worker is dead, for stores without lock files.
pub type IsDead = Arc<dyn Fn(WorkerId) -> bool + Send + Sync>;

/// The workers of a database.
pub(crate) struct WorkerRegistry {
    evidence: DeathEvidence,
    own: Option<WorkerLock>,
}

/// The evidence of a worker's death.
enum DeathEvidence {
    /// Its lock file in this directory next to the database.
    Locks(PathBuf),
    /// The answer of a callback.
    Callback(IsDead),
}

/// The lock of this worker, held until the process ends or the lock is dropped.
struct WorkerLock {
    worker: WorkerId,
    _lock: Option<File>,
}

impl WorkerRegistry {
    /// Returns the workers of the database at `path`, for an observer that takes no lease.
    pub(crate) fn for_observer(path: &Path) -> Self {
        Self { evidence: DeathEvidence::Locks(sibling_path(path, "-workers")), own: None }
    }

    /// Returns the workers of a database without lock files.
    pub(crate) fn with_callback(own: Option<WorkerId>, is_dead: IsDead) -> Self {
        let own = own.map(|worker| WorkerLock { worker, _lock: None });
        Self { evidence: DeathEvidence::Callback(is_dead), own }
    }

    /// Returns the workers of the database at `path` after a worker has joined. Removes files of dead workers
    /// that are no longer needed.
    ///
    /// Call it under the database's write lock. Otherwise, another process could mistake a file that is
    /// created and not yet locked for that of a dead worker.
    pub(crate) fn join(
        path: &Path,
        worker: WorkerId,
        has_duties: impl Fn(WorkerId) -> Result<bool, Error>,
    ) -> Result<Self, Error> {
        let workers = Self::for_observer(path);
        let folder = sibling_path(path, "-workers");
        let failed = |cause| cannot_join(&folder, worker, cause);
        fs::create_dir_all(&folder).map_err(failed)?;
        for found in fs::read_dir(&folder).map_err(failed)? {
            let name = found.map_err(failed)?.file_name();
            let Some(other) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            if workers.is_dead(other) && !has_duties(other)? {
                workers.remove(other);
            }
        }
        let mut options = File::options();
        let lock = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(file(&folder, worker))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { own: Some(WorkerLock { worker, _lock: Some(lock) }), ..workers }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::new(Kind::InputInvalid, format!("{worker} already runs on this database")))
            }
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }

    /// Returns the worker of this store.
    pub(crate) fn own(&self) -> Option<WorkerId> {
        self.own.as_ref().map(|own| own.worker)
    }

    /// Returns whether there is evidence that a worker is dead. Always false for the worker of this store.
    pub(crate) fn is_dead(&self, worker: WorkerId) -> bool {
        if self.own() == Some(worker) {
            return false;
        }
        match &self.evidence {
            // A shared lock, so that two observers at the same time do not mistake each other for the worker.
            DeathEvidence::Locks(folder) => {
                File::open(file(folder, worker)).is_ok_and(|file| file.try_lock_shared().is_ok())
            }
            DeathEvidence::Callback(is_dead) => is_dead(worker),
        }
    }

    /// Returns whether the process of a worker may still run. Unlike for [`Self::is_dead`], a missing file is an answer: a
    /// worker keeps its file until it stops.
    pub(crate) fn is_running(&self, worker: WorkerId) -> bool {
        if self.own() == Some(worker) {
            return true;
        }
        match &self.evidence {
            DeathEvidence::Locks(folder) => match File::open(file(folder, worker)) {
                Ok(file) => file.try_lock_shared().is_err(),
                Err(cause) => cause.kind() != io::ErrorKind::NotFound,
            },
            DeathEvidence::Callback(is_dead) => !is_dead(worker),
        }
    }

    /// Removes the file of this worker, once it holds no lease.
    pub(crate) fn leave(&self) {
        if let Some(worker) = self.own() {
            self.remove(worker);
        }
    }

    fn remove(&self, worker: WorkerId) {
        if let DeathEvidence::Locks(folder) = &self.evidence {
            // A file that stays behind says that its worker is dead, which is true. The next worker removes
            // it.
            let _removed = fs::remove_file(file(folder, worker));
        }
    }
}

fn file(folder: &Path, worker: WorkerId) -> PathBuf {
    folder.join(worker.to_string())
}

fn cannot_join(folder: &Path, worker: WorkerId, cause: io::Error) -> Error {
    Error::new(
        io_error_kind(&cause),
        format!("the lock of {worker} cannot be created in {}: {cause}", folder.display()),
    )
    .because(cause)
}

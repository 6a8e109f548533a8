//! Who is dead. A worker holds a lock of the operating system on a file of its own for as long as its process lives,
//! stopped or not; the system lets go of it when the process is gone, however it went.
//!
//! What counts as evidence: the file is there and its lock is free. A file that is not there proves nothing (the worker
//! never made one), so a file stays as long as a session is leased to its worker or content is deleted by it. It is removed
//! by its worker when that ends without either, or by the next worker that starts.
use crate::connect::{beside, refusal};
use outlast_vocab::{Error, Kind, WorkerId};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Says whether a worker is dead, where there are no files to tell.
pub type IsDead = Arc<dyn Fn(WorkerId) -> bool + Send + Sync>;

/// The workers of a database.
pub(crate) struct Workers {
    evidence: Evidence,
    own: Option<Own>,
}

/// How the death of a worker shows.
enum Evidence {
    /// By its lock file in this folder beside the database.
    Locks(PathBuf),
    /// By what somebody says.
    Told(IsDead),
}

/// Our own lock, held until the process ends or this is dropped.
struct Own {
    worker: WorkerId,
    _lock: Option<File>,
}

impl Workers {
    /// Those of the database at `path`, watched by somebody who takes no lease.
    pub(crate) fn watched(path: &Path) -> Self {
        Self { evidence: Evidence::Locks(beside(path, "-workers")), own: None }
    }

    /// Those of a database without lock files.
    pub(crate) fn told(own: Option<WorkerId>, is_dead: IsDead) -> Self {
        let own = own.map(|worker| Own { worker, _lock: None });
        Self { evidence: Evidence::Told(is_dead), own }
    }

    /// Those of the database at `path`, joined by a worker. Files of workers whose death nobody will ask for are removed.
    ///
    /// Call it under the database's write lock: between making a file and locking it, nobody may take it for a dead one's.
    pub(crate) fn joined(
        path: &Path,
        worker: WorkerId,
        has_duties: impl Fn(WorkerId) -> Result<bool, Error>,
    ) -> Result<Self, Error> {
        let workers = Self::watched(path);
        let folder = beside(path, "-workers");
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
            Ok(()) => Ok(Self { own: Some(Own { worker, _lock: Some(lock) }), ..workers }),
            Err(TryLockError::WouldBlock) => {
                Err(Error::new(Kind::InputInvalid, format!("{worker} works on this database already")))
            }
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }

    /// The worker that we are.
    pub(crate) fn own(&self) -> Option<WorkerId> {
        self.own.as_ref().map(|own| own.worker)
    }

    /// Whether there is evidence that a worker is dead. We are not.
    pub(crate) fn is_dead(&self, worker: WorkerId) -> bool {
        if self.own() == Some(worker) {
            return false;
        }
        match &self.evidence {
            // Shared, so that two who look at the same time do not take each other for the worker.
            Evidence::Locks(folder) => {
                File::open(file(folder, worker)).is_ok_and(|file| file.try_lock_shared().is_ok())
            }
            Evidence::Told(is_dead) => is_dead(worker),
        }
    }

    /// Removes our own file, once no session is leased to us.
    pub(crate) fn leave(&self) {
        if let Some(worker) = self.own() {
            self.remove(worker);
        }
    }

    fn remove(&self, worker: WorkerId) {
        if let Evidence::Locks(folder) = &self.evidence {
            // A file that stays behind says only that its worker is dead, which is true; the next one removes it.
            let _removed = fs::remove_file(file(folder, worker));
        }
    }
}

fn file(folder: &Path, worker: WorkerId) -> PathBuf {
    folder.join(worker.to_string())
}

fn cannot_join(folder: &Path, worker: WorkerId, cause: io::Error) -> Error {
    Error::new(
        refusal(&cause),
        format!("the lock of {worker} cannot be made in {}: {cause}", folder.display()),
    )
    .because(cause)
}

//! Shared helpers for tests: a database in a temporary directory, and the smallest units of work.
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ledger::{Backend, rules};
use outlast_ports::inbox::{AcceptReceipt, AcceptRequest, Inbox, SessionTarget};
use outlast_ports::queries::Queries;
use outlast_ports::turns::LeaseRequest;
use outlast_store::{SqliteOptions, SqliteStore};
use outlast_vocab::{Error, Millis, SessionId, TurnId, WorkerId};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

pub(crate) const NOW: Millis = Millis(1_000);

/// A directory for one database, removed with it.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("the system has a place for temporary files") }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder().join("outlast.db")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).expect("the database opens")
    }

    pub(crate) fn open_as(&self, worker: WorkerId) -> SqliteStore {
        let options = SqliteOptions { worker: Some(worker), ..SqliteOptions::default() };
        SqliteStore::open_with(&self.path(), options).expect("the database opens")
    }

    /// Marks a worker as dead by creating its lock file without a lock.
    pub(crate) fn bury(&self, worker: WorkerId) {
        let folder = self.folder().join("outlast.db-workers");
        fs::create_dir_all(&folder).expect("the directory can be made");
        fs::write(folder.join(worker.to_string()), "").expect("the file can be made");
    }

    /// Returns every file with its content.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let found = fs::read_dir(self.folder()).expect("the directory is there").flatten();
        let files = found.filter(|file| file.path().is_file());
        files
            .map(|file| {
                (file.file_name().into_string().unwrap(), fs::read(file.path()).expect("it can be read"))
            })
            .collect()
    }
}

/// Returns a number that no id of this program or its children uses yet.
pub(crate) fn fresh() -> u128 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    u128::from(std::process::id()) << 64 | u128::from(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Returns a unit that adds one session.
pub(crate) fn opened(id: SessionId) -> impl FnOnce(&mut dyn Rows) -> Result<(), Error> + Send + 'static {
    move |rows| rules::open(rows, SessionTarget::New(id), NOW).map(|_| ())
}

/// Adds a session.
pub(crate) async fn open_session(store: &SqliteStore) -> SessionId {
    let id = SessionId::from_u128(fresh());
    store.open(SessionTarget::New(id), NOW).await.expect("a session opens");
    id
}

/// Returns the number of sessions in a store.
pub(crate) async fn sessions(store: &SqliteStore) -> usize {
    store.sessions(None, usize::MAX).await.expect("sessions can be listed").len()
}

/// Accepts an input in a new session. If a worker is given, it takes the turn at once.
pub(crate) async fn accept(
    store: &SqliteStore,
    text: &str,
    worker: Option<WorkerId>,
) -> Result<AcceptReceipt, Error> {
    store
        .accept(AcceptRequest {
            lease_request: worker.map(|worker| LeaseRequest { worker, until: Millis(100_000) }),
            ..AcceptRequest::text(
                SessionTarget::New(SessionId::from_u128(fresh())),
                TurnId::from_u128(fresh()),
                text,
                NOW,
            )
        })
        .await
}

/// Returns whether the store has evidence that a worker is dead.
pub(crate) async fn is_dead(store: &SqliteStore, worker: WorkerId) -> bool {
    store.read(move |rows: &dyn QueryRows| rows.is_dead(worker)).await.expect("a reader answers")
}

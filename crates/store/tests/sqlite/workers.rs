//! Tests of the detection of dead workers.
use crate::place::{Place, accept, fresh, is_dead};
use outlast_ports::turns::{LeaseRequest, Turns};
use outlast_vocab::{Kind, Millis, WorkerId};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const CHILD: &str = "OUTLAST_TEST_WORKER";

/// Another process that works on the same database as this worker and waits to be killed.
struct Other(Child);

impl Other {
    fn begin(test: &str, place: &Place, worker: WorkerId) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", test, "--nocapture", "--quiet"]);
        child.env(CHILD, worker.to_string()).current_dir(place.folder());
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.contains("at work")), "the child never worked");
        Self(child)
    }

    /// Runs in the child process instead of the test.
    async fn be(worker: &str) -> ! {
        let worker = worker.parse().unwrap();
        let options =
            outlast_store::SqliteOptions { worker: Some(worker), ..outlast_store::SqliteOptions::default() };
        let store = outlast_store::SqliteStore::open_with("outlast.db".as_ref(), options).unwrap();
        accept(&store, "hi", Some(worker)).await.unwrap();
        println!("at work");
        loop {
            std::thread::park();
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
async fn killed_worker_is_dead_and_loses_its_session() {
    if let Ok(worker) = std::env::var(CHILD) {
        Other::be(&worker).await;
    }
    let place = Place::new();
    let [worker, heir] = [(); 2].map(|()| WorkerId::from_u128(fresh()));
    let store = place.open_as(heir);
    let lease_request = LeaseRequest { worker: heir, until: Millis(90_000) };
    let name = "workers::killed_worker_is_dead_and_loses_its_session";
    let mut other = Other::begin(name, &place, worker);
    assert!(!is_dead(&store, worker).await);
    assert_eq!(store.claim(lease_request, Millis(2_000), 10).await.unwrap().len(), 0);
    other.kill();
    assert!(is_dead(&store, worker).await);
    // The evidence stays for every observer until the sessions are taken.
    assert!(is_dead(&store, worker).await);
    assert!(is_dead(&place.open(), worker).await);
    assert_eq!(store.claim(lease_request, Millis(2_000), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_stopped_worker_is_not_dead() {
    if let Ok(worker) = std::env::var(CHILD) {
        Other::be(&worker).await;
    }
    let place = Place::new();
    let worker = WorkerId::from_u128(fresh());
    let store = place.open();
    let mut other = Other::begin("workers::a_stopped_worker_is_not_dead", &place, worker);
    other.signal("-STOP");
    assert!(!is_dead(&store, worker).await);
    other.kill();
    assert!(is_dead(&store, worker).await);
}

#[tokio::test]
async fn worker_never_reports_itself_dead() {
    let place = Place::new();
    let worker = WorkerId::from_u128(fresh());
    let store = place.open_as(worker);
    assert_eq!(store.worker(), Some(worker));
    assert!(!is_dead(&store, worker).await);
    assert!(!is_dead(&place.open(), worker).await);
}

#[cfg(unix)]
#[test]
fn lock_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let worker = WorkerId::from_u128(fresh());
    let _store = place.open_as(worker);
    let lock = place.folder().join("outlast.db-workers").join(worker.to_string());
    assert_eq!(std::fs::metadata(lock).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn worker_without_lock_file_is_not_dead() {
    let place = Place::new();
    let store = place.open_as(WorkerId::from_u128(fresh()));
    assert!(!is_dead(&store, WorkerId::from_u128(fresh())).await);
}

#[tokio::test]
async fn ended_worker_is_dead_only_with_a_lease() {
    let place = Place::new();
    let [ended, left] = [(); 2].map(|()| WorkerId::from_u128(fresh()));
    let watcher = place.open();
    let lock = |worker: WorkerId| place.folder().join("outlast.db-workers").join(worker.to_string());

    let store = place.open_as(ended);
    drop(store);
    assert!(!lock(ended).exists());
    assert!(!is_dead(&watcher, ended).await);

    let store = place.open_as(left);
    accept(&store, "hi", Some(left)).await.unwrap();
    drop(store);
    assert!(is_dead(&watcher, left).await);

    // The next worker keeps the evidence while it is needed, and the one after that removes it.
    let heir = WorkerId::from_u128(fresh());
    let store = place.open_as(heir);
    assert!(lock(left).exists());
    let lease_request = LeaseRequest { worker: heir, until: Millis(90_000) };
    assert_eq!(store.claim(lease_request, Millis(2_000), 10).await.unwrap().len(), 1);
    let last = place.open_as(WorkerId::from_u128(fresh()));
    assert!(!lock(left).exists());
    assert!(!is_dead(&last, heir).await);
}

#[test]
fn worker_id_cannot_be_used_twice() {
    let place = Place::new();
    let worker = WorkerId::from_u128(fresh());
    let _first = place.open_as(worker);
    let options =
        outlast_store::SqliteOptions { worker: Some(worker), ..outlast_store::SqliteOptions::default() };
    let error = outlast_store::SqliteStore::open_with(&place.path(), options).err().unwrap();
    assert_eq!(error.kind(), Kind::InputInvalid);
}

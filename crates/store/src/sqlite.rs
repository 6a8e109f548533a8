//! The store that a user holds. Opens the file, starts the writer thread, sends jobs to it, and stops it when
//! dropped.
use crate::connection::{self, DatabaseLocation};
use crate::error::{from_sqlite, thread_ended};
use crate::job_queue::JobQueue;
use crate::reader::ReaderPool;
use crate::schema;
use crate::simulated_machine::{ManualWriter, SimulatedMachine};
use crate::tables::{Tables, has_duties};
use crate::workers::WorkerRegistry;
use crate::writer::{ClosureUnit, Writer, WriterJob};
use outlast_ledger::Backend;
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::metrics::HistogramValue;
use outlast_ports::store::{Durability, StoreStatus};
use outlast_vocab::{Error, Kind, WorkerId};
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;

/// Units that may wait for the writer.
const QUEUED: usize = 1_024;

/// Options for opening a database.
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// Whether acknowledged writes may be lost on power loss (`synchronous=NORMAL`). Every status report
    /// shows it.
    pub unsafe_durability: bool,
    /// The worker that takes leases through this store. It holds a lock that shows other processes that it is
    /// alive, from before its first lease until its process ends.
    pub worker: Option<WorkerId>,
    /// How long to wait for a lock that another process holds.
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { unsafe_durability: false, worker: None, busy_timeout: Duration::from_secs(5) }
    }
}

/// Statistics since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteStats {
    /// Transactions that changed something. Each cost one disk sync.
    pub commits: u64,
    /// Units of work that were acknowledged.
    pub units: u64,
    /// Reads: queries, and checks for changes.
    pub reads: u64,
}

/// A database file with one writer thread. Several processes may open the same file.
///
/// Dropping the store lets the writer finish its queue and checkpoint the log, and waits for that.
pub struct SqliteStore {
    shared: Arc<SharedState>,
    readers: ReaderPool,
    thread: Option<WriterThread>,
}

/// The state that the writer and the readers share.
pub(crate) struct SharedState {
    pub(crate) location: DatabaseLocation,
    pub(crate) busy_timeout: Duration,
    pub(crate) secret: [u8; 32],
    pub(crate) workers: WorkerRegistry,
    pub(crate) commits: AtomicU64,
    pub(crate) units: AtomicU64,
    syncs: Mutex<HistogramValue>,
    reads: AtomicU64,
    durability: Durability,
}

/// The writer thread and its queue.
struct WriterThread {
    jobs: JobQueue<WriterJob>,
    /// `None` if the caller advances the writer.
    writer: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens or creates the database at `path`. Acknowledged writes survive a power loss.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens or creates the database at `path`.
    pub fn open_with(path: &Path, options: SqliteOptions) -> Result<Self, Error> {
        // An absolute path stays valid if the process changes its directory, and is never parsed as a URI.
        let path = std::path::absolute(path).map_err(|cause| {
            Error::new(
                Kind::IoFailed,
                format!("`{}` is not a valid path to a database: {cause}", path.display()),
            )
        })?;
        let place = DatabaseLocation { path, vfs: None };
        let mut conn = connection::writer(&place, &options)?;
        let workers = workers(&mut conn, &place.path, options.worker)?;
        let shared = SharedState::new(&conn, place, options, workers)?;
        let thread = Some(WriterThread::start(conn, &shared)?);
        Ok(Self { shared, readers: ReaderPool::default(), thread })
    }

    /// Opens a database on a simulated machine. Its writer has no thread: the caller advances it.
    pub fn open_simulated(machine: SimulatedMachine) -> Result<(Self, ManualWriter), Error> {
        let SimulatedMachine { vfs: disk, path, options, is_dead } = machine;
        let place = DatabaseLocation { path, vfs: Some(disk) };
        let conn = connection::writer(&place, &options)?;
        let shared =
            SharedState::new(&conn, place, options, WorkerRegistry::with_callback(options.worker, is_dead))?;
        let (jobs, to_writer) = JobQueue::of(QUEUED);
        let writer = ManualWriter::new(Writer::new(conn, Arc::clone(&shared)), to_writer);
        let thread = Some(WriterThread { jobs, writer: None });
        Ok((Self { shared, readers: ReaderPool::default(), thread }, writer))
    }

    /// Returns the worker whose lock this store holds.
    pub fn worker(&self) -> Option<WorkerId> {
        self.shared.workers.own()
    }

    /// Returns the statistics since the database was opened.
    pub fn stats(&self) -> SqliteStats {
        let SharedState { commits, units, reads: looks, .. } = &*self.shared;
        SqliteStats { commits: commits.load(Relaxed), units: units.load(Relaxed), reads: looks.load(Relaxed) }
    }

    /// Runs work on the tables as one durable transaction.
    pub(crate) fn submit<T, F>(&self, work: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tables<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (job, outcome) = ClosureUnit::of(work);
        Box::pin(async move {
            self.jobs().put(job).await?;
            outcome.await.unwrap_or_else(|_| Err(thread_ended()))
        })
    }

    fn jobs(&self) -> &JobQueue<WriterJob> {
        &self.thread.as_ref().expect("the writer runs until the store is dropped").jobs
    }
}

impl SharedState {
    fn new(
        conn: &Connection,
        place: DatabaseLocation,
        options: SqliteOptions,
        workers: WorkerRegistry,
    ) -> Result<Arc<Self>, Error> {
        let durability =
            if options.unsafe_durability { Durability::ProcessDeath } else { Durability::PowerLoss };
        Ok(Arc::new(Self {
            secret: schema::secret(conn)?,
            workers,
            location: place,
            busy_timeout: options.busy_timeout,
            commits: AtomicU64::new(0),
            units: AtomicU64::new(0),
            syncs: Mutex::new(HistogramValue::with_bounds(HistogramValue::WRITES)),
            reads: AtomicU64::new(0),
            durability,
        }))
    }
}

impl SharedState {
    /// Records how long a sync took.
    pub(crate) fn record_sync(&self, took: Duration) {
        self.lock_syncs().add(took.as_secs_f64());
    }

    fn syncs(&self) -> HistogramValue {
        self.lock_syncs().clone()
    }

    fn lock_syncs(&self) -> MutexGuard<'_, HistogramValue> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the workers of this database, and joins them if this store takes leases.
fn workers(conn: &mut Connection, path: &Path, own: Option<WorkerId>) -> Result<WorkerRegistry, Error> {
    let Some(own) = own else { return Ok(WorkerRegistry::for_observer(path)) };
    // Nothing is written. The write lock keeps other processes from joining at the same time.
    let alone = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(from_sqlite)?;
    WorkerRegistry::join(path, own, |worker| has_duties(&alone, worker))
}

impl WriterThread {
    fn start(conn: Connection, shared: &Arc<SharedState>) -> Result<Self, Error> {
        let (jobs, to_writer) = JobQueue::of(QUEUED);
        let writer = Writer::new(conn, Arc::clone(shared));
        let thread = thread::Builder::new().name("outlast-writer".to_owned());
        let writer = thread.spawn(move || writer.serve(&to_writer)).map_err(|cause| {
            Error::new(
                Kind::IoFailed,
                format!("the operating system could not start the writer thread: {cause}"),
            )
            .because(cause)
        })?;
        Ok(Self { jobs, writer: Some(writer) })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The writer closes the file last, so that it can checkpoint and remove the log.
        self.readers.close();
        if let Some(WriterThread { jobs, writer }) = self.thread.take() {
            drop(jobs);
            let _ended = writer.map(JoinHandle::join);
        }
    }
}

impl Backend for SqliteStore {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        self.submit(|tables| unit(tables))
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.shared.reads.fetch_add(1, Relaxed);
        let answer = self.readers.read(&self.shared, |tables| query(tables));
        Box::pin(std::future::ready(answer))
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        self.shared.reads.fetch_add(1, Relaxed);
        Box::pin(async move {
            let (caller, outcome) = oneshot::channel();
            self.jobs().put(WriterJob::Changes(caller)).await?;
            outcome.await.unwrap_or_else(|_| Err(thread_ended()))
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Box::pin(async move {
            Ok(StoreStatus {
                engine: format!("SQLite {}", rusqlite::version()),
                place: self.shared.location.path.display().to_string(),
                schema: schema::VERSION,
                durability: self.shared.durability,
                bytes: self.shared.location.bytes(),
                syncs: Some(self.shared.syncs()),
            })
        })
    }
}

outlast_ledger::implement_store!(SqliteStore);

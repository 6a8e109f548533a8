//! The writer thread. Units that are ready together share one transaction and its sync (group commit). Each
//! has its own savepoint, so that a refused unit does not affect the others. No unit is answered before the
//! commit.
//!
//! If the disk fails, the store stops accepting writes. After a failed sync, the system may have dropped the
//! data and report success the next time. Only a fresh start, which reads what is on disk, proves anything.
use crate::checkpoint::{self, WalCheckpointer};
use crate::connection;
use crate::error::{catch_panic, from_sqlite, store_stopped};
use crate::job_queue::QueuedJob;
use crate::sqlite::SharedState;
use crate::tables::{RowCache, Tables, has_duties};
use outlast_vocab::{Error, Failure, Kind};
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The most units in one transaction.
const BATCH: usize = 256;

/// How long the writer polls for a job before it sleeps.
const POLL_BEFORE_SLEEP: Duration = Duration::from_micros(100);

/// A job for the writer.
pub(crate) enum WriterJob {
    /// Runs a unit and makes it durable.
    Unit(Box<dyn WorkUnit>),
    /// Returns whether another process has written.
    Changes(oneshot::Sender<Result<u64, Error>>),
}

/// A unit of work with its caller.
pub(crate) trait WorkUnit: Send {
    /// Runs the work and keeps its outcome. On an error, all changes of the unit are rolled back.
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), Failure>;

    /// Answers the caller: with the outcome if the transaction is durable, or with the reason why it is not.
    fn answer(self: Box<Self>, transaction: Result<(), Error>);
}

/// A unit from a closure.
pub(crate) struct ClosureUnit<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, Error>>,
    caller: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> ClosureUnit<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Tables<'_>) -> Result<T, Error> + Send + 'static,
{
    /// Creates a job for this work, and the receiver of its outcome.
    pub(crate) fn of(work: F) -> (WriterJob, oneshot::Receiver<Result<T, Error>>) {
        let (caller, outcome) = oneshot::channel();
        (WriterJob::Unit(Box::new(Self { work: Some(work), outcome: None, caller })), outcome)
    }
}

impl<T, F> WorkUnit for ClosureUnit<T, F>
where
    T: Send,
    F: FnOnce(&mut Tables<'_>) -> Result<T, Error> + Send,
{
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), Failure> {
        let work = self.work.take().expect("a unit is run once");
        let outcome = self.outcome.insert(catch_panic(|| work(tables)));
        outcome.as_ref().map(|_| ()).map_err(Failure::from)
    }

    fn answer(self: Box<Self>, transaction: Result<(), Error>) {
        let Self { outcome, caller, .. } = *self;
        let outcome = transaction.and_then(|()| outcome.expect("a durable unit was run"));
        // A caller that is gone does not need the answer. Its work is done all the same.
        let _heard = caller.send(outcome);
    }
}

/// Polls for a job before sleeping. A caller that was just answered often sends the next job at once, and
/// waking the thread takes longer than this.
fn poll_jobs(jobs: &Receiver<QueuedJob<WriterJob>>) -> Option<QueuedJob<WriterJob>> {
    let begun = Instant::now();
    while begun.elapsed() < POLL_BEFORE_SLEEP {
        if let Ok(job) = jobs.try_recv() {
            return Some(job);
        }
        std::thread::yield_now();
    }
    None
}

/// The writer of a database.
pub(crate) struct Writer {
    conn: Connection,
    shared: Arc<SharedState>,
    wal: WalCheckpointer,
    /// Cached rows, valid as of `cache_version`.
    cache: RowCache,
    /// The data version, which changes when another connection writes.
    cache_version: u64,
    /// The error after which no writes are accepted.
    failed: Option<Failure>,
}

impl Writer {
    /// Creates a writer with exclusive use of a connection.
    pub(crate) fn new(conn: Connection, shared: Arc<SharedState>) -> Self {
        let wal = WalCheckpointer::new(shared.busy_timeout);
        Self { conn, shared, wal, cache: RowCache::default(), cache_version: 0, failed: None }
    }

    /// Serves jobs until all senders are gone, then closes the files cleanly.
    pub(crate) fn serve(mut self, jobs: &Receiver<QueuedJob<WriterJob>>) {
        while let Some(first) = self.next(jobs) {
            self.serve_once(first, jobs);
        }
        self.close();
    }

    /// Serves the jobs that wait now, as one transaction.
    pub(crate) fn serve_once(&mut self, first: QueuedJob<WriterJob>, jobs: &Receiver<QueuedJob<WriterJob>>) {
        let more = std::iter::from_fn(|| jobs.try_recv().ok()).take(BATCH - 1);
        let mut units = Vec::new();
        let mut asked = Vec::new();
        for queued in std::iter::once(first).chain(more) {
            match queued.take() {
                WriterJob::Unit(unit) => units.push(unit),
                WriterJob::Changes(caller) => asked.push(caller),
            }
        }
        if !units.is_empty() {
            self.commit(units);
        }
        for caller in asked {
            let _heard = caller.send(self.changes());
        }
    }

    /// Checkpoints the log, as the writer does when it is idle.
    pub(crate) fn checkpoint_idle(&mut self) {
        if self.failed.is_none() {
            let moved = self.wal.checkpoint(&self.conn);
            self.handle_checkpoint(moved);
        }
    }

    /// Returns the next job. Checkpoints the log while the queue is empty.
    fn next(&mut self, jobs: &Receiver<QueuedJob<WriterJob>>) -> Option<QueuedJob<WriterJob>> {
        if let Some(job) = poll_jobs(jobs) {
            return Some(job);
        }
        if self.failed.is_none() && self.wal.should_checkpoint_idle() {
            match jobs.recv_timeout(checkpoint::IDLE) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => self.checkpoint_idle(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        jobs.recv().ok()
    }

    /// Makes units durable together, then answers each.
    fn commit(&mut self, mut units: Vec<Box<dyn WorkUnit>>) {
        let done = match &self.failed {
            Some(first) => Err(store_stopped(first)),
            None => self.transact(&mut units),
        };
        for unit in units {
            unit.answer(done.clone().map_err(Error::from));
        }
        let tended = match done {
            Ok(()) => self.wal.after_commit(&self.conn),
            // On a full disk, a checkpoint frees the space of the log.
            Err(full) if full.code == Kind::StoreFull => self.wal.checkpoint(&self.conn),
            Err(_) => return,
        };
        self.handle_checkpoint(tended);
    }

    fn transact(&mut self, units: &mut [Box<dyn WorkUnit>]) -> Result<(), Failure> {
        self.execute("BEGIN IMMEDIATE")?;
        let before = self.conn.total_changes();
        let mut committed = 0;
        let ran = self.clear_stale_cache().and_then(|()| match units {
            // A single unit needs no savepoint: the whole transaction is rolled back with it.
            [unit] => self.run(&mut **unit).map(|stays| committed += u64::from(stays)),
            units => units.iter_mut().try_for_each(|unit| {
                self.run_in_savepoint(&mut **unit).map(|stays| committed += u64::from(stays))
            }),
        });
        let began = Instant::now();
        // If no unit succeeded, there is nothing to sync.
        let done = ran.and_then(|()| self.execute(if committed > 0 { "COMMIT" } else { "ROLLBACK" }));
        if done.is_err() || committed == 0 {
            self.cache.clear();
        }
        match &done {
            Ok(()) => {
                let synced = committed > 0 && self.conn.total_changes() > before;
                if synced {
                    self.shared.record_sync(began.elapsed());
                }
                self.shared.commits.fetch_add(u64::from(synced), Relaxed);
                self.shared.units.fetch_add(committed, Relaxed);
            }
            Err(error) => {
                if matches!(error.code, Kind::StoreFailed | Kind::StoreCorrupt) {
                    self.failed = Some(error.clone());
                }
                if !self.conn.is_autocommit() {
                    // If this fails too, the next transaction cannot begin and returns an error.
                    let _rolled_back = self.execute("ROLLBACK");
                }
            }
        }
        done
    }

    /// Clears the cache if another process has written since the rows were read.
    fn clear_stale_cache(&mut self) -> Result<(), Failure> {
        let seen = self.changes().map_err(|error| Failure::from(&error))?;
        if seen != self.cache_version {
            self.cache.clear();
            self.cache_version = seen;
        }
        Ok(())
    }

    /// Runs one unit in a savepoint and returns whether it succeeded. An error affects the whole transaction.
    fn run_in_savepoint(&self, unit: &mut dyn WorkUnit) -> Result<bool, Failure> {
        self.execute("SAVEPOINT unit")?;
        let stays = self.run(unit)?;
        if !stays {
            self.cache.clear();
            self.execute("ROLLBACK TO unit")?;
        }
        self.execute("RELEASE unit")?;
        Ok(stays)
    }

    /// Runs one unit and returns whether it succeeded. An error affects the whole transaction.
    fn run(&self, unit: &mut dyn WorkUnit) -> Result<bool, Failure> {
        match unit.run(&mut Tables::writing(&self.conn, &self.shared, &self.cache)) {
            Ok(()) => Ok(true),
            // Some failures make SQLite end the whole transaction, including the earlier units.
            Err(refused) if self.conn.is_autocommit() || refused.code == Kind::StoreFailed => Err(refused),
            Err(_) => Ok(false),
        }
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        let done = self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(|_| ()).map_err(|cause| Failure::from(&from_sqlite(cause)))
    }

    /// Returns the data version, which does not change for writes on this connection.
    fn changes(&self) -> Result<u64, Error> {
        let mut statement = self.conn.prepare_cached("PRAGMA data_version").map_err(from_sqlite)?;
        statement.query_one([], |row| row.get(0)).map(i64::cast_unsigned).map_err(from_sqlite)
    }

    /// Handles the result of a checkpoint: a busy or full disk is tried again later, a failing one never.
    fn handle_checkpoint(&mut self, moved: Result<(), Error>) {
        if let Err(error) = moved
            && matches!(error.kind(), Kind::StoreFailed | Kind::StoreCorrupt)
        {
            self.failed = Some(Failure::from(&error));
        }
    }

    pub(crate) fn close(mut self) {
        // If the file stays, it proves our death to workers that find our leases.
        if let Some(worker) = self.shared.workers.own()
            && let Ok(false) = has_duties(&self.conn, worker)
        {
            self.shared.workers.leave();
        }
        self.checkpoint_idle();
        if self.failed.is_none() {
            // If this fails, the log stays and is read at the next start.
            let _set = connection::checkpoint_on_close(&self.conn, true);
        }
    }
}

//! The writer thread. Units that are ready together share one transaction and its sync (group commit). Each
//! has its own savepoint, so that a refused unit does not affect the others. No unit is answered before the
//! commit.
//!
//! If the disk fails, the store stops accepting writes. After a failed sync, the system may have dropped the
//! data and report success the next time. Only a fresh start, which reads what is on disk, proves anything.
use crate::connect;
use crate::error::{caught, failure, stopped};
use crate::queue::Queued;
use crate::sqlite::Shared;
use crate::tables::{Held, Tables, has_duties};
use crate::wal::{self, Wal};
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
const LINGER: Duration = Duration::from_micros(100);

/// A job for the writer.
pub(crate) enum Job {
    /// Runs a unit and makes it durable.
    Unit(Box<dyn Unit>),
    /// Returns whether another process has written.
    Changes(oneshot::Sender<Result<u64, Error>>),
}

/// A unit of work with its caller.
pub(crate) trait Unit: Send {
    /// Runs the work and keeps its outcome. On an error, all changes of the unit are rolled back.
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), Failure>;

    /// Answers the caller: with the outcome if the transaction is durable, or with the reason why it is not.
    fn answer(self: Box<Self>, transaction: Result<(), Error>);
}

/// A unit from a closure.
pub(crate) struct Pending<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, Error>>,
    caller: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Pending<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Tables<'_>) -> Result<T, Error> + Send + 'static,
{
    /// Creates a job for this work, and the receiver of its outcome.
    pub(crate) fn of(work: F) -> (Job, oneshot::Receiver<Result<T, Error>>) {
        let (caller, outcome) = oneshot::channel();
        (Job::Unit(Box::new(Self { work: Some(work), outcome: None, caller })), outcome)
    }
}

impl<T, F> Unit for Pending<T, F>
where
    T: Send,
    F: FnOnce(&mut Tables<'_>) -> Result<T, Error> + Send,
{
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), Failure> {
        let work = self.work.take().expect("a unit is run once");
        let outcome = self.outcome.insert(caught(|| work(tables)));
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
fn linger(jobs: &Receiver<Queued<Job>>) -> Option<Queued<Job>> {
    let begun = Instant::now();
    while begun.elapsed() < LINGER {
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
    shared: Arc<Shared>,
    wal: Wal,
    /// Cached rows, valid as of `seen`.
    held: Held,
    /// The data version, which changes when another connection writes.
    seen: u64,
    /// The error after which no writes are accepted.
    failed: Option<Failure>,
}

impl Writer {
    /// Creates a writer with exclusive use of a connection.
    pub(crate) fn new(conn: Connection, shared: Arc<Shared>) -> Self {
        let wal = Wal::new(shared.busy_timeout);
        Self { conn, shared, wal, held: Held::default(), seen: 0, failed: None }
    }

    /// Serves jobs until all senders are gone, then closes the files cleanly.
    pub(crate) fn serve(mut self, jobs: &Receiver<Queued<Job>>) {
        while let Some(first) = self.next(jobs) {
            self.serve_once(first, jobs);
        }
        self.close();
    }

    /// Serves the jobs that wait now, as one transaction.
    pub(crate) fn serve_once(&mut self, first: Queued<Job>, jobs: &Receiver<Queued<Job>>) {
        let more = std::iter::from_fn(|| jobs.try_recv().ok()).take(BATCH - 1);
        let mut units = Vec::new();
        let mut asked = Vec::new();
        for queued in std::iter::once(first).chain(more) {
            match queued.take() {
                Job::Unit(unit) => units.push(unit),
                Job::Changes(caller) => asked.push(caller),
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
    pub(crate) fn tidy_up(&mut self) {
        if self.failed.is_none() {
            let moved = self.wal.move_over(&self.conn);
            self.checked(moved);
        }
    }

    /// Returns the next job. Checkpoints the log while the queue is empty.
    fn next(&mut self, jobs: &Receiver<Queued<Job>>) -> Option<Queued<Job>> {
        if let Some(job) = linger(jobs) {
            return Some(job);
        }
        if self.failed.is_none() && self.wal.is_worth_moving() {
            match jobs.recv_timeout(wal::IDLE) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Timeout) => self.tidy_up(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        jobs.recv().ok()
    }

    /// Makes units durable together, then answers each.
    fn commit(&mut self, mut units: Vec<Box<dyn Unit>>) {
        let done = match &self.failed {
            Some(first) => Err(stopped(first)),
            None => self.transact(&mut units),
        };
        for unit in units {
            unit.answer(done.clone().map_err(Error::from));
        }
        let tended = match done {
            Ok(()) => self.wal.grew(&self.conn),
            // On a full disk, a checkpoint frees the space of the log.
            Err(full) if full.code == Kind::StoreFull => self.wal.move_over(&self.conn),
            Err(_) => return,
        };
        self.checked(tended);
    }

    fn transact(&mut self, units: &mut [Box<dyn Unit>]) -> Result<(), Failure> {
        self.execute("BEGIN IMMEDIATE")?;
        let before = self.conn.total_changes();
        let mut kept = 0;
        let ran = self.look_around().and_then(|()| match units {
            // A single unit needs no savepoint: the whole transaction is rolled back with it.
            [unit] => self.run(&mut **unit).map(|stays| kept += u64::from(stays)),
            units => units
                .iter_mut()
                .try_for_each(|unit| self.apart(&mut **unit).map(|stays| kept += u64::from(stays))),
        });
        let began = Instant::now();
        // If no unit succeeded, there is nothing to sync.
        let done = ran.and_then(|()| self.execute(if kept > 0 { "COMMIT" } else { "ROLLBACK" }));
        if done.is_err() || kept == 0 {
            self.held.clear();
        }
        match &done {
            Ok(()) => {
                let synced = kept > 0 && self.conn.total_changes() > before;
                if synced {
                    self.shared.synced(began.elapsed());
                }
                self.shared.commits.fetch_add(u64::from(synced), Relaxed);
                self.shared.units.fetch_add(kept, Relaxed);
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
    fn look_around(&mut self) -> Result<(), Failure> {
        let seen = self.changes().map_err(|error| Failure::from(&error))?;
        if seen != self.seen {
            self.held.clear();
            self.seen = seen;
        }
        Ok(())
    }

    /// Runs one unit in a savepoint and returns whether it succeeded. An error affects the whole transaction.
    fn apart(&self, unit: &mut dyn Unit) -> Result<bool, Failure> {
        self.execute("SAVEPOINT unit")?;
        let stays = self.run(unit)?;
        if !stays {
            self.held.clear();
            self.execute("ROLLBACK TO unit")?;
        }
        self.execute("RELEASE unit")?;
        Ok(stays)
    }

    /// Runs one unit and returns whether it succeeded. An error affects the whole transaction.
    fn run(&self, unit: &mut dyn Unit) -> Result<bool, Failure> {
        match unit.run(&mut Tables::writing(&self.conn, &self.shared, &self.held)) {
            Ok(()) => Ok(true),
            // Some failures make SQLite end the whole transaction, including the earlier units.
            Err(refused) if self.conn.is_autocommit() || refused.code == Kind::StoreFailed => Err(refused),
            Err(_) => Ok(false),
        }
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        let done = self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(|_| ()).map_err(|cause| Failure::from(&failure(cause)))
    }

    /// Returns the data version, which does not change for writes on this connection.
    fn changes(&self) -> Result<u64, Error> {
        let mut statement = self.conn.prepare_cached("PRAGMA data_version").map_err(failure)?;
        statement.query_one([], |row| row.get(0)).map(i64::cast_unsigned).map_err(failure)
    }

    /// Handles the result of a checkpoint: a busy or full disk is tried again later, a failing one never.
    fn checked(&mut self, moved: Result<(), Error>) {
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
        self.tidy_up();
        if self.failed.is_none() {
            // If this fails, the log stays and is read at the next start.
            let _set = connect::checkpoint_on_close(&self.conn, true);
        }
    }
}

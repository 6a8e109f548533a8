//! The one thread that writes. Units that are ready together share one transaction and its sync (group commit); each has
//! a savepoint of its own, so that one refusal does not spoil its neighbours. Nobody is answered before the commit.
//!
//! When the disk fails, the store stops taking writes: after a failed sync the system may have dropped the data and say
//! success the next time, so only a fresh start, which reads what is really there, proves anything.
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

/// Units that share one transaction at most.
const BATCH: usize = 256;

/// How long the writer looks for a job before it sleeps.
const LINGER: Duration = Duration::from_micros(100);

/// What the writer is asked to do.
pub(crate) enum Job {
    /// Run a unit and make it durable.
    Unit(Box<dyn Unit>),
    /// Say whether another process wrote.
    Changes(oneshot::Sender<Result<u64, Error>>),
}

/// A unit of work that knows its caller.
pub(crate) trait Unit: Send {
    /// Does the work and keeps what came of it. An error means that nothing of it may stay.
    fn run(&mut self, tables: &mut Tables<'_>) -> Result<(), Failure>;

    /// Tells the caller: what came of the work if its transaction is durable, otherwise why not.
    fn answer(self: Box<Self>, transaction: Result<(), Error>);
}

/// A unit that is a closure.
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
    /// The job that runs this work, and where its outcome will arrive.
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
        // A caller that went away has no use for the answer; what it asked for is done all the same.
        let _heard = caller.send(outcome);
    }
}

/// Looks for a job for a moment before going to sleep. Whoever was just answered often asks again at once, and to be
/// woken takes longer than this.
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

/// The writer's side of a database.
pub(crate) struct Writer {
    conn: Connection,
    shared: Arc<Shared>,
    wal: Wal,
    /// Rows that need not be read again, as of `seen`.
    held: Held,
    /// The number that moves when another connection writes.
    seen: u64,
    /// Why no more writes are taken.
    failed: Option<Failure>,
}

impl Writer {
    /// A writer over a connection that nobody else uses.
    pub(crate) fn new(conn: Connection, shared: Arc<Shared>) -> Self {
        let wal = Wal::new(shared.busy_timeout);
        Self { conn, shared, wal, held: Held::default(), seen: 0, failed: None }
    }

    /// Does what it is asked until nobody can ask any more, then leaves the files in order.
    pub(crate) fn serve(mut self, jobs: &Receiver<Queued<Job>>) {
        while let Some(first) = self.next(jobs) {
            self.serve_once(first, jobs);
        }
        self.close();
    }

    /// Does what is asked now, as one transaction.
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

    /// Moves the log into the file, as is done when nobody writes for a while.
    pub(crate) fn tidy_up(&mut self) {
        if self.failed.is_none() {
            let moved = self.wal.move_over(&self.conn);
            self.checked(moved);
        }
    }

    /// The next job. While there is none, the log is moved into the file.
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
            // Once its log has moved, a full disk has the room that the log took.
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
            // A unit without neighbours can spoil nobody; the transaction is undone with it.
            [unit] => self.run(&mut **unit).map(|stays| kept += u64::from(stays)),
            units => units
                .iter_mut()
                .try_for_each(|unit| self.apart(&mut **unit).map(|stays| kept += u64::from(stays))),
        });
        let began = Instant::now();
        // Without a unit that stays there is nothing to sync.
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
                    // Should this fail too, the next transaction cannot begin, and says so.
                    let _rolled_back = self.execute("ROLLBACK");
                }
            }
        }
        done
    }

    /// Lets go of the rows that are held if another process wrote since they were read.
    fn look_around(&mut self) -> Result<(), Failure> {
        let seen = self.changes().map_err(|error| Failure::from(&error))?;
        if seen != self.seen {
            self.held.clear();
            self.seen = seen;
        }
        Ok(())
    }

    /// Runs one unit in its own savepoint and says whether it stays. An error is one of the whole transaction.
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

    /// Runs one unit and says whether it stays. An error is one of the whole transaction.
    fn run(&self, unit: &mut dyn Unit) -> Result<bool, Failure> {
        match unit.run(&mut Tables::writing(&self.conn, &self.shared, &self.held)) {
            Ok(()) => Ok(true),
            // Some failures make SQLite end the transaction by itself, and with it the units before this one.
            Err(refused) if self.conn.is_autocommit() || refused.code == Kind::StoreFailed => Err(refused),
            Err(_) => Ok(false),
        }
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        let done = self.conn.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(|_| ()).map_err(|cause| Failure::from(&failure(cause)))
    }

    /// On this connection the number stands still for what we write ourselves.
    fn changes(&self) -> Result<u64, Error> {
        let mut statement = self.conn.prepare_cached("PRAGMA data_version").map_err(failure)?;
        statement.query_one([], |row| row.get(0)).map(i64::cast_unsigned).map_err(failure)
    }

    /// Takes note of how moving the log went: a busy or full disk is tried again later, a failing one never.
    fn checked(&mut self, moved: Result<(), Error>) {
        if let Err(error) = moved
            && matches!(error.kind(), Kind::StoreFailed | Kind::StoreCorrupt)
        {
            self.failed = Some(Failure::from(&error));
        }
    }

    pub(crate) fn close(mut self) {
        // A file of ours that stays is evidence of our death for those who find our leases.
        if let Some(worker) = self.shared.workers.own()
            && let Ok(false) = has_duties(&self.conn, worker)
        {
            self.shared.workers.leave();
        }
        self.tidy_up();
        if self.failed.is_none() {
            // Should it fail, the log stays where it is and is read at the next start.
            let _set = connect::checkpoint_on_close(&self.conn, true);
        }
    }
}

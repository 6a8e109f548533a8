//! A store that crashes at a chosen write, for tests of crash recovery.
//!
//! [`CrashingStore`] wraps another store and simulates one life of a process. It crashes before a write happens, or after it
//! happened but before the caller learns of it. After the crash, writes never return. The test keeps the [`SimulatedProcess`]:
//! it counts the writes, remembers what each of them wrote, and reports the crash.
use crate::rows::{QueryRows, ReadRows, Rows};
use crate::{Backend, rules};
use outlast_ports::BoxFuture;
use outlast_ports::journal::FeedCursor;
use outlast_ports::store::StoreStatus;
use outlast_vocab::access::Access;
use outlast_vocab::record::Record;
use outlast_vocab::{Error, Kind};
use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Records read per page.
const PAGE: usize = 1_000;

/// When the simulated process crashes. Writes are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Never, unless [`SimulatedProcess::stop`] is called.
    Never,
    /// Before this write happens.
    Before(u64),
    /// After this write happened, but before the caller learns of it.
    AfterWrite(u64),
}

/// A store that crashes on command. It wraps any other store.
pub struct CrashingStore<B> {
    inner: B,
    process: Arc<SimulatedProcess>,
}

/// The test's view of one simulated process.
pub struct SimulatedProcess {
    crash_point: CrashPoint,
    state: Mutex<ProcessState>,
}

#[derive(Default)]
struct ProcessState {
    writes: u64,
    written: BTreeMap<u64, Vec<Record>>,
    /// The end of the journal when it was last read.
    feed_end: FeedCursor,
    is_crashed: bool,
    crash_waiters: Vec<Waker>,
}

/// The fate of the process at a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteFate {
    Completes,
    CrashesBefore,
    CrashesAfter,
}

impl<B: Backend> CrashingStore<B> {
    /// Wraps a store.
    pub fn new(inner: B, dies: CrashPoint) -> Self {
        Self { inner, process: Arc::new(SimulatedProcess { crash_point: dies, state: Mutex::default() }) }
    }

    /// Returns the test's view of this process.
    pub fn pulse(&self) -> Arc<SimulatedProcess> {
        self.process.clone()
    }
}

impl SimulatedProcess {
    /// Returns how many writes were started.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// Returns the records of each started write, in order. A write that the crash prevented is included with the
    /// records it would have written. A write that only moved a lease has no records.
    pub fn written(&self) -> Vec<Vec<Record>> {
        let state = self.lock();
        (0..state.writes).map(|number| state.written.get(&number).cloned().unwrap_or_default()).collect()
    }

    /// Crashes the process now.
    pub fn stop(&self) {
        let waiting = {
            let mut state = self.lock();
            state.is_crashed = true;
            std::mem::take(&mut state.crash_waiters)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until the process has crashed.
    pub async fn stopped(&self) {
        poll_fn(|task| {
            let mut state = self.lock();
            if state.is_crashed {
                return Poll::Ready(());
            }
            if !state.crash_waiters.iter().any(|waker| waker.will_wake(task.waker())) {
                state.crash_waiters.push(task.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Counts a write and returns its number and fate. Returns `None` after the crash.
    fn begin_write(&self) -> Option<(u64, WriteFate)> {
        let mut state = self.lock();
        if state.is_crashed {
            return None;
        }
        let number = state.writes;
        let fate = match self.crash_point {
            CrashPoint::Before(at) if number == at => WriteFate::CrashesBefore,
            CrashPoint::AfterWrite(at) if number == at => WriteFate::CrashesAfter,
            CrashPoint::Before(at) | CrashPoint::AfterWrite(at) if number > at => return None,
            CrashPoint::Never | CrashPoint::Before(_) | CrashPoint::AfterWrite(_) => WriteFate::Completes,
        };
        state.writes += 1;
        Some((number, fate))
    }

    /// Runs a unit of work and remembers what it wrote.
    fn run_recorded<T>(
        &self,
        number: u64,
        rows: &mut dyn Rows,
        unit: impl FnOnce(&mut dyn Rows) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let before = self.lock().feed_end;
        let (before, _) = records_after(rows, before)?;
        let answer = unit(rows)?;
        let (end, records) = records_after(rows, before)?;
        let mut state = self.lock();
        state.feed_end = end;
        state.written.insert(number, records);
        Ok(answer)
    }

    fn lock(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the records after a cursor, and the cursor at their end.
fn records_after(rows: &dyn ReadRows, after: FeedCursor) -> Result<(FeedCursor, Vec<Record>), Error> {
    let (mut end, mut records) = (after, Vec::new());
    loop {
        let page = rules::feed(rows, end, PAGE)?;
        let Some(last) = page.last() else { return Ok((end, records)) };
        end = last.cursor;
        records.extend(page.into_iter().map(|fed| fed.record));
    }
}

impl<B: Backend> Backend for CrashingStore<B> {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        let Some((number, fate)) = self.process.begin_write() else { return Box::pin(pending()) };
        let pulse = self.process.clone();
        let written = self.inner.write(move |rows| {
            let answer = pulse.run_recorded(number, rows, unit)?;
            match fate {
                WriteFate::Completes | WriteFate::CrashesAfter => Ok(answer),
                // The transaction rolls back. The caller never sees this error.
                WriteFate::CrashesBefore => {
                    Err(Error::new(Kind::Internal, "the process ended before this write"))
                }
            }
        });
        Box::pin(async move {
            let answer = written.await;
            if fate != WriteFate::Completes {
                self.process.stop();
            }
            if self.process.lock().is_crashed {
                return pending().await;
            }
            answer
        })
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.inner.read(query)
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(&self.inner)
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.inner)
    }

    fn access(&self) -> Access {
        Backend::access(&self.inner)
    }
}

crate::implement_store!(CrashingStore<B>, B: Backend);

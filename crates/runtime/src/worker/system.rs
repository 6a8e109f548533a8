//! The system implementations of clock, entropy and task spawning.
use outlast_ports::BoxFuture;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::spawner::Spawner;
use outlast_vocab::Millis;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The system clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        // A clock before 1970 is wrong. Time 0 keeps ids and leases in order.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::default().after(since)
    }

    fn elapsed(&self) -> Duration {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed()
    }

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The system time may be set back while this sleeps, so check again instead of returning early.
            while self.now() < until {
                tokio::time::sleep(self.now().until(until)).await;
            }
        })
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// The random numbers of the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    /// # Panics
    /// If the operating system provides no random numbers, because ids would not be unique.
    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
        bytes
    }
}

/// Spawns tasks on the current tokio runtime.
#[derive(Debug, Default, Clone, Copy)]
pub struct TokioTasks;

impl Spawner for TokioTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        // The task is detached. `Tasks` counts it where its end matters.
        drop(tokio::spawn(task));
    }
}

/// Threads that run only the tasks of workers, so that other work of the process does not delay turns.
#[derive(Debug)]
pub struct WorkerThreads {
    own: Option<tokio::runtime::Runtime>,
    /// Stops the timer thread when it is dropped.
    _pulse: mpsc::Sender<()>,
}

/// How often the threads are woken.
const PULSE: Duration = Duration::from_secs(1);

/// Wakes the threads of a runtime periodically. A task that blocks its thread may block the thread that drives the
/// timers, while the others sleep and do not notice. A thread that is woken takes over the timers.
fn pulse(handle: tokio::runtime::Handle) -> io::Result<mpsc::Sender<()>> {
    let (alive, gone) = mpsc::channel();
    std::thread::Builder::new().name("outlast-pulse".to_owned()).spawn(move || {
        while gone.recv_timeout(PULSE) == Err(mpsc::RecvTimeoutError::Timeout) {
            drop(handle.spawn(async {}));
        }
    })?;
    Ok(alive)
}

const TWO: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// Returns the number of available processors.
fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

impl WorkerThreads {
    /// Creates one thread per processor, at least two. While a turn blocks one thread, the other detects that.
    pub fn of_this_machine() -> io::Result<Self> {
        Self::new(cores().max(TWO))
    }

    /// Returns how many threads the rest of the process should use. Leaves one processor to turns.
    pub fn beside() -> usize {
        (cores().get() - 1).max(1)
    }

    /// Creates this many threads.
    pub fn new(threads: NonZeroUsize) -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let own = builder.worker_threads(threads.get()).thread_name("outlast-turns").enable_all().build()?;
        let pulse = pulse(own.handle().clone())?;
        Ok(Self { own: Some(own), _pulse: pulse })
    }
}

impl Spawner for WorkerThreads {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(own) = &self.own {
            drop(own.spawn(task));
        }
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        // The last owner may be a task, which cannot block on joining threads.
        if let Some(own) = self.own.take() {
            own.shutdown_background();
        }
    }
}

//! The clock, the entropy and the tasks of a real machine.
use outlast_ports::BoxFuture;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::task::Spawner;
use outlast_vocab::Millis;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        // A clock before 1970 is broken; the oldest time we know keeps ids and leases in order.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::default().after(since)
    }

    fn elapsed(&self) -> Duration {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed()
    }

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The wall clock may be set back while we sleep; look again instead of coming early.
            while self.now() < until {
                tokio::time::sleep(self.now().until(until)).await;
            }
        })
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// The machine's random numbers.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    /// # Panics
    /// If the operating system has no random numbers: no id could be trusted then.
    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
        bytes
    }
}

/// Tasks of the tokio runtime that is at work where they are spawned.
#[derive(Debug, Default, Clone, Copy)]
pub struct TokioTasks;

impl Spawner for TokioTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        // It runs on by itself; who wants to know of its end counts it.
        drop(tokio::spawn(task));
    }
}

/// Threads that run nothing but the tasks of workers: whatever else the process does, they wait for the machine and not for that.
#[derive(Debug)]
pub struct OwnThreads {
    own: Option<tokio::runtime::Runtime>,
    /// Ends the thread that keeps their timers going, by being dropped.
    _pulse: mpsc::Sender<()>,
}

/// How often the threads are woken from outside.
const PULSE: Duration = Duration::from_secs(1);

/// Wakes the threads of a runtime again and again. A task that blocks its thread may block the one that waits for timers; the others
/// sleep then and would not notice. One that is woken takes the timers over.
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

/// How much this machine can do at once.
fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

impl OwnThreads {
    /// One for each core, and at least two: while a turn blocks one of them, the other finds that out.
    pub fn of_this_machine() -> io::Result<Self> {
        Self::new(cores().max(TWO))
    }

    /// How many threads whatever answers beside them should have: it leaves one core to turns, so that they do not stand behind it.
    pub fn beside() -> usize {
        (cores().get() - 1).max(1)
    }

    /// So many threads.
    pub fn new(threads: NonZeroUsize) -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let own = builder.worker_threads(threads.get()).thread_name("outlast-turns").enable_all().build()?;
        let pulse = pulse(own.handle().clone())?;
        Ok(Self { own: Some(own), _pulse: pulse })
    }
}

impl Spawner for OwnThreads {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(own) = &self.own {
            drop(own.spawn(task));
        }
    }
}

impl Drop for OwnThreads {
    fn drop(&mut self) {
        // The last who has them may be a task, which cannot wait for threads.
        if let Some(own) = self.own.take() {
            own.shutdown_background();
        }
    }
}

//! Time and randomness as ports, so that tests neither sleep nor depend on chance.
use crate::BoxFuture;
use outlast_vocab::Millis;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A clock.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Millis;

    /// Returns the time since a fixed moment, with the best available resolution.
    ///
    /// Use it only to measure durations. A decision based on it would differ on replay.
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now().0)
    }

    /// Completes at this time or later, never earlier.
    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()>;

    /// Completes after this duration, even if the clock is adjusted meanwhile.
    ///
    /// Use it for pauses and timeouts. Use points in time only for deadlines that are stored and read by others.
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.sleep_until(self.now().after(time))
    }
}

/// A source of random bits.
pub trait Entropy: Send + Sync {
    /// Returns sixteen unpredictable bytes.
    fn random(&self) -> [u8; 16];

    /// Returns the random bytes for a new id.
    fn random_id_bytes(&self) -> [u8; 10] {
        let bytes = self.random();
        std::array::from_fn(|i| bytes[i])
    }
}

/// A clock that moves only when a test advances it.
#[derive(Debug)]
pub struct VirtualClock {
    state: Mutex<(Millis, Vec<(Millis, Waker)>)>,
}

impl VirtualClock {
    /// Creates a clock that shows this time.
    pub fn at(now: Millis) -> Self {
        Self { state: Mutex::new((now, Vec::new())) }
    }

    /// Advances the clock and wakes the sleepers that are due.
    pub fn advance(&self, by: Duration) {
        let due = {
            let mut state = self.lock();
            state.0 = state.0.after(by);
            let now = state.0;
            let (due, later) = std::mem::take(&mut state.1).into_iter().partition(|(at, _)| *at <= now);
            state.1 = later;
            due
        };
        let _: Vec<()> = Vec::into_iter(due).map(|(_, waker): (Millis, Waker)| waker.wake()).collect();
    }

    /// Returns the earliest time that a sleeper waits for.
    pub fn next_sleeper(&self) -> Option<Millis> {
        self.lock().1.iter().map(|(at, _)| *at).min()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Millis, Vec<(Millis, Waker)>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Millis {
        self.lock().0
    }

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        Box::pin(std::future::poll_fn(move |task| {
            let mut state = self.lock();
            if state.0 >= until {
                return Poll::Ready(());
            }
            if !state.1.iter().any(|(at, waker)| *at == until && waker.will_wake(task.waker())) {
                state.1.push((until, task.waker().clone()));
            }
            Poll::Pending
        }))
    }
}

/// Deterministic entropy, for tests: gives the same bytes in every run.
#[derive(Debug, Default)]
pub struct CountingEntropy(std::sync::atomic::AtomicU64);

impl CountingEntropy {
    /// Creates a sequence that starts at this number. Its bytes differ from those at every other number.
    pub fn from(start: u64) -> Self {
        Self(start.into())
    }
}

impl Entropy for CountingEntropy {
    fn random(&self) -> [u8; 16] {
        let n = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let hash = outlast_vocab::Hash::of(&n.to_be_bytes());
        std::array::from_fn(|i| hash.as_bytes()[i])
    }
}

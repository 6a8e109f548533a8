//! Time and chance, as ports: tests do not sleep and do not guess.
use crate::BoxFuture;
use outlast_vocab::Millis;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What time it is.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Millis;

    /// Time since some moment that never changes, as finely as it is known. For how long something took; whoever decides by
    /// it would decide otherwise on replay.
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now().0)
    }

    /// Comes back at this time or later, never earlier.
    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()>;

    /// Comes back after this much time, whatever the clock is set to meanwhile. For pauses and patience; only what is
    /// written down and read by others is a point in time.
    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.sleep_until(self.now().after(time))
    }
}

/// Where random bits come from.
pub trait Entropy: Send + Sync {
    /// Sixteen bytes that nobody can guess.
    fn random(&self) -> [u8; 16];

    /// The part of them that a fresh id takes.
    fn for_id(&self) -> [u8; 10] {
        let bytes = self.random();
        std::array::from_fn(|i| bytes[i])
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug)]
pub struct VirtualClock {
    state: Mutex<(Millis, Vec<(Millis, Waker)>)>,
}

impl VirtualClock {
    /// A clock that shows this time.
    pub fn at(now: Millis) -> Self {
        Self { state: Mutex::new((now, Vec::new())) }
    }

    /// Moves the clock and wakes who slept until then.
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

    /// The earliest time somebody sleeps until.
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

/// Entropy that gives the same bytes in every run.
#[derive(Debug, Default)]
pub struct Counted(std::sync::atomic::AtomicU64);

impl Counted {
    /// Bytes that differ from those of every other start.
    pub fn from(start: u64) -> Self {
        Self(start.into())
    }
}

impl Entropy for Counted {
    fn random(&self) -> [u8; 16] {
        let n = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let hash = outlast_vocab::Hash::of(&n.to_be_bytes());
        std::array::from_fn(|i| hash.as_bytes()[i])
    }
}

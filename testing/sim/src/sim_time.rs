//! Virtual time, which only advances when nothing else can run, and the clock of each process, which may be wrong.
use outlast_ports::BoxFuture;
use outlast_ports::clock::Clock;
use outlast_vocab::Millis;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The virtual time of the world.
#[derive(Default)]
pub(crate) struct SimTime {
    state: Mutex<SimTimeState>,
}

#[derive(Default)]
struct SimTimeState {
    now: u64,
    sleepers: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

impl SimTime {
    /// Returns the time in milliseconds since the start of the world.
    pub(crate) fn now(&self) -> u64 {
        self.lock().now
    }

    /// Returns when the next sleeper wakes.
    pub(crate) fn next(&self) -> Option<u64> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// Advances the time and wakes the sleepers that are due.
    pub(crate) fn move_to(&self, now: u64) {
        let due = {
            let mut state = self.lock();
            state.now = state.now.max(now);
            let now = state.now;
            let later = state.sleepers.split_off(&(now + 1, 0));
            std::mem::replace(&mut state.sleepers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Wakes all sleepers, because a clock was changed.
    fn wake_all_sleepers(&self) {
        let sleepers = std::mem::take(&mut self.lock().sleepers);
        sleepers.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, SimTimeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock of a process.
pub(crate) struct ProcessClock {
    time: Arc<SimTime>,
    /// Its offset in milliseconds.
    ahead: Mutex<i64>,
}

/// The start of the world on a correct clock.
pub(crate) const BEGAN: u64 = 1_700_000_000_000;

impl ProcessClock {
    /// Creates a clock with this offset.
    pub(crate) fn new(time: Arc<SimTime>, ahead: i64) -> Arc<Self> {
        Arc::new(Self { time, ahead: Mutex::new(ahead) })
    }

    /// Changes the clock.
    pub(crate) fn jump(&self, by: i64) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) += by;
        self.time.wake_all_sleepers();
    }

    /// Returns the milliseconds since the start of the world, regardless of the offset.
    pub(crate) fn world_age_ms(&self) -> u64 {
        self.time.now()
    }

    fn ahead(&self) -> i64 {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Millis {
        Millis((BEGAN + self.time.now()).saturating_add_signed(self.ahead()))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.time.now())
    }

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        let mut sleeper = Sleeper { time: &self.time, place: None };
        Box::pin(poll_fn(move |task| {
            sleeper.leave();
            if self.now() >= until {
                return Poll::Ready(());
            }
            let left = self.now().until(until).max(Duration::from_millis(1));
            let at = self.time.now().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2));
            sleeper.register_wake(at, task.waker().clone());
            Poll::Pending
        }))
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'_, ()> {
        let until = self.time.now().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2));
        let mut sleeper = Sleeper { time: &self.time, place: None };
        Box::pin(poll_fn(move |task| {
            sleeper.leave();
            if self.time.now() >= until {
                return Poll::Ready(());
            }
            sleeper.register_wake(until, task.waker().clone());
            Poll::Pending
        }))
    }
}

/// A task that sleeps. Dropping it cancels the wake-up.
struct Sleeper<'a> {
    time: &'a SimTime,
    place: Option<(u64, u64)>,
}

impl Sleeper<'_> {
    fn register_wake(&mut self, at: u64, waker: Waker) {
        let mut state = self.time.lock();
        state.next += 1;
        let place = (at, state.next);
        state.sleepers.insert(place, waker);
        self.place = Some(place);
    }

    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.time.lock().sleepers.remove(&place);
        }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

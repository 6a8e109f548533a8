//! Time that moves only when nothing else can, and the clock of each process, which may be wrong.
use outlast_ports::BoxFuture;
use outlast_ports::clock::Clock;
use outlast_vocab::Millis;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The time that all processes live in.
#[derive(Default)]
pub(crate) struct Time {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: u64,
    sleepers: BTreeMap<(u64, u64), Waker>,
    next: u64,
}

impl Time {
    /// Now, in milliseconds since the world began.
    pub(crate) fn now(&self) -> u64 {
        self.lock().now
    }

    /// When the next sleeper wakes.
    pub(crate) fn next(&self) -> Option<u64> {
        self.lock().sleepers.keys().next().map(|(at, _)| *at)
    }

    /// Moves on to this time and wakes who slept until then.
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

    /// Wakes everybody, because a clock was set.
    fn stir(&self) {
        let sleepers = std::mem::take(&mut self.lock().sleepers);
        sleepers.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a process takes for the time.
pub(crate) struct ProcessClock {
    time: Arc<Time>,
    /// How far it is ahead, in milliseconds.
    ahead: Mutex<i64>,
}

/// When the world began, as a clock that is right shows it.
const BEGAN: u64 = 1_700_000_000_000;

impl ProcessClock {
    /// A clock that is this far ahead.
    pub(crate) fn new(time: Arc<Time>, ahead: i64) -> Arc<Self> {
        Arc::new(Self { time, ahead: Mutex::new(ahead) })
    }

    /// Somebody sets the clock.
    pub(crate) fn jump(&self, by: i64) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) += by;
        self.time.stir();
    }

    /// Milliseconds since the world began, whatever the clock shows.
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

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        let mut sleeper = Sleeper { time: &self.time, place: None };
        Box::pin(poll_fn(move |task| {
            sleeper.leave();
            if self.now() >= until {
                return Poll::Ready(());
            }
            let left = self.now().until(until).max(Duration::from_millis(1));
            let at = self.time.now().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2));
            sleeper.lie_down(at, task.waker().clone());
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
            sleeper.lie_down(until, task.waker().clone());
            Poll::Pending
        }))
    }
}

/// Somebody who sleeps. One that is dropped is not waited for.
struct Sleeper<'a> {
    time: &'a Time,
    place: Option<(u64, u64)>,
}

impl Sleeper<'_> {
    fn lie_down(&mut self, at: u64, waker: Waker) {
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

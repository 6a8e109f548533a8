//! A clock that can be moved forward, so that a trial does not wait for turns that only sleep.
use outlast_ports::BoxFuture;
use outlast_ports::clock::Clock;
use outlast_runtime::worker::system::SystemClock;
use outlast_vocab::Millis;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The machine's time plus an offset. All lives of a run share it, so a crash does not move time back.
pub(crate) struct OffsetClock {
    offset: AtomicU64,
    moved: watch::Sender<()>,
}

impl OffsetClock {
    pub(crate) fn with_offset(ahead: Duration) -> Self {
        let by = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
        Self { offset: AtomicU64::new(by), moved: watch::Sender::new(()) }
    }

    /// Moves the clock forward to this time. Has no effect if the clock is already later.
    pub(crate) fn advance_to(&self, time: Millis) {
        let left = self.now().until(time).as_millis();
        self.offset.fetch_add(u64::try_from(left).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.moved.send_replace(());
    }
}

impl Clock for OffsetClock {
    fn now(&self) -> Millis {
        SystemClock.now().after(Duration::from_millis(self.offset.load(Ordering::SeqCst)))
    }

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Subscribe before reading the time, so that no change is missed.
            let mut moved = self.moved.subscribe();
            while self.now() < until {
                tokio::select! {
                    () = tokio::time::sleep(self.now().until(until)) => {}
                    _ = moved.changed() => {}
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleeper_wakes_only_when_the_clock_advances() {
        let clock = OffsetClock::with_offset(Duration::ZERO);
        let (hour, day) =
            (clock.now().after(Duration::from_hours(1)), clock.now().after(Duration::from_hours(24)));
        let mut sleeper = clock.sleep_until(day);
        clock.advance_to(hour);
        tokio::select! {
            biased;
            () = &mut sleeper => panic!("it woke a day too early"),
            () = tokio::task::yield_now() => {}
        }
        clock.advance_to(day);
        clock.advance_to(hour);
        sleeper.await;
        assert!(clock.now() >= day);
    }
}

//! The rules for clocks: a sleep ends at its time or later, never earlier.
use super::{RuleFuture, RuleResult, block_on};
use futures_util::future::{join, poll_immediate};
use outlast_ports::clock::Clock;
use outlast_vocab::Millis;
use std::time::Duration;

/// A clock under test.
pub trait ClockFixture: Sync {
    /// Returns the clock.
    fn clock(&self) -> &dyn Clock;

    /// Advances a virtual clock. Does nothing for a real clock, which advances during the wait.
    fn advance(&self, time: Duration);

    /// Runs a rule to completion. Override this if the clock works only inside a certain runtime.
    fn run(&self, rule: RuleFuture<'_>) {
        block_on(rule);
    }
}

/// The clock under test, and the time at which the rule started.
pub(super) struct ClockUnderTest<'a> {
    on: &'a dyn ClockFixture,
    began: Millis,
}

impl<'a> From<&'a dyn ClockFixture> for ClockUnderTest<'a> {
    fn from(on: &'a dyn ClockFixture) -> Self {
        Self { on, began: on.clock().now() }
    }
}

impl ClockUnderTest<'_> {
    fn after(&self, millis: u64) -> Millis {
        self.began.after(Duration::from_millis(millis))
    }

    fn pass(&self, millis: u64) {
        self.on.advance(Duration::from_millis(millis));
    }

    fn now(&self) -> Millis {
        self.on.clock().now()
    }
}

pub(super) async fn a_sleep_is_never_over_early(w: &ClockUnderTest<'_>) -> RuleResult {
    let until = w.after(20);
    let mut sleep = w.on.clock().sleep_until(until);
    for pass in [0, 10, 9] {
        w.pass(pass);
        if poll_immediate(&mut sleep).await.is_some() {
            assert!(w.now() >= until);
            return Ok(());
        }
    }
    w.pass(1);
    sleep.await;
    assert!(w.now() >= until);
    Ok(())
}

pub(super) async fn sleep_until_past_time_ends_at_once(w: &ClockUnderTest<'_>) -> RuleResult {
    for until in [Millis(0), Millis(w.began.0.saturating_sub(1)), w.began] {
        assert!(poll_immediate(w.on.clock().sleep_until(until)).await.is_some());
    }
    Ok(())
}

pub(super) async fn every_sleeper_wakes_at_its_time(w: &ClockUnderTest<'_>) -> RuleResult {
    let sleep = |millis| async move {
        w.on.clock().sleep_until(w.after(millis)).await;
        assert!(w.now() >= w.after(millis));
    };
    join(join(sleep(20), sleep(10)), join(sleep(10), async { w.pass(20) })).await;
    Ok(())
}

pub(super) async fn sleep_can_be_cancelled(w: &ClockUnderTest<'_>) -> RuleResult {
    let mut long = w.on.clock().sleep_until(w.after(3_600_000));
    assert!(poll_immediate(&mut long).await.is_none());
    drop(long);
    join(w.on.clock().sleep_until(w.after(5)), async { w.pass(5) }).await;
    assert!(w.now() >= w.after(5));
    Ok(())
}

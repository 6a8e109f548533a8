//! Rate limits as data: how often tool calls may start, and when the next one may.
//!
//! The state of a rate limit is two instants: when the next call may start, and where the queue of waiting
//! calls ends. The store calls [`admit`] within the write that lets a call start, so no concurrent call can
//! come between. In any span of time, no more calls start than the rate allows plus one burst, however they
//! are spread over processes. A place in the queue is only a time to ask again: a call that is late or dies
//! has used nothing.
use crate::key::ReplayKey;
use crate::message::RateName;
use crate::{Failure, Millis};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::time::Duration;

/// The largest expected difference between the clocks of two processes. An instant further ahead comes from a
/// wrong clock.
const CLOCK_SKEW_MAX: Duration = Duration::from_hours(1);

/// A rate limit for outbound calls. All calls in an organisation that match a rate limit of the same name
/// share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Its name in records and messages.
    pub name: RateName,
    /// The pattern of the tools it applies to; `*` stands for any text.
    pub tool: String,
    /// The number of calls.
    pub calls: NonZeroU32,
    /// The span of time in which they may start.
    pub per: RatePeriod,
    /// The number of calls that may start at once after a pause.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub burst: NonZeroU32,
    /// The treatment of a call that exceeds the limit.
    #[serde(default, skip_serializing_if = "WhenFull::is_default")]
    pub when_full: WhenFull,
    /// The treatment of a call while the limiter does not respond.
    #[serde(default, skip_serializing_if = "WhenDown::is_closed")]
    pub when_down: WhenDown,
}

const fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

#[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_one(burst: &NonZeroU32) -> bool {
    *burst == one()
}

impl RateLimit {
    /// Creates a rate limit without bursts. Calls wait for it, and are denied while the limiter does not
    /// respond.
    pub fn new(name: RateName, tool: impl Into<String>, calls: NonZeroU32, per: RatePeriod) -> Self {
        let (when_full, when_down) = (WhenFull::default(), WhenDown::default());
        Self { name, tool: tool.into(), calls, per, burst: one(), when_full, when_down }
    }

    /// Returns the microseconds between two calls. Rounded up, so that rounding never exceeds the limit.
    pub fn every(&self) -> u64 {
        self.per.micros().div_ceil(self.calls.get().into())
    }

    /// Returns how long a call may wait, or `else_most` if the rate limit sets no wait.
    fn wait_max(&self, else_most: Duration) -> u64 {
        match self.when_full {
            WhenFull::Wait { most } => micros(most.unwrap_or(else_most)),
            WhenFull::Deny => 0,
        }
    }

    /// Returns by how many microseconds the calls of a burst may be early.
    fn burst_tolerance(&self) -> u64 {
        self.every().saturating_mul(u64::from(self.burst.get()) - 1)
    }

    /// Returns the microseconds between two places in the queue. A call that wakes a little late must not
    /// make all calls behind it too early. If bursts are allowed, they absorb such delays.
    fn queue_spacing(&self) -> u64 {
        let every = self.every();
        if self.burst > one() { every } else { every.saturating_add(every / 64).saturating_add(1_000) }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The span of time over which calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatePeriod {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl RatePeriod {
    const fn micros(self) -> u64 {
        match self {
            Self::Second => 1_000_000,
            Self::Minute => 60_000_000,
            Self::Hour => 3_600_000_000,
            Self::Day => 86_400_000_000,
        }
    }
}

/// The treatment of a call that exceeds a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It waits.
    Wait {
        /// The longest wait. A call that would wait longer is denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<Duration>,
    },
    /// It is denied. The model reads the reason.
    Deny,
}

impl Default for WhenFull {
    fn default() -> Self {
        Self::Wait { most: None }
    }
}

impl WhenFull {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The treatment of a call while the limiter does not respond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenDown {
    /// It is denied.
    #[default]
    Closed,
    /// It starts.
    Open,
}

impl WhenDown {
    #[expect(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
    fn is_closed(&self) -> bool {
        *self == Self::Closed
    }
}

/// The rate limit decision for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimited {
    /// The call.
    pub key: ReplayKey,
    /// The rate limit that decided: the slowest of several.
    pub rate: RateName,
    /// The decision.
    pub pace: RateLimitOutcome,
}

/// A rate limit decision. A call that starts at once has no record of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitOutcome {
    /// The call waits. It has not started.
    Waits {
        /// The end of the wait.
        until: Millis,
    },
    /// The wait is over, and the call starts.
    Goes,
    /// The call is denied.
    Refused {
        /// The reason.
        failure: Failure,
    },
}

/// The state of a rate limit, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateState {
    /// When the next call may start.
    pub next: u64,
    /// The end of the queue of waiting calls.
    pub queue_end: u64,
}

/// Whether a call asks for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionAttempt {
    /// A new call.
    First,
    /// A call that has waited in the queue until its time.
    Again,
}

/// The result of asking rate limits to let a call start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateAdmission {
    /// The call starts now.
    Admitted,
    /// The call asks again at this instant. The rate limit is the slowest of several.
    Queued(Millis, RateName),
    /// The limit allows no call before this instant, which is longer than its calls wait.
    Rejected(Millis, RateName),
}

/// Lets one call start under all of these rate limits or under none, or gives it a place in the queue.
/// `wait_most` applies to rate limits that set no wait.
pub fn admit(
    rates: &mut [(&RateLimit, RateState)],
    asks: AdmissionAttempt,
    now: Millis,
    wait_most: Duration,
) -> Option<RateAdmission> {
    let instant = now.0.saturating_mul(1_000);
    for (rate, standing) in rates.iter_mut() {
        let latest = instant.saturating_add(rate.wait_max(wait_most)).saturating_add(rate.every());
        let most = latest.saturating_add(micros(CLOCK_SKEW_MAX));
        let right = |at: u64| if at > most { latest } else { at };
        *standing = RateState { next: right(standing.next), queue_end: right(standing.queue_end) };
    }
    let place = |(rate, standing): &(&RateLimit, RateState)| {
        let RateState { next, queue_end: line } = *standing;
        // A call that is a little early keeps its place. A call that arrives after later places were served
        // goes to the end.
        let stands = asks == AdmissionAttempt::Again && next.saturating_sub(instant) < rate.every();
        (rate.name.clone(), if stands { next } else { next.max(line) })
    };
    let (slowest, at) = rates.iter().map(place).max_by_key(|(_, at)| *at)?;
    if at <= instant {
        for (rate, standing) in rates.iter_mut() {
            let from = standing.next.max(instant.saturating_sub(rate.burst_tolerance()));
            standing.next = from.saturating_add(rate.every());
        }
        return Some(RateAdmission::Admitted);
    }
    let at = at.div_ceil(1_000).saturating_mul(1_000);
    let free = Millis(at / 1_000);
    if rates.iter().any(|(rate, _)| at - instant > rate.wait_max(wait_most)) {
        return Some(RateAdmission::Rejected(free, slowest));
    }
    for (rate, standing) in rates.iter_mut() {
        standing.queue_end = standing.queue_end.max(at.saturating_add(rate.queue_spacing()));
    }
    Some(RateAdmission::Queued(free, slowest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(calls: u32, per: RatePeriod, burst: u32) -> RateLimit {
        let count = |n| NonZeroU32::new(n).unwrap();
        RateLimit { burst: count(burst), ..RateLimit::new("mail".parse().unwrap(), "*", count(calls), per) }
    }

    /// Returns when calls start that arrive at these instants and wait as told, or `None` for those that are
    /// denied.
    fn gone(rate: &RateLimit, at: &[u64]) -> Vec<Option<u64>> {
        let mut standing = RateState::default();
        let mut gone = vec![None; at.len()];
        let mut asking: std::collections::BTreeSet<(u64, bool, usize)> =
            at.iter().enumerate().map(|(call, at)| (*at, true, call)).collect();
        while let Some((now, comes, call)) = asking.pop_first() {
            let mut rates = [(rate, standing)];
            let asks = if comes { AdmissionAttempt::First } else { AdmissionAttempt::Again };
            match admit(&mut rates, asks, Millis(now), Duration::from_secs(10)) {
                Some(RateAdmission::Admitted) => gone[call] = Some(now),
                Some(RateAdmission::Queued(Millis(until), _)) => {
                    assert!(until > now);
                    asking.insert((until, false, call));
                }
                Some(RateAdmission::Rejected(..)) | None => {}
            }
            standing = rates[0].1;
        }
        gone
    }

    const T: u64 = 1_000_000;

    #[test]
    fn burst_is_immediate_then_one_by_one() {
        let rate = rate(60, RatePeriod::Minute, 3);
        assert_eq!(gone(&rate, &[T; 6]), [T, T, T, T + 1_000, T + 2_000, T + 3_000].map(Some));
        let later = [T, T, T, T + 5_000, T + 5_000, T + 5_000, T + 5_000];
        let want = [T, T, T, T + 5_000, T + 5_000, T + 5_000, T + 6_000].map(Some);
        assert_eq!(gone(&rate, &later), want);
    }

    #[test]
    fn new_call_queues_behind_waiting_calls() {
        let rate = rate(60, RatePeriod::Minute, 2);
        let came = [T, T, T, T, T + 1_000];
        assert_eq!(gone(&rate, &came), [T, T, T + 1_000, T + 2_000, T + 3_000].map(Some));
    }

    #[test]
    fn call_with_excessive_wait_takes_nothing() {
        let slow = rate(6, RatePeriod::Minute, 2);
        let came = [T, T, T, T, T, T + 9_999];
        assert_eq!(gone(&slow, &came), [Some(T), Some(T), Some(T + 10_000), None, None, None]);
        let deny = RateLimit { when_full: WhenFull::Deny, ..rate(6, RatePeriod::Minute, 1) };
        assert_eq!(gone(&deny, &[T, T, T + 9_999, T + 10_000]), [Some(T), None, None, Some(T + 10_000)]);
    }

    #[test]
    fn call_of_several_rates_takes_all_or_none() {
        let (fast, slow) = (rate(10, RatePeriod::Second, 1), rate(6, RatePeriod::Minute, 1));
        let slow = RateLimit { name: "slow".parse().unwrap(), ..slow };
        let deny = RateLimit { when_full: WhenFull::Deny, ..slow.clone() };
        let busy = RateState { next: (T + 5_000) * 1_000, queue_end: 0 };
        let mut rates = [(&fast, RateState::default()), (&deny, busy)];
        let full = Some(RateAdmission::Rejected(Millis(T + 5_000), slow.name.clone()));
        assert_eq!(admit(&mut rates, AdmissionAttempt::First, Millis(T), Duration::ZERO), full);
        assert_eq!(rates.map(|(_, standing)| standing), [RateState::default(), busy]);
        let mut rates = [(&fast, RateState::default()), (&slow, busy)];
        let waits = Some(RateAdmission::Queued(Millis(T + 5_000), slow.name.clone()));
        assert_eq!(admit(&mut rates, AdmissionAttempt::First, Millis(T), Duration::from_secs(10)), waits);
        assert_eq!(rates.map(|(_, standing)| standing.next), [0, busy.next]);
        assert_eq!(
            admit(&mut rates, AdmissionAttempt::Again, Millis(T + 5_000), Duration::ZERO),
            Some(RateAdmission::Admitted)
        );
        assert_eq!(rates.map(|(_, standing)| standing.next), [(T + 5_100) * 1_000, (T + 15_000) * 1_000]);
    }

    #[test]
    fn future_rate_state_does_not_block_forever() {
        let rate = rate(60, RatePeriod::Minute, 1);
        let year = T * 1_000 * 31_536_000;
        let mut rates = [(&rate, RateState { next: year, queue_end: year })];
        let taken = admit(&mut rates, AdmissionAttempt::First, Millis(T), Duration::from_secs(10));
        assert!(matches!(taken, Some(RateAdmission::Rejected(..))));
        let latest = (T + 11_000) * 1_000;
        assert_eq!(rates[0].1, RateState { next: latest, queue_end: latest });
    }

    #[test]
    fn rounding_never_exceeds_the_rate() {
        assert_eq!(rate(7, RatePeriod::Second, 1).every(), 142_858);
        assert_eq!(rate(3, RatePeriod::Day, 1).every(), 28_800_000_000);
    }
}

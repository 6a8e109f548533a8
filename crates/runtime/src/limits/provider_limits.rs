//! Shares a provider's rate limit among all sessions of this process.
//!
//! Each API key has a limiter. When the provider rejects a request, the limiter closes for the time the provider
//! asks for. It then admits waiting sessions one by one, in order of arrival. If the rate is known, the limiter
//! keeps to it before any request is rejected. A session that must wait gets the duration, and its turn waits
//! without holding resources.
use outlast_ports::model::ProviderRate;
use outlast_vocab::{Failure, Millis, SessionId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The period over which a rate is measured.
const MINUTE: Duration = Duration::from_mins(1);
/// The interval between admissions after a rejection. The first request tests the provider before the others
/// follow.
const APART: Duration = Duration::from_millis(100);
/// The longest time a limiter stays closed, whatever the provider asks for.
const CLOSED_MOST: Duration = Duration::from_hours(24);
/// How long a queue position is kept for a session that does not return.
const PLACE_KEPT: Duration = Duration::from_mins(10);

/// The limiters of all keys.
#[derive(Debug, Default)]
pub struct ProviderRateLimiter {
    keys: Mutex<HashMap<String, ProviderKeyLimiter>>,
}

#[derive(Debug, Default)]
struct ProviderKeyLimiter {
    /// When it opens after a rejection.
    opens: Millis,
    /// The last rejection.
    rejected: Option<Failure>,
    /// Waiting sessions, each with its admission time.
    line: HashMap<SessionId, Millis>,
    /// The last admission time that was assigned.
    last: Millis,
    /// Tokens used within the last minute, oldest first.
    used: VecDeque<(Millis, u64)>,
}

/// A rejected request, and the pause that the provider asks for.
#[derive(Debug)]
pub(crate) struct ProviderRejection {
    pub(crate) pause: Duration,
    pub(crate) failure: Failure,
}

impl ProviderRateLimiter {
    /// Admits a session now, or returns how long it must wait. `tokens` is the approximate size of the
    /// request.
    pub(crate) fn admit(
        &self,
        session: SessionId,
        rate: &ProviderRate,
        tokens: u64,
        now: Millis,
    ) -> Result<(), Duration> {
        let mut keys = self.lock();
        let key_limiter = keys.entry(rate.key.clone()).or_default();
        key_limiter.line.retain(|_, turn| turn.after(PLACE_KEPT) > now);
        let turn = match key_limiter.line.get(&session) {
            Some(turn) => *turn,
            None => key_limiter.next_admission(rate, now),
        };
        let turn = turn.max(key_limiter.tokens_available_at(rate, tokens, now)).max(key_limiter.opens);
        if turn > now {
            key_limiter.line.insert(session, turn);
            key_limiter.last = key_limiter.last.max(turn);
            return Err(now.until(turn));
        }
        key_limiter.line.remove(&session);
        key_limiter.last = key_limiter.last.max(turn);
        if rate.tokens_per_minute.is_some() {
            key_limiter.used.push_back((now, tokens));
        }
        Ok(())
    }

    /// Records that the provider rejected a request and asked for a pause.
    pub(crate) fn record_rejection(&self, rate: &ProviderRate, rejection: ProviderRejection, now: Millis) {
        let mut keys = self.lock();
        let key_limiter = keys.entry(rate.key.clone()).or_default();
        key_limiter.opens = key_limiter.opens.max(now.after(rejection.pause.min(CLOSED_MOST)));
        key_limiter.rejected = Some(rejection.failure);
    }

    /// Returns why the limiter is closed. `None` if the provider's pause is over.
    pub(crate) fn closed_by(&self, rate: &ProviderRate, now: Millis) -> Option<Failure> {
        let keys = self.lock();
        keys.get(&rate.key).filter(|key_limiter| key_limiter.opens > now)?.rejected.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ProviderKeyLimiter>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProviderKeyLimiter {
    /// Returns the admission time of a new session: behind all waiting ones, and spaced as the rate requires.
    fn next_admission(&self, rate: &ProviderRate, now: Millis) -> Millis {
        let apart = rate.requests_per_minute.map_or(Duration::ZERO, |most| MINUTE / most.max(1));
        let behind = self.line.values().max().map_or(now, |last| last.after(APART.max(apart)));
        let by_rate = if apart.is_zero() { now } else { self.last.after(apart) };
        // A clock that was set back must not block all sessions.
        if by_rate > now.after(MINUTE) { behind } else { behind.max(by_rate) }
    }

    /// Returns when so many tokens fit into the preceding minute.
    fn tokens_available_at(&mut self, rate: &ProviderRate, tokens: u64, now: Millis) -> Millis {
        let Some(most) = rate.tokens_per_minute else { return now };
        self.used.retain(|(at, _)| at.after(MINUTE) > now && *at <= now);
        let mut sum: u64 = self.used.iter().map(|(_, used)| used).sum();
        let mut free = now;
        for (at, used) in &self.used {
            if sum.saturating_add(tokens) <= most {
                break;
            }
            (sum, free) = (sum - used, at.after(MINUTE));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::Kind;

    fn rate(requests: Option<u32>, tokens: Option<u64>) -> ProviderRate {
        ProviderRate { key: "openai".to_owned(), requests_per_minute: requests, tokens_per_minute: tokens }
    }

    fn rejection(seconds: u64) -> ProviderRejection {
        let failure = Failure::new(Kind::ModelUnavailable, "429");
        ProviderRejection { pause: Duration::from_secs(seconds), failure }
    }

    fn who(number: u128) -> SessionId {
        SessionId::from_u128(number)
    }

    fn ask(limiter: &ProviderRateLimiter, number: u128, rate: &ProviderRate, now: u64) -> Option<u128> {
        limiter.admit(who(number), rate, 10, Millis(now)).err().map(|wait| wait.as_millis())
    }

    #[test]
    fn no_rate_and_no_rejections_mean_no_wait() {
        let (limiter, rate) = (ProviderRateLimiter::default(), rate(None, None));
        assert!((0..100).all(|number| ask(&limiter, number, &rate, 1_000).is_none()));
    }

    #[test]
    fn provider_rejection_blocks_all_and_releases_in_order() {
        let (limiter, rate) = (ProviderRateLimiter::default(), rate(None, None));
        limiter.record_rejection(&rate, rejection(5), Millis(1_000));
        let waits: Vec<_> = (1..=3).map(|number| ask(&limiter, number, &rate, 1_000)).collect();
        assert_eq!(waits, [Some(5_000), Some(5_100), Some(5_200)]);
        // A session that returns early waits until the same time. One that returns on time is admitted.
        assert_eq!(ask(&limiter, 2, &rate, 3_000), Some(3_100));
        assert_eq!(ask(&limiter, 1, &rate, 6_000), None);
        assert_eq!(ask(&limiter, 2, &rate, 6_050), Some(50));
        // The first session was rejected again: all wait, and each keeps its position.
        limiter.record_rejection(&rate, rejection(2), Millis(6_060));
        assert_eq!(ask(&limiter, 2, &rate, 6_100), Some(1_960));
        assert_eq!(ask(&limiter, 2, &rate, 8_060), None);
    }

    #[test]
    fn busy_session_cannot_starve_others_of_rate() {
        let (limiter, rate) = (ProviderRateLimiter::default(), rate(Some(60), None));
        assert_eq!(ask(&limiter, 1, &rate, 100_000), None);
        // A session that keeps asking has one queue position. The others queue behind it.
        assert_eq!(ask(&limiter, 1, &rate, 100_000), Some(1_000));
        assert_eq!(ask(&limiter, 1, &rate, 100_000), Some(1_000));
        assert_eq!(ask(&limiter, 2, &rate, 100_000), Some(2_000));
        assert_eq!(ask(&limiter, 3, &rate, 100_000), Some(3_000));
        assert_eq!(ask(&limiter, 1, &rate, 101_000), None);
        assert_eq!(ask(&limiter, 1, &rate, 101_000), Some(3_000));
    }

    #[test]
    fn tokens_of_the_last_minute_are_counted() {
        let (limiter, rate) = (ProviderRateLimiter::default(), rate(None, Some(25)));
        assert_eq!(ask(&limiter, 1, &rate, 10_000), None);
        assert_eq!(ask(&limiter, 2, &rate, 20_000), None);
        assert_eq!(ask(&limiter, 3, &rate, 30_000), Some(40_000));
        assert_eq!(ask(&limiter, 3, &rate, 70_000), None);
    }

    #[test]
    fn rate_keys_are_independent_and_survive_clock_setback() {
        let limiter = ProviderRateLimiter::default();
        let (one, two) =
            (rate(Some(1), None), ProviderRate { key: "other".to_owned(), ..rate(Some(1), None) });
        assert_eq!(ask(&limiter, 1, &one, 900_000), None);
        assert_eq!(ask(&limiter, 1, &two, 900_000), None);
        assert_eq!(ask(&limiter, 2, &one, 100_000), None);
    }
}

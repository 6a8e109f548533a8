//! How many requests each caller may send: a bucket for each key, and what every answer says of it.
//!
//! The headers are those of the IETF draft on rate limits. Counted in this process alone: a second server on the
//! same database has buckets of its own.
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use outlast_vocab::id::KeyId;
use outlast_vocab::{Error, Kind};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LEFT: HeaderName = HeaderName::from_static("ratelimit");

/// The time that a quota is for.
const WINDOW: Duration = Duration::from_mins(1);

/// Buckets above which full ones are thrown away.
const BUCKETS: usize = 10_000;

/// Who is counted together: each key, and all who come without one.
pub(crate) type Who = Option<KeyId>;

/// The requests of all callers.
pub(crate) struct Quotas {
    most: Option<NonZeroU32>,
    buckets: Mutex<HashMap<Who, Bucket>>,
}

/// What one caller may still send.
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn fill(&mut self, most: f64, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * most / WINDOW.as_secs_f64()).min(most);
        self.at = now;
    }
}

/// How a caller stands after a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quota {
    most: u32,
    left: f64,
}

/// Where the standing of a request's caller is left for whoever writes the answer.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<OnceLock<Quota>>);

impl Quotas {
    /// At most so many requests a minute; as many as they like without a number.
    pub(crate) fn new(most: Option<NonZeroU32>) -> Self {
        Self { most, buckets: Mutex::default() }
    }

    /// Counts a request, and refuses it if its caller has sent too many.
    pub(crate) fn count(&self, who: Who, told: Option<&Told>) -> Result<(), Error> {
        let Some(most) = self.most else { return Ok(()) };
        let (quota, taken) = self.take(who, most.get(), Instant::now());
        if let Some(Told(cell)) = told {
            // A request has one caller; a second look finds the same one.
            let _ = cell.set(quota);
        }
        if taken {
            return Ok(());
        }
        let pause = quota.time_to(1.0);
        let detail = format!(
            "a key may send {most} requests a minute (`requests_per_minute`); the next one in {} s",
            pause.as_secs_f64().ceil()
        );
        Err(Error::new(Kind::RequestLimited, detail).retry_after(pause))
    }

    fn take(&self, who: Who, most: u32, now: Instant) -> (Quota, bool) {
        let full = f64::from(most);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS {
            buckets.retain(|_, bucket| {
                bucket.fill(full, now);
                bucket.left < full
            });
        }
        let bucket = buckets.entry(who).or_insert(Bucket { left: full, at: now });
        bucket.fill(full, now);
        let taken = bucket.left >= 1.0;
        if taken {
            bucket.left -= 1.0;
        }
        (Quota { most, left: bucket.left }, taken)
    }
}

impl Quota {
    /// How long until so many are left.
    fn time_to(self, left: f64) -> Duration {
        let each = WINDOW.as_secs_f64() / f64::from(self.most);
        Duration::from_secs_f64(((left - self.left) * each).max(0.0))
    }
}

impl Told {
    /// Says how the caller stands.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let Some(quota) = self.0.get() else { return };
        let window = WINDOW.as_secs();
        let reset = quota.time_to(f64::from(quota.most)).as_secs_f64().ceil();
        let left = quota.left.floor();
        let said = [
            (POLICY, format!("\"requests\";q={};w={window}", quota.most)),
            (LEFT, format!("\"requests\";r={left};t={reset}")),
        ];
        for (name, value) in said {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
}

/// When a caller that was turned away may come again, in whole seconds.
pub(crate) fn come_again(pause: Duration, headers: &mut HeaderMap) {
    let seconds = pause.as_secs_f64().ceil().max(1.0);
    if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
        headers.insert(header::RETRY_AFTER, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_gets_its_quota_at_once_and_then_as_it_comes_back_and_takes_nothing_from_others() {
        let quotas = Quotas::new(NonZeroU32::new(60));
        let (begin, one) = (Instant::now(), Some(KeyId::from_u128(1)));
        let take = |who, seconds: u64| quotas.take(who, 60, begin + Duration::from_secs(seconds));
        for left in (0..60).rev() {
            assert_eq!(take(one, 0), (Quota { most: 60, left: f64::from(left) }, true));
        }
        let (quota, taken) = take(one, 0);
        assert!(!taken);
        assert_eq!(quota.time_to(1.0), Duration::from_secs(1));
        assert_eq!(quota.time_to(60.0), Duration::from_mins(1));
        assert!(take(None, 0).1);
        assert!(take(one, 1).1 && !take(one, 1).1);
        assert!(take(one, 600).1);
        assert_eq!(take(one, 600), (Quota { most: 60, left: 58.0 }, true));
    }

    #[test]
    fn callers_that_stay_away_are_forgotten() {
        let quotas = Quotas::new(NonZeroU32::new(60));
        let begin = Instant::now();
        for n in 0..BUCKETS {
            quotas.take(Some(KeyId::from_u128(n as u128)), 60, begin);
        }
        quotas.take(None, 60, begin + Duration::from_hours(1));
        assert_eq!(quotas.buckets.lock().unwrap().len(), 1);
    }
}

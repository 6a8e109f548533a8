//! Rate limits: a token bucket for each API key, and headers that report it.
//!
//! The headers follow the IETF draft on rate limits. Each process counts for itself: a second server on the
//! same database has separate buckets.
//!
//! The crate `governor` does not replace the buckets: it has no limit for the number of keys, which strangers choose
//! here, and it does not report when a bucket is full, which the header `ratelimit` needs.
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use outlast_vocab::id::KeyId;
use outlast_vocab::{Error, Kind};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LEFT: HeaderName = HeaderName::from_static("ratelimit");

/// The time that a quota covers.
const WINDOW: Duration = Duration::from_mins(1);

/// If there are more buckets than this, full ones are removed.
const BUCKETS: usize = 10_000;

/// How often full buckets are removed.
const SWEEP: Duration = Duration::from_secs(1);

/// The owner of a bucket: an API key, or all callers without one.
pub type BucketOwner = Option<KeyId>;

/// The rate limits of all callers.
pub struct RequestRateLimiter {
    most: Option<NonZeroU32>,
    buckets: Mutex<TokenBuckets<BucketOwner>>,
}

/// Limits invalid API keys per client network. If there are too many networks to track, the rest share one
/// bucket.
///
/// Only requests with invalid keys are rejected. Valid keys may come from the same address, as they all do
/// behind a proxy.
pub struct InvalidKeyLimiter {
    most: NonZeroU32,
    buckets: Mutex<TokenBuckets<Option<IpAddr>>>,
}

/// A bucket for each owner.
struct TokenBuckets<K> {
    by_owner: HashMap<K, TokenBucket>,
    last_sweep: Option<Instant>,
}

/// A token bucket.
struct TokenBucket {
    tokens: f64,
    filled_at: Instant,
}

impl<K> Default for TokenBuckets<K> {
    fn default() -> Self {
        Self { by_owner: HashMap::new(), last_sweep: None }
    }
}

impl<K: Hash + Eq> TokenBuckets<K> {
    /// Returns whether there is a bucket for `who`, or space for a new one.
    fn has_slot(&mut self, who: &K, most: u32, now: Instant) -> bool {
        let due = self.last_sweep.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
        if self.by_owner.len() >= BUCKETS && due {
            self.last_sweep = Some(now);
            let full = f64::from(most);
            self.by_owner.retain(|_, bucket| {
                bucket.refill(full, now);
                bucket.tokens < full
            });
        }
        self.by_owner.len() < BUCKETS || self.by_owner.contains_key(who)
    }

    fn take(&mut self, who: K, most: u32, now: Instant) -> (Quota, bool) {
        let full = f64::from(most);
        let bucket = self.by_owner.entry(who).or_insert(TokenBucket { tokens: full, filled_at: now });
        bucket.refill(full, now);
        let taken = bucket.tokens >= 1.0;
        if taken {
            bucket.tokens -= 1.0;
        }
        (Quota { most, left: bucket.tokens }, taken)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TokenBucket {
    fn refill(&mut self, most: f64, now: Instant) {
        let since = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + since * most / WINDOW.as_secs_f64()).min(most);
        self.filled_at = now;
    }
}

/// The state of a bucket after a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    most: u32,
    left: f64,
}

/// Passes the quota of a request's caller from the extractor to the middleware.
#[derive(Clone, Default)]
pub struct RequestQuota(Arc<OnceLock<Quota>>);

impl RequestRateLimiter {
    /// Allows each caller at most `most` requests a minute. With `None`, there is no limit.
    pub fn new(most: Option<NonZeroU32>) -> Self {
        Self { most, buckets: Mutex::default() }
    }

    /// Counts a request. Fails if its caller has sent too many.
    pub fn count(&self, who: BucketOwner, reported: Option<&RequestQuota>) -> Result<(), Error> {
        let Some(most) = self.most else { return Ok(()) };
        let (quota, taken) = self.take(who, most.get(), Instant::now());
        if let Some(RequestQuota(cell)) = reported {
            // A request has only one caller, so a second call would store the same one.
            let _ = cell.set(quota);
        }
        if taken {
            return Ok(());
        }
        let pause = quota.time_to(1.0);
        let detail = format!(
            "a key may send {most} requests a minute (`requests_per_minute`); retry in {} s",
            pause.as_secs_f64().ceil()
        );
        Err(Error::new(Kind::RequestLimited, detail).retry_after(pause))
    }

    fn take(&self, who: BucketOwner, most: u32, now: Instant) -> (Quota, bool) {
        let mut buckets = lock(&self.buckets);
        // Only issued keys reach this point, so each gets its own bucket.
        buckets.has_slot(&who, most, now);
        buckets.take(who, most, now)
    }
}

impl InvalidKeyLimiter {
    /// Allows at most `most` invalid keys a minute from one network.
    pub fn new(most: NonZeroU32) -> Self {
        Self { most, buckets: Mutex::default() }
    }

    /// Counts an invalid key. Fails if there were too many.
    pub fn count(&self, from: Option<IpAddr>) -> Result<(), Error> {
        let (quota, taken) = self.take(from, Instant::now());
        if taken {
            return Ok(());
        }
        let most = self.most;
        let detail = format!("an address may send {most} invalid keys a minute");
        Err(Error::new(Kind::RequestLimited, detail).retry_after(quota.time_to(1.0)))
    }

    fn take(&self, from: Option<IpAddr>, now: Instant) -> (Quota, bool) {
        let (who, most) = (from.map(client_network), self.most.get());
        let mut buckets = lock(&self.buckets);
        let who = if buckets.has_slot(&who, most, now) { who } else { None };
        buckets.take(who, most, now)
    }
}

/// Returns the network of an address. A client can choose the last 64 bits of its IPv6 addresses freely, so
/// those bits do not identify it.
fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Quota {
    /// Returns how long it takes until `tokens` requests are available.
    fn time_to(self, left: f64) -> Duration {
        let each = WINDOW.as_secs_f64() / f64::from(self.most);
        Duration::from_secs_f64(((left - self.left) * each).max(0.0))
    }
}

impl RequestQuota {
    /// Adds the rate limit headers.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
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

/// Sets `retry-after`, in whole seconds.
pub fn set_retry_after(pause: Duration, headers: &mut HeaderMap) {
    let seconds = pause.as_secs_f64().ceil().max(1.0);
    if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
        headers.insert(header::RETRY_AFTER, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_refills_over_time_for_each_caller() {
        let quotas = RequestRateLimiter::new(NonZeroU32::new(60));
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
    fn inactive_callers_are_forgotten() {
        let quotas = RequestRateLimiter::new(NonZeroU32::new(60));
        let begin = Instant::now();
        for n in 0..BUCKETS {
            quotas.take(Some(KeyId::from_u128(n as u128)), 60, begin);
        }
        quotas.take(None, 60, begin + Duration::from_hours(1));
        assert_eq!(lock(&quotas.buckets).by_owner.len(), 1);
    }

    #[test]
    fn invalid_key_counts_are_per_network_and_bounded() {
        let invalid_keys = InvalidKeyLimiter::new(NonZeroU32::new(2).unwrap());
        let now = Instant::now();
        let from = |address: &str| invalid_keys.take(Some(address.parse().unwrap()), now).1;
        assert_eq!([from("192.0.2.1"), from("192.0.2.1"), from("192.0.2.1")], [true, true, false]);
        assert!(from("192.0.2.2"));
        assert_eq!([from("2001:db8::1"), from("2001:db8::2"), from("2001:db8::3")], [true, true, false]);
        assert!(from("2001:db8:0:1::1"));
        assert!(!from("::ffff:192.0.2.1"));
        for n in 0..u32::try_from(2 * BUCKETS).unwrap() {
            invalid_keys.take(Some(IpAddr::V4((0x0a00_0000 + n).into())), now);
        }
        assert_eq!(lock(&invalid_keys.buckets).by_owner.len(), BUCKETS + 1);
        assert!(!invalid_keys.take(Some("198.51.100.1".parse().unwrap()), now).1);
    }
}

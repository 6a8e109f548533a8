//! How many requests each caller may send: a bucket for each key, and what every answer says of it.
//!
//! The headers are those of the IETF draft on rate limits. Counted in this process alone: a second server on the
//! same database has buckets of its own.
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

/// The time that a quota is for.
const WINDOW: Duration = Duration::from_mins(1);

/// Buckets above which full ones are thrown away.
const BUCKETS: usize = 10_000;

/// How often they are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// Who is counted together: each key, and all who come without one.
pub(crate) type Who = Option<KeyId>;

/// The requests of all callers.
pub(crate) struct Quotas {
    most: Option<NonZeroU32>,
    buckets: Mutex<Buckets<Who>>,
}

/// Keys that open nothing, counted for each address they come from; all that are too many to be told apart together.
///
/// Only such keys are refused. Others may come from the same address, as behind a proxy they all do.
pub(crate) struct Strangers {
    most: NonZeroU32,
    buckets: Mutex<Buckets<Option<IpAddr>>>,
}

/// A bucket for each of those who are counted.
struct Buckets<K> {
    of: HashMap<K, Bucket>,
    swept: Option<Instant>,
}

/// What one of them may still send.
struct Bucket {
    left: f64,
    at: Instant,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self { of: HashMap::new(), swept: None }
    }
}

impl<K: Hash + Eq> Buckets<K> {
    /// Whether there is a bucket for somebody, or room for one more.
    fn knows(&mut self, who: &K, most: u32, now: Instant) -> bool {
        let due = self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
        if self.of.len() >= BUCKETS && due {
            self.swept = Some(now);
            let full = f64::from(most);
            self.of.retain(|_, bucket| {
                bucket.fill(full, now);
                bucket.left < full
            });
        }
        self.of.len() < BUCKETS || self.of.contains_key(who)
    }

    fn take(&mut self, who: K, most: u32, now: Instant) -> (Quota, bool) {
        let full = f64::from(most);
        let bucket = self.of.entry(who).or_insert(Bucket { left: full, at: now });
        bucket.fill(full, now);
        let taken = bucket.left >= 1.0;
        if taken {
            bucket.left -= 1.0;
        }
        (Quota { most, left: bucket.left }, taken)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut buckets = lock(&self.buckets);
        // Only keys that were given out come here, so there is a bucket for each.
        buckets.knows(&who, most, now);
        buckets.take(who, most, now)
    }
}

impl Strangers {
    /// At most so many a minute from one address.
    pub(crate) fn new(most: NonZeroU32) -> Self {
        Self { most, buckets: Mutex::default() }
    }

    /// Counts a key that opened nothing, and says so if there were too many.
    pub(crate) fn count(&self, from: Option<IpAddr>) -> Result<(), Error> {
        let (quota, taken) = self.take(from, Instant::now());
        if taken {
            return Ok(());
        }
        let most = self.most;
        let detail = format!("an address may send {most} keys a minute that open nothing");
        Err(Error::new(Kind::RequestLimited, detail).retry_after(quota.time_to(1.0)))
    }

    fn take(&self, from: Option<IpAddr>, now: Instant) -> (Quota, bool) {
        let (who, most) = (from.map(network), self.most.get());
        let mut buckets = lock(&self.buckets);
        let who = if buckets.knows(&who, most, now) { who } else { None };
        buckets.take(who, most, now)
    }
}

/// Who can choose an address of a network can choose any of it: the last half of one of IPv6 says nothing.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
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
        assert_eq!(lock(&quotas.buckets).of.len(), 1);
    }

    #[test]
    fn wrong_keys_are_counted_for_each_network_and_what_is_kept_of_them_is_bounded_s31() {
        let strangers = Strangers::new(NonZeroU32::new(2).unwrap());
        let now = Instant::now();
        let from = |address: &str| strangers.take(Some(address.parse().unwrap()), now).1;
        assert_eq!([from("192.0.2.1"), from("192.0.2.1"), from("192.0.2.1")], [true, true, false]);
        assert!(from("192.0.2.2"));
        assert_eq!([from("2001:db8::1"), from("2001:db8::2"), from("2001:db8::3")], [true, true, false]);
        assert!(from("2001:db8:0:1::1"));
        assert!(!from("::ffff:192.0.2.1"));
        for n in 0..u32::try_from(2 * BUCKETS).unwrap() {
            strangers.take(Some(IpAddr::V4((0x0a00_0000 + n).into())), now);
        }
        assert_eq!(lock(&strangers.buckets).of.len(), BUCKETS + 1);
        assert!(!strangers.take(Some("198.51.100.1".parse().unwrap()), now).1);
    }
}

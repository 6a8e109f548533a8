//! Rate limits for outgoing calls. The store applies them in the write that claims a call, or an external limiter does.
//!
//! A call is counted in the write that admits it. If the process crashes before the call starts, the slot is lost and
//! never returned, so no rate is ever exceeded.
use crate::ResultFuture;
use crate::page::Page;
use outlast_views::RateView;
use outlast_vocab::id::OrgId;
use outlast_vocab::message::RateName;
use outlast_vocab::rate::{AdmissionAttempt, RateAdmission, RateLimit, RateState, admit};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A call that waits for admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// The call.
    pub key: ReplayKey,
    /// The rates that apply to it; at least one.
    pub rates: Vec<RateLimit>,
    /// Whether it already has a place in the queue.
    pub attempt: AdmissionAttempt,
    /// The maximum waiting time for rates that set none.
    pub wait_most: Duration,
}

/// The decision on a call that waits for admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// It may start now.
    Admitted(Millis),
    /// It must ask again at this time. The journal records that it waits.
    Queued(Millis),
    /// It is rejected.
    Rejected(Failure),
}

/// A request to a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterRequest {
    /// The organisation that owns the rates.
    pub org: OrgId,
    /// The rates that apply to the call; at least one.
    pub rates: Vec<RateLimit>,
    /// Whether the call already has a place in the queue.
    pub attempt: AdmissionAttempt,
    /// The maximum waiting time for rates that set none.
    pub wait_most: Duration,
    /// The current time.
    pub now: Millis,
}

/// Keeps rate limits outside the store, for processes that share no database.
///
/// A call is counted by all of its rates, or by none. A call that must wait is not counted, and asks again. On an error
/// it is unknown whether there is room. The `when_down` setting of the rate then decides.
pub trait RateLimiter: Send + Sync + 'static {
    /// Admits one call, returns when it must ask again, or reports that there is no room.
    fn admit(&self, take: LimiterRequest) -> ResultFuture<'_, RateAdmission>;
}

/// A limiter in memory, for one process.
#[derive(Debug, Default)]
pub struct LocalRateLimiter {
    states: Mutex<BTreeMap<(OrgId, RateName), RateState>>,
}

impl RateLimiter for LocalRateLimiter {
    fn admit(&self, asked: LimiterRequest) -> ResultFuture<'_, RateAdmission> {
        let LimiterRequest { org, rates, attempt: asks, wait_most, now } = asked;
        let mut known = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = |rate: &RateLimit| known.get(&(org, rate.name.clone())).copied().unwrap_or_default();
        let mut states: Vec<(&RateLimit, RateState)> =
            rates.iter().map(|rate| (rate, standing(rate))).collect();
        let taken = admit(&mut states, asks, now, wait_most);
        for (rate, standing) in states {
            known.insert((org, rate.name.clone()), standing);
        }
        let none = || Error::new(Kind::Internal, "a call was asked for without a rate");
        Box::pin(ready(taken.ok_or_else(none)))
    }
}

/// The failure of a call that a rate rejects.
pub fn rejection_of(rate: &RateName, free: Millis, now: Millis) -> Failure {
    let seconds = now.until(free).as_millis().div_ceil(1_000);
    Failure::new(Kind::RateExceeded, format!("the rate `{rate}` is exhausted for {seconds} s; retry then"))
}

/// The rates that a store keeps.
pub trait RateStore: Send + Sync {
    /// Returns all rates that were ever used, ordered by organisation and name.
    fn rates(&self, limit: usize) -> ResultFuture<'_, Vec<RateView>>;

    /// Returns a page of the rates after this organisation and name.
    fn rates_after(
        &self,
        after: Option<(OrgId, String)>,
        limit: usize,
    ) -> ResultFuture<'_, Page<RateView, (OrgId, String)>>;
}

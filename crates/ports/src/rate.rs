//! Who says when calls may go out (R11.7): the store in the write that claims them, or a limiter of one's own.
//!
//! A call that goes is counted in the write that lets it. If its process dies before it begins, that is used up: nothing comes
//! back, so no rate is ever exceeded.
use crate::Answer;
use crate::page::Page;
use outlast_vocab::id::OrgId;
use outlast_vocab::message::RateName;
use outlast_vocab::rate::{Asks, Rate, Standing, Taken, take};
use outlast_vocab::{Error, Failure, Kind, Millis, ReplayKey};
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A call that wants to go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Which.
    pub key: ReplayKey,
    /// The rates that it falls under; at least one.
    pub rates: Vec<Rate>,
    /// Whether it stood in line before.
    pub asks: Asks,
    /// How long it waits where a rate says nothing.
    pub wait_most: Duration,
}

/// What became of a call that wants to go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// It goes now.
    Goes(Millis),
    /// It asks again at this instant; that it waits stands in the journal.
    Waits(Millis),
    /// It does not.
    Refused(Failure),
}

/// What a limiter is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Whose rates.
    pub org: OrgId,
    /// The rates that the call falls under; at least one.
    pub rates: Vec<Rate>,
    /// Whether the call stood in line before.
    pub asks: Asks,
    /// How long it waits where a rate says nothing.
    pub wait_most: Duration,
    /// Now.
    pub now: Millis,
}

/// Keeps rates in another place than the store, for processes that share no database.
///
/// A call goes by all of its rates or takes from none; one that is told to wait has taken nothing, and asks again. An error says that nobody knows; what becomes of the call then is the
/// rate's `when_down`.
pub trait Limiter: Send + Sync + 'static {
    /// Lets one call out, says when it is to ask again, or that there is no room.
    fn take(&self, take: Take) -> Answer<'_, Taken>;
}

/// A limiter in memory, for one process.
#[derive(Debug, Default)]
pub struct LocalLimiter {
    standings: Mutex<BTreeMap<(OrgId, RateName), Standing>>,
}

impl Limiter for LocalLimiter {
    fn take(&self, asked: Take) -> Answer<'_, Taken> {
        let Take { org, rates, asks, wait_most, now } = asked;
        let mut known = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = |rate: &Rate| known.get(&(org, rate.name.clone())).copied().unwrap_or_default();
        let mut books: Vec<(&Rate, Standing)> = rates.iter().map(|rate| (rate, standing(rate))).collect();
        let taken = take(&mut books, asks, now, wait_most);
        for (rate, standing) in books {
            known.insert((org, rate.name.clone()), standing);
        }
        let none = || Error::new(Kind::Internal, "a call was asked for without a rate");
        Box::pin(ready(taken.ok_or_else(none)))
    }
}

/// What whoever may not go is told.
pub fn full(rate: &RateName, free: Millis, now: Millis) -> Failure {
    let seconds = now.until(free).as_millis().div_ceil(1_000);
    Failure::new(Kind::RateExceeded, format!("the rate `{rate}` has no room for {seconds} s; ask again then"))
}

/// A rate and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateView {
    /// The organisation.
    pub org: OrgId,
    /// What it is called.
    pub name: String,
    /// Microseconds between two calls, when it was last asked.
    pub every: u64,
    /// How many may go at once.
    pub burst: u32,
    /// From when on the next call fits, and where the line ends.
    pub standing: Standing,
    /// Calls that it let out.
    pub taken: u64,
    /// Calls that it turned away.
    pub refused: u64,
    /// When it was last asked.
    pub asked: Millis,
}

impl RateView {
    /// One that was never asked.
    pub fn unasked(org: OrgId, name: &str) -> Self {
        let name = name.to_owned();
        let standing = Standing::default();
        Self { org, name, every: 0, burst: 1, standing, taken: 0, refused: 0, asked: Millis(0) }
    }

    /// How many calls could go at this instant.
    pub fn room(&self, now: Millis) -> u32 {
        let ahead = now.0.saturating_mul(1_000).checked_sub(self.standing.next.max(self.standing.line));
        let room = ahead.map_or(0, |ahead| ahead / self.every.max(1) + 1);
        u32::try_from(room).unwrap_or(u32::MAX).min(self.burst)
    }
}

/// The rates that a store keeps.
pub trait Rates: Send + Sync {
    /// All that were ever asked, by organisation and name.
    fn rates(&self, limit: usize) -> Answer<'_, Vec<RateView>>;

    /// A page of them, behind the one of this organisation and name.
    fn rates_after(
        &self,
        after: Option<(OrgId, String)>,
        limit: usize,
    ) -> Answer<'_, Page<RateView, (OrgId, String)>>;
}

//! The rules for limiters: a rate is never exceeded, and a call is counted by all of its rates or by none.
use super::{RuleFuture, RuleResult, block_on, fresh};
use outlast_ports::rate::{LimiterRequest, RateLimiter};
use outlast_vocab::id::OrgId;
use outlast_vocab::rate::{AdmissionAttempt, RateAdmission, RateLimit, RatePeriod, WhenFull};
use outlast_vocab::{Error, Millis};
use std::num::NonZeroU32;
use std::time::Duration;

/// A limiter under test. The rules pass their own times to it.
pub trait LimiterFixture: Sync {
    /// Returns the limiter.
    fn limiter(&self) -> &dyn RateLimiter;

    /// Runs a rule to completion. Override this if the limiter works only inside a certain runtime.
    fn run(&self, rule: RuleFuture<'_>) {
        block_on(rule);
    }
}

/// The limiter under test, with an organisation that is new to it.
pub(super) struct LimiterUnderTest<'a>(&'a dyn LimiterFixture, OrgId);

impl<'a> From<&'a dyn LimiterFixture> for LimiterUnderTest<'a> {
    fn from(on: &'a dyn LimiterFixture) -> Self {
        Self(on, OrgId::from_u128(fresh()))
    }
}

const START: u64 = 1_700_000_000_000;

impl LimiterUnderTest<'_> {
    async fn ask(
        &self,
        rates: &[RateLimit],
        asks: AdmissionAttempt,
        at: u64,
    ) -> Result<RateAdmission, Error> {
        let (org, rates, wait_most) = (self.1, rates.to_vec(), Duration::from_secs(10));
        self.0
            .limiter()
            .admit(LimiterRequest { org, rates, attempt: asks, wait_most, now: Millis(START + at) })
            .await
    }
}

fn rate(name: &str, calls: u32, burst: u32) -> RateLimit {
    let count = |n| NonZeroU32::new(n).expect("at least one");
    let rate = RateLimit::new(name.parse().expect("a rate's name"), "*", count(calls), RatePeriod::Second);
    RateLimit { burst: count(burst), ..rate }
}

pub(super) async fn burst_is_admitted_then_calls_are_queued(s: &LimiterUnderTest<'_>) -> RuleResult {
    let rate = [rate("mail", 1, 2)];
    assert_eq!(s.ask(&rate, AdmissionAttempt::First, 0).await?, RateAdmission::Admitted);
    assert_eq!(s.ask(&rate, AdmissionAttempt::First, 0).await?, RateAdmission::Admitted);
    let RateAdmission::Queued(until, _) = s.ask(&rate, AdmissionAttempt::First, 0).await? else {
        panic!("there is no room")
    };
    assert!(until >= Millis(START + 1_000), "{until:?}");
    assert_eq!(s.ask(&rate, AdmissionAttempt::Again, until.0 - START).await?, RateAdmission::Admitted);
    Ok(())
}

pub(super) async fn rate_is_never_exceeded_by_any_attempts(s: &LimiterUnderTest<'_>) -> RuleResult {
    let rate = [rate("mail", 10, 3)];
    let mut went = Vec::new();
    for at in (0..3_000).step_by(7) {
        let asks = if at % 2 == 0 { AdmissionAttempt::First } else { AdmissionAttempt::Again };
        if s.ask(&rate, asks, at).await? == RateAdmission::Admitted {
            went.push(at);
        }
    }
    assert!(went.len() >= 20, "{went:?}");
    for (first, from) in went.iter().enumerate() {
        for (calls, to) in (1..).zip(&went[first..]) {
            assert!(calls <= 3 + (to - from) / 100, "{calls} calls from {from} to {to}");
        }
    }
    Ok(())
}

pub(super) async fn call_consumes_all_its_rates_or_none(s: &LimiterUnderTest<'_>) -> RuleResult {
    let (wide, narrow) =
        (rate("wide", 1, 1), RateLimit { when_full: WhenFull::Deny, ..rate("narrow", 1, 1) });
    assert_eq!(
        s.ask(std::slice::from_ref(&narrow), AdmissionAttempt::First, 0).await?,
        RateAdmission::Admitted
    );
    let full = s.ask(&[wide.clone(), narrow], AdmissionAttempt::First, 0).await?;
    assert!(matches!(&full, RateAdmission::Rejected(_, rate) if rate.as_str() == "narrow"), "{full:?}");
    assert_eq!(s.ask(&[wide], AdmissionAttempt::First, 0).await?, RateAdmission::Admitted);
    Ok(())
}

pub(super) async fn organisations_share_no_rate_limits(s: &LimiterUnderTest<'_>) -> RuleResult {
    let (rate, other) = ([rate("mail", 1, 1)], LimiterUnderTest::from(s.0));
    assert_eq!(s.ask(&rate, AdmissionAttempt::First, 0).await?, RateAdmission::Admitted);
    assert_eq!(other.ask(&rate, AdmissionAttempt::First, 0).await?, RateAdmission::Admitted);
    Ok(())
}

//! The rules for limiters: a rate is never exceeded, and a call is counted by all of its rates or by none.
use super::{Rule, Running, block_on, fresh};
use outlast_ports::rate::{Limiter, Take};
use outlast_vocab::id::OrgId;
use outlast_vocab::rate::{Asks, Rate, Span, Taken, WhenFull};
use outlast_vocab::{Error, Millis};
use std::num::NonZeroU32;
use std::time::Duration;

/// A limiter under test. The rules pass their own times to it.
pub trait LimiterFixture: Sync {
    /// Returns the limiter.
    fn limiter(&self) -> &dyn Limiter;

    /// Runs a rule to completion. Override this if the limiter works only inside a certain runtime.
    fn run(&self, rule: Running<'_>) {
        block_on(rule);
    }
}

/// The limiter under test, with an organisation that is new to it.
pub(super) struct Gate<'a>(&'a dyn LimiterFixture, OrgId);

impl<'a> From<&'a dyn LimiterFixture> for Gate<'a> {
    fn from(on: &'a dyn LimiterFixture) -> Self {
        Self(on, OrgId::from_u128(fresh()))
    }
}

const START: u64 = 1_700_000_000_000;

impl Gate<'_> {
    async fn ask(&self, rates: &[Rate], asks: Asks, at: u64) -> Result<Taken, Error> {
        let (org, rates, wait_most) = (self.1, rates.to_vec(), Duration::from_secs(10));
        self.0.limiter().take(Take { org, rates, asks, wait_most, now: Millis(START + at) }).await
    }
}

fn rate(name: &str, calls: u32, burst: u32) -> Rate {
    let count = |n| NonZeroU32::new(n).expect("at least one");
    let rate = Rate::new(name.parse().expect("a rate's name"), "*", count(calls), Span::Second);
    Rate { burst: count(burst), ..rate }
}

pub(super) async fn a_burst_goes_and_the_next_is_told_when_to_ask_again(s: &Gate<'_>) -> Rule {
    let rate = [rate("mail", 1, 2)];
    assert_eq!(s.ask(&rate, Asks::First, 0).await?, Taken::Goes);
    assert_eq!(s.ask(&rate, Asks::First, 0).await?, Taken::Goes);
    let Taken::Waits(until, _) = s.ask(&rate, Asks::First, 0).await? else { panic!("there is no room") };
    assert!(until >= Millis(START + 1_000), "{until:?}");
    assert_eq!(s.ask(&rate, Asks::Again, until.0 - START).await?, Taken::Goes);
    Ok(())
}

pub(super) async fn a_rate_is_never_exceeded_whatever_they_were_told(s: &Gate<'_>) -> Rule {
    let rate = [rate("mail", 10, 3)];
    let mut went = Vec::new();
    for at in (0..3_000).step_by(7) {
        let asks = if at % 2 == 0 { Asks::First } else { Asks::Again };
        if s.ask(&rate, asks, at).await? == Taken::Goes {
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

pub(super) async fn a_call_takes_from_all_of_its_rates_or_from_none(s: &Gate<'_>) -> Rule {
    let (wide, narrow) = (rate("wide", 1, 1), Rate { when_full: WhenFull::Deny, ..rate("narrow", 1, 1) });
    assert_eq!(s.ask(std::slice::from_ref(&narrow), Asks::First, 0).await?, Taken::Goes);
    let full = s.ask(&[wide.clone(), narrow], Asks::First, 0).await?;
    assert!(matches!(&full, Taken::Full(_, rate) if rate.as_str() == "narrow"), "{full:?}");
    assert_eq!(s.ask(&[wide], Asks::First, 0).await?, Taken::Goes);
    Ok(())
}

pub(super) async fn organisations_share_nothing(s: &Gate<'_>) -> Rule {
    let (rate, other) = ([rate("mail", 1, 1)], Gate::from(s.0));
    assert_eq!(s.ask(&rate, Asks::First, 0).await?, Taken::Goes);
    assert_eq!(other.ask(&rate, Asks::First, 0).await?, Taken::Goes);
    Ok(())
}

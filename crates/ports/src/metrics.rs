//! What a worker measures, as data: how often, how much, how long (R14.4).
//!
//! A [`Snapshot`] is made when somebody asks for one; [`MetricSink`] is what others implement to be given one now and then.
//! Names are those of OpenTelemetry; whoever writes them for Prometheus puts `_` in place of dots.
use crate::Answer;
use outlast_vocab::Millis;
use std::time::Duration;

/// What a worker has measured since it began.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When it began.
    pub since: Millis,
    /// When this was read.
    pub at: Millis,
    /// What was measured.
    pub families: Vec<Family>,
}

/// One thing that is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, with dots.
    pub name: &'static str,
    /// What it says.
    pub about: &'static str,
    /// What it is counted in.
    pub unit: Unit,
    /// What was read.
    pub readings: Readings,
}

/// What something is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Seconds.
    Seconds,
    /// Tokens.
    Tokens,
    /// Dollars.
    Dollars,
}

/// What was read, of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Readings {
    /// It only grows.
    Counter(Vec<Reading<f64>>),
    /// It stands somewhere now.
    Gauge(Vec<Reading<f64>>),
    /// How it is spread.
    Histogram(Vec<Reading<Spread>>),
}

/// One value with what tells it apart from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<T> {
    /// Names, with dots, and what they are here.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: T,
}

/// How values are spread over ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Spread {
    /// Seconds, as the semantic conventions divide them.
    pub const SECONDS: &'static [f64] =
        &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

    /// Tokens, as the semantic conventions divide them.
    pub const TOKENS: &'static [f64] = &[
        1.0,
        4.0,
        16.0,
        64.0,
        256.0,
        1_024.0,
        4_096.0,
        16_384.0,
        65_536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
    ];

    /// Seconds that a write takes: from a tenth of a millisecond on.
    pub const WRITES: &'static [f64] =
        &[0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0];

    /// Nothing yet, over these ranges.
    pub fn over(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts a value in the first range whose bound it does not pass.
    pub fn add(&mut self, value: f64) {
        let range = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[range] += 1;
        self.sum += value;
    }

    /// The upper bounds of the ranges; the last one has none.
    pub fn bounds(&self) -> &'static [f64] {
        self.bounds
    }

    /// How many values are in each range.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What they are together.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// Is given what a worker has measured, now and then.
pub trait MetricSink: Send + Sync {
    /// How often.
    fn every(&self) -> Duration;

    /// Takes it. One that fails is given the next one in its time; what it missed is in there.
    fn take<'a>(&'a self, snapshot: &'a Snapshot) -> Answer<'a, ()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_first_range_whose_bound_it_does_not_pass() {
        let mut spread = Spread::over(&[1.0, 10.0]);
        for value in [0.0, 1.0, 1.5, 10.0, 11.0] {
            spread.add(value);
        }
        assert_eq!((spread.counts(), spread.count(), spread.sum()), (&[2, 2, 1][..], 5, 23.5));
    }
}

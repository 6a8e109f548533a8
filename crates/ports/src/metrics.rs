//! The metrics of a worker, as data: counts, amounts, durations.
//!
//! A [`MetricsSnapshot`] is created on request. Implement [`MetricSink`] to receive one periodically. Metric names follow
//! OpenTelemetry. For Prometheus, replace the dots with `_`.
use crate::ResultFuture;
use outlast_vocab::Millis;
use std::time::Duration;

/// The metrics of a worker since its start.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsSnapshot {
    /// When the worker started.
    pub since: Millis,
    /// When the snapshot was taken.
    pub at: Millis,
    /// The metrics.
    pub families: Vec<MetricFamily>,
}

/// One metric with all its label combinations.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricFamily {
    /// Its name, with dots.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
    /// Its unit.
    pub unit: MetricUnit,
    /// Its values.
    pub values: MetricValues,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Tokens.
    Tokens,
    /// Dollars.
    Dollars,
}

/// The values of a metric, by type.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValues {
    /// A value that only increases.
    Counter(Vec<MetricSample<f64>>),
    /// A current value.
    Gauge(Vec<MetricSample<f64>>),
    /// A distribution of values.
    Histogram(Vec<MetricSample<HistogramValue>>),
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSample<T> {
    /// Label names, with dots, and their values.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: T,
}

/// A histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramValue {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl HistogramValue {
    /// Bucket bounds for seconds, from the semantic conventions of OpenTelemetry.
    pub const SECONDS: &'static [f64] =
        &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

    /// Bucket bounds for tokens, from the semantic conventions of OpenTelemetry.
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

    /// Bucket bounds for the duration of writes in seconds, starting at 0.1 ms.
    pub const WRITES: &'static [f64] =
        &[0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0];

    /// Creates an empty histogram with these bucket bounds.
    pub fn with_bounds(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Adds a value to the first bucket whose bound is not below it.
    pub fn add(&mut self, value: f64) {
        let range = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[range] += 1;
        self.sum += value;
    }

    /// Returns the upper bounds of the buckets. The last bucket is unbounded and has no entry.
    pub fn bounds(&self) -> &'static [f64] {
        self.bounds
    }

    /// Returns the number of values in each bucket.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// Receives the metrics of a worker periodically.
pub trait MetricSink: Send + Sync {
    /// Returns the export interval.
    fn export_interval(&self) -> Duration;

    /// Exports a snapshot. If this fails, the sink gets the next snapshot after the interval; it includes the missed
    /// values.
    fn export<'a>(&'a self, snapshot: &'a MetricsSnapshot) -> ResultFuture<'a, ()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_bucket_bounds_are_inclusive() {
        let mut spread = HistogramValue::with_bounds(&[1.0, 10.0]);
        for value in [0.0, 1.0, 1.5, 10.0, 11.0] {
            spread.add(value);
        }
        assert_eq!((spread.counts(), spread.count(), spread.sum()), (&[2, 2, 1][..], 5, 23.5));
    }
}

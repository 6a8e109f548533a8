//! Sends metrics to a collector, always as totals since the start of the worker.
use crate::otlp::{self, nanos, text};
use crate::settings::Settings;
use crate::wire::Wire;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use outlast_ports::Answer;
use outlast_ports::metrics::{Family, MetricSink, Reading, Readings, Snapshot, Spread, Unit};
use outlast_vocab::{Error, Millis};
use std::time::Duration;

/// A metric sink that sends to a collector.
pub struct Metrics {
    wire: Wire,
    settings: Settings,
}

impl Metrics {
    /// Creates the sink, if a destination for metrics is set.
    pub fn new(settings: &Settings) -> Result<Option<Self>, Error> {
        let Some(url) = &settings.metrics else { return Ok(None) };
        let wire = Wire::to(url, settings.headers.clone())?;
        Ok(Some(Self { wire, settings: settings.clone() }))
    }
}

impl MetricSink for Metrics {
    fn every(&self) -> Duration {
        self.settings.every
    }

    fn take<'a>(&'a self, snapshot: &'a Snapshot) -> Answer<'a, ()> {
        Box::pin(async move { self.wire.send(otlp::of_metrics(&self.settings.about, of(snapshot))).await })
    }
}

/// Converts a snapshot. Metrics that were never counted are left out.
fn of(snapshot: &Snapshot) -> Vec<Metric> {
    let span = (snapshot.since, snapshot.at);
    let metric = |family: &Family| {
        let data = match &family.readings {
            Readings::Counter(readings) => Data::Sum(Sum {
                data_points: numbers(readings, span),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: true,
            }),
            Readings::Gauge(readings) => Data::Gauge(Gauge { data_points: numbers(readings, span) }),
            Readings::Histogram(readings) => Data::Histogram(Histogram {
                data_points: readings.iter().map(|reading| spread(reading, span)).collect(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
            }),
        };
        let unit = match family.unit {
            Unit::Count => "1",
            Unit::Seconds => "s",
            Unit::Tokens => "{token}",
            Unit::Dollars => "{USD}",
        };
        let (name, description, unit) = (family.name.to_owned(), family.about.to_owned(), unit.to_owned());
        Metric { name, description, unit, data: Some(data), ..Metric::default() }
    };
    let families = snapshot.families.iter().filter(|family| match &family.readings {
        Readings::Counter(readings) | Readings::Gauge(readings) => !readings.is_empty(),
        Readings::Histogram(readings) => !readings.is_empty(),
    });
    families.map(metric).collect()
}

fn attributes<T>(reading: &Reading<T>) -> Vec<KeyValue> {
    reading.labels.iter().map(|(name, value)| text(name, value)).collect()
}

fn numbers(readings: &[Reading<f64>], (since, at): (Millis, Millis)) -> Vec<NumberDataPoint> {
    let point = |reading: &Reading<f64>| NumberDataPoint {
        attributes: attributes(reading),
        start_time_unix_nano: nanos(since),
        time_unix_nano: nanos(at),
        value: Some(Value::AsDouble(reading.value)),
        ..NumberDataPoint::default()
    };
    readings.iter().map(point).collect()
}

fn spread(reading: &Reading<Spread>, (since, at): (Millis, Millis)) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: attributes(reading),
        start_time_unix_nano: nanos(since),
        time_unix_nano: nanos(at),
        count: reading.value.count(),
        sum: Some(reading.value.sum()),
        bucket_counts: reading.value.counts().to_vec(),
        explicit_bounds: reading.value.bounds().to_vec(),
        ..HistogramDataPoint::default()
    }
}

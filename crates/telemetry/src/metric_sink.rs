//! Sends metrics to a collector, always as totals since the start of the worker.
use crate::collector_client::CollectorClient;
use crate::otlp::{self, nanos, text};
use crate::settings::TelemetrySettings;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};
use outlast_ports::ResultFuture;
use outlast_ports::metrics::{
    HistogramValue, MetricFamily, MetricSample, MetricSink, MetricUnit, MetricValues, MetricsSnapshot,
};
use outlast_vocab::{Error, Millis};
use std::time::Duration;

/// A metric sink that sends to a collector.
pub struct OtlpMetrics {
    collector: CollectorClient,
    settings: TelemetrySettings,
}

impl OtlpMetrics {
    /// Creates the sink, if a destination for metrics is set.
    pub fn new(settings: &TelemetrySettings) -> Result<Option<Self>, Error> {
        let Some(url) = &settings.metrics else { return Ok(None) };
        let wire = CollectorClient::to(url, settings.headers.clone())?;
        Ok(Some(Self { collector: wire, settings: settings.clone() }))
    }
}

impl MetricSink for OtlpMetrics {
    fn export_interval(&self) -> Duration {
        self.settings.metric_interval
    }

    fn export<'a>(&'a self, snapshot: &'a MetricsSnapshot) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            self.collector
                .send(otlp::of_metrics(&self.settings.resource_attributes, otlp_metrics(snapshot)))
                .await
        })
    }
}

/// Converts a snapshot. Metrics that were never counted are left out.
fn otlp_metrics(snapshot: &MetricsSnapshot) -> Vec<Metric> {
    let MetricsSnapshot { since, at, .. } = *snapshot;
    let metric = |family: &MetricFamily| {
        let data = match &family.values {
            MetricValues::Counter(readings) => Data::Sum(Sum {
                data_points: number_points(readings, since, at),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
                is_monotonic: true,
            }),
            MetricValues::Gauge(readings) => {
                Data::Gauge(Gauge { data_points: number_points(readings, since, at) })
            }
            MetricValues::Histogram(readings) => Data::Histogram(Histogram {
                data_points: readings.iter().map(|reading| histogram_point(reading, since, at)).collect(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
            }),
        };
        let unit = match family.unit {
            MetricUnit::Count => "1",
            MetricUnit::Seconds => "s",
            MetricUnit::Tokens => "{token}",
            MetricUnit::Dollars => "{USD}",
        };
        let (name, description, unit) =
            (family.name.to_owned(), family.description.to_owned(), unit.to_owned());
        Metric { name, description, unit, data: Some(data), ..Metric::default() }
    };
    let families = snapshot.families.iter().filter(|family| match &family.values {
        MetricValues::Counter(readings) | MetricValues::Gauge(readings) => !readings.is_empty(),
        MetricValues::Histogram(readings) => !readings.is_empty(),
    });
    families.map(metric).collect()
}

fn attributes<T>(reading: &MetricSample<T>) -> Vec<KeyValue> {
    reading.labels.iter().map(|(name, value)| text(name, value)).collect()
}

fn number_points(readings: &[MetricSample<f64>], since: Millis, at: Millis) -> Vec<NumberDataPoint> {
    let point = |reading: &MetricSample<f64>| NumberDataPoint {
        attributes: attributes(reading),
        start_time_unix_nano: nanos(since),
        time_unix_nano: nanos(at),
        value: Some(Value::AsDouble(reading.value)),
        ..NumberDataPoint::default()
    };
    readings.iter().map(point).collect()
}

fn histogram_point(reading: &MetricSample<HistogramValue>, since: Millis, at: Millis) -> HistogramDataPoint {
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

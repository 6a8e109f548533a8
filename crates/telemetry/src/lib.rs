//! Exports traces and metrics over OTLP, and metrics in the format of Prometheus.
//!
//! [`TelemetrySettings`] defines the destination. [`OtlpTraces`] is a sink that sends the spans of a turn when it has ended.
//! [`OtlpMetrics`] sends a worker's metrics, and [`exposition`] formats them for Prometheus.
//!
//! Traces only depend on the records of a turn. A turn that was killed and resumed therefore has one trace, and its
//! spans have the same ids in every process. This crate does not know how turns are driven or when deliveries are
//! retried.
mod collector_client;
mod content;
mod metric_sink;
mod otlp;
mod prometheus;
mod settings;
mod spans;
mod trace_sink;

pub use content::ContentExport;
pub use metric_sink::OtlpMetrics;
pub use prometheus::{CONTENT_TYPE, exposition};
pub use settings::TelemetrySettings;
pub use trace_sink::{OtlpTraces, TRACE_SINK_NAME};

//! Exports traces and metrics over OTLP, and metrics in the format of Prometheus.
//!
//! [`Settings`] defines the destination. [`Traces`] is a sink that sends the spans of a turn when it has ended.
//! [`Metrics`] sends a worker's metrics, and [`exposition`] formats them for Prometheus.
//!
//! Traces only depend on the records of a turn. A turn that was killed and resumed therefore has one trace, and its
//! spans have the same ids in every process. This crate does not know how turns are driven or when deliveries are
//! retried.
mod content;
mod metrics;
mod otlp;
mod prometheus;
mod settings;
mod spans;
mod traces;
mod wire;

pub use content::Content;
pub use metrics::Metrics;
pub use prometheus::{CONTENT_TYPE, exposition};
pub use settings::Settings;
pub use traces::{NAME, Traces};

//! Tells others how turns went: traces and metrics over OTLP, metrics as Prometheus reads them (R14.4).
//!
//! [`Settings`] says where to; [`Traces`] is a sink that sends a turn's spans when it ended, [`Metrics`] sends what a worker
//! has counted, and [`exposition`] writes it for Prometheus. What is told comes from the
//! records of the turn and from nothing else, so a turn that was killed and resumed has one trace, and its spans have the
//! same ids whoever sends them.
//! Does not know: how turns are driven, when something is sent again.
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

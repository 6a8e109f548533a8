//! The `[telemetry]` table of `outlast.toml`: where to send traces and metrics.
use outlast::telemetry::TelemetrySettings;
use outlast::{Error, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where to send traces and metrics, and what they contain.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[telemetry]")]
pub(crate) struct TelemetryTable {
    /// A collector that accepts OTLP over HTTP, like `http://localhost:4318`.
    endpoint: String,
    /// Headers of every request, each with the environment variable that contains its value.
    #[serde(default)]
    headers: BTreeMap<String, TelemetryHeader>,
    /// Whether to send inputs, replies, arguments and results too; default: `false`.
    #[serde(default)]
    content: bool,
    /// The fraction of traces to send, from 0 to 1; default: all.
    share: Option<f64>,
    /// The service name; default: `outlast`.
    service: Option<String>,
    /// Interval of metrics in seconds; default: 60.
    metrics_every_s: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "expected `{ env = \"VARIABLE\" }`, the variable that holds the value"
)]
struct TelemetryHeader {
    /// The name of the environment variable.
    env: String,
}

impl TelemetryTable {
    /// Converts the table to settings. The environment variables that it names must be set.
    pub(crate) fn settings(&self) -> Result<TelemetrySettings, Error> {
        let Self { endpoint, headers, content, share, service, metrics_every_s } = self;
        let mut settings = TelemetrySettings::to(endpoint)?;
        for (name, TelemetryHeader { env }) in headers {
            let value = std::env::var(env).ok().filter(|value| !value.trim().is_empty());
            let value = value.ok_or_else(|| {
                Error::new(Kind::ConfigInvalid, format!("set {env}, the value of the header `{name}`"))
            })?;
            settings = settings.header(name, value.trim())?;
        }
        if *content {
            settings = settings.with_content();
        }
        if let Some(share) = share {
            settings = settings.share(*share)?;
        }
        if let Some(service) = service {
            settings = settings.service(service);
        }
        if let Some(seconds) = metrics_every_s {
            settings = settings.every(Duration::from_secs(*seconds));
        }
        Ok(settings)
    }
}

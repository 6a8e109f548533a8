//! The `[telemetry]` table of `outlast.toml`: where to send traces and metrics.
use outlast::telemetry::Settings;
use outlast::{Error, Kind};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where traces and metrics go, and what of them.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[telemetry]")]
pub(crate) struct TelemetryTable {
    /// A collector that takes OTLP over HTTP, like `http://localhost:4318`.
    endpoint: String,
    /// Headers of every request, each with the variable that holds its value.
    #[serde(default)]
    headers: BTreeMap<String, Header>,
    /// Whether inputs, replies, arguments and results go out too; they do not without it.
    #[serde(default)]
    content: bool,
    /// The share of traces that is sent, from 0 to 1; all without it.
    share: Option<f64>,
    /// What this program is called; `outlast` without it.
    service: Option<String>,
    /// How often metrics are sent, in seconds; 60 without it.
    metrics_every_s: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "expected `{ env = \"VARIABLE\" }`, the variable that holds the value"
)]
struct Header {
    /// The variable.
    env: String,
}

impl TelemetryTable {
    /// Converts the table to settings. The environment variables that it names must be set.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let Self { endpoint, headers, content, share, service, metrics_every_s } = self;
        let mut settings = Settings::to(endpoint)?;
        for (name, Header { env }) in headers {
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

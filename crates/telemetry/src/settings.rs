//! The destination and content of telemetry: set in code, in a file, or with the usual `OTEL_…` variables.
use crate::content::ContentExport;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// The default interval of metrics.
const EVERY: Duration = Duration::from_mins(1);

/// The destination and content of telemetry.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    pub(crate) traces: Option<Url>,
    pub(crate) metrics: Option<Url>,
    pub(crate) headers: HeaderMap,
    pub(crate) content: ContentExport,
    /// The share of traces to send, in millionths.
    pub(crate) sample_millionths: u32,
    pub(crate) metric_interval: Duration,
    /// The attributes of this program.
    pub(crate) resource_attributes: Vec<(String, String)>,
}

impl TelemetrySettings {
    /// Sends traces and metrics to the collector at this address: to `/v1/traces` and `/v1/metrics` below it.
    pub fn to(endpoint: &str) -> Result<Self, Error> {
        let base = address("the endpoint", endpoint)?;
        Ok(Self {
            traces: Some(join_path(&base, "v1/traces")),
            metrics: Some(join_path(&base, "v1/metrics")),
            ..Self::without_destination()
        })
    }

    fn without_destination() -> Self {
        Self {
            traces: None,
            metrics: None,
            headers: HeaderMap::new(),
            content: ContentExport::default(),
            sample_millionths: 1_000_000,
            metric_interval: EVERY,
            resource_attributes: vec![("service.name".to_owned(), "outlast".to_owned())],
        }
    }

    /// Adds a header to every request, such as the key of a collector. Its value never appears in output.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        let key = HeaderName::try_from(name)
            .map_err(|_| invalid(format!("expected the name of a header, got `{}`", shown(name))))?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| invalid(format!("the value of the header `{key}` cannot be sent in a header")))?;
        value.set_sensitive(true);
        self.headers.insert(key, value);
        Ok(self)
    }

    /// Includes inputs, replies, arguments and results in the spans.
    #[must_use]
    pub fn with_content(mut self) -> Self {
        self.content = ContentExport::Included;
        self
    }

    /// Sets the share of traces to send, from 0 to 1. If an input has a parent span, the parent's sampling decision
    /// applies.
    pub fn share(mut self, share: f64) -> Result<Self, Error> {
        if !(0.0..=1.0).contains(&share) {
            return Err(invalid(format!("expected a share of traces from 0 to 1, got {share}")));
        }
        // Checked above: neither too large nor negative.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let millionths = (share * 1_000_000.0).round() as u32;
        self.sample_millionths = millionths;
        Ok(self)
    }

    /// Sets the service name of this program.
    #[must_use]
    pub fn service(self, name: impl Into<String>) -> Self {
        self.with_resource_attribute("service.name", name)
    }

    /// Sets the interval of metrics.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.metric_interval = every.max(Duration::from_secs(1));
        self
    }

    /// Returns the destination of traces for messages.
    pub fn place(&self) -> Option<String> {
        self.traces.as_ref().map(without_query)
    }

    fn with_resource_attribute(mut self, name: &str, value: impl Into<String>) -> Self {
        self.resource_attributes.retain(|(known, _)| known != name);
        self.resource_attributes.push((name.to_owned(), value.into()));
        self
    }

    /// Applies the usual environment variables on top of these settings. Returns `None` if no destination is set.
    pub fn from_env(set: Option<Self>) -> Result<Option<Self>, Error> {
        Self::from_vars(set, &|name| std::env::var(name).ok())
    }

    fn from_vars(set: Option<Self>, var: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        let var = |name: &str| var(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        if var("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let mut settings = set.unwrap_or_else(Self::without_destination);
        if let Some(base) = var("OTEL_EXPORTER_OTLP_ENDPOINT") {
            let base = address("OTEL_EXPORTER_OTLP_ENDPOINT", &base)?;
            (settings.traces, settings.metrics) =
                (Some(join_path(&base, "v1/traces")), Some(join_path(&base, "v1/metrics")));
        }
        for (signal, to) in [("TRACES", &mut settings.traces), ("METRICS", &mut settings.metrics)] {
            let name = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
            if let Some(text) = var(&name) {
                *to = Some(address(&name, &text)?);
            }
            match var(&format!("OTEL_{signal}_EXPORTER")).as_deref() {
                None | Some("otlp") => {}
                Some("none") => *to = None,
                Some(other) => {
                    return Err(invalid(format!(
                        "OTEL_{signal}_EXPORTER: expected `otlp` or `none`, got `{other}`"
                    )));
                }
            }
        }
        if settings.traces.is_none() && settings.metrics.is_none() {
            return Ok(None);
        }
        for name in ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] {
            if let Some(other) = var(name).filter(|protocol| protocol != "http/protobuf") {
                return Err(invalid(format!("{name}: expected `http/protobuf`, got `{}`", shown(&other))));
            }
        }
        for (name, value) in pairs("OTEL_EXPORTER_OTLP_HEADERS", var("OTEL_EXPORTER_OTLP_HEADERS"))? {
            settings = settings.header(&name, &value)?;
        }
        for (name, value) in pairs("OTEL_RESOURCE_ATTRIBUTES", var("OTEL_RESOURCE_ATTRIBUTES"))? {
            settings = settings.with_resource_attribute(&name, value);
        }
        if let Some(name) = var("OTEL_SERVICE_NAME") {
            settings = settings.service(name);
        }
        if let Some(text) = var("OTEL_METRIC_EXPORT_INTERVAL") {
            let millis = text.parse().map_err(|_| {
                invalid(format!("OTEL_METRIC_EXPORT_INTERVAL: expected milliseconds, got `{}`", shown(&text)))
            })?;
            settings = settings.every(Duration::from_millis(millis));
        }
        settings
            .apply_sampler(var("OTEL_TRACES_SAMPLER").as_deref(), var("OTEL_TRACES_SAMPLER_ARG"))
            .map(Some)
    }

    fn apply_sampler(self, sampler: Option<&str>, share: Option<String>) -> Result<Self, Error> {
        match sampler {
            None => Ok(self),
            Some("parentbased_always_on") => self.share(1.0),
            Some("parentbased_always_off") => self.share(0.0),
            Some("parentbased_traceidratio") => {
                let text = share.unwrap_or_else(|| "1".to_owned());
                let wrong = || {
                    invalid(format!(
                        "OTEL_TRACES_SAMPLER_ARG: expected a share from 0 to 1, got `{}`",
                        shown(&text)
                    ))
                };
                let share = text.parse().map_err(|_| wrong())?;
                self.share(share).map_err(|_| wrong())
            }
            Some(other) => Err(invalid(format!(
                "OTEL_TRACES_SAMPLER: expected `parentbased_always_on`, `parentbased_always_off` or \
                 `parentbased_traceidratio`, got `{}`",
                shown(other)
            ))),
        }
    }
}

fn invalid(detail: String) -> Error {
    Error::new(Kind::ConfigInvalid, detail)
}

/// Parses the address of a collector. An address with a user or a password is rejected, because it would be shown.
fn address(what: &str, text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.filter(|url| url.username().is_empty() && url.password().is_none());
    url.ok_or_else(|| {
        invalid(format!(
            "{what}: expected the address of a collector like `http://localhost:4318`, without a password"
        ))
    })
}

/// Returns an address without its query, which may contain a key.
pub(crate) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// Appends a path to an address, which may have a path itself.
fn join_path(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

/// Parses `name=value` pairs, separated by commas, with values escaped as in URLs. Errors never show a value.
fn pairs(what: &str, text: Option<String>) -> Result<Vec<(String, String)>, Error> {
    let text = text.unwrap_or_default();
    let pair = |pair: &str| {
        let wrong = || invalid(format!("{what}: expected `name=value` pairs with commas between them"));
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        Ok((name.trim().to_owned(), unescaped(value.trim()).ok_or_else(wrong)?))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Option<TelemetrySettings>, Error> {
        let var =
            |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        TelemetrySettings::from_vars(None, &var)
    }

    #[test]
    fn standard_variables_configure_telemetry_endpoints() {
        assert!(read(&[]).unwrap().is_none());
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/base/"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://elsewhere/m"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, other=c"),
            ("OTEL_SERVICE_NAME", "shop"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,deployment.environment.name=test"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.traces.unwrap().as_str(), "http://collector:4318/base/v1/traces");
        assert_eq!(settings.metrics.unwrap().as_str(), "https://elsewhere/m");
        assert_eq!(
            (settings.headers["x-key"].as_bytes(), settings.headers["other"].as_bytes()),
            (&b"a b"[..], &b"c"[..])
        );
        assert_eq!(settings.sample_millionths, 250_000);
        let about = [("deployment.environment.name", "test"), ("service.name", "shop")];
        assert_eq!(
            settings.resource_attributes,
            about.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        let off = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"), ("OTEL_SDK_DISABLED", "true")];
        assert!(read(&off).unwrap().is_none());
        let one =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"), ("OTEL_METRICS_EXPORTER", "none")];
        assert!(read(&one).unwrap().unwrap().metrics.is_none());
    }

    #[test]
    fn invalid_setting_error_names_it_without_secrets() {
        let here = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://ann:canary@collector"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "canary"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "key=canary%zz"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "always_on"),
            ("OTEL_TRACES_SAMPLER_ARG", "most"),
            ("OTEL_TRACES_SAMPLER_ARG", "7"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "a minute"),
        ] {
            let ratio = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
            let error = read(&[here, (name, value), ratio]).unwrap_err();
            assert_eq!(error.kind(), Kind::ConfigInvalid, "{name}");
            assert!(
                error.detail().starts_with(name) && !error.detail().contains("canary"),
                "{}",
                error.detail()
            );
        }
        assert!(TelemetrySettings::to("http://c").unwrap().share(1.5).is_err());
    }
}

//! The connection to a collector: protobuf over HTTP, and the meaning of its responses.
//!
//! | response | result |
//! |---|---|
//! | 200 to 299 | delivered; rejected parts are logged |
//! | 429, 502, 503 or 504, or no response | retried, not before the time in `retry-after` |
//! | anything else | given up |
use crate::settings::without_query;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use outlast_tools::egress::{Egress, EgressRules, Network, PostResponse, secret_url_parts};
use outlast_vocab::message::shown;
use outlast_vocab::redaction::redact;
use outlast_vocab::{Error, Kind};
use prost::Message;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use std::time::Duration;

/// The connection to one address of a collector.
pub(crate) struct CollectorClient {
    url: Url,
    headers: HeaderMap,
    egress: Egress,
}

impl CollectorClient {
    /// Creates a connection to an address that the operator chose. It may be on this machine.
    pub(crate) fn to(url: &Url, mut headers: HeaderMap) -> Result<Self, Error> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let rules = EgressRules::for_url(url.as_str(), Network::Any)
            .map_err(|error| Error::new(Kind::ConfigInvalid, format!("telemetry: {}", error.detail())))?;
        Ok(Self { url: url.clone(), headers, egress: Egress::new(rules)? })
    }

    /// Returns the address for messages.
    pub(crate) fn place(&self) -> String {
        without_query(&self.url)
    }

    /// Sends a message.
    pub(crate) async fn send(&self, body: Vec<u8>) -> Result<(), Error> {
        let posted = self.egress.post(self.url.as_str(), self.headers.clone(), body).await;
        let posted = posted.map_err(|error| {
            let detail = format!("the collector at {} cannot be reached", self.place());
            let cause = Error::new(error.kind(), self.redacted(error.detail()));
            Error::new(Kind::DeliveryFailed, detail).because(cause)
        })?;
        self.check_response(&posted)
    }

    fn check_response(&self, posted: &PostResponse) -> Result<(), Error> {
        let PostResponse { status, retry_after, body } = posted;
        match status {
            200..=299 => {
                if let Some(Rejection { count, reason }) = self.rejection(body) {
                    tracing::warn!(count, why = reason, "the collector rejected a part of the data");
                }
                Ok(())
            }
            429 | 502 | 503 | 504 => {
                let seconds = retry_after.as_deref().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                let error = Error::new(Kind::DeliveryFailed, format!("the collector answered {status}"));
                Err(error.retry_after(Duration::from_secs(seconds)))
            }
            _ => {
                let said = self.redacted(&String::from_utf8_lossy(body));
                let detail = format!("the collector responded {status}: {}", shown(said.trim()));
                Err(Error::new(Kind::DeliveryRefused, detail))
            }
        }
    }

    /// Returns which part of a request the collector rejected.
    fn rejection(&self, body: &[u8]) -> Option<Rejection> {
        // Both signals have the same response format.
        let answer = ExportTraceServiceResponse::decode(body).unwrap_or_default();
        let part = answer.partial_success.filter(|part| part.rejected_spans > 0)?;
        let reason = shown(&self.redacted(&part.error_message)).into_owned();
        Some(Rejection { count: part.rejected_spans, reason })
    }

    /// Returns a text of the collector without the values of the headers and the secret parts of the address, in
    /// case it echoes them.
    fn redacted(&self, text: &str) -> String {
        let mut secrets = secret_url_parts(&self.url);
        for value in self.headers.values().filter(|value| value.is_sensitive()) {
            let value = String::from_utf8_lossy(value.as_bytes());
            // A key may follow the name of its scheme, as in `Bearer KEY`.
            secrets.extend(value.split_whitespace().map(str::to_owned));
            secrets.push(value.into_owned());
        }
        redact(text, secrets.iter().map(String::as_str))
    }
}

/// The part of a request that a collector rejected.
#[derive(Debug, PartialEq, Eq)]
struct Rejection {
    count: i64,
    reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::TelemetrySettings;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    fn client() -> CollectorClient {
        let settings = TelemetrySettings::to("http://localhost:4318/canary-path?key=canary-query").unwrap();
        let settings = settings.header("authorization", "Bearer canary-token").unwrap();
        let settings = settings.header("x-key", "canary key").unwrap();
        CollectorClient::to(settings.traces.as_ref().unwrap(), settings.headers).unwrap()
    }

    const ECHO: &str =
        "no: Bearer canary-token, canary-token, canary key at /canary-path/v1/traces?key=canary-query";

    #[test]
    fn refusal_does_not_echo_secrets() {
        let posted = PostResponse { status: 401, retry_after: None, body: ECHO.into() };
        let refused = client().check_response(&posted).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "delivery.refused: the collector responded 401: no: [redacted], [redacted], [redacted] at [redacted]"
        );
    }

    #[test]
    fn partial_refusal_does_not_echo_secrets() {
        let part = ExportTracePartialSuccess { rejected_spans: 3, error_message: ECHO.to_owned() };
        let body = ExportTraceServiceResponse { partial_success: Some(part) }.encode_to_vec();
        let want = "no: [redacted], [redacted], [redacted] at [redacted]".to_owned();
        assert_eq!(client().rejection(&body), Some(Rejection { count: 3, reason: want }));
    }
}

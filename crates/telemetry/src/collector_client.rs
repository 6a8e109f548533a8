//! The connection to a collector: protobuf over HTTP, and the meaning of its responses.
//!
//! | response | result |
//! |---|---|
//! | 200 to 299 | delivered; rejected parts are logged |
//! | 429, 502, 503 or 504, or no response | retried, not before the time in `retry-after` |
//! | anything else | given up |
use crate::settings::without_query;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use outlast_tools::egress::{Egress, EgressRules, Network, PostResponse};
use outlast_vocab::message::shown;
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
            Error::new(Kind::DeliveryFailed, detail).because(error)
        })?;
        check_response(&posted)
    }
}

fn check_response(posted: &PostResponse) -> Result<(), Error> {
    let PostResponse { status, retry_after, body } = posted;
    match status {
        200..=299 => {
            // Both signals have the same response format.
            let answer = ExportTraceServiceResponse::decode(body.as_slice()).unwrap_or_default();
            if let Some(left_out) = answer.partial_success.filter(|part| part.rejected_spans > 0) {
                let (count, why) = (left_out.rejected_spans, shown(&left_out.error_message).into_owned());
                tracing::warn!(count, why, "the collector did not take all of it");
            }
            Ok(())
        }
        429 | 502 | 503 | 504 => {
            let seconds = retry_after.as_deref().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            let error = Error::new(Kind::DeliveryFailed, format!("the collector answered {status}"));
            Err(error.retry_after(Duration::from_secs(seconds)))
        }
        _ => {
            let said = String::from_utf8_lossy(body);
            let detail = format!("the collector answered {status} and said: {}", shown(said.trim()));
            Err(Error::new(Kind::DeliveryRefused, detail))
        }
    }
}

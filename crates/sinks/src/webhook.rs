//! Posts outputs to a URL, signed according to the Standard Webhooks specification.
//!
//! | response | result |
//! |---|---|
//! | 200 to 299 | delivered |
//! | 410, or the egress rules deny the address | given up |
//! | 429 or 503 with `retry-after` | retried, not before that time |
//! | anything else, including a redirect, or no response | retried |
use crate::message;
use crate::signature::WebhookSecrets;
use outlast_ports::ResultFuture;
use outlast_ports::sink::{Sink, SinkOutput};
use outlast_tools::egress::{Egress, EgressRules, Network, PostResponse, secret_url_parts};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::message::shown;
use outlast_vocab::redaction::redact;
use outlast_vocab::{Error, Kind, Millis};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A sink that posts to a URL. A receiver that accepts each `webhook-id` once gets each output exactly once.
pub struct WebhookSink {
    url: Url,
    secrets: WebhookSecrets,
    egress: Egress,
}

impl WebhookSink {
    /// Creates a sink for this URL and these secrets. A host that is not public is only allowed if `network` permits
    /// it.
    pub fn new(url: &str, secrets: WebhookSecrets, network: Network) -> Result<Self, Error> {
        let url = Url::parse(url).map_err(|cause| {
            let detail = format!("expected an address like `https://example.com/outputs`: {cause}");
            Error::new(Kind::ConfigInvalid, detail)
        })?;
        let rules = EgressRules::for_url(url.as_str(), network)
            .map_err(|error| Error::new(error.kind(), redact_path(&url, error.detail())))?;
        Ok(Self { url, secrets, egress: Egress::new(rules)? })
    }

    /// Posts a message now. Returns the response if the message was accepted.
    async fn post(&self, id: DeliveryId, sent: Millis, body: Vec<u8>) -> Result<String, Error> {
        let headers = self.headers(id, sent, &body)?;
        let posted = self.egress.post(self.url.as_str(), headers, body).await;
        let posted = posted.map_err(|error| {
            // Only an address that the rules deny is a permanent failure.
            let denied = error.kind() == Kind::EgressDenied;
            let kind = if denied { error.kind() } else { Kind::DeliveryFailed };
            Error::new(kind, redact_path(&self.url, error.detail()))
        })?;
        check_response(
            &PostResponse { body: self.redact_response(&posted.body).into_bytes(), ..posted },
            sent,
        )
    }

    /// Redacts the secrets and the secret parts of the URL in a response, in case it echoes them.
    fn redact_response(&self, body: &[u8]) -> String {
        let parts = secret_url_parts(&self.url);
        redact(&self.secrets.redact(&String::from_utf8_lossy(body)), parts.iter().map(String::as_str))
    }

    fn headers(&self, id: DeliveryId, sent: Millis, body: &[u8]) -> Result<HeaderMap, Error> {
        let (id, seconds) = (id.to_string(), sent.0 / 1_000);
        let signature = self.secrets.sign(&id, seconds, body);
        let value = |text: String| {
            HeaderValue::try_from(text)
                .map_err(|cause| Error::new(Kind::Internal, "a header cannot be written").because(cause))
        };
        Ok(HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ID, value(id)?),
            (TIMESTAMP, value(seconds.to_string())?),
            (SIGNATURE, value(signature)?),
        ]))
    }
}

impl Sink for WebhookSink {
    fn place(&self) -> String {
        display_url(&self.url)
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            self.post(output.id, output.sent, message::encode(output)?).await?;
            Ok(())
        })
    }

    fn send_test(&self, id: DeliveryId, now: Millis) -> ResultFuture<'_, String> {
        Box::pin(async move { self.post(id, now, message::encode_test(id, now)?).await })
    }
}

/// Returns the scheme, host and port.
fn origin(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// Returns the URL for messages. Its path may contain a secret and is left out.
fn display_url(url: &Url) -> String {
    let rest = if matches!(url.path(), "" | "/") && url.query().is_none() { "" } else { "/…" };
    format!("{}{rest}", origin(url))
}

/// Removes the path of this URL from an error text of the egress client.
fn redact_path(url: &Url, detail: &str) -> String {
    let begins = format!("`{}", origin(url));
    let hidden = detail.split_once(&begins).and_then(|(before, after)| {
        let (_, after) = after.split_once('`')?;
        Some(format!("{before}`{}`{after}", display_url(url)))
    });
    hidden.unwrap_or_else(|| detail.to_owned())
}

/// Converts a response to a result. Returns the response text if the message was accepted.
fn check_response(posted: &PostResponse, sent: Millis) -> Result<String, Error> {
    let PostResponse { status, retry_after, body } = posted;
    let said = String::from_utf8_lossy(body);
    let said = if body.is_empty() { "nothing" } else { &shown(said.trim()) };
    let answered = format!("it responded {status}: {said}");
    let error = |kind| Error::new(kind, answered.clone());
    match status {
        200..=299 => Ok(answered),
        410 => Err(error(Kind::DeliveryGone)),
        429 | 503 => {
            let pause =
                retry_after.as_deref().and_then(|text| parse_retry_after(text, sent)).unwrap_or_default();
            Err(error(Kind::DeliveryFailed).retry_after(pause))
        }
        _ => Err(error(Kind::DeliveryFailed)),
    }
}

/// Parses `retry-after`: seconds or a date.
fn parse_retry_after(retry_after: &str, now: Millis) -> Option<Duration> {
    if let Ok(seconds) = retry_after.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(retry_after.trim()).ok()?;
    let date = u64::try_from(date.timestamp().as_millisecond()).ok()?;
    Some(now.until(Millis(date)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(status: u16, retry_after: Option<&str>) -> Result<(), (Kind, Duration)> {
        let retry_after = retry_after.map(str::to_owned);
        let posted = PostResponse { status, retry_after, body: b"no\n".to_vec() };
        let judged = check_response(&posted, Millis(784_111_777_000));
        judged.map(drop).map_err(|error| (error.kind(), error.pause().unwrap_or_default()))
    }

    #[test]
    fn response_decides_whether_and_when_to_retry() {
        let failed = |seconds| Err((Kind::DeliveryFailed, Duration::from_secs(seconds)));
        for (status, retry_after, expected) in [
            (200, None, Ok(())),
            (204, None, Ok(())),
            (302, None, failed(0)),
            (400, None, failed(0)),
            (410, Some("7"), Err((Kind::DeliveryGone, Duration::ZERO))),
            (429, Some("7"), failed(7)),
            (503, Some(" 120 "), failed(120)),
            (503, Some("Sun, 06 Nov 1994 08:50:37 GMT"), failed(60)),
            (503, Some("Sun, 06 Nov 1994 08:40:37 GMT"), failed(0)),
            (503, Some("soon"), failed(0)),
            (500, Some("7"), failed(0)),
        ] {
            assert_eq!(judge(status, retry_after), expected, "{status} {retry_after:?}");
        }
    }

    #[test]
    fn echoed_secrets_are_redacted() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let url = "https://hooks.example.com/canary/path?key=canary-query";
        let webhook = WebhookSink::new(url, WebhookSecrets::parse(secret).unwrap(), Network::Public).unwrap();
        let echoed = format!("POST /canary/path?key=canary-query with {secret}, {}", &secret[6..]);
        assert_eq!(webhook.redact_response(echoed.as_bytes()), "POST [redacted] with [redacted], [redacted]");
        assert_eq!(webhook.redact_response(b"/other ok"), "/other ok");
        let url =
            "https://hooks.example.com/services/T%20canary%2Fpart/short?key=canary-query&b=sum+canary%21&c";
        let webhook = WebhookSink::new(url, WebhookSecrets::parse(secret).unwrap(), Network::Public).unwrap();
        for part in [
            "services",
            "T%20canary%2Fpart",
            "T canary/part",
            "canary-query",
            "sum+canary%21",
            "sum+canary!",
            "sum canary!",
        ] {
            let echoed = webhook.redact_response(format!("no such hook: {part}, short").as_bytes());
            assert_eq!(echoed, "no such hook: [redacted], short", "{part}");
        }
        assert_eq!(webhook.redact_response(b"bad key, b or c"), "bad key, b or c");
    }

    #[test]
    fn webhook_path_is_redacted() {
        let secrets = WebhookSecrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let url = format!("https://hooks.example.com/{}?key=canary", "canary/".repeat(30));
        let webhook = WebhookSink::new(&url, secrets, Network::Public).unwrap();
        assert_eq!(webhook.place(), "https://hooks.example.com/…");
        let redacted = |detail: &str| redact_path(&webhook.url, detail);
        assert_eq!(
            redacted(&format!("`{}` cannot be reached: it is gone", shown(&url))),
            "`https://hooks.example.com/…` cannot be reached: it is gone"
        );
        assert_eq!(redacted("`hooks.example.com` has no address"), "`hooks.example.com` has no address");
        let secrets = WebhookSecrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let refused = WebhookSink::new("http://10.0.0.1/canary", secrets, Network::Public).err();
        assert_eq!(
            refused.map(|error| error.to_string()).as_deref(),
            Some("egress.denied: `http://10.0.0.1/…` is not reached: this address is in a private network")
        );
    }
}

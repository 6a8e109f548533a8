//! Posts outputs to a URL, signed as the Standard Webhooks specification has it.
//!
//! | the other side | what becomes of the output |
//! |---|---|
//! | answers 200 to 299 | it was taken |
//! | answers 410, or is where we may not go | it is given up |
//! | answers 429 or 503 with `retry-after` | it is sent again, not before that time |
//! | answers anything else, also a redirect; does not answer | it is sent again |
use crate::message;
use crate::signature::Secrets;
use outlast_ports::Answer;
use outlast_ports::sink::{Output, Sink};
use outlast_tools::egress::{Egress, Network, Posted, Rules};
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind, Millis};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A URL that outputs are posted to. Who takes each `webhook-id` once gets each output once.
pub struct Webhook {
    url: Url,
    secrets: Secrets,
    egress: Egress,
}

impl Webhook {
    /// Posts to this URL, signed with these secrets. A host that is not public is reached only if the network says so.
    pub fn new(url: &str, secrets: Secrets, network: Network) -> Result<Self, Error> {
        let rules = Rules::for_url(url, network)?;
        let url = rules.check(url)?;
        Ok(Self { url, secrets, egress: Egress::new(rules)? })
    }

    fn headers(&self, output: &Output, body: &[u8]) -> Result<HeaderMap, Error> {
        let (id, seconds) = (output.id.to_string(), output.sent.0 / 1_000);
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

    /// Scheme, host and port. A path may hold a secret.
    fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// An error of the way out without the path. Only a place that may not be reached is one that cannot pass.
    fn hidden(&self, error: &Error) -> Error {
        let kind = if error.kind() == Kind::EgressDenied { error.kind() } else { Kind::DeliveryFailed };
        let detail = error.detail();
        let begins = format!("`{}", self.origin());
        let place = detail.find(&begins).and_then(|start| {
            let end = start + begins.len() + detail[start + begins.len()..].find('`')?;
            Some(format!("{}`{}{}", &detail[..start], self.place(), &detail[end..]))
        });
        Error::new(kind, place.unwrap_or_else(|| detail.replace(self.url.path(), "/…")))
    }
}

impl Sink for Webhook {
    fn place(&self) -> String {
        let rest = if self.url.path() == "/" && self.url.query().is_none() { "" } else { "/…" };
        format!("{}{rest}", self.origin())
    }

    fn deliver<'a>(&'a self, output: &'a Output) -> Answer<'a, ()> {
        Box::pin(async move {
            let body = message::of(output)?;
            let headers = self.headers(output, &body)?;
            let posted = self.egress.post(self.url.as_str(), headers, body).await;
            judged(&posted.map_err(|error| self.hidden(&error))?, output.sent)
        })
    }
}

/// What an answer means.
fn judged(posted: &Posted, sent: Millis) -> Result<(), Error> {
    let Posted { status, retry_after, body } = posted;
    let said = String::from_utf8_lossy(body);
    let said = if body.is_empty() { "nothing" } else { &shown(said.trim()) };
    let error = |kind| Error::new(kind, format!("it answered {status} and said: {said}"));
    match status {
        200..=299 => Ok(()),
        410 => Err(error(Kind::DeliveryGone)),
        429 | 503 => {
            let pause = retry_after.as_deref().and_then(|text| pause(text, sent)).unwrap_or_default();
            Err(error(Kind::DeliveryFailed).retry_after(pause))
        }
        _ => Err(error(Kind::DeliveryFailed)),
    }
}

/// How long the other side wants to be left alone: seconds, or a date.
fn pause(retry_after: &str, now: Millis) -> Option<Duration> {
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
        let posted = Posted { status, retry_after, body: b"no\n".to_vec() };
        let judged = judged(&posted, Millis(784_111_777_000));
        judged.map_err(|error| (error.kind(), error.pause().unwrap_or_default()))
    }

    #[test]
    fn an_answer_says_whether_there_is_another_attempt_and_when() {
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
    fn the_path_of_a_webhook_is_shown_to_nobody() {
        let secrets = Secrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let url = format!("https://hooks.example.com/{}?key=canary", "canary/".repeat(30));
        let webhook = Webhook::new(&url, secrets, Network::Public).unwrap();
        assert_eq!(webhook.place(), "https://hooks.example.com/…");
        let told = |detail: &str| webhook.hidden(&Error::new(Kind::EgressUnreachable, detail)).to_string();
        assert_eq!(
            told(&format!("`{}` cannot be reached: it is gone", shown(&url))),
            "delivery.failed: `https://hooks.example.com/…` cannot be reached: it is gone"
        );
    }
}

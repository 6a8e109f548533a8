//! Parses when to retry, in the formats of all providers.
//!
//! No crate knows the headers of these providers. `jiff` parses the dates, but its durations have no days, which
//! OpenAI's format has.
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// The longest delay to accept.
const RETRY_DELAY_MAX: Duration = Duration::from_hours(24);

/// The headers of rate limits: what remains, and when the limit resets.
const LIMIT_HEADERS: [[&str; 2]; 6] = [
    ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    ["x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    ["anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"],
    ["anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"],
    ["anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"],
    ["anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"],
];

/// The time at the server, from the response's own date if it has one, so that clocks need not agree.
pub(crate) struct ServerTime(Timestamp);

impl ServerTime {
    /// Returns the time of these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let dated = header(headers, DATE.as_str()).and_then(date);
        Self(dated.unwrap_or_else(|| Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)))
    }

    /// Returns how long to wait according to the headers.
    pub(crate) fn retry_delay(&self, headers: &HeaderMap) -> Option<Duration> {
        let millis = header(headers, "retry-after-ms").and_then(|text| text.trim().parse::<f64>().ok());
        if let Some(millis) = millis {
            return seconds(millis / 1_000.0);
        }
        if let Some(text) = header(headers, RETRY_AFTER.as_str()) {
            return text
                .trim()
                .parse()
                .ok()
                .and_then(seconds)
                .or_else(|| date(text).map(|then| self.until(then)));
        }
        let spent = LIMIT_HEADERS
            .iter()
            .filter(|[remaining, _]| header(headers, remaining).is_none_or(|left| left.trim() == "0"));
        spent.filter_map(|[_, reset]| self.reset(header(headers, reset)?)).max()
    }

    /// Returns how long to wait according to the details of a Google error.
    pub(crate) fn retry_delay_in(details: &Value) -> Option<Duration> {
        let delays = details.as_array()?.iter().filter_map(|detail| detail["retryDelay"].as_str());
        delays.filter_map(openai_duration).max()
    }

    fn reset(&self, text: &str) -> Option<Duration> {
        openai_duration(text).or_else(|| text.parse().ok().map(|then| self.until(then)))
    }

    fn until(&self, then: Timestamp) -> Duration {
        let pause = then.duration_since(self.0);
        Duration::try_from(pause).unwrap_or(Duration::ZERO).min(RETRY_DELAY_MAX)
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn date(text: &str) -> Option<Timestamp> {
    rfc2822::parse(text.trim()).ok().map(|date| date.timestamp())
}

fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().map(|pause| pause.min(RETRY_DELAY_MAX))
}

/// Parses a duration in OpenAI's format: `6m0s`, `1h2m`, `20ms`, `7.66s`.
fn openai_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut whole = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let units = [("ms", 0.001), ("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, weight) = units.iter().find(|(unit, _)| rest.starts_with(unit))?;
        whole += number * weight;
        rest = &rest[unit.len()..];
    }
    if text.trim().is_empty() { None } else { seconds(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    #[track_caller]
    fn check(headers: &[(&'static str, &'static str)], want: Option<Duration>) {
        let dated = [("date", "Sun, 06 Nov 1994 08:49:37 GMT")];
        let headers: HeaderMap = dated
            .iter()
            .chain(headers)
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        assert_eq!(ServerTime::of(&headers).retry_delay(&headers), want);
    }

    #[test]
    fn each_provider_retry_delay_format_is_parsed() {
        let s = |seconds| Some(Duration::from_secs_f64(seconds));
        check(&[], None);
        check(&[("retry-after", "7")], s(7.0));
        check(&[("retry-after", "0.5")], s(0.5));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], s(30.0));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], s(0.0));
        check(&[("retry-after-ms", "250"), ("retry-after", "9")], s(0.25));
        check(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")], s(360.0));
        check(
            &[
                ("x-ratelimit-remaining-requests", "12"),
                ("x-ratelimit-reset-requests", "1h"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "20ms"),
            ],
            s(0.02),
        );
        check(
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "1994-11-06T08:49:47Z"),
            ],
            s(10.0),
        );
        check(&[("retry-after", "soon")], None);
        check(&[("retry-after", "-1")], None);
        check(&[("retry-after", "1e30")], None);
        check(&[("retry-after", "99999999")], Some(RETRY_DELAY_MAX));
    }
}

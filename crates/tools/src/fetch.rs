//! `fetch`: reads a web page through [`crate::egress`].
//!
//! Returns text: HTML without tags ([`html`]), JSON and plain text unchanged. Other content is an error.
mod html;

use crate::egress::{Egress, GetResponse};
use outlast_ports::service::{Agent, Service};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done, failed};
use outlast_vocab::Error;
use outlast_vocab::message::shown;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// The tool that fetches a URL as text.
pub struct Fetch;

/// What the model passes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchArgs {
    /// The address, like `https://example.com/page`.
    url: String,
}

impl Tool for Fetch {
    type Args = FetchArgs;
    type Needs = (Service<Egress>, Agent);

    fn spec(&self) -> ToolSpec {
        let description =
            "Reads a page of the web: its text, its status, and where it was in the end. Only GET.";
        ToolSpec::new("fetch", description).pure().sinks(["/url"]).attempts(2, Duration::from_millis(500))
    }

    async fn run(
        &self,
        (egress, agent): (Service<Egress>, Agent),
        _: Call,
        args: FetchArgs,
    ) -> Result<ToolRunOutcome, Error> {
        let mut headers = HeaderMap::new();
        let wanted = "text/html, application/json, text/*;q=0.9";
        headers.insert(ACCEPT, HeaderValue::from_static(wanted));
        let fetched = egress.for_agent(&agent)?.get(&args.url, headers).await?;
        let text = text(&fetched)?;
        let GetResponse { url, status, content_type, cut, .. } = fetched;
        done(json!({"url": url, "status": status, "content_type": content_type, "text": text, "cut": cut}))
    }
}

fn text(fetched: &GetResponse) -> Result<String, Error> {
    let GetResponse { content_type, body, .. } = fetched;
    let content_type = content_type.as_deref().unwrap_or("text/plain").to_ascii_lowercase();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let said = || String::from_utf8_lossy(body);
    match essence.split_once('/') {
        Some(("text", "html") | ("application", "xhtml+xml")) => Ok(html::text(&said())),
        Some(("text", _)) => Ok(said().into_owned()),
        Some(("application", sub)) if is_text(sub) => Ok(said().into_owned()),
        _ => Err(failed(format!("expected text, but this is `{}` of {} bytes", shown(essence), body.len()))),
    }
}

fn is_text(sub: &str) -> bool {
    matches!(sub, "json" | "xml" | "javascript" | "yaml" | "toml" | "x-ndjson")
        || sub.ends_with("+json")
        || sub.ends_with("+xml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn show(content_type: Option<&str>, body: &str) -> String {
        let fetched = GetResponse {
            url: String::new(),
            status: 200,
            content_type: content_type.map(str::to_owned),
            body: body.as_bytes().to_vec(),
            cut: false,
        };
        match text(&fetched) {
            Ok(text) => format!("{text:?}\n"),
            Err(error) => format!("{error}\n"),
        }
    }

    #[test]
    fn fetch_returns_text_and_refuses_binary() {
        let log = [
            show(Some("text/html; charset=utf-8"), "<p>Hello <b>you</b></p>"),
            show(Some("TEXT/Plain"), "<p>"),
            show(None, "plain"),
            show(Some("application/json"), "{\"a\": 1}"),
            show(Some("application/ld+json"), "{}"),
            show(Some("image/svg+xml"), "<svg/>"),
            show(Some("image/png"), "\u{89}PNG"),
            show(Some("nonsense"), "a"),
        ];
        expect![[r#"
            "Hello you"
            "<p>"
            "plain"
            "{\"a\": 1}"
            "{}"
            tool.failed: expected text, but this is `image/svg+xml` of 6 bytes
            tool.failed: expected text, but this is `image/png` of 5 bytes
            tool.failed: expected text, but this is `nonsense` of 1 bytes
        "#]]
        .assert_eq(&log.concat());
    }
}

//! Recognises requests that repeat an earlier one without an idempotency key ([`outlast_http::open_requests`]).
use super::compat_request::CompatApi;
use axum::http::{HeaderMap, HeaderName};
use outlast_http::HttpState;
use outlast_http::open_requests::{ArrivedRequest, RegisteredRequest};
use outlast_http::request_auth::single_header;
use outlast_runtime::Runtime;
use outlast_vocab::{Error, Hash, Kind, canonical_json};
use serde_json::{Map, Value};

/// Says how a request and its repeats are treated: `never` in a request, `new` or `joined` in an answer.
pub(crate) const OUTLAST_REPEAT: HeaderName = HeaderName::from_static("outlast-repeat");

/// How often an official client has repeated a request, starting at 0.
const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// Members of a body that a client changes when it repeats a request, or that change no effect of the turn. Claude Code
/// halves `max_tokens` after an error in a stream.
const VOLATILE_MEMBERS: [&str; 16] = [
    "stream",
    "stream_options",
    "background",
    "client_metadata",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "service_tier",
    "thinking",
    "context_management",
    "reasoning",
    "model",
];

/// The beginning of a system block in which Claude Code names its version and the number of its attempts.
const BILLING_BLOCK: &str = "x-anthropic-billing-header";

/// What a request without an idempotency key says about repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepeatParams {
    /// The hash of the parts of the body that a repeated request shares.
    body: Hash,
    is_retry: bool,
    may_join: bool,
}

impl RepeatParams {
    /// Reads the headers and the body of a request.
    pub(crate) fn of(headers: &HeaderMap, body: &Value) -> Result<Self, Error> {
        let may_join = match single_header(headers, &OUTLAST_REPEAT)? {
            None => true,
            Some("never") => false,
            Some(_) => {
                let detail = "expected `never` in the header `outlast-repeat`, got something else";
                return Err(Error::new(Kind::InputInvalid, detail));
            }
        };
        let retries = headers.get(RETRY_COUNT).and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
        // A count of 0 proves nothing: some clients repeat requests on their own and always send 0.
        let is_retry = retries.is_some_and(|count| count > 0);
        Ok(Self { body: canonical_json::fingerprint(&lasting_body(body)), is_retry, may_join })
    }

    /// Registers the request. Returns `None` if the server does not recognise repeats.
    pub(crate) async fn register(
        self,
        api: CompatApi,
        agent: Option<&str>,
        shared: &HttpState,
        runtime: &Runtime,
    ) -> Result<Option<RegisteredRequest>, Error> {
        if shared.open_requests.window().is_none() {
            return Ok(None);
        }
        let access = runtime.access();
        let caller = canonical_json::fingerprint(&(access.visibility.home(), access.by.to_string()));
        let parts = ("outlast request v1", api.key_prefix(), caller, agent, self.body);
        let request = ArrivedRequest {
            caller,
            fingerprint: canonical_json::fingerprint(&parts),
            is_retry: self.is_retry,
            may_join: self.may_join,
        };
        shared.open_requests.register(request, runtime).await.map(Some)
    }
}

/// Returns a body without what changes when its request is repeated.
fn lasting_body(body: &Value) -> Value {
    let mut body = without_cache_control(body);
    let Value::Object(members) = &mut body else { return body };
    members.retain(|name, _| !VOLATILE_MEMBERS.contains(&name.as_str()));
    if let Some(Value::Object(config)) = members.get_mut("output_config") {
        config.remove("effort");
    }
    if let Some(Value::Array(blocks)) = members.get_mut("system") {
        blocks.retain(|block| !block["text"].as_str().is_some_and(|text| text.starts_with(BILLING_BLOCK)));
    }
    body
}

/// Returns a value without the marks of where a prompt is cached. Claude Code moves them.
fn without_cache_control(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| *name != "cache_control");
            let kept = kept.map(|(name, value)| (name.clone(), without_cache_control(value)));
            Value::Object(kept.collect::<Map<String, Value>>())
        }
        Value::Array(values) => values.iter().map(without_cache_control).collect(),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body() -> Value {
        json!({
            "model": "assistant", "max_tokens": 128_000, "stream": true, "thinking": { "type": "adaptive" },
            "system": [
                { "type": "text", "text": "x-anthropic-billing-header: cc_version=2.1" },
                { "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } },
            ],
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "hello" }] }],
            "output_config": { "effort": "high", "format": null },
            "metadata": { "user_id": "ann" },
        })
    }

    fn hash(change: impl FnOnce(&mut Value)) -> Hash {
        let mut body = body();
        change(&mut body);
        RepeatParams::of(&HeaderMap::new(), &body).unwrap().body
    }

    #[test]
    fn repeat_may_change_delivery_and_generation() {
        let first = hash(|_| ());
        for change in [
            (|body| body["stream"] = json!(false)) as fn(&mut Value),
            |body| body["max_tokens"] = json!(64_000),
            |body| body["thinking"] = json!({ "type": "disabled" }),
            |body| body["output_config"]["effort"] = json!("low"),
            |body| body["system"][0]["text"] = json!("x-anthropic-billing-header: cc_version=2.2"),
            |body| body["messages"][0]["content"][0]["cache_control"] = json!({ "type": "ephemeral" }),
        ] {
            assert_eq!(hash(change), first);
        }
    }

    #[test]
    fn another_text_prompt_tool_or_user_is_another_request() {
        let first = hash(|_| ());
        for change in [
            (|body| body["messages"][0]["content"][0]["text"] = json!("Hello")) as fn(&mut Value),
            |body| body["system"][1]["text"] = json!("Be kind."),
            |body| body["tools"] = json!([{ "name": "look" }]),
            |body| body["output_config"]["format"] = json!({ "type": "json_schema", "schema": {} }),
            |body| body["metadata"]["user_id"] = json!("bob"),
        ] {
            assert_ne!(hash(change), first);
        }
    }

    #[test]
    fn retry_count_above_zero_is_a_hint() {
        let params = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())]);
            RepeatParams::of(&headers, &body())
        };
        for (count, is_retry) in [("0", false), ("1", true), ("7", true), ("-1", false), ("many", false)] {
            assert_eq!(params("x-stainless-retry-count", count).unwrap().is_retry, is_retry, "{count}");
        }
        assert!(!params("outlast-repeat", "never").unwrap().may_join);
        assert_eq!(params("outlast-repeat", "always").unwrap_err().kind(), Kind::InputInvalid);
    }
}

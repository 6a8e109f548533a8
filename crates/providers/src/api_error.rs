//! Interprets an API's error response: its kind, its message, and when to retry.
use crate::Api;
use crate::retry_after::ServerTime;
use crate::window_discovery::{LearnedWindows, window_in_error};
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// How much of a provider's message is passed on, in bytes.
const MESSAGE_BYTES: usize = 2_000;

/// The provider, for errors and signatures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProviderLabel<'a> {
    /// The name of the provider.
    pub(crate) name: &'a str,
    /// The API that it uses.
    pub(crate) api: Api,
    /// A description of its key: `the key in OPENAI_API_KEY`.
    pub(crate) key: &'a str,
    /// The provider's own name of the model; empty if no model is called.
    pub(crate) model: &'a str,
    /// Where a window that an error names is stored.
    pub(crate) windows: Option<&'a LearnedWindows>,
}

/// An error from an API: the `error` object of OpenAI, Anthropic or Google, or plain text.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ApiErrorBody {
    #[serde(default, deserialize_with = "text")]
    message: String,
    #[serde(default, rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default, deserialize_with = "text")]
    code: String,
    #[serde(default, deserialize_with = "text")]
    status: String,
    #[serde(default)]
    details: Value,
    /// The context window in the errors of llama.cpp.
    #[serde(default)]
    n_ctx: Value,
}

/// Reads any JSON value as text.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    })
}

impl ApiErrorBody {
    /// Parses the body of an error response. A body in an unknown format becomes the message.
    pub(crate) fn of(body: &[u8]) -> Self {
        let plain = || Self { message: String::from_utf8_lossy(body).trim().to_owned(), ..Self::default() };
        let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return plain() };
        if let Value::Array(items) = &mut value
            && let Some(first) = items.first_mut()
        {
            value = first.take();
        }
        match value.get_mut("error").map(Value::take) {
            Some(Value::String(message)) => Self { message, ..Self::default() },
            Some(error @ Value::Object(_)) => serde_json::from_value(error).unwrap_or_else(|_| plain()),
            // vLLM and others put the error at the top level.
            _ if value["message"].is_string() => serde_json::from_value(value).unwrap_or_else(|_| plain()),
            _ => plain(),
        }
    }

    /// Creates an error with only a message and a code.
    pub(crate) fn with_code(message: String, code: String) -> Self {
        Self { message, code, ..Self::default() }
    }

    fn searched_text(&self) -> &str {
        let words = self.message.trim();
        let words = if words.is_empty() { self.kind.as_str() } else { words };
        let words = if words.is_empty() { "it does not say why" } else { words };
        let end =
            words.char_indices().map(|(at, _)| at).take_while(|at| *at <= MESSAGE_BYTES).last().unwrap_or(0);
        if words.len() <= MESSAGE_BYTES { words } else { &words[..end] }
    }

    fn mentions_all(&self, parts: &[&str]) -> bool {
        let words = self.message.to_ascii_lowercase();
        parts.iter().any(|part| words.contains(part))
    }

    fn has_code(&self, names: &[&str]) -> bool {
        [&self.kind, &self.code, &self.status].iter().any(|name| names.contains(&name.as_str()))
    }

    /// Returns whether the conversation exceeds the model's context window, in the wording of any known API.
    fn is_too_long(&self) -> bool {
        self.has_code(&["context_length_exceeded", "exceed_context_size_error", "request_too_large"])
            || self.mentions_all(&[
                "prompt is too long",
                "maximum context length",
                "exceed context limit",
                "exceeds the context window",
                "exceeds the available context size",
                "input token count",
                "context_length_exceeded",
                "exceed context window",
                "exceeds context length",
                "exceeds the context length",
                "exceeds maximum context length",
                "context size has been exceeded",
                "context length of only",
                "greater than the context length",
                ">= n_ctx",
                "`max_new_tokens` must be <=",
            ])
    }

    /// Returns whether the account is out of credit. Gemini also reports temporary rate limits as an exceeded quota.
    fn is_out_of_credit(&self) -> bool {
        if self.has_code(&["RESOURCE_EXHAUSTED"]) {
            return false;
        }
        self.has_code(&["insufficient_quota", "billing_error", "billing_hard_limit_reached"])
            || self.mentions_all(&[
                "credit balance is too low",
                "exceeded your current quota, please check your plan",
            ])
    }

    fn is_unauthorized(&self) -> bool {
        self.has_code(&[
            "invalid_api_key",
            "authentication_error",
            "permission_error",
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
        ]) || self.mentions_all(&["api key not valid", "incorrect api key"])
    }

    fn is_unknown_model(&self) -> bool {
        self.has_code(&["model_not_found"])
    }

    /// Returns whether the error is temporary: a server error or an overload.
    fn is_transient(&self) -> bool {
        self.has_code(&[
            "overloaded_error",
            "rate_limit_error",
            "api_error",
            "timeout_error",
            "server_error",
            "rate_limit_exceeded",
            "RESOURCE_EXHAUSTED",
            "UNAVAILABLE",
            "INTERNAL",
            "DEADLINE_EXCEEDED",
            "internal_server_error",
            "429",
            "500",
            "502",
            "503",
            "504",
            "529",
        ])
    }
}

impl ProviderLabel<'_> {
    /// Converts an error response to an error.
    pub(crate) fn response_error(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        error: &ApiErrorBody,
    ) -> Error {
        let clock = ServerTime::of(headers);
        let failure = self.classify(Some(status), error);
        match clock.retry_delay(headers).or_else(|| ServerTime::retry_delay_in(&error.details)) {
            Some(pause) if failure.kind() == Kind::ModelUnavailable => failure.retry_after(pause),
            _ => failure,
        }
    }

    /// Converts an error event of a stream that has begun.
    pub(crate) fn stream_error(&self, error: &ApiErrorBody) -> Error {
        self.classify(None, error)
    }

    /// Converts an event that this API does not define: an error in another API's format from a compatible server, or
    /// garbage.
    pub(crate) fn unexpected_event(&self, data: &str, cause: &serde_json::Error) -> Error {
        if serde_json::from_str::<Value>(data).is_ok_and(|event| event.get("error").is_some()) {
            return self.stream_error(&ApiErrorBody::of(data.as_bytes()));
        }
        let detail = format!(
            "`{}` broke its own protocol ({cause}) with: {}",
            self.name,
            shown(data.lines().next().unwrap_or_default())
        );
        Error::new(Kind::ModelRejected, detail)
    }

    fn classify(&self, status: Option<StatusCode>, error: &ApiErrorBody) -> Error {
        let Self { name, key, model, .. } = self;
        let words = error.searched_text();
        let at = status.map(|status| format!(" ({})", status.as_u16())).unwrap_or_default();
        let (kind, detail) = if error.is_out_of_credit() || status == Some(StatusCode::PAYMENT_REQUIRED) {
            (
                Kind::ModelNoCredit,
                format!("the account behind {key} has no credit left at `{name}`{at}: {words}"),
            )
        } else if error.is_unauthorized()
            || matches!(status, Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
        {
            (Kind::ModelUnauthorized, format!("`{name}` does not accept {key}{at}: {words}"))
        } else if error.is_too_long() || status == Some(StatusCode::PAYLOAD_TOO_LARGE) {
            if let (Some(windows), Some(tokens)) =
                (self.windows, window_in_error(&error.message, &error.n_ctx))
            {
                windows.learn(model, tokens);
            }
            (Kind::ModelContextExceeded, format!("the conversation is too long for `{name}`{at}: {words}"))
        } else if error.is_unknown_model() || status == Some(StatusCode::NOT_FOUND) {
            (Kind::ModelUnknown, format!("`{name}` has no model `{model}`{at}: {words}"))
        } else if is_transient_status(status) || (status.is_none() && error.is_transient()) {
            (Kind::ModelUnavailable, format!("`{name}` cannot answer now{at}: {words}"))
        } else {
            (Kind::ModelRejected, format!("`{name}` refuses the request{at}: {words}"))
        };
        Error::new(kind, detail)
    }
}

/// Returns whether the same request may succeed later.
fn is_transient_status(status: Option<StatusCode>) -> bool {
    status.is_some_and(|status| status.is_server_error() || matches!(status.as_u16(), 408 | 409 | 425 | 429))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(api: Api, answers: &[(u16, &str)], want: &Expect) {
        let provider =
            ProviderLabel { name: "it", api, key: "the key in IT_API_KEY", model: "big", windows: None };
        let said = answers.iter().map(|(status, body)| {
            let status = StatusCode::from_u16(*status).unwrap();
            let error =
                provider.response_error(status, &HeaderMap::new(), &ApiErrorBody::of(body.as_bytes()));
            let pause = error.pause().map(|pause| format!(" after {pause:?}")).unwrap_or_default();
            format!("{error}{pause}\n")
        });
        want.assert_eq(&said.collect::<String>());
    }

    #[test]
    fn openai_errors_have_their_class() {
        check(
            Api::OpenAi,
            &[
                (
                    401,
                    r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
                ),
                (
                    404,
                    r#"{"error":{"message":"The model `big` does not exist","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
                ),
                (
                    400,
                    r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                ),
                (
                    400,
                    r#"{"error":{"message":"Invalid schema","type":"invalid_request_error","param":"tools","code":null}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"Rate limit reached","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
                ),
                (500, "<html>oops</html>"),
                (
                    402,
                    r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
                ),
                (
                    400,
                    r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
                ),
                (400, r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#),
                (400, r#"{"error":"model requires more system memory"}"#),
            ],
            &expect![[r"
                model.unauthorized: `it` does not accept the key in IT_API_KEY (401): Incorrect API key provided
                model.unknown: `it` has no model `big` (404): The model `big` does not exist
                model.context_exceeded: the conversation is too long for `it` (400): This model's maximum context length is 8192 tokens.
                model.rejected: `it` refuses the request (400): Invalid schema
                model.no_credit: the account behind the key in IT_API_KEY has no credit left at `it` (429): You exceeded your current quota
                model.unavailable: `it` cannot answer now (429): Rate limit reached
                model.unavailable: `it` cannot answer now (500): <html>oops</html>
                model.no_credit: the account behind the key in IT_API_KEY has no credit left at `it` (402): Insufficient Balance
                model.context_exceeded: the conversation is too long for `it` (400): the request exceeds the available context size
                model.rejected: `it` refuses the request (400): bad
                model.rejected: `it` refuses the request (400): model requires more system memory
            "]],
        );
    }

    #[test]
    fn anthropic_errors_have_their_class() {
        check(
            Api::Anthropic,
            &[
                (
                    401,
                    r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                ),
                (
                    400,
                    r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
                ),
                (
                    413,
                    r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                ),
                (
                    400,
                    r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}"#,
                ),
                (404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: big"}}"#),
                (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
            ],
            &expect![[r"
                model.unauthorized: `it` does not accept the key in IT_API_KEY (401): invalid x-api-key
                model.context_exceeded: the conversation is too long for `it` (400): prompt is too long: 208310 tokens > 200000 maximum
                model.context_exceeded: the conversation is too long for `it` (413): Request exceeds the maximum size
                model.no_credit: the account behind the key in IT_API_KEY has no credit left at `it` (400): Your credit balance is too low to access the API
                model.unknown: `it` has no model `big` (404): model: big
                model.unavailable: `it` cannot answer now (529): Overloaded
            "]],
        );
    }

    #[test]
    fn gemini_errors_have_class_and_retry_delay() {
        check(
            Api::Gemini,
            &[
                (
                    400,
                    r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
                ),
                (
                    400,
                    r#"[{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
                ),
                (404, r#"{"error":{"code":404,"message":"models/big is not found","status":"NOT_FOUND"}}"#),
                (
                    429,
                    r#"{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"23.5s"}]}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"41s"}]}}"#,
                ),
                (
                    503,
                    r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#,
                ),
            ],
            &expect![[r"
                model.unauthorized: `it` does not accept the key in IT_API_KEY (400): API key not valid. Please pass a valid API key.
                model.context_exceeded: the conversation is too long for `it` (400): The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).
                model.unknown: `it` has no model `big` (404): models/big is not found
                model.unavailable: `it` cannot answer now (429): Quota exceeded after 23.5s
                model.unavailable: `it` cannot answer now (429): You exceeded your current quota, please check your plan and billing details. after 41s
                model.unavailable: `it` cannot answer now (503): The model is overloaded.
            "]],
        );
    }
}

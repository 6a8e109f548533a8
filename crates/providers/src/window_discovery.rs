//! Learns the context windows of models: from the errors of providers, and from servers that report them.
//!
//! What is learned lasts as long as the process. It never enlarges a window that the table or the user sets.
use crate::http::{self, Endpoint, LIST_BYTES};
use futures_util::future::join;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The timeout of a request for a window.
const PATIENCE: Duration = Duration::from_secs(2);

/// The smallest window in tokens that is believed.
const WINDOW_TOKENS_MIN: u64 = 64;

/// Words before the window in an error, in lower case.
const BEFORE_WINDOW: &[&str] = &[
    // OpenAI, vLLM, llama-cpp-python
    "maximum context length is",
    // llama.cpp
    "available context size (",
    // LM Studio
    "context length of only",
    "n_keep",
    // llama-cpp-python
    "exceed context window of",
    // Anthropic
    "exceed context limit:",
    "prompt is too long:",
    // Gemini
    "maximum number of tokens allowed (",
    // Ollama
    "exceeds context length",
    // Text Generation Inference
    "`max_new_tokens` must be <=",
];

/// The windows that a provider has learned, by model.
#[derive(Debug, Default)]
pub(crate) struct LearnedWindows(Mutex<BTreeMap<String, LearnedWindow>>);

#[derive(Debug, Default)]
struct LearnedWindow {
    tokens: Option<u32>,
    /// Whether the server was asked.
    was_asked: bool,
}

impl LearnedWindows {
    /// Returns the window of a model, if it was learned.
    pub(crate) fn get(&self, model: &str) -> Option<u32> {
        self.lock().get(model)?.tokens
    }

    /// Stores the window of a model. The latest one applies, because a server may restart with another one.
    pub(crate) fn learn(&self, model: &str, tokens: u32) {
        let mut windows = self.lock();
        let window = windows.entry(model.to_owned()).or_default();
        if window.tokens != Some(tokens) {
            tracing::info!(model, tokens, "learned the context window");
            window.tokens = Some(tokens);
        }
    }

    /// Returns whether the server has to be asked for the window of a model, the first time.
    fn begin_asking(&self, model: &str) -> bool {
        let mut windows = self.lock();
        let window = windows.entry(model.to_owned()).or_default();
        !std::mem::replace(&mut window.was_asked, true)
    }

    /// Asks a server once for the window of a model.
    pub(crate) async fn ask(&self, endpoint: &Endpoint, model: &str) {
        if self.begin_asking(model)
            && let Some(tokens) = reported_window(endpoint, model).await
        {
            self.learn(model, tokens);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, LearnedWindow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the window that a server reports: in its list of models, or as the properties of llama.cpp.
async fn reported_window(endpoint: &Endpoint, model: &str) -> Option<u32> {
    let (models, properties) =
        join(json(endpoint, endpoint.base(), "/models"), json(endpoint, endpoint.root(), "/props")).await;
    let listed = models.and_then(|models| window_in_models(&models, model));
    listed.or_else(|| window_in_properties(&properties?))
}

async fn json(endpoint: &Endpoint, base: &str, path: &str) -> Option<Value> {
    let response = endpoint.get_from(base, path, PATIENCE).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    serde_json::from_slice(&http::read_start(response, LIST_BYTES).await).ok()
}

/// Returns the window of a model in a list of models: as vLLM, llama.cpp, LM Studio and others report it.
fn window_in_models(list: &Value, model: &str) -> Option<u32> {
    let rows = list.get("data").or_else(|| list.get("models"))?.as_array()?;
    let row = rows.iter().find(|row| row["id"] == model)?;
    let fields =
        ["/max_model_len", "/meta/n_ctx", "/loaded_context_length", "/context_length", "/context_window"];
    fields.iter().find_map(|field| tokens(row.pointer(field)?))
}

/// Returns the window of a request in the properties of a llama.cpp server.
fn window_in_properties(properties: &Value) -> Option<u32> {
    let field =
        properties.pointer("/default_generation_settings/n_ctx").or_else(|| properties.get("n_ctx"))?;
    tokens(field)
}

fn tokens(value: &Value) -> Option<u32> {
    value.as_u64().and_then(believed)
}

fn believed(tokens: u64) -> Option<u32> {
    u32::try_from(tokens).ok().filter(|_| tokens >= WINDOW_TOKENS_MIN)
}

/// Returns the window that an error names. `field` is the member `n_ctx` of the error.
pub(crate) fn window_in_error(message: &str, field: &Value) -> Option<u32> {
    tokens(field).or_else(|| window_in_words(&message.to_ascii_lowercase()))
}

fn window_in_words(words: &str) -> Option<u32> {
    let after = BEFORE_WINDOW.iter().find_map(|mark| Some((*mark, words.split_once(mark)?.1)));
    if let Some((mark, rest)) = after {
        // These name the size of the request first: `208310 tokens > 200000 maximum`.
        let rest = match mark {
            "exceed context limit:" | "prompt is too long:" => rest.split_once('>')?.1,
            "n_keep" => rest.split_once("n_ctx")?.1,
            "exceeds context length" => rest.split_once("limit")?.1,
            _ => rest,
        };
        return number_at_start(rest);
    }
    // Mistral: `too large for model with 32768 maximum context length`.
    let (before, _) = words.split_once(" maximum context length")?;
    before.rsplit(' ').next().and_then(number_at_start)
}

/// Returns the number that a text begins with, after at most a few other characters.
fn number_at_start(text: &str) -> Option<u32> {
    let start = text.bytes().take(8).position(|byte| byte.is_ascii_digit())?;
    let digits = text[start..].bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b',');
    let number = digits
        .filter(u8::is_ascii_digit)
        .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    believed(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn known_error_wordings_name_the_window() {
        for (message, window) in [
            ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", 8_192),
            (
                "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
                4_096,
            ),
            ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease it",
                200_000,
            ),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                1_048_576,
            ),
            ("the model is loaded with context length of only 32768 tokens, which is not enough", 32_768),
            ("Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", 7_424),
            ("Requested tokens (2285) exceed context window of 2048", 2_048),
            ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768),
            ("input exceeds context length prompt=2782 limit=2048", 2_048),
            ("`inputs` tokens + `max_new_tokens` must be <= 4,096. Given: 5000", 4_096),
        ] {
            assert_eq!(window_in_error(message, &Value::Null), Some(window), "{message}");
        }
        assert_eq!(window_in_error("it exceeds the available context size", &json!(8192)), Some(8_192));
    }

    #[test]
    fn unknown_wordings_name_no_window() {
        for message in [
            "",
            "Your input exceeds the context window of this model.",
            "maximum context length is unknown, 9000 tokens were requested",
            "prompt is too long: 208310 tokens",
            "exceeds the available context size (3 tokens)",
            "maximum context length is 99999999999999999999999",
        ] {
            assert_eq!(window_in_error(message, &Value::Null), None, "{message}");
        }
    }

    #[test]
    fn server_reports_window_of_requested_model() {
        let list = json!({ "data": [{ "id": "other", "max_model_len": 1024 }, { "id": "qwen", "max_model_len": 4096 }] });
        assert_eq!(window_in_models(&list, "qwen"), Some(4_096));
        assert_eq!(window_in_models(&list, "none"), None);
        let llama = json!({ "data": [{ "id": "qwen", "meta": { "n_ctx": 2048, "n_ctx_train": 131_072 } }] });
        assert_eq!(window_in_models(&llama, "qwen"), Some(2_048));
        let trained = json!({ "data": [{ "id": "qwen", "meta": { "n_ctx_train": 131_072 } }] });
        assert_eq!(window_in_models(&trained, "qwen"), None);
        let properties = json!({ "default_generation_settings": { "n_ctx": 4096 }, "total_slots": 1 });
        assert_eq!(window_in_properties(&properties), Some(4_096));
    }
}

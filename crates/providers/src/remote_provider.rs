//! One provider over HTTP.
use crate::api_error::{ApiErrorBody, ProviderLabel};
use crate::api_parts::tool_names::ApiToolNames;
use crate::api_parts::{ApiRequest, RenderedRequest};
use crate::http::{self, Endpoint, LIST_BYTES};
use crate::model_table::{self, ModelOverrides, ModelTraits};
use crate::prompt_prefix::{PrefixComparison, PromptPrefixes};
use crate::reply_stream::ReplyStream;
use crate::window_discovery::LearnedWindows;
use crate::{Api, Secret, chat, gemini, messages, responses};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use outlast_ports::BoxFuture;
use outlast_ports::model::{
    EventStream, ModelCapabilities, ModelProvider, ModelRequest, ProviderRate, TOKEN_BYTES,
};
use outlast_vocab::message::{ModelName, shown};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind, SessionId};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// A model provider over HTTP. It serves the names that start with its own name and a slash.
#[derive(Debug)]
pub struct RemoteProvider {
    name: String,
    api: Api,
    endpoint: Endpoint,
    key_name: String,
    model_overrides: BTreeMap<String, ModelOverrides>,
    supports_prefill: Option<bool>,
    rate_limits: KeyRateLimits,
    prefixes: PromptPrefixes,
    windows: LearnedWindows,
}

/// The settings of a remote provider.
pub(crate) struct RemoteSettings {
    pub(crate) name: String,
    pub(crate) api: Api,
    pub(crate) base_url: String,
    pub(crate) key: Option<Secret>,
    pub(crate) key_name: String,
    pub(crate) model_overrides: BTreeMap<String, ModelOverrides>,
    pub(crate) supports_prefill: Option<bool>,
    pub(crate) rate_limits: KeyRateLimits,
}

/// The rate limits of the key, if configured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyRateLimits {
    pub(crate) requests_per_minute: Option<NonZeroU32>,
    pub(crate) tokens_per_minute: Option<NonZeroU64>,
}

impl RemoteProvider {
    /// Creates a provider with an address and a key.
    pub fn new(
        name: impl Into<String>,
        api: Api,
        base_url: impl Into<String>,
        key: Option<Secret>,
    ) -> Result<Self, Error> {
        let name = name.into();
        let key_name = "its key".to_owned();
        let base_url = base_url.into();
        let settings = RemoteSettings {
            name,
            api,
            base_url,
            key,
            key_name,
            model_overrides: BTreeMap::new(),
            supports_prefill: None,
            rate_limits: KeyRateLimits::default(),
        };
        Self::with(settings).map_err(|detail| Error::new(Kind::ConfigInvalid, detail))
    }

    /// Creates a provider with these settings.
    pub(crate) fn with(settings: RemoteSettings) -> Result<Self, String> {
        let RemoteSettings {
            name,
            api,
            base_url,
            key,
            key_name,
            model_overrides: rows,
            supports_prefill: goes_on,
            rate_limits: pace,
        } = settings;
        check_name(&name)?;
        let endpoint = Endpoint::new(api, &base_url, key)?;
        Ok(Self {
            name,
            api,
            endpoint,
            key_name,
            model_overrides: rows,
            supports_prefill: goes_on,
            rate_limits: pace,
            prefixes: PromptPrefixes::default(),
            windows: LearnedWindows::default(),
        })
    }

    /// Returns the name of the provider.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the API that it uses.
    pub fn api(&self) -> Api {
        self.api
    }

    /// Returns its address.
    pub fn base_url(&self) -> &str {
        self.endpoint.base()
    }

    /// Requests the list of models, with a timeout.
    pub async fn models(&self, patience: Duration) -> Result<Vec<String>, Error> {
        let listed = async {
            let response = self.endpoint.get(self.api.models_path(), patience).await?;
            if !response.status().is_success() {
                return Err(self.error_of_response(self.label(self.api, ""), response).await);
            }
            let body = http::read_start(response, LIST_BYTES).await;
            parse_model_names(&body).ok_or_else(|| {
                let detail = format!(
                    "expected a list of models from {}, got: {}",
                    self.base_url(),
                    body_excerpt(&body)
                );
                Error::new(Kind::ModelRejected, detail)
            })
        };
        listed.await.map_err(|error| self.hide_key(&error))
    }

    /// Returns the provider's own name of a model.
    fn local_model_name<'m>(&self, model: &'m ModelName) -> Option<&'m str> {
        let own = model.as_str().strip_prefix(&self.name)?.strip_prefix('/')?;
        // In one of the APIs, the name is part of the URL.
        (!own.is_empty() && !own.contains(['?', '#', '%']) && !own.contains("..")).then_some(own)
    }

    fn traits(&self, model: &str) -> ModelTraits {
        let learned = self.windows.get(model);
        let mut traits = model_table::traits(self.api, model, self.model_overrides.get(model), learned);
        if self.model_overrides.get(model).is_none_or(|row| row.goes_on.is_none()) {
            traits.supports_prefill = self.supports_prefill.unwrap_or(traits.supports_prefill);
        }
        traits
    }

    /// Returns the API to use for a model. At OpenAI, thinking models keep their reasoning across tool calls only in
    /// the Responses API. Compatible servers support Chat Completions.
    fn api_of(&self, traits: ModelTraits) -> Api {
        let is_both = self.api == Api::OpenAi && self.is_vendor_api();
        if is_both && traits.thinks { Api::OpenAiResponses } else { self.api }
    }

    fn is_vendor_api(&self) -> bool {
        self.api.home() == Some(self.base_url())
    }

    async fn open<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> Result<impl Stream<Item = Result<ModelEvent, Error>> + 'a, Error> {
        let Some(model) = self.local_model_name(&request.call.model) else {
            let detail = format!("`{}` does not serve the model `{}`", self.name, request.call.model);
            return Err(Error::new(Kind::ModelUnknown, detail));
        };
        let traits = self.traits(model);
        let provider = self.label(self.api_of(traits), model);
        let names = ApiToolNames::of(request.tools);
        let ask = ApiRequest {
            request,
            provider,
            model,
            traits,
            is_vendor_api: self.is_vendor_api(),
            names: &names,
        };
        let RenderedRequest { body, prefix, decode_settings: answering } = match provider.api {
            Api::OpenAi | Api::OpenAiCompatible => chat::render(&ask),
            Api::OpenAiResponses => responses::render(&ask),
            Api::Anthropic => messages::render(&ask),
            Api::Gemini => gemini::render(&ask),
        };
        let watch = PrefixWatch {
            session: request.session,
            beginning: self.prefixes.compare_and_remember(request.session, prefix),
        };
        let response = self.endpoint.post(&provider.api.reply_path(model), body).await?;
        if !response.status().is_success() {
            return Err(self.error_of_response(provider, response).await);
        }
        if let Some(other) = wrong_media_type(&response) {
            let body = http::error_body(response).await;
            let detail = format!(
                "expected an event stream from {}, got {other}: {}",
                self.base_url(),
                body_excerpt(&body)
            );
            return Err(Error::new(Kind::ModelRejected, detail));
        }
        let reply = ReplyStream::of(http::body(response), provider, names, answering);
        let changed = stream::iter(watch.changed().map(|at| Ok(ModelEvent::PromptChanged(at))));
        Ok(changed.chain(reply.inspect_ok(move |piece| watch.report(&request.call.model, piece))))
    }

    fn label<'a>(&'a self, api: Api, model: &'a str) -> ProviderLabel<'a> {
        ProviderLabel { name: &self.name, api, key: &self.key_name, model, windows: Some(&self.windows) }
    }

    async fn error_of_response(&self, provider: ProviderLabel<'_>, response: Response) -> Error {
        let (status, headers) = (response.status(), response.headers().clone());
        let error = ApiErrorBody::of(&http::error_body(response).await);
        provider.response_error(status, &headers, &error)
    }

    /// Redacts the key in an error, in case the server echoed it.
    fn hide_key(&self, error: &Error) -> Error {
        let hidden = Error::new(error.kind(), self.endpoint.hide_key(error.detail()));
        match error.pause() {
            Some(pause) => hidden.retry_after(pause),
            None => hidden,
        }
    }
}

impl ModelProvider for RemoteProvider {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        let ModelTraits { window_tokens, prices, supports_prefill: can_continue, reply_tokens, .. } =
            self.traits(self.local_model_name(model)?);
        let window_bytes = usize::try_from(window_tokens).unwrap_or(usize::MAX).saturating_mul(TOKEN_BYTES);
        Some(ModelCapabilities { window_bytes, can_continue, prices, reply_tokens })
    }

    fn learn_window<'a>(&'a self, model: &'a ModelName) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(model) = self.local_model_name(model) else { return };
            let configured = self.model_overrides.get(model).and_then(|row| row.window_tokens);
            if self.api == Api::OpenAiCompatible && configured.is_none() {
                self.windows.ask(&self.endpoint, model).await;
            }
        })
    }

    fn rate(&self, _: &ModelName) -> ProviderRate {
        ProviderRate {
            // Two providers may share a key, and a provider's key may change.
            key: format!("{} at {}", self.key_name, self.base_url()),
            requests_per_minute: self.rate_limits.requests_per_minute.map(NonZeroU32::get),
            tokens_per_minute: self.rate_limits.tokens_per_minute.map(NonZeroU64::get),
        }
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let opened = stream::once(self.open(request)).try_flatten();
        Box::pin(opened.map(|piece| piece.map_err(|error| self.hide_key(&error))))
    }
}

/// Watches a prompt. The share that came from the cache is known when the reply ends.
struct PrefixWatch {
    session: SessionId,
    beginning: PrefixComparison,
}

impl PrefixWatch {
    fn report(&self, model: &ModelName, piece: &ModelEvent) {
        let ModelEvent::Usage(usage) = piece else { return };
        let session = self.session;
        tracing::debug!(%session, %model, usage.cache_read, usage.cache_write, usage.input, "prompt cache");
        if let Some(changed) = self.changed() {
            tracing::warn!(
                %session, %model, usage.cache_read, changed,
                "the start of the prompt has changed, so the provider's cache covers only the part before the change"
            );
        }
    }

    /// Returns the first part that differs from the previous prompt.
    fn changed(&self) -> Option<String> {
        match self.beginning {
            PrefixComparison::Diverged(place) => Some(place.to_string()),
            PrefixComparison::First | PrefixComparison::Extended => None,
        }
    }
}

/// Checks a provider's name, which is the prefix of its model names and appears in signatures.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) || name == "rehearsal" {
        return Err(format!(
            "expected a provider's name of 1 to 32 letters, digits, `-` and `_` that is not `rehearsal`, got `{}`",
            shown(name)
        ));
    }
    Ok(())
}

/// Returns the media type of a response that is not an event stream.
fn wrong_media_type(response: &Response) -> Option<String> {
    let media_type = response.headers().get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
    let is_other =
        ["application/json", "text/html", "text/plain"].iter().any(|other| media_type.starts_with(other));
    is_other.then_some(media_type)
}

fn parse_model_names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let rows = list.get("data").or_else(|| list.get("models"))?.as_array()?;
    let name = |row: &Value| {
        let name = row["id"].as_str().or_else(|| row["name"].as_str())?;
        Some(name.strip_prefix("models/").unwrap_or(name).to_owned())
    };
    let mut names: Vec<String> = rows.iter().filter_map(name).collect();
    names.sort_unstable();
    Some(names)
}

fn body_excerpt(body: &[u8]) -> String {
    shown(String::from_utf8_lossy(body).trim()).into_owned()
}

//! The configured providers by name, and the reasons why others are not configured.
use crate::config::{self, ProviderEntry};
use crate::{Api, RemoteProvider};
use futures_util::future::join_all;
use futures_util::stream;
use outlast_ports::BoxFuture;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest, ProviderRate};
use outlast_vocab::message::ModelName;
use outlast_vocab::{Error, Kind};
use std::path::Path;
use std::time::Duration;

/// Providers over HTTP from the environment and a file.
///
/// # Example
///
/// ```
/// # mod outlast {
/// #     pub use {outlast_ports::model, outlast_providers as providers, outlast_vocab::Error};
/// # }
/// use outlast::model::ModelProvider;
/// use outlast::providers::Providers;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("outlast.toml");
/// let file = r#"
///     [providers.local]
///     kind = "openai-compatible"
///     base_url = "http://127.0.0.1:11434/v1"
/// "#;
/// std::fs::write(&path, file)?;
///
/// let providers = Providers::from_file(&path)?; // for `Builder::provider`, with those of the environment
/// assert!(providers.info(&"local/qwen3:8b".parse()?).is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Providers {
    remotes: Vec<RemoteProvider>,
    missing: Vec<IncompleteProvider>,
}

/// A provider whose configuration is incomplete.
#[derive(Debug)]
pub(crate) struct IncompleteProvider {
    pub(crate) name: String,
    pub(crate) api: Api,
    /// How to fix it.
    pub(crate) remedy: String,
}

impl IncompleteProvider {
    fn error(&self) -> Error {
        Error::new(Kind::ModelUnauthorized, format!("`{}` is not configured: {}", self.name, self.remedy))
    }
}

/// The status of a provider.
#[derive(Debug)]
pub struct ProviderStatus {
    /// The name of the provider.
    pub name: String,
    /// The API that it uses.
    pub api: Api,
    /// The address; `None` if it is not configured.
    pub base_url: Option<String>,
    /// The models it lists, or the error.
    pub models: Result<Vec<String>, Error>,
}

impl Providers {
    /// Reads the providers from the environment: `OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, `GEMINI_API_KEY` and
    /// `LOCAL_BASE_URL`. For each, the variables of the address and the key have the same prefix.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::of(config::environment(&|name| std::env::var(name).ok())?))
    }

    /// Reads the providers from the environment and a file. For the same name, the file wins.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        let mut configured = config::environment(&variable)?;
        for provider in config::file(path, &variable)? {
            configured.retain(|known| known.name() != provider.name());
            configured.push(provider);
        }
        Ok(Self::of(configured))
    }

    fn of(configured: Vec<ProviderEntry>) -> Self {
        let mut providers = Self::default();
        for provider in configured {
            match provider {
                ProviderEntry::Ready(remote) => providers.remotes.push(*remote),
                ProviderEntry::Missing(missing) => providers.missing.push(missing),
            }
        }
        providers
    }

    /// Adds a provider.
    #[must_use]
    pub fn with(mut self, remote: RemoteProvider) -> Self {
        self.missing.retain(|missing| missing.name != remote.name());
        self.remotes.push(remote);
        self
    }

    /// Requests the model lists of all providers concurrently, each with this timeout.
    pub async fn check(&self, patience: Duration) -> Vec<ProviderStatus> {
        let asked = self.remotes.iter().map(async |remote| ProviderStatus {
            name: remote.name().to_owned(),
            api: remote.api(),
            base_url: Some(remote.base_url().to_owned()),
            models: remote.models(patience).await,
        });
        let mut statuses = join_all(asked).await;
        statuses.extend(self.missing.iter().map(|missing| ProviderStatus {
            name: missing.name.clone(),
            api: missing.api,
            base_url: None,
            models: Err(missing.error()),
        }));
        statuses
    }

    fn remote_for(&self, model: &ModelName) -> Option<&RemoteProvider> {
        let (provider, _) = model.as_str().split_once('/')?;
        self.remotes.iter().find(|remote| remote.name() == provider)
    }
}

impl ModelProvider for Providers {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        self.remote_for(model)?.info(model)
    }

    fn learn_window<'a>(&'a self, model: &'a ModelName) -> BoxFuture<'a, ()> {
        match self.remote_for(model) {
            Some(remote) => remote.learn_window(model),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn rate(&self, model: &ModelName) -> ProviderRate {
        match self.remote_for(model) {
            Some(remote) => remote.rate(model),
            // No provider serves the model, so no rate limit applies.
            None => ProviderRate { key: String::new(), requests_per_minute: None, tokens_per_minute: None },
        }
    }

    fn unavailable_reason(&self, model: &ModelName) -> Option<Error> {
        let (provider, _) = model.as_str().split_once('/')?;
        self.missing.iter().find(|missing| missing.name == provider).map(IncompleteProvider::error)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        if let Some(remote) = self.remote_for(&request.call.model) {
            return remote.stream(request);
        }
        let model = &request.call.model;
        let unknown_model =
            || Error::new(Kind::ModelUnknown, format!("no provider serves the model `{model}`"));
        let error = self.unavailable_reason(model).unwrap_or_else(unknown_model);
        Box::pin(stream::iter([Err(error)]))
    }
}

//! The providers that are configured, by name, and why the others are not.
use crate::config::{self, Configured};
use crate::{Api, Remote};
use futures_util::future::join_all;
use futures_util::stream;
use outlast_ports::model::{EventStream, ModelInfo, ModelProvider, ModelRequest, Rate};
use outlast_vocab::message::ModelName;
use outlast_vocab::{Error, Kind};
use std::path::Path;
use std::time::Duration;

/// Providers over HTTP, found in the environment and in a file.
#[derive(Debug, Default)]
pub struct Providers {
    remotes: Vec<Remote>,
    missing: Vec<Missing>,
}

/// A provider that lacks something before it can be asked.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) name: String,
    pub(crate) api: Api,
    /// What to do about it.
    pub(crate) what: String,
}

impl Missing {
    fn error(&self) -> Error {
        Error::new(Kind::ModelUnauthorized, format!("`{}` is not configured: {}", self.name, self.what))
    }
}

/// A provider, and whether it answers.
#[derive(Debug)]
pub struct Status {
    /// What it is called.
    pub name: String,
    /// What it speaks.
    pub api: Api,
    /// Where it is; nowhere while it is not configured.
    pub base_url: Option<String>,
    /// The models it lists, or why it does not.
    pub models: Result<Vec<String>, Error>,
}

impl Providers {
    /// Those of the environment: `OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, `GEMINI_API_KEY`, `LOCAL_BASE_URL`, and for each
    /// of them the address and the key under the same beginning.
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::of(config::environment(&|name| std::env::var(name).ok())?))
    }

    /// Those of the environment and those of a file, where both have a name the file's.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        let mut configured = config::environment(&variable)?;
        for provider in config::file(path, &variable)? {
            configured.retain(|known| known.name() != provider.name());
            configured.push(provider);
        }
        Ok(Self::of(configured))
    }

    fn of(configured: Vec<Configured>) -> Self {
        let mut providers = Self::default();
        for provider in configured {
            match provider {
                Configured::Ready(remote) => providers.remotes.push(*remote),
                Configured::Missing(missing) => providers.missing.push(missing),
            }
        }
        providers
    }

    /// Adds a provider.
    #[must_use]
    pub fn with(mut self, remote: Remote) -> Self {
        self.missing.retain(|missing| missing.name != remote.name());
        self.remotes.push(remote);
        self
    }

    /// Asks every provider at once which models it has, each within this time.
    pub async fn check(&self, patience: Duration) -> Vec<Status> {
        let asked = self.remotes.iter().map(async |remote| Status {
            name: remote.name().to_owned(),
            api: remote.api(),
            base_url: Some(remote.base_url().to_owned()),
            models: remote.models(patience).await,
        });
        let mut statuses = join_all(asked).await;
        statuses.extend(self.missing.iter().map(|missing| Status {
            name: missing.name.clone(),
            api: missing.api,
            base_url: None,
            models: Err(missing.error()),
        }));
        statuses
    }

    fn of_model(&self, model: &ModelName) -> Option<&Remote> {
        let (provider, _) = model.as_str().split_once('/')?;
        self.remotes.iter().find(|remote| remote.name() == provider)
    }
}

impl ModelProvider for Providers {
    fn info(&self, model: &ModelName) -> Option<ModelInfo> {
        self.of_model(model)?.info(model)
    }

    fn rate(&self, model: &ModelName) -> Rate {
        match self.of_model(model) {
            Some(remote) => remote.rate(model),
            // Nobody is asked.
            None => Rate { key: String::new(), requests_per_minute: None, tokens_per_minute: None },
        }
    }

    fn why_not(&self, model: &ModelName) -> Option<Error> {
        let (provider, _) = model.as_str().split_once('/')?;
        self.missing.iter().find(|missing| missing.name == provider).map(Missing::error)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        if let Some(remote) = self.of_model(&request.call.model) {
            return remote.stream(request);
        }
        let model = &request.call.model;
        let nobody = || Error::new(Kind::ModelUnknown, format!("no provider serves the model `{model}`"));
        let error = self.why_not(model).unwrap_or_else(nobody);
        Box::pin(stream::iter([Err(error)]))
    }
}

//! The model providers of this process ([`ModelCatalogue`]), and what a request to one of them takes ([`ModelClient`]).
//!
//! One request with its retries is in [`crate::turn::model_request`].
use crate::delivery::live::LiveHub;
use crate::limits::provider_health::ProviderHealth;
use crate::limits::provider_limits::ProviderRateLimiter;
use crate::views::metrics::WorkerMetrics;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::model::{ModelCapabilities, ModelProvider};
use outlast_vocab::message::ModelName;
use outlast_vocab::{Error, Kind, Limits};
use std::sync::Arc;

/// Finds the provider of a model, and knows the rate limit and the health of each provider.
pub struct ModelCatalogue {
    /// The providers, tried in order.
    providers: Vec<Arc<dyn ModelProvider>>,
    /// Enforces the rate limits of the providers across all sessions.
    pub(crate) rate_limiter: ProviderRateLimiter,
    /// Tracks which providers are down.
    pub(crate) health: ProviderHealth,
}

impl ModelCatalogue {
    /// Creates a catalogue of these providers, which are asked in order.
    pub fn new(providers: Vec<Arc<dyn ModelProvider>>) -> Self {
        let (rate_limiter, health) = (ProviderRateLimiter::default(), ProviderHealth::default());
        Self { providers, rate_limiter, health }
    }

    /// Returns the provider that serves a model, and the model's properties.
    pub fn find(&self, model: &ModelName) -> Result<(&dyn ModelProvider, ModelCapabilities), Error> {
        let found =
            self.providers.iter().find_map(|provider| Some((provider.as_ref(), provider.info(model)?)));
        found.ok_or_else(|| Error::new(Kind::ModelUnknown, format!("no provider serves the model `{model}`")))
    }

    /// Lets the providers of a model ask their servers for its context window. Takes a bounded time and never fails.
    pub(crate) async fn learn_window(&self, model: &ModelName) {
        if let Some(provider) = self.providers.iter().find(|provider| provider.info(model).is_some()) {
            provider.learn_window(model).await;
        }
    }

    /// Returns why no provider serves a model, if a provider knows.
    pub(crate) fn unavailable_reason(&self, model: &ModelName) -> Option<Error> {
        if self.find(model).is_ok() {
            return None;
        }
        self.providers.iter().find_map(|provider| provider.unavailable_reason(model))
    }
}

/// Sends requests to models: within their rate limits, again after errors, streamed to subscribers, and counted.
pub(crate) struct ModelClient {
    pub(crate) catalogue: Arc<ModelCatalogue>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) hub: Arc<LiveHub>,
    pub(crate) metrics: Arc<WorkerMetrics>,
}

//! Installs agents, and changes the agents that are stored in the database.
use super::Runtime;
use crate::agents::agent_factory::{AgentReloader, ConfigChange, ConfigEffect, FailedAgent, SavedConfig};
use crate::agents::agent_registry::AgentBundle;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::access::Scope;
use outlast_vocab::{Error, Hash};
use serde_json::Value;

impl Runtime {
    /// Installs an agent in place of the one with its name, and returns the fingerprint of its package. Turns that were
    /// accepted before keep their package.
    pub fn put_agent(&self, agent: AgentBundle) -> Result<Hash, Error> {
        self.state.agents.registry.put(agent)
    }

    /// Stores a new version of an agent, a harness or a capability. If this process loads the agents of the
    /// organisation, a version that would break one of them is rejected. Otherwise the agents are updated before this
    /// returns.
    pub async fn put_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
    ) -> Result<SavedConfig, Error> {
        self.change(ConfigChange { kind, name, body: Some(body), last: None }).await
    }

    /// Like [`put_config`](Self::put_config), if `last` is the latest version. 0 requires that no version exists.
    pub async fn replace_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
        last: u32,
    ) -> Result<SavedConfig, Error> {
        self.change(ConfigChange { kind, name, body: Some(body), last: Some(last) }).await
    }

    /// Deletes an agent, a harness or a capability. If `last` is set, it must be the latest version. Configuration that
    /// an agent of this process builds on is not deleted. A deleted agent accepts no input after this returns; turns
    /// that began with it continue.
    pub async fn delete_config(
        &self,
        kind: ConfigKind,
        name: String,
        last: Option<u32>,
    ) -> Result<StoredConfig, Error> {
        Ok(self.change(ConfigChange { kind, name, body: None, last }).await?.config)
    }

    async fn change(&self, change: ConfigChange) -> Result<SavedConfig, Error> {
        // Check access first, because building an agent opens directories.
        self.access.require(Scope::Operate)?;
        if let Some(agent_reloader) = self.agent_reloader() {
            return agent_reloader.change(change, self.store.as_ref(), self.now()).await;
        }
        let config = change.write(self.store.as_ref(), self.now()).await?;
        Ok(SavedConfig { config, counts: ConfigEffect::Elsewhere })
    }

    /// Returns the agents that cannot be built from the database, if this process loads those of the handle's
    /// organisation.
    pub fn left_out(&self) -> Vec<FailedAgent> {
        self.agent_reloader().map(AgentReloader::left_out).unwrap_or_default()
    }

    /// Returns the loader of agents for the organisation of this handle.
    fn agent_reloader(&self) -> Option<&AgentReloader> {
        let reloader = self.state.agents.reloader.as_deref();
        reloader.filter(|reloader| reloader.org() == self.access.visibility.home())
    }
}

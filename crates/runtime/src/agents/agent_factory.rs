//! Loads agents from the configuration in the database: at start-up, after a change here, and after a change by another
//! process.
//!
//! A change that would break an agent is rejected before it is written. A change by another process cannot be rejected.
//! If an agent cannot be built from it, the previous version stays in use, and the agent is listed as failed
//! ([`FailedAgent`]).
//!
//! The program provides the [`AgentFactory`], which turns configuration into agents. The registry of agents is
//! [`crate::agents::agent_registry`].
use crate::agents::agent_registry::{AgentBundle, AgentRegistry};
use crate::agents::resolved_agent::ResolvedAgent;
use outlast_ports::store::Store;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::access::Access;
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, OrgId, canonical_json};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An agent factory: plans agents from the configuration in the database.
pub trait AgentFactory: Send + Sync {
    /// Plans the agents for the latest versions of all configuration. Leaves out agents with the name of an agent of
    /// the program.
    fn plans(&self, configs: &[StoredConfig]) -> Result<Vec<AgentPlan>, Error>;

    /// Checks whether a new configuration is valid together with everything else, even if no agent uses it.
    fn check(&self, new: &StoredConfig, configs: &[StoredConfig]) -> Result<(), Error>;
}

/// An agent that has not been built yet.
pub struct AgentPlan {
    /// The name.
    pub name: String,
    /// Whether the agent itself is stored in the database. Then it belongs to its organisation. An agent of the program
    /// that only builds on stored configuration belongs to everyone.
    pub is_kept: bool,
    /// The fingerprint of everything that the agent is built from. The agent is rebuilt only if this changes.
    pub layers: Hash,
    /// Builds the agent.
    pub make: AgentBuildFn,
}

/// Builds an agent, or returns why it cannot be built.
pub type AgentBuildFn = Box<dyn FnOnce() -> Result<AgentBundle, Error> + Send>;

/// An agent factory and the organisation that it serves.
pub struct OrgAgentFactory {
    /// The organisation. Only its configuration becomes agents.
    pub org: OrgId,
    /// The agent factory.
    pub by: Arc<dyn AgentFactory>,
}

/// An agent that cannot be built from the configuration in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAgent {
    /// The name.
    pub name: String,
    /// Why it cannot be built.
    pub failure: Failure,
    /// Whether an earlier version of it is still in use.
    pub answers: bool,
}

/// The result of a configuration change.
#[derive(Clone, Debug)]
pub struct SavedConfig {
    /// The version that is the latest one now.
    pub config: StoredConfig,
    /// Where it takes effect.
    pub counts: ConfigEffect,
}

/// Where a configuration change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigEffect {
    /// In this process, from the next input.
    Here,
    /// Nowhere in this process, because an agent of the program has the same name.
    Hidden,
    /// In other processes, which load the agents of this organisation. This one does not.
    Elsewhere,
}

/// A configuration change: a new version or a deletion.
pub(crate) struct ConfigChange {
    pub(crate) kind: ConfigKind,
    pub(crate) name: String,
    /// The new content. `None` deletes the configuration.
    pub(crate) body: Option<Value>,
    /// The version that must be the latest one, or any if `None`. 0 requires that no version exists.
    pub(crate) last: Option<u32>,
}

impl ConfigChange {
    /// Writes the change, with the access of this store.
    pub(crate) async fn write(self, store: &dyn Store, now: Millis) -> Result<StoredConfig, Error> {
        let Self { kind, name, body, last } = self;
        match (body, last) {
            (Some(body), Some(last)) => store.replace_config(kind, name, body, last, now).await,
            (Some(body), None) => store.put_config(kind, name, body, now).await,
            (None, last) => store.delete_config(kind, name, last, now).await,
        }
    }
}

/// Keeps the agents of a process up to date with the configuration in the database.
pub(crate) struct AgentReloader {
    source: OrgAgentFactory,
    /// The store, restricted to the organisation.
    store: Arc<dyn Store>,
    agent_registry: Arc<AgentRegistry>,
    /// Locked while agents are built, so that changes are applied one at a time.
    made: tokio::sync::Mutex<LoadedVersions>,
    left_out: Mutex<Vec<FailedAgent>>,
}

/// The versions and fingerprints that the current agents were built from.
#[derive(Default)]
struct LoadedVersions {
    /// The versions at the last check. `None` if a check is needed.
    seen: Option<BTreeMap<(ConfigKind, String), u32>>,
    /// The fingerprint of each agent.
    layers: BTreeMap<String, Hash>,
}

/// Agents that are built but not installed yet.
struct BuiltAgents {
    names: BTreeSet<String>,
    ready: Vec<(Hash, Arc<ResolvedAgent>)>,
    failed: Vec<(String, Error)>,
}

impl AgentReloader {
    pub(crate) fn new(
        source: OrgAgentFactory,
        store: Arc<dyn Store>,
        agent_registry: Arc<AgentRegistry>,
    ) -> Self {
        let store = store.serving(Access::to(source.org));
        let (made, left_out) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { source, store, agent_registry, made, left_out }
    }

    /// Returns the organisation whose agents are loaded.
    pub(crate) fn org(&self) -> OrgId {
        self.source.org
    }

    /// Returns the agents that cannot be built, by name.
    pub(crate) fn left_out(&self) -> Vec<FailedAgent> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FailedAgent>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the database must be checked, because a change made here may not have been installed.
    pub(crate) async fn is_behind(&self) -> bool {
        self.made.lock().await.seen.is_none()
    }

    /// Checks the database, then rebuilds and installs the agents whose configuration has changed.
    pub(crate) async fn look(&self) -> Result<(), Error> {
        let mut made = self.made.lock().await;
        let configs = self.stored_configs().await?;
        self.catch_up(&mut made, &configs)
    }

    /// Writes a change if all affected agents can still be built, and installs them.
    pub(crate) async fn change(
        &self,
        change: ConfigChange,
        as_whom: &dyn Store,
        now: Millis,
    ) -> Result<SavedConfig, Error> {
        let ConfigChange { kind, name, body, .. } = &change;
        if let Some(body) = body {
            kind.check(name, body)?;
        }
        let (kind, name, deletes) = (*kind, name.clone(), body.is_none());
        let mut made = self.made.lock().await;
        let mut configs = self.stored_configs().await?;
        // First apply earlier changes by others. If they broke an agent, this change is not to blame.
        self.catch_up(&mut made, &configs)?;
        change_in(&mut configs, &change, now);
        if let Some(new) = configs.iter().find(|config| config.kind == kind && config.name == name) {
            self.source.by.check(new, &configs)?;
        }
        let cut = self.build_changed(&made, &configs)?;
        let was_left_out: BTreeSet<String> = self.left_out().into_iter().map(|left| left.name).collect();
        for (agent, error) in &cut.failed {
            let is_it = kind == ConfigKind::Agent && *agent == name;
            if deletes && !was_left_out.contains(agent) {
                let detail = format!("the agent `{agent}` could no longer be built: {}", error.detail());
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
            if is_it || !was_left_out.contains(agent) {
                return Err(refused(agent, error, is_it));
            }
        }
        // If the caller drops this future during the write, `seen` stays empty and the next check finds the change.
        let seen = made.seen.take();
        let config = change.write(as_whom, now).await?;
        let seen = made.seen.insert(seen.unwrap_or_default());
        let is_hidden = kind == ConfigKind::Agent && !cut.names.contains(&name);
        if deletes {
            seen.remove(&(kind, name));
        } else {
            seen.insert((kind, name), config.version);
        }
        self.install_built(&mut made, cut);
        Ok(SavedConfig { config, counts: if is_hidden { ConfigEffect::Hidden } else { ConfigEffect::Here } })
    }

    /// Reads the latest versions of all configuration.
    async fn stored_configs(&self) -> Result<Vec<StoredConfig>, Error> {
        let mut configs = Vec::new();
        for kind in ConfigKind::ALL {
            configs.extend(self.store.configs(kind, usize::MAX).await?);
        }
        Ok(configs)
    }

    fn catch_up(&self, made: &mut LoadedVersions, configs: &[StoredConfig]) -> Result<(), Error> {
        let seen = configs.iter().map(|config| ((config.kind, config.name.clone()), config.version));
        let seen = Some(seen.collect());
        if made.seen == seen {
            return Ok(());
        }
        let cut = self.build_changed(made, configs)?;
        for (agent, error) in &cut.failed {
            tracing::warn!(agent, %error, "an agent cannot be built from the database; its previous version, if any, stays in use");
        }
        made.seen = seen;
        self.install_built(made, cut);
        Ok(())
    }

    /// Builds every agent whose configuration has changed, and retries those that failed before.
    fn build_changed(&self, made: &LoadedVersions, configs: &[StoredConfig]) -> Result<BuiltAgents, Error> {
        let mut cut = BuiltAgents { names: BTreeSet::new(), ready: Vec::new(), failed: Vec::new() };
        for AgentPlan { name, is_kept, layers, make } in self.source.by.plans(configs)? {
            cut.names.insert(name.clone());
            if made.layers.get(&name) == Some(&layers) {
                continue;
            }
            let org = is_kept.then_some(self.source.org);
            match make().and_then(|agent| self.agent_registry.resolve(agent, org)) {
                Ok(resolved_agent) => cut.ready.push((layers, Arc::new(resolved_agent))),
                Err(error) => cut.failed.push((name, error)),
            }
        }
        Ok(cut)
    }

    /// Installs the new agents and removes the deleted ones.
    fn install_built(&self, made: &mut LoadedVersions, cut: BuiltAgents) {
        made.layers.retain(|agent, _| {
            let stays = cut.names.contains(agent);
            if !stays {
                tracing::info!(agent, "an agent of the database was deleted and accepts no more inputs");
                self.agent_registry.remove(agent);
            }
            stays
        });
        for (layers, resolved_agent) in cut.ready {
            let (agent, package) = (&resolved_agent.package.agent, resolved_agent.fingerprint);
            tracing::info!(agent, %package, "an agent of the database was loaded");
            made.layers.insert(agent.clone(), layers);
            self.agent_registry.install(resolved_agent);
        }
        let left_out = |(name, error): (String, Error)| {
            let answers = made.layers.contains_key(&name);
            FailedAgent { name, failure: Failure::from(&error), answers }
        };
        *self.lock() = cut.failed.into_iter().map(left_out).collect();
    }
}

/// Applies a change to the configuration in memory.
fn change_in(configs: &mut Vec<StoredConfig>, change: &ConfigChange, at: Millis) {
    let ConfigChange { kind, name, body, .. } = change;
    let Some(body) = body else {
        configs.retain(|config| config.kind != *kind || config.name != *name);
        return;
    };
    let next = |version| StoredConfig {
        kind: *kind,
        name: name.clone(),
        version,
        fingerprint: canonical_json::fingerprint(body),
        body: body.clone(),
        at,
    };
    match configs.iter_mut().find(|config| config.kind == *kind && config.name == *name) {
        Some(config) => *config = next(config.version + 1),
        None => configs.push(next(1)),
    }
}

/// Returns the error for a rejected change. An error that would be internal at start-up is a client error here.
fn refused(agent: &str, error: &Error, is_it: bool) -> Error {
    let (kind, detail) = match error.kind().status() {
        400 | 404 => (error.kind(), error.detail().to_owned()),
        _ => (Kind::ConfigInvalid, error.to_string()),
    };
    if is_it {
        return Error::new(kind, detail);
    }
    Error::new(kind, format!("the agent `{agent}` could no longer be built: {detail}"))
}

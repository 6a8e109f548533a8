//! The agents of a worker, and which of them answers a turn.
use crate::agents::agent_factory::{AgentReloader, OrgAgentFactory};
use crate::agents::agent_registry::{self, AgentRegistry};
use crate::agents::resolved_agent::ResolvedAgent;
use outlast_kernel::label::{TurnToolsAndHooks, of_turn};
use outlast_kernel::replay::TurnHistory;
use outlast_ports::store::Store;
use outlast_vocab::access::OrgVisibility;
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::record::{Fact, NodeRef};
use outlast_vocab::{Error, Kind, OrgId};
use std::sync::Arc;

/// The agents that answer the turns of a worker.
pub(super) struct WorkerAgents {
    pub(super) registry: Arc<AgentRegistry>,
    /// Loads agents from the database, if this process does.
    pub(super) reloader: Option<Arc<AgentReloader>>,
    pub(super) store: Arc<dyn Store>,
}

impl WorkerAgents {
    /// Loads the agents that the factory makes from the database, if there is one, in addition to those of the
    /// registry.
    pub(super) async fn load(
        registry: AgentRegistry,
        factory: Option<OrgAgentFactory>,
        store: Arc<dyn Store>,
    ) -> Result<Self, Error> {
        let registry = Arc::new(registry);
        let reloader = |factory| Arc::new(AgentReloader::new(factory, store.clone(), registry.clone()));
        let reloader = factory.map(reloader);
        if let Some(reloader) = &reloader {
            reloader.look().await?;
        }
        Ok(Self { registry, reloader, store })
    }

    /// Returns the agent that a turn was accepted or started with, or else the default agent.
    pub(super) async fn of_turn(
        &self,
        history: &TurnHistory,
        org: OrgId,
    ) -> Result<Arc<ResolvedAgent>, Error> {
        let Self { registry, reloader, store } = self;
        let pinned = history.started().map(|started| started.package);
        let pinned = pinned.or_else(|| history.accepted().and_then(|accepted| accepted.package));
        let visibility = OrgVisibility::Org(org);
        let Some(fingerprint) = pinned else { return registry.first(visibility) };
        match (registry.pinned(fingerprint, visibility, store.as_ref()).await, reloader) {
            // Another process may have just stored the agent.
            (Err(error), Some(reloader)) if error.kind() == Kind::PackageUnavailable => {
                if let Err(error) = reloader.look().await {
                    tracing::warn!(%error, "agents in the database could not be read");
                }
                registry.pinned(fingerprint, visibility, store.as_ref()).await
            }
            (resolved_agent, _) => resolved_agent,
        }
    }

    /// Returns the untrusted sources of the conversation up to a message.
    pub(super) async fn labels(&self, parent: Option<NodeRef>) -> Result<Labels, Error> {
        let Some(parent) = parent else { return Ok(Labels::default()) };
        let Self { registry, store, .. } = self;
        // The first record of that turn has the labels of all turns before it.
        let before = store.history(parent, 1).await?;
        let Some(turn) = before.first().and_then(|turn| turn.records.first()).and_then(|record| record.turn)
        else {
            return Ok(Labels::from_iter([UntrustedSource::Before]));
        };
        if store.turn(turn).await?.foreign {
            return Ok(Labels::from_iter([UntrustedSource::Before]));
        }
        let records = store.turn_records(turn).await?;
        // Use the contracts that the turn ran with, because this agent may trust a different tool of the same name.
        let package = records.iter().find_map(|record| match &record.fact {
            Fact::Started(started) => Some(started.package),
            _ => None,
        });
        if let Some(resolved_agent) =
            package.and_then(|package| registry.here(package, OrgVisibility::Everything))
        {
            let (tools, hooks) = (&resolved_agent.contracts, &resolved_agent.package.hooks);
            return Ok(of_turn(&records, TurnToolsAndHooks { tools, hooks }));
        }
        let ran_with = match package {
            Some(package) => agent_registry::read(store.as_ref(), package).await.ok(),
            None => None,
        };
        // If it is unknown what the turn ran with, nothing that it read is trusted.
        let Some(PinnedPackage { package, contracts }) = ran_with else {
            return Ok(of_turn(&records, TurnToolsAndHooks::default()));
        };
        let tools = contracts.as_deref().unwrap_or_default();
        Ok(of_turn(&records, TurnToolsAndHooks { tools, hooks: &package.hooks }))
    }
}

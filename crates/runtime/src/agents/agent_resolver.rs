//! What a package is resolved against: the models, tools, hooks and policy engine of this process.
use crate::agents::resolved_agent::AgentParts;
use crate::calls::catalogue::ToolCatalogue;
use crate::policy::hooks::Hooks;
use crate::turn::model_client::ModelCatalogue;
use outlast_ports::clock::Clock;
use outlast_ports::policy::PolicyEngine;
use outlast_vocab::Limits;
use std::sync::Arc;

/// The ports and limits that agents of this process are resolved against.
///
/// [`ResolvedAgent`](crate::ResolvedAgent) says what is checked.
pub struct AgentResolver {
    /// The models.
    pub models: Arc<ModelCatalogue>,
    /// The tools of the default agent, which answers inputs that name no agent.
    pub tools: Arc<ToolCatalogue>,
    /// The hooks of the default agent.
    pub hooks: Arc<Hooks>,
    /// The external policy engine, if one is configured. It decides in addition to the rules of agents.
    pub policy_engine: Option<Arc<dyn PolicyEngine>>,
    /// The clock, for deadlines and for rules that depend on the time.
    pub clock: Arc<dyn Clock>,
    /// The limits.
    pub limits: Arc<Limits>,
}

impl AgentResolver {
    /// Creates a resolver without hooks and policy engine.
    pub fn new(
        models: Arc<ModelCatalogue>,
        tools: ToolCatalogue,
        clock: Arc<dyn Clock>,
        limits: impl Into<Arc<Limits>>,
    ) -> Self {
        let (tools, limits) = (Arc::new(tools), limits.into());
        Self { models, tools, hooks: Arc::default(), policy_engine: None, clock, limits }
    }

    /// Returns the tools and hooks of the default agent.
    pub(crate) fn default_parts(&self) -> AgentParts {
        AgentParts { tools: self.tools.clone(), hooks: self.hooks.clone(), org: None }
    }
}

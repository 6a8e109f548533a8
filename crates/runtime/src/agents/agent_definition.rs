//! Agents as a program defines them, before their plug-ins are installed and their overlays merged.
use crate::agents::agent_plugins::AgentPlugins;
use crate::agents::agent_registry::{AgentBundle, fold};
use crate::agents::plugins::Plugins;
use outlast_ports::hook::HookAt;
use outlast_ports::model::ModelProvider;
use outlast_ports::plugin::InstalledPlugin;
use outlast_ports::service::Services;
use outlast_ports::tool::{ToolProvider, Toolbox};
use outlast_vocab::budget::Budgets;
use outlast_vocab::label::TrustGuard;
use outlast_vocab::message::ModelName;
use outlast_vocab::overlay::{NamedModels, Overlay};
use outlast_vocab::package::Package;
use outlast_vocab::policy::Policy;
use outlast_vocab::rate::RateLimit;
use outlast_vocab::{Error, Kind, Limits};
use std::sync::Arc;
use std::time::Duration;

/// Installs a plug-in with its options, or returns why the options are invalid.
pub type InstallPlugin = Box<dyn FnOnce() -> Result<InstalledPlugin, Error> + Send>;

/// Adds a tool to the toolbox of its agent.
pub type AddTool = Box<dyn FnOnce(&mut Toolbox) -> Result<(), Error> + Send>;

/// The definition of an agent.
pub struct AgentDefinition {
    /// The name.
    pub name: String,
    /// The model.
    pub model: String,
    /// The models to fall back to, in this order.
    pub fallback_models: Vec<String>,
    /// How long turns wait for a provider that is down before they fail. `None` means the limit of the worker.
    pub provider_wait: Option<Duration>,
    /// The number of model calls that a turn may make.
    pub model_calls: u32,
    /// The system prompt, without the additions of plug-ins, capabilities and overlays.
    pub system: String,
    /// The rules for its calls.
    pub policy: Policy,
    /// The decision about calls that untrusted text may have caused.
    pub guard: TrustGuard,
    /// The budgets of its turns.
    pub budgets: Budgets,
    /// The rate limits for its calls.
    pub rates: Vec<RateLimit>,
    /// The overlays, in the order in which they are merged.
    pub overlays: Vec<Overlay>,
    /// The services that its tools can name.
    pub services: Services,
    /// Its tools.
    pub tools: Vec<AddTool>,
    /// Providers of further tools, such as MCP servers.
    pub tool_providers: Vec<Arc<dyn ToolProvider>>,
    /// Its hooks, without those of plug-ins.
    pub hooks: Vec<HookAt>,
    /// Its plug-ins.
    pub plugins: Vec<InstallPlugin>,
    /// The capabilities of plug-ins that it enables.
    pub plugin_capabilities: Vec<String>,
    /// The capabilities that the program has already enabled. The package only lists them.
    pub enabled_capabilities: Vec<String>,
}

impl AgentDefinition {
    /// Creates an agent without tools and rules.
    pub fn new(name: impl Into<String>, model: impl Into<String>, system: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            model: model.into(),
            fallback_models: Vec::new(),
            provider_wait: None,
            model_calls: Limits::default().model_calls,
            system: system.into(),
            policy: Policy::default(),
            guard: TrustGuard::default(),
            budgets: Budgets::default(),
            rates: Vec::new(),
            overlays: Vec::new(),
            services: Services::default(),
            tools: Vec::new(),
            tool_providers: Vec::new(),
            hooks: Vec::new(),
            plugins: Vec::new(),
            plugin_capabilities: Vec::new(),
            enabled_capabilities: Vec::new(),
        }
    }

    /// Returns an error if the name of the model is invalid or none of these providers serves it. The error reports what
    /// a provider lacks. Without providers, only the name is checked.
    pub fn check_model(&self, providers: &[Arc<dyn ModelProvider>]) -> Result<(), Error> {
        let model = self.model.parse()?;
        if providers.is_empty() || providers.iter().any(|provider| provider.info(&model).is_some()) {
            return Ok(());
        }
        let lacks = providers.iter().find_map(|provider| provider.unavailable_reason(&model));
        let unserved = || Error::new(Kind::ModelUnknown, format!("no provider serves the model `{model}`"));
        Err(lacks.unwrap_or_else(unserved))
    }

    /// Builds the agent: its package with all overlays merged, its tools, and its plug-ins.
    pub fn build(self) -> Result<(AgentBundle, Plugins), Error> {
        let mut toolbox = Toolbox::new(self.services);
        for add in self.tools {
            add(&mut toolbox)?;
        }
        let mut plugged = AgentPlugins::install(self.plugins, &self.plugin_capabilities)?;
        plugged.add_tools(&mut toolbox)?;
        let mut tools: Vec<Arc<dyn ToolProvider>> = vec![Arc::new(toolbox)];
        tools.extend(self.tool_providers);
        let all = tools.iter().flat_map(|provider| provider.manifests()).map(|manifest| manifest.name);
        let names = plugged.visible_tools(all.collect());
        let mut on = self.enabled_capabilities;
        on.extend(self.plugin_capabilities);
        let NamedModels { first, fallbacks } = parse_models(self.model, self.fallback_models)?;
        let seconds = |wait: Duration| u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        let package = Package {
            fallback_models: fallbacks,
            provider_wait_s: self.provider_wait.map(seconds),
            tools: names,
            model_calls: self.model_calls,
            policy: self.policy,
            guard: self.guard,
            budgets: self.budgets,
            rates: self.rates,
            hooks: plugged.used_hooks(&self.hooks),
            capabilities: on,
            ..Package::new(self.name, first, plugged.system_prompt(self.system))
        };
        let package = fold(package, &self.overlays)?;
        let plugins = plugged.plugins(&package.agent)?;
        Ok((AgentBundle { package, tools, hooks: plugged.hooks(self.hooks) }, plugins))
    }
}

fn parse_models(first: String, fallbacks: Vec<String>) -> Result<NamedModels, Error> {
    let names = std::iter::once(first).chain(fallbacks);
    let models: Vec<ModelName> = names.map(|name| name.parse()).collect::<Result<_, _>>()?;
    let models = Overlay { models, ..Overlay::default() }.named_models()?;
    Ok(models.expect("the list has the first model"))
}

/// The agents of a worker.
pub struct WorkerAgents {
    /// The default agent, which answers inputs that name no agent.
    pub default: AgentBundle,
    /// The other agents.
    pub others: Vec<AgentBundle>,
    /// The plug-ins of all agents.
    pub plugins: Plugins,
}

impl WorkerAgents {
    /// Builds the agents. Two agents may use the same plug-in, but not the same trigger.
    pub fn build(
        default: AgentDefinition,
        others: impl IntoIterator<Item = AgentDefinition>,
    ) -> Result<Self, Error> {
        let (default, mut plugins) = default.build()?;
        let mut built = Vec::new();
        for other in others {
            let (agent, more) = other.build()?;
            built.push(agent);
            plugins = plugins.and(more)?;
        }
        Ok(Self { default, others: built, plugins })
    }
}

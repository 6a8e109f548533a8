//! Configures a worker: [`Builder`]. `start` starts it, and [`outlast_runtime`] builds its agents and drives the turns.
use crate::capability::Capability;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::contents::ContentStorage;
use outlast_ports::hook::HookAt;
use outlast_ports::metrics::MetricSink;
use outlast_ports::model::ModelProvider;
use outlast_ports::payment::{PaymentAuthority, PaymentsEnabled};
use outlast_ports::plugin::{InstalledPlugin, Plugin};
use outlast_ports::policy::PolicyEngine;
use outlast_ports::rate::RateLimiter;
use outlast_ports::sink::SubscribedSink;
use outlast_ports::spawner::Spawner;
use outlast_ports::tool::{Tool, ToolProvider};
use outlast_runtime::agents::agent_definition::AgentDefinition;
use outlast_runtime::agents::agent_factory::AgentFactory;
use outlast_runtime::worker::system::{SystemClock, SystemEntropy, TokioTasks};
use outlast_tools::{Builtin, FileRoot, OpenDocument, WallClock};
use outlast_vocab::access::Principal;
use outlast_vocab::budget::Budgets;
use outlast_vocab::label::TrustGuard;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::policy::Policy;
use outlast_vocab::rate::RateLimit;
use outlast_vocab::{Error, Hash, Limits};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The default system prompt.
const DEFAULT_SYSTEM_PROMPT: &str = "You are a helpful assistant. Use the tools when they help.";

type OpenAttachmentStore = Box<dyn FnOnce(&str) -> Result<Arc<dyn ContentStorage>, Error> + Send>;

/// Configures a worker. Create one with [`Outlast::at`] or [`Outlast::ephemeral`] and call [`Builder::start`].
///
/// [`Outlast::at`]: crate::Outlast::at
/// [`Outlast::ephemeral`]: crate::Outlast::ephemeral
///
/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// /// Tells the temperature in a city.
/// #[tool(pure)]
/// async fn weather(city: String, stations: Service<Vec<(String, i32)>>) -> Result<i32, Error> {
///     let found = stations.iter().find(|(name, _)| *name == city);
///     found.map(|(_, degrees)| *degrees).ok_or_else(|| failed(format!("no station in {city}")))
/// }
///
/// let outlast = Outlast::ephemeral() // or `Outlast::at("agent.db")`
///     .agent("forecaster")
///     .system("You answer questions about the weather.")
///     .service(vec![("Paris".to_owned(), 21)])
///     .tool(weather)
///     .builtin_tools()
///     .start()
///     .await?;
/// let turn = outlast.session("ann").send(r#"call weather {"city": "Paris"}"#).await?;
/// assert_eq!(turn.answer().await?, "weather gave 21.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub struct Builder {
    pub(crate) storage: StorageLocation,
    pub(crate) unsafe_durability: bool,
    pub(crate) contents: Option<OpenAttachmentStore>,
    pub(crate) agent: AgentDefinition,
    pub(crate) other_agents: Vec<Builder>,
    pub(crate) agent_factory: Option<Arc<dyn AgentFactory>>,
    pub(crate) capability_definitions: Vec<Capability>,
    /// Paths that the agent's shell and MCP servers may write to.
    pub(crate) writable_paths: Vec<WritablePath>,
    pub(crate) models: Vec<Arc<dyn ModelProvider>>,
    pub(crate) payments: Option<Arc<dyn PaymentAuthority>>,
    pub(crate) policy_engine: Option<Arc<dyn PolicyEngine>>,
    pub(crate) limiter: Option<Arc<dyn RateLimiter>>,
    pub(crate) sinks: Vec<SubscribedSink>,
    pub(crate) metrics: Option<Arc<dyn MetricSink>>,
    #[cfg(feature = "telemetry")]
    pub(crate) telemetry: Option<outlast_telemetry::TelemetrySettings>,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) tasks: Arc<dyn Spawner>,
    pub(crate) org: Option<String>,
    pub(crate) by: Principal,
}

/// A file or directory that some part of an agent may write to.
pub(crate) struct WritablePath {
    pub(crate) path: PathBuf,
    /// The part that may write to it, such as "the shell".
    pub(crate) writer: String,
}

pub(crate) enum StorageLocation {
    File(PathBuf),
    Memory(MemoryStore),
}

impl Builder {
    pub(crate) fn new(storage: StorageLocation) -> Self {
        Self {
            storage,
            unsafe_durability: false,
            contents: None,
            agent: AgentDefinition::new("assistant", "rehearsal/agent", DEFAULT_SYSTEM_PROMPT),
            other_agents: Vec::new(),
            agent_factory: None,
            capability_definitions: Vec::new(),
            writable_paths: Vec::new(),
            models: Vec::new(),
            payments: None,
            policy_engine: None,
            limiter: None,
            sinks: Vec::new(),
            metrics: None,
            #[cfg(feature = "telemetry")]
            telemetry: None,
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            tasks: Arc::new(TokioTasks),
            org: None,
            by: Principal::program(),
        }
    }

    /// Sets the organisation that the handle serves, by name or id, instead of `default`.
    ///
    /// The worker drives the turns of all organisations. [`Outlast::for_org`](crate::Outlast::for_org) returns handles
    /// for the others.
    #[must_use]
    pub fn org(mut self, named: impl Into<String>) -> Self {
        self.org = Some(named.into());
        self
    }

    /// Sets the principal that the audit log records. The default is the program itself.
    #[must_use]
    pub fn acting_as(mut self, who: Principal) -> Self {
        self.by = who;
        self
    }

    /// Adds a model provider. [`Providers::from_env`](outlast_providers::Providers::from_env) adds those whose keys are
    /// in the environment. Without a provider, the built-in rehearsal model answers.
    #[must_use]
    pub fn provider(mut self, provider: impl ModelProvider + 'static) -> Self {
        self.models.push(Arc::new(provider));
        self
    }

    /// Sets the model, such as `rehearsal/agent`.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.agent.model = model.into();
        self
    }

    /// Sets the models to fall back to, in this order, while the provider of [`Builder::model`] is down, rejects its
    /// key or has no credit left.
    #[must_use]
    pub fn fallback_models(mut self, models: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.agent.fallback_models = models.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long turns of the agent wait for a provider that is down before they fail. The default is
    /// [`Limits::provider_wait`] (24 hours).
    ///
    /// With zero, a turn fails after a few quick attempts. An input can override this
    /// ([`InputBuilder::with_overlay`](crate::InputBuilder::with_overlay)).
    #[must_use]
    pub fn provider_wait(mut self, wait: Duration) -> Self {
        self.agent.provider_wait = Some(wait);
        self
    }

    /// Sets the agent's name.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent.name = name.into();
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, prompt: impl Into<String>) -> Self {
        self.agent.system = prompt.into();
        self
    }

    /// Sets the rules for the agent's calls. The first rule that matches a call decides.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.agent.policy = policy;
        self
    }

    /// Sets what happens to calls that untrusted text may have caused.
    #[must_use]
    pub fn guard(mut self, guard: TrustGuard) -> Self {
        self.agent.guard = guard;
        self
    }

    /// Sets the budgets of the agent's turns.
    #[must_use]
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.agent.budgets = budgets;
        self
    }

    /// Adds rate limits for the agent's calls. All agents of an organisation share rate limits of the same name.
    #[must_use]
    pub fn rates(mut self, rates: impl IntoIterator<Item = RateLimit>) -> Self {
        self.agent.rates.extend(rates);
        self
    }

    /// Uses this rate limiter instead of the database, for processes that do not share one.
    #[must_use]
    pub fn limiter(mut self, limiter: impl RateLimiter + 'static) -> Self {
        self.limiter = Some(Arc::new(limiter));
        self
    }

    /// Adds a hook, which runs at one point of every turn. Hooks of the same point run in the order in which they are
    /// added.
    ///
    /// ```
    /// use outlast::hook::{BeforeTool, HookAt};
    /// use outlast::vocab::hook::{CallHookInput, CallPatch, HookCall};
    ///
    /// # fn example() -> Result<(), outlast::Error> {
    /// let cap = HookAt::new::<BeforeTool>("cap", |_: HookCall, call: CallHookInput| async move {
    ///     let large = call.arguments["euros"].as_u64() > Some(100);
    ///     Ok(large.then(|| CallPatch::Refuse("ask a manager".to_owned())))
    /// })?;
    /// let builder = outlast::Outlast::ephemeral().hook(cap);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hook(mut self, hook: HookAt) -> Self {
        self.agent.hooks.push(hook);
        self
    }

    /// Enables payments for tools that request the service `Payments`. The authority holds the credentials; models and
    /// tools never see them.
    #[must_use]
    pub fn payments(mut self, authority: impl PaymentAuthority + 'static) -> Self {
        self.payments = Some(Arc::new(authority));
        self.agent.services = self.agent.services.grant(PaymentsEnabled);
        self
    }

    /// Adds a policy engine, which decides at every policy point in addition to the rules of each agent. The stricter
    /// of both decisions applies. If the engine fails, the action is denied.
    #[must_use]
    pub fn policy_engine(mut self, engine: impl PolicyEngine + 'static) -> Self {
        self.policy_engine = Some(Arc::new(engine));
        self
    }

    /// Adds a plug-in with its options, either as its own type or as any value that serialises to the same form.
    /// [`Builder::start`] rejects invalid options.
    #[must_use]
    pub fn plugin<P: Plugin>(mut self, plugin: P, options: impl Serialize + Send + 'static) -> Self {
        self.agent.plugins.push(Box::new(|| InstalledPlugin::new(plugin, options)));
        self
    }

    /// Enables a capability of a plug-in: its prompt text, tools and hooks. To enable a capability that the program
    /// defines, use [`Builder::enable_capability`].
    #[must_use]
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.agent.plugin_capabilities.push(name.into());
        self
    }

    /// Adds an overlay to the agent: prompt parts, a model, model calls, documents, hosts or rules.
    ///
    /// Overlays are merged in the order in which they are added. Prompt parts are appended, allowed targets are
    /// intersected, and for everything else the last value wins. The rules of an overlay can only restrict. Use
    /// [`Builder::policy`] to let a tool that wants approval run without it.
    #[must_use]
    pub fn overlay(mut self, overlay: Overlay) -> Self {
        if !overlay.documents.is_empty() && self.agent.overlays.iter().all(|under| under.documents.is_empty())
        {
            self = self.tool(OpenDocument);
        }
        self.agent.overlays.push(overlay);
        self
    }

    /// Names the capabilities that the caller has already enabled. The package of every turn lists them.
    #[must_use]
    pub fn with_enabled_capabilities(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.agent.enabled_capabilities.extend(names);
        self
    }

    /// Adds a further agent, which answers under its name: [`InputBuilder::answered_by`](crate::InputBuilder::answered_by).
    ///
    /// It has its own name, model, prompt, policy, budgets, hooks, plug-ins, overlays, model calls, services and tools.
    /// It shares the model providers, limits, clock and storage of this builder.
    #[must_use]
    pub fn add_agent(mut self, agent: Builder) -> Self {
        self.other_agents.push(agent);
        self
    }

    /// Adds the agents that are stored in the database. The factory builds each agent from its stored configuration.
    ///
    /// Changes through [`Runtime::put_config`](outlast_runtime::Runtime::put_config) apply immediately, and changes by
    /// other processes within about a second.
    #[must_use]
    pub fn agent_factory(mut self, factory: impl AgentFactory + 'static) -> Self {
        self.agent_factory = Some(Arc::new(factory));
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.agent.tools.push(Box::new(|toolbox| toolbox.add(tool)));
        self
    }

    /// Adds the tools of a provider, such as an MCP server.
    #[must_use]
    pub fn tools(mut self, provider: impl ToolProvider + 'static) -> Self {
        self.agent.tool_providers.push(Arc::new(provider));
        self
    }

    /// Adds the built-in tools that need no outside access: clock, calculator, values, to-do list and questions to the
    /// user. File tools need a root ([`Builder::files`]), and web access needs rules ([`Builder::fetch`]).
    #[must_use]
    pub fn builtin_tools(self) -> Self {
        Builtin::ALL.iter().fold(self, |builder, group| builder.builtin(*group))
    }

    /// Adds one group of built-in tools.
    #[must_use]
    pub fn builtin(mut self, group: Builtin) -> Self {
        if group == Builtin::Clock {
            self.agent.services = self.agent.services.grant(WallClock(self.clock.clone()));
        }
        self.agent.tools.push(Box::new(move |toolbox| group.add_to(toolbox)));
        self
    }

    /// Adds tools that read, write and list files below a directory.
    #[must_use]
    pub fn files(mut self, root: FileRoot) -> Self {
        self.agent.services = self.agent.services.grant(root);
        self.agent.tools.push(Box::new(outlast_tools::files));
        self
    }

    /// Adds a tool that fetches web pages within these egress rules.
    #[cfg(feature = "fetch")]
    #[must_use]
    pub fn fetch(mut self, egress: outlast_tools::egress::Egress) -> Self {
        self.agent.services = self.agent.services.grant(egress);
        self.tool(outlast_tools::Fetch)
    }

    /// Adds a tool that runs commands in a sandbox. `outlast::tools::shell::start` must be the first call in `main`.
    #[cfg(all(target_os = "linux", feature = "commands"))]
    pub fn shell(mut self, shell: outlast_tools::shell::Shell) -> Result<Self, Error> {
        shell.check()?;
        let run = outlast_tools::shell::ShellRun::new(&shell);
        self.writable_paths
            .push(WritablePath { path: shell.root().to_owned(), writer: "the shell".to_owned() });
        self.agent.services = self.agent.services.grant(shell);
        Ok(self.tool(run))
    }

    /// Declares that an MCP server of this agent may write to a file or directory. [`Builder::start`] refuses a
    /// database at that path.
    #[must_use]
    pub fn mcp_server_writable(mut self, server: &str, place: impl Into<PathBuf>) -> Self {
        self.writable_paths
            .push(WritablePath { path: place.into(), writer: format!("the MCP server `{server}`") });
        self
    }

    /// Grants a service to every tool that names its type.
    #[must_use]
    pub fn service<T: Send + Sync + 'static>(mut self, service: T) -> Self {
        self.agent.services = self.agent.services.grant(service);
        self
    }

    /// Declares a fingerprint of a service's configuration that no contract contains, such as its directory or hosts.
    ///
    /// It is part of the package's fingerprint and of what an approval covers. A waiting turn therefore resumes with
    /// the configuration it was accepted with.
    #[must_use]
    pub fn service_fingerprint<T: Send + Sync + 'static>(mut self, means: Hash) -> Self {
        self.agent.services = self.agent.services.with_fingerprint::<T>(means);
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.agent.model_calls = limits.model_calls;
        self.limits = limits;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets where turns run, such as on dedicated threads ([`crate::runtime::worker::system::WorkerThreads`]). By default, a turn
    /// runs on the tokio runtime of the caller that sends the input.
    #[must_use]
    pub fn tasks(mut self, tasks: impl Spawner + 'static) -> Self {
        self.tasks = Arc::new(tasks);
        self
    }

    /// Stores the contents of attachments outside the database: in a directory (`file:///srv/files`) or in an S3 bucket
    /// (`s3://bucket/prefix`).
    ///
    /// The keys, region and endpoint of S3 come from the usual `AWS_…` variables. Every process that opens the database
    /// needs the same setting.
    #[cfg(feature = "objects")]
    #[must_use]
    pub fn attachments(self, address: impl Into<String>) -> Self {
        let address = address.into();
        self.attachment_store(move |database| {
            Ok(Arc::new(outlast_objects::ObjectContents::open(&address, database)?))
        })
    }

    /// Stores the contents of attachments in your own storage. `open` receives a name that is unique to this database.
    ///
    /// Keep the contents of several databases apart. Otherwise each database deletes the contents of the others as
    /// unused.
    #[must_use]
    pub fn attachment_store(
        mut self,
        open: impl FnOnce(&str) -> Result<Arc<dyn ContentStorage>, Error> + Send + 'static,
    ) -> Self {
        self.contents = Some(Box::new(open));
        self
    }

    /// Adds a sink that receives the output of every finished turn, with retries under a stable id until the sink
    /// accepts it: `SubscribedSink::new("crm", WebhookSink::new(…)?)?`.
    #[must_use]
    pub fn sink(mut self, sink: SubscribedSink) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Sends metrics to your own sink periodically. To read them at any time, use
    /// [`Outlast::metrics`](crate::Outlast::metrics).
    #[must_use]
    pub fn metrics(mut self, to: impl MetricSink + 'static) -> Self {
        self.metrics = Some(Arc::new(to));
        self
    }

    /// Exports a trace of every finished turn, and metrics, to a collector. A turn that was killed and resumed has one
    /// trace. A collector that is down or hangs does not slow turns.
    #[cfg(feature = "telemetry")]
    #[must_use]
    pub fn telemetry(mut self, settings: outlast_telemetry::TelemetrySettings) -> Self {
        self.telemetry = Some(settings);
        self
    }

    /// Trades durability against power loss for speed. Every status report shows this setting.
    #[must_use]
    pub fn unsafe_durability(mut self) -> Self {
        self.unsafe_durability = true;
        self
    }
}

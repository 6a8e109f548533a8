//! Configures and starts a worker: [`Builder`] and the handle [`Outlast`].
//!
//! This module only wires parts together. [`outlast_runtime`] drives the turns.
use crate::agent_plugins::AgentPlugins;
use crate::capability::Capability;
use crate::{Session, Turn};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::contents::ContentStorage;
use outlast_ports::hook::HookAt;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::metrics::{MetricSink, MetricsSnapshot};
use outlast_ports::model::ModelProvider;
use outlast_ports::orgs;
use outlast_ports::payment::{PaymentAuthority, PaymentsEnabled};
use outlast_ports::plugin::{InstalledPlugin, Plugin};
use outlast_ports::policy::PolicyEngine;
use outlast_ports::rate::RateLimiter;
use outlast_ports::service::Services;
use outlast_ports::sink::SubscribedSink;
use outlast_ports::spawner::Spawner;
use outlast_ports::store::Store;
use outlast_ports::tool::{Tool, ToolProvider, Toolbox};
use outlast_providers::Rehearsal;
use outlast_runtime::agents::agent_factory::{AgentFactory, OrgAgentFactory};
use outlast_runtime::agents::agent_registry::fold;
use outlast_runtime::agents::plugins::Plugins;
use outlast_runtime::attachments::{Attachments, name_of};
use outlast_runtime::calls::catalogue::ToolCatalogue;
use outlast_runtime::turn::model_client::ModelCatalogue;
use outlast_runtime::worker::system::{SystemClock, SystemEntropy, TokioTasks};
use outlast_runtime::{AgentBundle, AgentResolver, Runtime, RuntimeConfig};
use outlast_store::{SqliteOptions, SqliteStore, check_writable_path};
use outlast_tools::{Builtin, FileRoot, OpenDocument, WallClock};
use outlast_vocab::access::{Access, OrgVisibility, Principal};
use outlast_vocab::budget::Budgets;
use outlast_vocab::label::TrustGuard;
use outlast_vocab::message::ModelName;
use outlast_vocab::overlay::{NamedModels, Overlay};
use outlast_vocab::package::{Package, PinnedPackage};
use outlast_vocab::policy::Policy;
use outlast_vocab::rate::RateLimit;
use outlast_vocab::{Error, Hash, Kind, Limits, OrgId, SessionId, TurnId, WorkerId};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long [`Outlast::shut_down`] waits for running turns to finish their current step.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The default system prompt.
const DEFAULT_SYSTEM_PROMPT: &str = "You are a helpful assistant. Use the tools when they help.";

type OpenAttachmentStore = Box<dyn FnOnce(&str) -> Result<Arc<dyn ContentStorage>, Error> + Send>;
pub(crate) type InstallPlugin = Box<dyn FnOnce() -> Result<InstalledPlugin, Error> + Send>;
type AddTool = Box<dyn FnOnce(&mut Toolbox) -> Result<(), Error> + Send>;

/// Configures a worker. Create one with [`Outlast::at`] or [`Outlast::ephemeral`] and call [`Builder::start`].
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
    storage: StorageLocation,
    unsafe_durability: bool,
    contents: Option<OpenAttachmentStore>,
    models: Vec<Arc<dyn ModelProvider>>,
    providers: Vec<Arc<dyn ToolProvider>>,
    services: Services,
    sinks: Vec<SubscribedSink>,
    metrics: Option<Arc<dyn MetricSink>>,
    #[cfg(feature = "telemetry")]
    telemetry: Option<outlast_telemetry::TelemetrySettings>,
    hooks: Vec<HookAt>,
    plugins: Vec<InstallPlugin>,
    capabilities: Vec<String>,
    payments: Option<Arc<dyn PaymentAuthority>>,
    policy_engine: Option<Arc<dyn PolicyEngine>>,
    limiter: Option<Arc<dyn RateLimiter>>,
    tools: Vec<AddTool>,
    /// Paths that the agent's shell and MCP servers may write to.
    writable_paths: Vec<WritablePath>,
    agent: String,
    model: String,
    system: String,
    policy: Policy,
    guard: TrustGuard,
    budgets: Budgets,
    rates: Vec<RateLimit>,
    fallback_models: Vec<String>,
    provider_wait: Option<Duration>,
    overlays: Vec<Overlay>,
    pub(crate) capability_definitions: Vec<Capability>,
    pub(crate) enabled_capabilities: Vec<String>,
    other_agents: Vec<Builder>,
    agent_factory: Option<Arc<dyn AgentFactory>>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    tasks: Arc<dyn Spawner>,
    org: Option<String>,
    by: Principal,
}

/// A file or directory that some part of an agent may write to.
struct WritablePath {
    path: PathBuf,
    /// The part that may write to it, such as "the shell".
    writer: String,
}

enum StorageLocation {
    File(PathBuf),
    Memory(MemoryStore),
}

/// A handle to a running worker, scoped to one organisation (by default the one called `default`).
///
/// Cloning is cheap.
///
/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().builtin_tools().start().await?;
/// let ann = outlast.session("ann"); // always the same session
/// ann.send("remember my name is Ann").await?.answer().await?;
/// let turn = ann.send("what is my name?").await?;
/// assert_eq!(turn.answer().await?, "Your name is Ann.");
///
/// // Another process can find the turn by its id.
/// let found = outlast.turn(turn.id()).await?;
/// assert_eq!(found.session(), turn.session());
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Outlast {
    pub(crate) runtime: Runtime,
}

impl Outlast {
    /// Returns a builder that stores everything in one SQLite file. The file is created if it does not exist.
    pub fn at(path: impl AsRef<Path>) -> Builder {
        Builder::new(StorageLocation::File(path.as_ref().to_owned()))
    }

    /// Returns a builder for a further agent, to pass to [`Builder::add_agent`]. The agent's sessions are stored with those
    /// of the first agent.
    ///
    /// # Example
    ///
    /// ```
    /// use outlast::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let clerk = Outlast::agent("clerk").system("Sell cakes.").builtin_tools();
    /// let outlast = Outlast::ephemeral().system("Help.").add_agent(clerk).start().await?;
    /// let session = outlast.session("ann").answered_by("clerk");
    /// assert_eq!(session.send("add 2 and 3").await?.answer().await?, "2 + 3 is 5.");
    /// # outlast.shut_down().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn agent(name: impl Into<String>) -> Builder {
        Self::ephemeral().agent(name)
    }

    /// Returns a builder that stores everything in memory, for tests and scripts whose data need not survive.
    pub fn ephemeral() -> Builder {
        Builder::new(StorageLocation::Memory(MemoryStore::new()))
    }

    /// Returns the session with this key, on its main head. The first input creates the session.
    pub fn session(&self, key: impl Into<String>) -> Session {
        let fresh = self.runtime.fresh_session();
        Session::new(self.runtime.clone(), SessionTarget::Key { key: key.into(), fresh })
    }

    /// Returns the session with this id.
    pub fn session_by_id(&self, id: SessionId) -> Session {
        Session::new(self.runtime.clone(), SessionTarget::Id(id))
    }

    /// Returns a new session without a key.
    pub fn new_session(&self) -> Session {
        Session::new(self.runtime.clone(), SessionTarget::New(self.runtime.fresh_session()))
    }

    /// Returns a turn that this or another process accepted before.
    pub async fn turn(&self, id: TurnId) -> Result<Turn, Error> {
        Turn::find(self.runtime.clone(), id).await
    }

    /// Adds an agent to the running worker, or replaces the agent of the same name. Returns the fingerprint of its
    /// package.
    ///
    /// The agent uses the model providers, limits and clock of this worker. Turns that are already accepted keep the
    /// agent version they started with.
    ///
    /// ```
    /// # async fn example() -> Result<(), outlast::Error> {
    /// use outlast::Outlast;
    ///
    /// let outlast = Outlast::ephemeral().start().await?;
    /// outlast.put_agent(Outlast::agent("clerk").system("Sell cakes."))?;
    /// outlast.session("ann").answered_by("clerk").send("two cakes, please").await?.answer().await?;
    /// # outlast.shut_down().await;
    /// # Ok(())
    /// # }
    /// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
    /// ```
    pub fn put_agent(&self, agent: Builder) -> Result<Hash, Error> {
        self.runtime.put_agent(agent.into_single_agent()?)
    }

    /// Returns the underlying worker, to cancel, resolve, retry and follow turns.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the underlying store, to read sessions, records and unknown outcomes.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.runtime.store()
    }

    /// Returns the attachments, which can be read as a stream or by range from any storage.
    pub fn attachments(&self) -> Attachments {
        self.runtime.attachments()
    }

    /// Returns the counters of this process since its start and the current gauges: turns, model calls, tokens, tools
    /// and writes, over all organisations. `outlast::telemetry::exposition` formats them for Prometheus.
    pub async fn metrics(&self) -> Result<MetricsSnapshot, Error> {
        self.operator().runtime.metrics().await
    }

    /// Returns a handle of the same worker for another organisation, given by name or id.
    ///
    /// The handle only sees the sessions, turns and waits of that organisation.
    pub async fn for_org(&self, org: &str) -> Result<Self, Error> {
        let org = self.runtime.find_org(org).await?;
        let access = self.runtime.access().clone();
        Ok(self.with_access(Access { reach: OrgVisibility::Org(org), ..access }))
    }

    /// Returns a handle that acts for another principal. The audit log records that principal's name.
    #[must_use]
    pub fn acting_as(&self, who: Principal) -> Self {
        self.with_access(self.runtime.access().clone().by(who))
    }

    /// Returns a handle for the holder of an API key, limited to the key's organisation and scopes. The audit log
    /// records the key's name.
    pub async fn with_api_key(&self, api_key: &str) -> Result<Self, Error> {
        Ok(self.with_access(self.runtime.admit(api_key).await?))
    }

    /// Returns a handle over all organisations, to create and manage them.
    #[must_use]
    pub fn operator(&self) -> Self {
        let access = Access { by: self.runtime.access().by.clone(), ..Access::operator() };
        self.with_access(access)
    }

    fn with_access(&self, access: Access) -> Self {
        Self { runtime: self.runtime.serving(access) }
    }

    /// Shuts the worker down. Running turns stop after their current step, and any other process can resume them.
    pub async fn shut_down(self) {
        self.runtime.shut_down(DRAIN_TIMEOUT).await;
    }
}

impl Builder {
    fn new(storage: StorageLocation) -> Self {
        Self {
            storage,
            unsafe_durability: false,
            contents: None,
            models: Vec::new(),
            providers: Vec::new(),
            services: Services::default(),
            sinks: Vec::new(),
            metrics: None,
            #[cfg(feature = "telemetry")]
            telemetry: None,
            hooks: Vec::new(),
            plugins: Vec::new(),
            capabilities: Vec::new(),
            payments: None,
            policy_engine: None,
            limiter: None,
            tools: Vec::new(),
            writable_paths: Vec::new(),
            agent: "assistant".to_owned(),
            model: "rehearsal/agent".to_owned(),
            system: DEFAULT_SYSTEM_PROMPT.to_owned(),
            policy: Policy::default(),
            guard: TrustGuard::default(),
            budgets: Budgets::default(),
            rates: Vec::new(),
            fallback_models: Vec::new(),
            provider_wait: None,
            overlays: Vec::new(),
            capability_definitions: Vec::new(),
            enabled_capabilities: Vec::new(),
            other_agents: Vec::new(),
            agent_factory: None,
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
    /// The worker drives the turns of all organisations. [`Outlast::for_org`] returns handles for the others.
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
        self.model = model.into();
        self
    }

    /// Sets the models to fall back to, in this order, while the provider of [`Builder::model`] is down, rejects its
    /// key or has no credit left.
    #[must_use]
    pub fn fallback_models(mut self, models: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.fallback_models = models.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long turns of the agent wait for a provider that is down before they fail. The default is
    /// [`Limits::provider_wait`] (24 hours).
    ///
    /// With zero, a turn fails after a few quick attempts. An input can override this
    /// ([`InputBuilder::with_overlay`](crate::InputBuilder::with_overlay)).
    #[must_use]
    pub fn provider_wait(mut self, wait: Duration) -> Self {
        self.provider_wait = Some(wait);
        self
    }

    /// Sets the agent's name.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = name.into();
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, prompt: impl Into<String>) -> Self {
        self.system = prompt.into();
        self
    }

    /// Sets the rules for the agent's calls. The first rule that matches a call decides.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets what happens to calls that untrusted text may have caused.
    #[must_use]
    pub fn guard(mut self, guard: TrustGuard) -> Self {
        self.guard = guard;
        self
    }

    /// Sets the budgets of the agent's turns.
    #[must_use]
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// Adds rate limits for the agent's calls. All agents of an organisation share rate limits of the same name.
    #[must_use]
    pub fn rates(mut self, rates: impl IntoIterator<Item = RateLimit>) -> Self {
        self.rates.extend(rates);
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
    ///     Ok(large.then(|| CallPatch::Refuse("ask somebody".to_owned())))
    /// })?;
    /// let builder = outlast::Outlast::ephemeral().hook(cap);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hook(mut self, hook: HookAt) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Enables payments for tools that request the service `Payments`. The authority holds the credentials; models and
    /// tools never see them.
    #[must_use]
    pub fn payments(mut self, authority: impl PaymentAuthority + 'static) -> Self {
        self.payments = Some(Arc::new(authority));
        self.services = self.services.grant(PaymentsEnabled);
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
        self.plugins.push(Box::new(|| InstalledPlugin::new(plugin, options)));
        self
    }

    /// Enables a capability of a plug-in: its prompt text, tools and hooks. To enable a capability that the program
    /// defines, use [`Builder::enable_capability`].
    #[must_use]
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.capabilities.push(name.into());
        self
    }

    /// Adds an overlay to the agent: prompt parts, a model, model calls, documents, hosts or rules.
    ///
    /// Overlays are merged in the order in which they are added. Prompt parts are appended, allowed targets are
    /// intersected, and for everything else the last value wins. The rules of an overlay can only restrict. Use
    /// [`Builder::policy`] to let a tool that wants approval run without it.
    #[must_use]
    pub fn overlay(mut self, overlay: Overlay) -> Self {
        if !overlay.documents.is_empty() && self.overlays.iter().all(|under| under.documents.is_empty()) {
            self = self.tool(OpenDocument);
        }
        self.overlays.push(overlay);
        self
    }

    /// Names the capabilities that the caller has already enabled. The package of every turn lists them.
    #[must_use]
    pub fn with_enabled_capabilities(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.enabled_capabilities.extend(names);
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
    /// Changes through [`Runtime::put_config`] apply immediately, and changes by other processes within about a second.
    #[must_use]
    pub fn agent_factory(mut self, tailor: impl AgentFactory + 'static) -> Self {
        self.agent_factory = Some(Arc::new(tailor));
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Box::new(|toolbox| toolbox.add(tool)));
        self
    }

    /// Adds the tools of a provider, such as an MCP server.
    #[must_use]
    pub fn tools(mut self, provider: impl ToolProvider + 'static) -> Self {
        self.providers.push(Arc::new(provider));
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
            self.services = self.services.grant(WallClock(self.clock.clone()));
        }
        self.tools.push(Box::new(move |toolbox| group.add_to(toolbox)));
        self
    }

    /// Adds tools that read, write and list files below a directory.
    #[must_use]
    pub fn files(mut self, root: FileRoot) -> Self {
        self.services = self.services.grant(root);
        self.tools.push(Box::new(outlast_tools::files));
        self
    }

    /// Adds a tool that fetches web pages within these egress rules.
    #[cfg(feature = "fetch")]
    #[must_use]
    pub fn fetch(mut self, egress: outlast_tools::egress::Egress) -> Self {
        self.services = self.services.grant(egress);
        self.tool(outlast_tools::Fetch)
    }

    /// Adds a tool that runs commands in a sandbox. `outlast::tools::shell::start` must be the first call in `main`.
    #[cfg(all(target_os = "linux", feature = "commands"))]
    pub fn shell(mut self, shell: outlast_tools::shell::Shell) -> Result<Self, Error> {
        shell.check()?;
        let run = outlast_tools::shell::ShellRun::new(&shell);
        self.writable_paths
            .push(WritablePath { path: shell.root().to_owned(), writer: "the shell".to_owned() });
        self.services = self.services.grant(shell);
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
        self.services = self.services.grant(service);
        self
    }

    /// Declares a fingerprint of a service's configuration that no contract contains, such as its directory or hosts.
    ///
    /// It is part of the package's fingerprint and of what an approval covers. A waiting turn therefore resumes with
    /// the configuration it was accepted with.
    #[must_use]
    pub fn service_fingerprint<T: Send + Sync + 'static>(mut self, means: Hash) -> Self {
        self.services = self.services.with_fingerprint::<T>(means);
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
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

    /// Sends metrics to your own sink periodically. To read them at any time, use [`Outlast::metrics`].
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

    /// Starts the worker. It resumes unfinished turns and accepts new inputs.
    pub async fn start(mut self) -> Result<Outlast, Error> {
        self.check_model()?;
        let worker = WorkerId::fresh(self.clock.now(), self.entropy.random_id_bytes());
        let store: Arc<dyn Store> = match &self.storage {
            StorageLocation::File(path) => {
                self.check_database(path)?;
                let options = SqliteOptions {
                    worker: Some(worker),
                    unsafe_durability: self.unsafe_durability,
                    ..SqliteOptions::default()
                };
                Arc::new(SqliteStore::open_with(path, options)?)
            }
            StorageLocation::Memory(memory) => Arc::new(memory.clone()),
        };
        let contents = match self.contents.take() {
            Some(open) => Some(open(&name_of(store.as_ref()).await?)?),
            None => None,
        };
        let org = match &self.org {
            Some(named) => orgs::find_org(store.as_ref(), named).await?,
            None => OrgId::DEFAULT,
        };
        let access = Access::to(org).by(self.by.clone());
        #[cfg_attr(not(feature = "telemetry"), expect(unused_mut))]
        let (mut sinks, mut metrics) = (std::mem::take(&mut self.sinks), self.metrics.take());
        #[cfg(feature = "telemetry")]
        if let Some(settings) = self.telemetry.take() {
            if let Some(traces) = outlast_telemetry::OtlpTraces::new(&settings, store.clone())? {
                sinks.push(traces.into_outlet()?);
            }
            let to = outlast_telemetry::OtlpMetrics::new(&settings)?;
            metrics = to.map(|to| Arc::new(to) as Arc<dyn MetricSink>);
        }
        let tailored = self.agent_factory.take().map(|by| OrgAgentFactory { org, by });
        let config = RuntimeConfig {
            contents,
            sinks,
            metrics,
            agent_factory: tailored,
            ..self.config(store, worker)?
        };
        let runtime = Runtime::start(config).await?.serving(access);
        runtime.listen();
        Ok(Outlast { runtime })
    }

    /// Returns an error if the shell or an MCP server of these agents could write to the database.
    ///
    /// [`Builder::start`] checks the database that it opens. Call this for an agent that joins a running worker
    /// ([`Builder::into_single_agent`]).
    pub fn check_database(&self, database: &Path) -> Result<(), Error> {
        for Self { agent, writable_paths, .. } in std::iter::once(self).chain(&self.other_agents) {
            for WritablePath { path, writer } in writable_paths {
                check_writable_path(&format!("{writer} of the agent `{agent}`"), path, database)?;
            }
        }
        Ok(())
    }

    /// Refuses a model that no provider serves before anything is opened, and reports what its provider lacks.
    fn check_model(&self) -> Result<(), Error> {
        let model = self.model.parse()?;
        if self.models.is_empty() || self.models.iter().any(|provider| provider.info(&model).is_some()) {
            return Ok(());
        }
        let lacks = self.models.iter().find_map(|provider| provider.unavailable_reason(&model));
        let nobody = || Error::new(Kind::ModelUnknown, format!("no provider serves the model `{model}`"));
        Err(lacks.unwrap_or_else(nobody))
    }

    /// Returns the model providers, or the rehearsal model if none is set.
    fn take_models(&mut self) -> Vec<Arc<dyn ModelProvider>> {
        let mut models = std::mem::take(&mut self.models);
        if models.is_empty() {
            models.push(Arc::new(Rehearsal::agent(self.clock.clone())));
        }
        models
    }

    /// Returns the configuration of the runtime on this store. Attachments are stored there too, and no sinks are set.
    pub(crate) fn config(mut self, store: Arc<dyn Store>, worker: WorkerId) -> Result<RuntimeConfig, Error> {
        let models = self.take_models();
        let (others, payments) = (std::mem::take(&mut self.other_agents), self.payments.take());
        let policy_engine = self.policy_engine.take();
        let limiter = self.limiter.take();
        let (clock, entropy, limits) = (self.clock.clone(), self.entropy.clone(), self.limits.clone());
        let tasks = self.tasks.clone();
        let (AgentBundle { package, tools, hooks }, mut plugins) = self.into_agent()?;
        let mut agents = Vec::new();
        for other in others {
            let (agent, more) = other.into_agent()?;
            agents.push(agent);
            plugins = plugins.and(more)?;
        }
        Ok(RuntimeConfig {
            contents: None,
            sinks: Vec::new(),
            metrics: None,
            store,
            models,
            tools,
            hooks,
            plugins,
            payments,
            policy_engine,
            limiter,
            package,
            agents,
            agent_factory: None,
            clock,
            entropy,
            tasks,
            limits,
            worker,
        })
    }

    /// Returns what turns of this agent are pinned to: its package with the contracts of its tools. Starts nothing.
    pub fn pinned(self) -> Result<PinnedPackage, Error> {
        self.into_agent()?.0.pinned()
    }

    /// Like [`Builder::pinned`], but also checks the agent against the models, engine and limits of this builder.
    ///
    /// Returns every error that `start` would return for the agent. Starts and opens nothing.
    pub fn validate(mut self) -> Result<PinnedPackage, Error> {
        self.check_model()?;
        let (models, policy_engine) = (self.take_models(), self.policy_engine.take());
        let (clock, limits) = (self.clock.clone(), self.limits.clone());
        let (agent, _) = self.into_agent()?;
        let (models, tools) = (Arc::new(ModelCatalogue::new(models)), ToolCatalogue::new(Vec::new())?);
        agent.fitted(&AgentResolver { policy_engine, ..AgentResolver::new(models, tools, clock, limits) })
    }

    /// Returns the agent alone, for a worker that is already running ([`Outlast::put_agent`], [`Builder::agent_factory`]).
    /// Plug-ins can only be added at start, so an agent with plug-ins is refused.
    pub fn into_single_agent(self) -> Result<AgentBundle, Error> {
        let (name, brings) = (self.agent.clone(), self.plugins.len());
        if brings > 0 {
            let detail = format!(
                "the agent `{name}` brings plug-ins, and a runtime takes those when it starts; add it with `Builder::also`"
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        self.into_agent().map(|(agent, _)| agent)
    }

    /// Returns the agent alone: its package with all overlays merged, and its tools.
    fn into_agent(self) -> Result<(AgentBundle, Plugins), Error> {
        let mut toolbox = Toolbox::new(self.services);
        for add in self.tools {
            add(&mut toolbox)?;
        }
        let mut plugged = AgentPlugins::install(self.plugins, &self.capabilities)?;
        plugged.add_tools(&mut toolbox)?;
        let mut tools: Vec<Arc<dyn ToolProvider>> = vec![Arc::new(toolbox)];
        tools.extend(self.providers);
        let all = tools.iter().flat_map(|provider| provider.manifests()).map(|manifest| manifest.name);
        let names = plugged.visible_tools(all.collect());
        let mut on = self.enabled_capabilities;
        on.extend(self.capabilities);
        let models: Vec<ModelName> = std::iter::once(self.model)
            .chain(self.fallback_models)
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?;
        let models = Overlay { models, ..Overlay::default() }.named_models()?;
        let NamedModels { first, fallbacks } = models.expect("the first model was put there");
        let seconds = |wait: Duration| u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        let package = Package {
            fallback_models: fallbacks,
            provider_wait_s: self.provider_wait.map(seconds),
            tools: names,
            model_calls: self.limits.model_calls,
            policy: self.policy,
            guard: self.guard,
            budgets: self.budgets,
            rates: self.rates,
            hooks: plugged.used_hooks(&self.hooks),
            capabilities: on,
            ..Package::new(self.agent, first, plugged.system_prompt(self.system))
        };
        let package = fold(package, &self.overlays)?;
        let plugins = plugged.plugins(&package.agent)?;
        Ok((AgentBundle { package, tools, hooks: plugged.hooks(self.hooks) }, plugins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_check_names_the_agent_of_the_server() {
        let clerk = Outlast::agent("clerk").mcp_server_writable("files", "/no/data");
        let builder = Outlast::ephemeral().add_agent(clerk);
        let refused = builder.check_database(Path::new("/no/data/outlast.db")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "config.invalid: the MCP server `files` of the agent `clerk` may change everything in /no/data, and the database \
             /no/data/outlast.db lies there; give one of them a directory of its own"
        );
    }
}

//! Puts the parts together and starts them.
use crate::capability::Capability;
use crate::plugged::Plugged;
use crate::{Session, Turn};
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::contents::Contents;
use outlast_ports::hook::HookAt;
use outlast_ports::memory::Memory;
use outlast_ports::metrics::{MetricSink, Snapshot};
use outlast_ports::model::ModelProvider;
use outlast_ports::orgs;
use outlast_ports::payment::{PaymentAuthority, PaymentDesk};
use outlast_ports::plugin::{Installed, Plugin};
use outlast_ports::policy::PolicyEngine;
use outlast_ports::rate::Limiter;
use outlast_ports::service::Services;
use outlast_ports::sink::Outlet;
use outlast_ports::store::{Store, Target};
use outlast_ports::task::Spawner;
use outlast_ports::tool::{Tool, ToolProvider, Toolbox};
use outlast_providers::Rehearsal;
use outlast_runtime::attachments::{Attachments, name_of};
use outlast_runtime::catalogue::Catalogue;
use outlast_runtime::outfits::fold;
use outlast_runtime::plugins::Plugins;
use outlast_runtime::system::{SystemClock, SystemEntropy, TokioTasks};
use outlast_runtime::tailor::{Tailor, Tailored};
use outlast_runtime::{Agent, Config, Runtime, World};
use outlast_store::{Options, Sqlite};
use outlast_tools::egress::Egress;
use outlast_tools::{Builtin, Fetch, FileRoot, OpenDocument, WallClock};
use outlast_vocab::access::{Access, Principal, Reach};
use outlast_vocab::budget::Budgets;
use outlast_vocab::label::Guard;
use outlast_vocab::message::ModelName;
use outlast_vocab::overlay::{NamedModels, Overlay};
use outlast_vocab::package::{Package, Pinned};
use outlast_vocab::policy::Policy;
use outlast_vocab::rate::Rate;
use outlast_vocab::{Error, Hash, Kind, Limits, OrgId, SessionId, TurnId, WorkerId};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long [`Outlast::shut_down`] waits for turns to come to a step's end.
const DRAIN: Duration = Duration::from_secs(5);

/// What the agent is told when nobody says otherwise.
const SYSTEM: &str = "You are a helpful assistant. Use the tools when they help.";

type OpenContents = Box<dyn FnOnce(&str) -> Result<Arc<dyn Contents>, Error> + Send>;
pub(crate) type Install = Box<dyn FnOnce() -> Result<Installed, Error> + Send>;
type AddTool = Box<dyn FnOnce(&mut Toolbox) -> Result<(), Error> + Send>;

/// The parts of a runtime before it starts.
pub struct Builder {
    place: Place,
    unsafe_durability: bool,
    contents: Option<OpenContents>,
    models: Vec<Arc<dyn ModelProvider>>,
    providers: Vec<Arc<dyn ToolProvider>>,
    services: Services,
    sinks: Vec<Outlet>,
    metrics: Option<Arc<dyn MetricSink>>,
    #[cfg(feature = "telemetry")]
    telemetry: Option<outlast_telemetry::Settings>,
    hooks: Vec<HookAt>,
    plugins: Vec<Install>,
    capabilities: Vec<String>,
    payments: Option<Arc<dyn PaymentAuthority>>,
    policy_engine: Option<Arc<dyn PolicyEngine>>,
    limiter: Option<Arc<dyn Limiter>>,
    tools: Vec<AddTool>,
    /// Places that the shell and MCP servers of the agent may change.
    walls: Vec<WritablePlace>,
    agent: String,
    model: String,
    system: String,
    policy: Policy,
    guard: Guard,
    budgets: Budgets,
    rates: Vec<Rate>,
    fallback_models: Vec<String>,
    provider_wait: Option<Duration>,
    overlays: Vec<Overlay>,
    pub(crate) bundles: Vec<Capability>,
    pub(crate) on: Vec<String>,
    others: Vec<Builder>,
    tailor: Option<Arc<dyn Tailor>>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    tasks: Arc<dyn Spawner>,
    org: Option<String>,
    by: Principal,
}

/// A file or directory that something of an agent may change.
struct WritablePlace {
    path: PathBuf,
    /// What may change it, like "the shell".
    writer: String,
}

enum Place {
    File(PathBuf),
    Memory(Memory),
}

/// A running Outlast, as one organisation has it: the one called `default`, unless another is named. Cheap to clone.
#[derive(Clone)]
pub struct Outlast {
    pub(crate) runtime: Runtime,
}

impl Outlast {
    /// Keeps everything in one SQLite file, which is made if it is not there.
    pub fn at(path: impl AsRef<Path>) -> Builder {
        Builder::new(Place::File(path.as_ref().to_owned()))
    }

    /// Another agent for [`Builder::also`]. Nothing is kept for it: its sessions lie where those of the first agent do.
    pub fn agent(name: impl Into<String>) -> Builder {
        Self::ephemeral().agent(name)
    }

    /// Keeps everything in memory: for tests and scripts that say that nothing needs to survive.
    pub fn ephemeral() -> Builder {
        Builder::new(Place::Memory(Memory::new()))
    }

    /// The session with this key, on its main head; it is opened with its first input.
    pub fn session(&self, key: impl Into<String>) -> Session {
        let fresh = self.runtime.fresh_session();
        Session::new(self.runtime.clone(), Target::Key { key: key.into(), fresh })
    }

    /// The session with this id.
    pub fn session_by_id(&self, id: SessionId) -> Session {
        Session::new(self.runtime.clone(), Target::Id(id))
    }

    /// A new session without a key.
    pub fn new_session(&self) -> Session {
        Session::new(self.runtime.clone(), Target::New(self.runtime.fresh_session()))
    }

    /// A turn that was accepted before, here or by another process.
    pub async fn turn(&self, id: TurnId) -> Result<Turn, Error> {
        Turn::find(self.runtime.clone(), id).await
    }

    /// Lets an agent answer from now on, in place of the one of its name if there is one; gives the fingerprint of its package.
    /// Providers of models, limits and the clock are those of this runtime. Turns that were accepted before keep what they have.
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
        self.runtime.put_agent(agent.into_one()?)
    }

    /// The worker underneath: cancel, resolve, retry, follow.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The store underneath: sessions, records, unknown outcomes.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.runtime.store()
    }

    /// Attachments: read as a stream or by range, wherever their contents lie.
    pub fn attachments(&self) -> Attachments {
        self.runtime.attachments()
    }

    /// What this process has counted since it started, and how things stand: turns, model calls, tokens, tools, writes. It
    /// counts the turns of all organisations. `outlast::telemetry::exposition` writes it as Prometheus reads it.
    pub async fn metrics(&self) -> Result<Snapshot, Error> {
        self.operator().runtime.metrics().await
    }

    /// The same worker for another organisation, by its name or id. Sessions, turns and what waits are those of that
    /// organisation; to this handle nothing else exists.
    pub async fn within(&self, org: &str) -> Result<Self, Error> {
        let org = self.runtime.find_org(org).await?;
        let access = self.runtime.access().clone();
        Ok(self.serving(Access { reach: Reach::Org(org), ..access }))
    }

    /// The same for somebody else, whose name stands in the audit beside what is done.
    #[must_use]
    pub fn by(&self, who: Principal) -> Self {
        self.serving(self.runtime.access().clone().by(who))
    }

    /// The same for whoever holds this API key: in its organisation, in its name, within its scopes.
    pub async fn admit(&self, api_key: &str) -> Result<Self, Error> {
        Ok(self.serving(self.runtime.admit(api_key).await?))
    }

    /// The same over every organisation: to make organisations and to look after all of them.
    #[must_use]
    pub fn operator(&self) -> Self {
        let access = Access { by: self.runtime.access().by.clone(), ..Access::operator() };
        self.serving(access)
    }

    fn serving(&self, access: Access) -> Self {
        Self { runtime: self.runtime.serving(access) }
    }

    /// Stops at the next step's end and hands back what is under way; any other process goes on with it.
    pub async fn shut_down(self) {
        self.runtime.shut_down(DRAIN).await;
    }
}

impl Builder {
    fn new(place: Place) -> Self {
        Self {
            place,
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
            walls: Vec::new(),
            agent: "assistant".to_owned(),
            model: "rehearsal/agent".to_owned(),
            system: SYSTEM.to_owned(),
            policy: Policy::default(),
            guard: Guard::default(),
            budgets: Budgets::default(),
            rates: Vec::new(),
            fallback_models: Vec::new(),
            provider_wait: None,
            overlays: Vec::new(),
            bundles: Vec::new(),
            on: Vec::new(),
            others: Vec::new(),
            tailor: None,
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            tasks: Arc::new(TokioTasks),
            org: None,
            by: Principal::program(),
        }
    }

    /// Serves this organisation, by its name or id, instead of the one called `default`. The worker drives the turns of
    /// all of them; [`Outlast::within`] serves others.
    #[must_use]
    pub fn org(mut self, named: impl Into<String>) -> Self {
        self.org = Some(named.into());
        self
    }

    /// In whose name things are done, as the audit has it; the program's own without it.
    #[must_use]
    pub fn by(mut self, who: Principal) -> Self {
        self.by = who;
        self
    }

    /// Adds a provider of models: [`Providers::from_env`](outlast_providers::Providers::from_env) for those whose keys are
    /// in the environment. Without any, the built-in rehearsal model answers.
    #[must_use]
    pub fn provider(mut self, provider: impl ModelProvider + 'static) -> Self {
        self.models.push(Arc::new(provider));
        self
    }

    /// Which model answers, like `rehearsal/agent`.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// Models that answer where [`Builder::model`] cannot, in this order: while its provider is down, does not accept its key, or has
    /// no credit left.
    #[must_use]
    pub fn fallback_models(mut self, models: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.fallback_models = models.into_iter().map(Into::into).collect();
        self
    }

    /// How long turns of the agent wait for a provider that is down before they fail; [`Limits::provider_wait`] (24 hours) unless set.
    /// Zero fails after a few quick attempts. An input can say something else ([`Sending::with`](crate::Sending::with)).
    #[must_use]
    pub fn provider_wait(mut self, wait: Duration) -> Self {
        self.provider_wait = Some(wait);
        self
    }

    /// What the agent is called.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = name.into();
        self
    }

    /// What the model is told before the first message.
    #[must_use]
    pub fn system(mut self, prompt: impl Into<String>) -> Self {
        self.system = prompt.into();
        self
    }

    /// What the agent's calls may do: the first rule that fits a call decides.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// What becomes of calls that untrusted text may have asked for (R11.4).
    #[must_use]
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// What its turns may use (R11.5).
    #[must_use]
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// How often the agent's calls may go out (R11.7). Rates of one name are shared by all agents of an organisation.
    #[must_use]
    pub fn rates(mut self, rates: impl IntoIterator<Item = Rate>) -> Self {
        self.rates.extend(rates);
        self
    }

    /// Asks this limiter when calls may go out, instead of the database: for processes that share none.
    #[must_use]
    pub fn limiter(mut self, limiter: impl Limiter + 'static) -> Self {
        self.limiter = Some(Arc::new(limiter));
        self
    }

    /// Lets something run at a point of every turn. Hooks of one point run in the order in which they are added.
    ///
    /// ```
    /// use outlast::hook::{BeforeTool, HookAt};
    /// use outlast::vocab::hook::{CallPatch, CallSeen, HookCall};
    ///
    /// # fn example() -> Result<(), outlast::Error> {
    /// let cap = HookAt::new::<BeforeTool>("cap", |_: HookCall, call: CallSeen| async move {
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

    /// Lets tools that name the service `Payments` pay. The authority holds the credentials; no model and no tool sees them.
    #[must_use]
    pub fn payments(mut self, authority: impl PaymentAuthority + 'static) -> Self {
        self.payments = Some(Arc::new(authority));
        self.services = self.services.grant(PaymentDesk);
        self
    }

    /// Decides beside the rules of every agent, at every point; the stricter of both stands. Whatever it fails at is forbidden.
    #[must_use]
    pub fn policy_engine(mut self, engine: impl PolicyEngine + 'static) -> Self {
        self.policy_engine = Some(Arc::new(engine));
        self
    }

    /// Brings a plug-in in, set up with these options: its own type, or anything that reads like it. Options that do not fit
    /// are refused at the start.
    #[must_use]
    pub fn plugin<P: Plugin>(mut self, plugin: P, options: impl Serialize + Send + 'static) -> Self {
        self.plugins.push(Box::new(|| Installed::new(plugin, options)));
        self
    }

    /// Switches on a capability that a plug-in brings: its prompt text, its tools and its hooks. One that a program defines
    /// itself is switched on with [`Builder::switch_on`].
    #[must_use]
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.capabilities.push(name.into());
        self
    }

    /// Puts a layer over the agent: parts of the prompt, a model, model calls, documents, hosts, rules. Layers are folded in
    /// the order they are added: parts join, what may be reached gets less, of the rest the last value counts. Its rules let only
    /// less happen; what a tool that wants an approval may do unasked is for [`Builder::policy`] to say.
    #[must_use]
    pub fn overlay(mut self, overlay: Overlay) -> Self {
        if !overlay.documents.is_empty() && self.overlays.iter().all(|under| under.documents.is_empty()) {
            self = self.tool(OpenDocument);
        }
        self.overlays.push(overlay);
        self
    }

    /// Names capabilities that whoever builds this has switched on; the package of every turn lists them.
    #[must_use]
    pub fn capabilities(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.on.extend(names);
        self
    }

    /// Lets another agent answer too, under its name: [`Sending::answered_by`](crate::Sending::answered_by). Its name, model,
    /// prompt, policy, budgets, hooks, plug-ins, layers, model calls, services and tools are its own; providers of models,
    /// limits, the clock and where everything is kept are this one's.
    #[must_use]
    pub fn also(mut self, agent: Builder) -> Self {
        self.others.push(agent);
        self
    }

    /// Also lets the agents answer that are kept in the database, as this makes them. They follow what is kept: from
    /// [`Runtime::put_config`] on at once, and within a second or so where another process keeps something.
    #[must_use]
    pub fn tailor(mut self, tailor: impl Tailor + 'static) -> Self {
        self.tailor = Some(Arc::new(tailor));
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Box::new(|toolbox| toolbox.add(tool)));
        self
    }

    /// Adds a set of tools that come from elsewhere.
    #[must_use]
    pub fn tools(mut self, provider: impl ToolProvider + 'static) -> Self {
        self.providers.push(Arc::new(provider));
        self
    }

    /// Adds the built-in tools that reach nothing outside: clock, calculator, values, todo list, questions to the user. Files
    /// need a root ([`Builder::files`]), the web needs rules ([`Builder::fetch`]).
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

    /// Adds a tool that reads pages of the web, by this way out.
    #[must_use]
    pub fn fetch(mut self, egress: Egress) -> Self {
        self.services = self.services.grant(egress);
        self.tool(Fetch)
    }

    /// Adds a tool that runs commands behind walls. `outlast::tools::shell::start` must be the first thing in `main`.
    #[cfg(target_os = "linux")]
    pub fn shell(mut self, shell: outlast_tools::shell::Shell) -> Result<Self, Error> {
        shell.check()?;
        let run = outlast_tools::shell::ShellRun::new(&shell);
        self.walls.push(WritablePlace { path: shell.root().to_owned(), writer: "the shell".to_owned() });
        self.services = self.services.grant(shell);
        Ok(self.tool(run))
    }

    /// Says that an MCP server of this agent may write to a file or directory. [`Builder::start`] refuses a database that lies there.
    #[must_use]
    pub fn mcp_server_writes(mut self, server: &str, place: impl Into<PathBuf>) -> Self {
        self.walls.push(WritablePlace { path: place.into(), writer: format!("the MCP server `{server}`") });
        self
    }

    /// Grants a service to every tool that names its type.
    #[must_use]
    pub fn service<T: Send + Sync + 'static>(mut self, service: T) -> Self {
        self.services = self.services.grant(service);
        self
    }

    /// Says what a service is made of, where no contract does: which directory, which hosts. It is in the fingerprint of the package and
    /// in what an approval covers, so a turn that waits goes on with the means it was accepted with.
    #[must_use]
    pub fn made_of<T: Send + Sync + 'static>(mut self, means: Hash) -> Self {
        self.services = self.services.made_of::<T>(means);
        self
    }

    /// Sets the bounds.
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

    /// Runs turns there, such as on threads that do nothing else ([`crate::runtime::system::OwnThreads`]). Without it they run on
    /// the tokio runtime of whoever sends an input.
    #[must_use]
    pub fn tasks(mut self, tasks: impl Spawner + 'static) -> Self {
        self.tasks = Arc::new(tasks);
        self
    }

    /// Keeps the contents of attachments outside the database: in a folder (`file:///srv/files`) or in a bucket that speaks
    /// S3 (`s3://bucket/prefix`), whose keys, region and endpoint come from the usual `AWS_…` variables. Every process that
    /// opens the database needs the same.
    #[cfg(feature = "objects")]
    #[must_use]
    pub fn attachments(self, address: impl Into<String>) -> Self {
        let address = address.into();
        self.contents(move |database| Ok(Arc::new(outlast_objects::Objects::open(&address, database)?)))
    }

    /// Keeps the contents of attachments in a place of your own. It is opened under a name that only this database has;
    /// contents of several databases must not be mixed, or each would take those of the others for unused.
    #[must_use]
    pub fn contents(
        mut self,
        open: impl FnOnce(&str) -> Result<Arc<dyn Contents>, Error> + Send + 'static,
    ) -> Self {
        self.contents = Some(Box::new(open));
        self
    }

    /// Delivers the output of every turn that ends there, under an id that never changes, until it is taken:
    /// `Outlet::new("crm", Webhook::new(…)?)?`.
    #[must_use]
    pub fn sink(mut self, sink: Outlet) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Hands what is measured out, now and then, to a place of your own. [`Outlast::metrics`] reads it at any time.
    #[must_use]
    pub fn metrics(mut self, to: impl MetricSink + 'static) -> Self {
        self.metrics = Some(Arc::new(to));
        self
    }

    /// Tells a collector how turns went: a trace of every turn that ends, and metrics. A turn that was killed and resumed has one
    /// trace; a collector that is down or hangs slows no turn.
    #[cfg(feature = "telemetry")]
    #[must_use]
    pub fn telemetry(mut self, settings: outlast_telemetry::Settings) -> Self {
        self.telemetry = Some(settings);
        self
    }

    /// Gives up durability against power loss for speed. Every status says so.
    #[must_use]
    pub fn unsafe_durability(mut self) -> Self {
        self.unsafe_durability = true;
        self
    }

    /// Starts a worker: from here on it resumes what was left unfinished and takes new inputs.
    pub async fn start(mut self) -> Result<Outlast, Error> {
        self.check_model()?;
        let worker = WorkerId::fresh(self.clock.now(), self.entropy.for_id());
        let store: Arc<dyn Store> = match &self.place {
            Place::File(path) => {
                self.check_database(path)?;
                let options = Options {
                    worker: Some(worker),
                    unsafe_durability: self.unsafe_durability,
                    ..Options::default()
                };
                Arc::new(Sqlite::open_with(path, options)?)
            }
            Place::Memory(memory) => Arc::new(memory.clone()),
        };
        let contents = match self.contents.take() {
            Some(open) => Some(open(&name_of(store.as_ref()).await?)?),
            None => None,
        };
        let org = match &self.org {
            Some(named) => orgs::find(store.as_ref(), named).await?,
            None => OrgId::DEFAULT,
        };
        let access = Access::to(org).by(self.by.clone());
        #[cfg_attr(not(feature = "telemetry"), expect(unused_mut))]
        let (mut sinks, mut metrics) = (std::mem::take(&mut self.sinks), self.metrics.take());
        #[cfg(feature = "telemetry")]
        if let Some(settings) = self.telemetry.take() {
            if let Some(traces) = outlast_telemetry::Traces::new(&settings, store.clone())? {
                sinks.push(traces.into_outlet()?);
            }
            let to = outlast_telemetry::Metrics::new(&settings)?;
            metrics = to.map(|to| Arc::new(to) as Arc<dyn MetricSink>);
        }
        let tailored = self.tailor.take().map(|by| Tailored { org, by });
        let config = Config { contents, sinks, metrics, tailored, ..self.config(store, worker)? };
        let runtime = Runtime::start(config).await?.serving(access);
        runtime.listen();
        Ok(Outlast { runtime })
    }

    /// Refuses a database that the shell or an MCP server of these agents could change. [`Builder::start`] does so with the database that
    /// it opens. Call it for an agent that joins a runtime later ([`Builder::into_one`]).
    pub fn check_database(&self, database: &Path) -> Result<(), Error> {
        for Self { agent, walls, .. } in std::iter::once(self).chain(&self.others) {
            for WritablePlace { path, writer } in walls {
                let place = resolved(path);
                if !holds_database(&place, database) {
                    continue;
                }
                let detail = format!(
                    "{writer} of the agent `{agent}` may change everything in {}, and the database {} lies there; give one of \
                     them a directory of its own",
                    place.display(),
                    database.display()
                );
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        Ok(())
    }

    /// Refuses a model that nobody serves before anything is opened, and says what its provider lacks (R1.5).
    fn check_model(&self) -> Result<(), Error> {
        let model = self.model.parse()?;
        if self.models.is_empty() || self.models.iter().any(|provider| provider.info(&model).is_some()) {
            return Ok(());
        }
        let lacks = self.models.iter().find_map(|provider| provider.why_not(&model));
        let nobody = || Error::new(Kind::ModelUnknown, format!("no provider serves the model `{model}`"));
        Err(lacks.unwrap_or_else(nobody))
    }

    /// Who speaks to models; the rehearsal model where nobody says who.
    fn served(&mut self) -> Vec<Arc<dyn ModelProvider>> {
        let mut models = std::mem::take(&mut self.models);
        if models.is_empty() {
            models.push(Arc::new(Rehearsal::agent(self.clock.clone())));
        }
        models
    }

    /// Everything the runtime is made of, on this store. Contents of attachments lie there too, and outputs go nowhere.
    pub(crate) fn config(mut self, store: Arc<dyn Store>, worker: WorkerId) -> Result<Config, Error> {
        let models = self.served();
        let (others, payments) = (std::mem::take(&mut self.others), self.payments.take());
        let policy_engine = self.policy_engine.take();
        let limiter = self.limiter.take();
        let (clock, entropy, limits) = (self.clock.clone(), self.entropy.clone(), self.limits.clone());
        let tasks = self.tasks.clone();
        let (Agent { package, tools, hooks }, mut plugins) = self.into_agent()?;
        let mut agents = Vec::new();
        for other in others {
            let (agent, more) = other.into_agent()?;
            agents.push(agent);
            plugins = plugins.and(more)?;
        }
        Ok(Config {
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
            tailored: None,
            clock,
            entropy,
            tasks,
            limits,
            worker,
        })
    }

    /// What turns of this agent are pinned to: its package, with the contracts of its tools. Nothing is started.
    pub fn pinned(self) -> Result<Pinned, Error> {
        self.into_agent()?.0.pinned()
    }

    /// The same, if the models, the engine and the bounds of this builder can run it: whatever `start` would refuse of the
    /// agent is refused. Nothing is started or opened.
    pub fn fitted(mut self) -> Result<Pinned, Error> {
        self.check_model()?;
        let (models, policy_engine) = (self.served(), self.policy_engine.take());
        let (clock, entropy, limits) = (self.clock.clone(), self.entropy.clone(), self.limits.clone());
        let (agent, plugins) = self.into_agent()?;
        let mut world = World::new(models, Catalogue::new(Vec::new())?, clock, entropy, limits);
        (world.policy_engine, world.plugins) = (policy_engine, plugins);
        agent.fitted(&world)
    }

    /// The agent alone, for a runtime that is there already ([`Outlast::put_agent`], [`Builder::tailor`]). Plug-ins belong to a
    /// start: an agent that brings some is refused.
    pub fn into_one(self) -> Result<Agent, Error> {
        let (name, brings) = (self.agent.clone(), self.plugins.len());
        if brings > 0 {
            let detail = format!(
                "the agent `{name}` brings plug-ins, and a runtime takes those when it starts; add it with `Builder::also`"
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        self.into_agent().map(|(agent, _)| agent)
    }

    /// The agent alone: its package with all its layers folded, and its tools.
    fn into_agent(self) -> Result<(Agent, Plugins), Error> {
        let mut toolbox = Toolbox::new(self.services);
        for add in self.tools {
            add(&mut toolbox)?;
        }
        let mut plugged = Plugged::of(self.plugins, &self.capabilities)?;
        plugged.add_tools(&mut toolbox)?;
        let mut tools: Vec<Arc<dyn ToolProvider>> = vec![Arc::new(toolbox)];
        tools.extend(self.providers);
        let all = tools.iter().flat_map(|provider| provider.manifests()).map(|manifest| manifest.name);
        let names = plugged.visible(all.collect());
        let mut on = self.on;
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
            hooks: plugged.uses(&self.hooks),
            capabilities: on,
            ..Package::new(self.agent, first, plugged.told(self.system))
        };
        let package = fold(package, &self.overlays)?;
        let plugins = plugged.plugins(&package.agent)?;
        Ok((Agent { package, tools, hooks: plugged.hooks(self.hooks) }, plugins))
    }
}

/// Returns a path without links and relative parts, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolved(parent).join(name),
        _ => path,
    }
}

/// Whether a place holds a file of a database, or would once that is made.
fn holds_database(place: &Path, database: &Path) -> bool {
    let database = std::path::absolute(database).unwrap_or_else(|_| database.to_owned());
    // If the database is opened through a link, the link matters as the file does.
    let link = match (database.parent(), database.file_name()) {
        (Some(dir), Some(name)) => resolved(dir).join(name),
        _ => database.clone(),
    };
    [resolved(&database), link].iter().any(|file| file.starts_with(place) || is_beside(place, file))
}

/// Whether a place is one of the files and directories beside a database, such as `NAME-wal` and `NAME-workers`, or below one.
fn is_beside(place: &Path, database: &Path) -> bool {
    let (Some(dir), Some(name)) = (database.parent(), database.file_name()) else { return false };
    let first = place.strip_prefix(dir).ok().and_then(|below| below.components().next());
    let ending =
        first.and_then(|first| first.as_os_str().as_encoded_bytes().strip_prefix(name.as_encoded_bytes()));
    ending.is_some_and(|ending| ending.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn writable_places_that_hold_the_database_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("data")).unwrap();
        std::os::unix::fs::symlink("data/real.db", root.join("link.db")).unwrap();
        fs::write(root.join("data/real.db"), "").unwrap();
        for (place, database, holds) in [
            ("", "data/outlast.db", true),
            ("data", "data/outlast.db", true),
            ("data/outlast.db", "data/outlast.db", true),
            ("data/outlast.db-wal", "data/outlast.db", true),
            ("data/outlast.db-workers/x", "data/outlast.db", true),
            ("data", "link.db", true),
            ("link.db", "link.db", true),
            ("data/../data", "data/outlast.db", true),
            ("new", "new/outlast.db", true),
            ("data/notes", "data/outlast.db", false),
            ("data/outlast.dbx", "data/outlast.db", false),
            ("dat", "data/outlast.db", false),
        ] {
            let builder = Outlast::ephemeral().mcp_server_writes("files", root.join(place));
            let refused = builder.check_database(&root.join(database)).is_err();
            assert_eq!(refused, holds, "{place} {database}");
        }
    }

    #[test]
    fn server_of_another_agent_is_named() {
        let clerk = Outlast::agent("clerk").mcp_server_writes("files", "/no/data");
        let builder = Outlast::ephemeral().also(clerk);
        let refused = builder.check_database(Path::new("/no/data/outlast.db")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "config.invalid: the MCP server `files` of the agent `clerk` may change everything in /no/data, and the database \
             /no/data/outlast.db lies there; give one of them a directory of its own"
        );
    }
}

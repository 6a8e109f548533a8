//! The worker: accepts inputs, claims sessions, drives their turns, renews leases and recovers the sessions of dead
//! workers.
//!
//! [`Runtime`] is the handle to a worker. It knows no HTTP and no SQL. `lease_loop` claims sessions, `session_driver` drives
//! them, `turn_drive` drives one turn, and `worker_queries` has the read-only queries. `active_drives` is what these parts
//! share.
use crate::agents::agent_factory::OrgAgentFactory;
use crate::agents::agent_registry::{AgentBundle, AgentRegistry};
use crate::agents::agent_resolver::AgentResolver;
use crate::agents::plugins::Plugins;
use crate::attachments::attachment_access::AttachmentAccess;
use crate::attachments::{Attachments, SweepReport};
use crate::calls::catalogue::ToolCatalogue;
use crate::calls::payments::{PaymentClient, PaymentOutboxSender};
use crate::calls::tool_runner::ToolServices;
use crate::delivery::events::SessionEventStream;
use crate::delivery::live::{LiveHub, LiveListener, ReplyProgress};
use crate::delivery::sink_delivery::SinkDeliveries;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::limits::tool_limits::ExternalRateLimiter;
use crate::policy::hooks::Hooks;
use crate::turn::conversation_cache::ConversationCache;
use crate::turn::drive::TurnDriver;
use crate::turn::journal_writer::WorkerJournal;
use crate::turn::model_client::{ModelCatalogue, ModelClient};
use crate::views::metrics::WorkerMetrics;
use crate::views::unreported_write_time::UnreportedWriteTime;
use crate::worker::keys::{ApiKeyGrant, issue};
use crate::worker::tasks::Tasks;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::contents::ContentStorage;
use outlast_ports::hook::HookAt;
use outlast_ports::metrics::{MetricSink, MetricsSnapshot};
use outlast_ports::model::ModelProvider;
use outlast_ports::orgs;
use outlast_ports::payment::PaymentAuthority;
use outlast_ports::policy::PolicyEngine;
use outlast_ports::rate::RateLimiter;
use outlast_ports::sink::SubscribedSink;
use outlast_ports::spawner::Spawner;
use outlast_ports::store::Store;
use outlast_ports::tool::ToolProvider;
use outlast_views::Org;
use outlast_vocab::access::{Access, ApiKey};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::message::Name;
use outlast_vocab::package::Package;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Kind, Limits, Millis, OrgId, SessionId, TurnId, WorkerId};
use std::sync::Arc;
use std::time::Duration;

mod active_drives;
mod agent_changes;
mod agent_reload;
mod content_sweeper;
mod hook_observers;
mod inputs;
pub mod keys;
mod lease_loop;
mod metrics_export;
mod outage_wakeups;
mod session_driver;
mod suspect_trial;
pub mod system;
pub(crate) mod tasks;
mod trigger_tasks;
mod turn_control;
mod turn_drive;
mod watchdog;
mod worker_agents;
mod worker_queries;

pub use inputs::{Input, RepeatableRequest};
pub use worker_queries::{RunningTurn, WorkerLoad};

use active_drives::ActiveDrives;
use agent_reload::AgentReloadLoop;
use content_sweeper::ContentSweeper;
use hook_observers::HookObservers;
use lease_loop::LeaseLoop;
use metrics_export::{MetricsExport, MetricsReader};
use outage_wakeups::OutageWakeups;
use session_driver::SessionDriver;
use turn_drive::{LeasedTurnDriver, SharedHostParts};
use watchdog::{ObservedPolls, Watchdog};
use worker_agents::WorkerAgents;

/// How long a stopping worker waits for dropped tasks that block their threads.
const BLOCKED_WAIT: Duration = Duration::from_secs(1);

/// The configuration of a runtime.
pub struct RuntimeConfig {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where attachment contents are stored. `None` means the store.
    pub contents: Option<Arc<dyn ContentStorage>>,
    /// The model providers.
    pub models: Vec<Arc<dyn ModelProvider>>,
    /// The tool providers of the default agent.
    pub tools: Vec<Arc<dyn ToolProvider>>,
    /// The hooks that agents can use at points of a turn.
    pub hooks: Vec<HookAt>,
    /// The plug-ins, which inputs may carry values for.
    pub plugins: Plugins,
    /// The payment authority, if there is one.
    pub payments: Option<Arc<dyn PaymentAuthority>>,
    /// The external policy engine, if there is one. It decides in addition to the rules of agents.
    pub policy_engine: Option<Arc<dyn PolicyEngine>>,
    /// The rate limiter for tool calls. `None` means the store.
    pub limiter: Option<Arc<dyn RateLimiter>>,
    /// The sinks that the outputs of turns are delivered to.
    pub sinks: Vec<SubscribedSink>,
    /// Where metrics are exported to, if anywhere.
    pub metrics: Option<Arc<dyn MetricSink>>,
    /// The default agent, which answers inputs that name no agent.
    pub package: Package,
    /// The other agents.
    pub agents: Vec<AgentBundle>,
    /// The agent factory that loads agents from the database, if there is one.
    pub agent_factory: Option<OrgAgentFactory>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of random bits.
    pub entropy: Arc<dyn Entropy>,
    /// Spawns the tasks of the worker.
    pub tasks: Arc<dyn Spawner>,
    /// The limits.
    pub limits: Limits,
    /// The id of this worker.
    pub worker: WorkerId,
}

/// A handle to a running worker. Cheap to clone. [`Runtime::shut_down`] stops the worker.
///
/// The worker drives turns of all organisations. Requests through a handle use the access of that handle: the
/// operator's, unless it is restricted with [`Runtime::serving`].
#[derive(Clone)]
pub struct Runtime {
    state: Arc<RuntimeState>,
    /// The store, restricted to the access of this handle.
    store: Arc<dyn Store>,
    access: Arc<Access>,
}

/// What the methods of [`Runtime`] use. Everything that a worker runs beside them has its own parts.
struct RuntimeState {
    journal: Arc<WorkerJournal>,
    entropy: Arc<dyn Entropy>,
    metrics: MetricsReader,
    models: Arc<ModelCatalogue>,
    operator_budgets: Arc<OperatorBudgets>,
    plugins: Plugins,
    agents: Arc<WorkerAgents>,
    /// The secret that signs completion keys and seals API keys.
    secret: [u8; 32],
    drives: Arc<ActiveDrives>,
    sessions: Arc<SessionDriver>,
    deliveries: Arc<SinkDeliveries>,
    sweeper: Arc<ContentSweeper>,
}

impl Runtime {
    /// Starts a worker. Missing models, tools and hooks are errors here, before any turn runs.
    pub async fn start(config: RuntimeConfig) -> Result<Self, Error> {
        if config.models.is_empty() {
            return Err(Error::new(Kind::PortMissing, "no model provider is configured"));
        }
        let RuntimeConfig { store, clock, entropy, worker, plugins, .. } = config;
        let (started, limits) = (clock.elapsed(), Arc::new(config.limits));
        let models = Arc::new(ModelCatalogue::new(config.models));
        let resolver = AgentResolver {
            models: models.clone(),
            tools: Arc::new(ToolCatalogue::new(config.tools)?),
            hooks: Arc::new(Hooks::new(config.hooks)?),
            policy_engine: config.policy_engine,
            clock: clock.clone(),
            limits: limits.clone(),
        };
        let registry = AgentRegistry::new(config.package, config.agents, resolver)?;
        // Load agents before turns are driven, because a turn may need one of them.
        let agents = Arc::new(WorkerAgents::load(registry, config.agent_factory, store.clone()).await?);
        let operator_budgets = Arc::new(OperatorBudgets::default());
        operator_budgets.refresh(store.as_ref()).await?;
        let secret = store.secret().await?;
        let journal = Arc::new(WorkerJournal {
            hub: Arc::new(LiveHub::new(limits.live_frames)),
            attachments: AttachmentAccess::new(config.contents, limits.clone()),
            metrics: Arc::new(WorkerMetrics::since(clock.now())),
            unreported_writes: UnreportedWriteTime::default(),
            store,
            clock,
            limits,
        });
        let WorkerJournal { store, clock, limits, hub, attachments, metrics, .. } = &*journal;
        let deliveries = SinkDeliveries::open(journal.clone(), entropy.clone(), worker, config.sinks).await?;
        let model_client = ModelClient {
            catalogue: models.clone(),
            clock: clock.clone(),
            entropy: entropy.clone(),
            limits: limits.clone(),
            hub: hub.clone(),
            metrics: metrics.clone(),
        };
        let services = ToolServices {
            models: Arc::new(model_client),
            attachments: attachments.clone(),
            payments: PaymentClient {
                authority: config.payments,
                clock: clock.clone(),
                limits: limits.clone(),
            },
            budgets: operator_budgets.clone(),
        };
        let (deadline, pace) = (limits.limiter_deadline, clock.clone());
        let hosts = SharedHostParts {
            journal: journal.clone(),
            secret,
            conversations: Arc::new(ConversationCache::new(limits.recent_bytes)),
            limiter: config.limiter.map(|limiter| ExternalRateLimiter { limiter, clock: pace, deadline }),
        };
        let (drives, tasks) = (Arc::new(ActiveDrives::new(worker, limits)), Tasks::new(config.tasks));
        let turns = LeasedTurnDriver {
            drives: drives.clone(),
            agents: agents.clone(),
            hosts,
            turn_driver: TurnDriver::with(services),
            observers: HookObservers { tasks: tasks.clone(), store: store.clone() },
        };
        let store = store.clone();
        let metrics =
            MetricsReader { journal: journal.clone(), models: models.clone(), drives: drives.clone() };
        let state = Arc::new(RuntimeState {
            sweeper: Arc::new(ContentSweeper::new(journal.clone(), worker)),
            sessions: Arc::new(SessionDriver { tasks, deliveries: deliveries.clone(), turns }),
            journal,
            entropy,
            metrics,
            models,
            operator_budgets,
            plugins,
            agents,
            secret,
            drives,
            deliveries,
        });
        state.start_lease_loop(started);
        state.start_background_tasks(config.metrics);
        Ok(Self { state, store, access: Arc::new(Access::operator()) })
    }

    /// Returns a handle to the same worker with this access, which may be wider than that of this handle.
    #[must_use]
    pub fn serving(&self, access: Access) -> Self {
        let state = self.state.clone();
        let store = state.journal.store.clone().serving(access.clone());
        Self { state, store, access: Arc::new(access) }
    }

    /// Returns the access of this handle.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Finds an organisation by its id or name.
    pub async fn find_org(&self, named: &str) -> Result<OrgId, Error> {
        orgs::find_org(self.state.journal.store.as_ref(), named).await
    }

    /// Creates an organisation. Requires operator access.
    pub async fn create_org(&self, name: Name) -> Result<Org, Error> {
        let id = OrgId::fresh(self.now(), self.state.entropy.random_id_bytes());
        let org = Org { id, name, created: self.now() };
        self.store.create_org(org.clone()).await?;
        Ok(org)
    }

    /// Creates an API key. The key is shown only once.
    pub async fn issue_key(&self, grant: ApiKeyGrant) -> Result<ApiKey, Error> {
        let RuntimeState { secret, entropy, .. } = &*self.state;
        issue(self.store.as_ref(), secret, grant, self.now(), entropy.as_ref()).await
    }

    /// Returns the access of an API key. All invalid keys get the same error.
    pub async fn admit(&self, key: &str) -> Result<Access, Error> {
        self.state.journal.store.authenticate(key.parse()?, self.now()).await
    }

    /// Returns the limits of this worker.
    pub fn limits(&self) -> &Limits {
        &self.state.journal.limits
    }

    /// Returns the source of random bits.
    pub fn entropy(&self) -> &dyn Entropy {
        self.state.entropy.as_ref()
    }

    /// Returns the tools of the default agent.
    pub fn tools(&self) -> &ToolCatalogue {
        self.state.agents.registry.default_tools()
    }

    /// Returns the store, restricted to the access of this handle.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the attachments, restricted to the access of this handle.
    pub fn attachments(&self) -> Attachments {
        self.state.journal.attachments.in_store(&self.store)
    }

    /// Returns the sinks of this worker.
    pub fn outlets(&self) -> &[SubscribedSink] {
        self.state.deliveries.outlets()
    }

    /// Retries one delivery of a sink, or all that were given up, with a fresh number of attempts. Returns how many.
    /// Requires operator access.
    pub async fn redeliver(&self, sink: &str, only: Option<DeliveryId>) -> Result<u64, Error> {
        let revived = self.store.redeliver(sink.to_owned(), only, self.now()).await?;
        self.state.deliveries.wake_sinks();
        Ok(revived)
    }

    /// Sends an empty test message to a sink of this worker and returns its answer.
    pub async fn try_sink(&self, sink: &str) -> Result<String, Error> {
        let outlet =
            self.outlets().iter().find(|outlet| outlet.subscription.name == sink).ok_or_else(|| {
                let detail = format!("no sink is called `{sink}` here; `outlast sinks` lists the sinks");
                Error::new(Kind::DeliveryNotFound, detail)
            })?;
        let now = self.now();
        outlet.sink.send_test(DeliveryId::fresh(now, self.state.entropy.random_id_bytes()), now).await
    }

    /// Returns the counters of this worker since it started, and its current gauges. Requires operator access, because
    /// it covers the turns of all organisations.
    pub async fn metrics(&self) -> Result<MetricsSnapshot, Error> {
        self.state.metrics.snapshot(self.store.as_ref()).await
    }

    /// Deletes contents outside the database that are not referenced.
    pub async fn sweep(&self) -> Result<SweepReport, Error> {
        self.state.sweeper.sweep().await
    }

    /// Returns a fresh session id.
    pub fn fresh_session(&self) -> SessionId {
        SessionId::fresh(self.now(), self.state.entropy.random_id_bytes())
    }

    /// Returns a fresh turn id.
    pub fn fresh_turn(&self) -> TurnId {
        TurnId::fresh(self.now(), self.state.entropy.random_id_bytes())
    }

    /// Returns the current time of this worker.
    pub fn now(&self) -> Millis {
        self.state.journal.clock.now()
    }

    /// Follows a session from a cursor.
    pub fn events(&self, session: SessionId, after: Seq) -> SessionEventStream {
        self.event_stream(LiveListener::new(&self.state.journal.hub, session), after)
    }

    fn event_stream(&self, live: LiveListener, after: Seq) -> SessionEventStream {
        let WorkerJournal { clock, limits, .. } = &*self.state.journal;
        SessionEventStream::new(self.store.clone(), clock.clone(), limits.page_rows, live, after)
    }

    /// Returns the replies that models write now for the turns of this worker.
    pub fn replies_in_progress(&self) -> Vec<ReplyProgress> {
        self.state.journal.hub.replies(self.access.visibility)
    }

    /// Waits until this worker drives no turn, has none to claim, and no delivery is due.
    pub async fn idle(&self) -> Result<(), Error> {
        let drives = &self.state.drives;
        loop {
            // Check in this order: a claimed session is driven before its claim is no longer in progress.
            let has_work = self.state.journal.store.has_work(drives.worker(), self.now()).await?;
            let rests = !has_work && !drives.is_claiming() && drives.count() == 0;
            if rests && self.state.deliveries.are_idle().await? {
                return Ok(());
            }
            drives.wake();
            self.state.deliveries.wake_sinks();
            self.state.journal.clock.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops claiming work, lets turns finish their current step, and hands their sessions back. Turns that need longer
    /// than `patience` are dropped and handed back too. The next worker then finds their calls interrupted.
    pub async fn shut_down(self, patience: Duration) {
        let RuntimeState { drives, sessions, journal, .. } = &*self.state;
        let WorkerJournal { clock, store, .. } = &**journal;
        let tasks = &sessions.tasks;
        drives.stop();
        tokio::select! {
            biased;
            () = tasks.ended() => return,
            () = clock.sleep(patience) => {}
        }
        let leases = drives.leases();
        tokio::select! {
            biased;
            () = tasks.drop_all() => {}
            // A task that blocks its thread cannot be dropped.
            () = clock.sleep(BLOCKED_WAIT) => {}
        }
        let blocked: Vec<SessionId> = drives.polled().into_iter().map(|(lease, _)| lease.session).collect();
        for lease in leases {
            if blocked.contains(&lease.session) {
                tracing::error!(session = %lease.session, turn = %lease.turn, "a turn blocks its thread; its session is not handed back");
                continue;
            }
            match store.release_lease(lease, clock.now()).await {
                // It has just finished its step.
                Err(error) if error.kind() == Kind::LeaseLost => {}
                Err(error) => {
                    tracing::warn!(%error, "a session could not be handed back; its lease runs out");
                }
                Ok(()) => {}
            }
        }
    }
}

impl RuntimeState {
    /// Starts the loop that renews leases and claims work. `started` is when this worker started.
    fn start_lease_loop(&self, started: Duration) {
        let (journal, drives) = (self.journal.clone(), self.drives.clone());
        let seen = ObservedPolls::since(journal.clock.elapsed());
        let lease_loop = LeaseLoop {
            watchdog: Watchdog { journal: journal.clone(), drives: drives.clone(), seen },
            journal,
            drives,
            sessions: self.sessions.clone(),
            operator_budgets: self.operator_budgets.clone(),
            started,
        };
        self.sessions.tasks.spawn(lease_loop.run());
    }

    /// Starts everything else that runs beside turns.
    fn start_background_tasks(&self, metric_sink: Option<Arc<dyn MetricSink>>) {
        let Self { journal, drives, .. } = self;
        let (tasks, limits) = (&self.sessions.tasks, &journal.limits);
        self.deliveries.start(tasks, &drives.stopping());
        let payments = &self.sessions.turns.turn_driver.services().payments;
        if payments.authority.is_some() {
            let outbox = PaymentOutboxSender { payments: payments.clone(), journal: journal.clone() };
            tasks.spawn(outbox.retry(self.deliveries.subscribe_wakeups(), drives.stopping()));
        }
        if let Some(sink) = metric_sink {
            let export =
                MetricsExport { reader: self.metrics.clone(), sink, deadline: limits.delivery_deadline };
            tasks.spawn(export.run(drives.stopping()));
        }
        let (models, own) = (self.models.clone(), drives.clone());
        tasks.spawn(OutageWakeups { journal: journal.clone(), models, drives: own }.run());
        if journal.attachments.is_external() {
            tasks.spawn(self.sweeper.clone().run(limits.sweep_every, drives.stopping()));
        }
        if let Some(reloader) = self.agents.reloader.clone() {
            let reload = AgentReloadLoop { reloader, journal: journal.clone() };
            tasks.spawn(reload.run(drives.stopping()));
        }
    }
}

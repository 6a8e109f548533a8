//! The worker: accepts inputs, claims sessions, drives their turns, renews leases and recovers the sessions of dead
//! workers.
//!
//! [`Runtime`] is the handle to a worker. It knows no HTTP and no SQL. `turn_drive` drives one turn, `background_loops` runs the
//! background work, and `worker_queries` has the read-only queries.
use crate::agents::agent_factory::{AgentReloader, OrgAgentFactory};
use crate::agents::agent_registry::{AgentBundle, AgentRegistry};
use crate::agents::agent_resolver::AgentResolver;
use crate::agents::plugins::Plugins;
use crate::attachments::attachment_access::AttachmentAccess;
use crate::attachments::{Attachments, SweepReport};
use crate::calls::catalogue::ToolCatalogue;
use crate::calls::payments::{PaymentClient, PaymentOutbox};
use crate::calls::tool_runner::ToolServices;
use crate::delivery::events::SessionEventStream;
use crate::delivery::live::{LiveHub, LiveListener};
use crate::delivery::sink_delivery::SinkDeliveries;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::limits::tool_limits::ExternalRateLimiter;
use crate::policy::hooks::Hooks;
use crate::turn::conversation_cache::ConversationCache;
use crate::turn::drive::TurnDriver;
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
use outlast_vocab::{Error, Kind, Limits, Millis, OrgId, SessionId, WorkerId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

mod active_drives;
mod agent_changes;
mod background_loops;
mod inputs;
pub mod keys;
mod metrics_export;
mod outage_wakeups;
mod suspect_trial;
pub mod system;
pub(crate) mod tasks;
mod trigger_tasks;
mod turn_control;
mod turn_drive;
mod watchdog;
mod worker_queries;

pub use inputs::Input;
pub use worker_queries::{RunningTurn, WorkerLoad};

use active_drives::ActiveDrive;

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
    inner: Arc<WorkerState>,
    /// The store, restricted to the access of this handle.
    store: Arc<dyn Store>,
    access: Arc<Access>,
}

struct WorkerState {
    store: Arc<dyn Store>,
    worker: WorkerId,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    limits: Arc<Limits>,
    hub: Arc<LiveHub>,
    metrics: Arc<WorkerMetrics>,
    /// Waits for writes that no later write has stored yet.
    unreported_writes: Arc<UnreportedWriteTime>,
    models: Arc<ModelCatalogue>,
    attachments: AttachmentAccess,
    payments: PaymentClient,
    operator_budgets: Arc<OperatorBudgets>,
    limiter: Option<ExternalRateLimiter>,
    plugins: Plugins,
    turn_driver: TurnDriver,
    agent_registry: Arc<AgentRegistry>,
    agent_reloader: Option<AgentReloader>,
    secret: [u8; 32],
    driving: Mutex<BTreeMap<SessionId, ActiveDrive>>,
    tasks: Arc<Tasks>,
    wake: Notify,
    stopping: watch::Sender<bool>,
    /// Whether turns hand back their sessions at the end of their step, because the worker stops or wants to run a
    /// suspect alone.
    yielding: watch::Sender<bool>,
    /// Whether this worker runs a suspect, or waits to.
    on_trial: AtomicBool,
    /// When this worker started, on the monotonic clock.
    started: Duration,
    conversations: Arc<ConversationCache>,
    deliveries: Arc<SinkDeliveries>,
    /// Locked while this worker deletes unused contents.
    sweeping: tokio::sync::Mutex<()>,
    /// The number of claims in progress: sessions that may be claimed but are not driven yet.
    taking: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runtime {
    /// Starts a worker. Missing models, tools and hooks are errors here, before any turn runs.
    pub async fn start(config: RuntimeConfig) -> Result<Self, Error> {
        let RuntimeConfig { store, contents, models, tools, hooks, plugins, sinks, package, agents, .. } =
            config;
        let RuntimeConfig {
            payments,
            metrics: metric_sink,
            limiter,
            policy_engine,
            agent_factory,
            clock,
            entropy,
            tasks,
            limits,
            worker,
            ..
        } = config;
        if models.is_empty() {
            return Err(Error::new(Kind::PortMissing, "no model provider is configured"));
        }
        let (started, limits) = (clock.elapsed(), Arc::new(limits));
        let hub = Arc::new(LiveHub::new(limits.live_frames));
        let metrics = Arc::new(WorkerMetrics::since(clock.now()));
        let models = Arc::new(ModelCatalogue::new(models));
        let attachments = AttachmentAccess::new(contents, limits.clone());
        let payments = PaymentClient { authority: payments, clock: clock.clone(), limits: limits.clone() };
        let operator_budgets = Arc::new(OperatorBudgets::default());
        let resolver = AgentResolver {
            models: models.clone(),
            tools: Arc::new(ToolCatalogue::new(tools)?),
            hooks: Arc::new(Hooks::new(hooks)?),
            policy_engine,
            clock: clock.clone(),
            limits: limits.clone(),
        };
        let agent_registry = Arc::new(AgentRegistry::new(package, agents, resolver)?);
        let agent_reloader =
            agent_factory.map(|factory| AgentReloader::new(factory, store.clone(), agent_registry.clone()));
        // Load agents before turns are driven, because a turn may need one of them.
        if let Some(agent_reloader) = &agent_reloader {
            agent_reloader.look().await?;
        }
        operator_budgets.refresh(store.as_ref()).await?;
        let deliveries = SinkDeliveries::open(
            clock.clone(),
            entropy.clone(),
            limits.clone(),
            store.clone(),
            worker,
            sinks,
        )
        .await?;
        let model_client = Arc::new(ModelClient {
            catalogue: models.clone(),
            clock: clock.clone(),
            entropy: entropy.clone(),
            limits: limits.clone(),
            hub: hub.clone(),
            metrics: metrics.clone(),
        });
        let tool_services =
            ToolServices::new(model_client, attachments.clone(), payments.clone(), operator_budgets.clone());
        let limiter = limiter.map(|limiter| ExternalRateLimiter {
            limiter,
            clock: clock.clone(),
            deadline: limits.limiter_deadline,
        });
        let inner = Arc::new(WorkerState {
            secret: store.secret().await?,
            store,
            worker,
            clock,
            entropy,
            hub,
            metrics,
            unreported_writes: Arc::default(),
            models,
            attachments,
            payments,
            operator_budgets,
            limiter,
            plugins,
            turn_driver: TurnDriver::with(tool_services),
            agent_registry,
            agent_reloader,
            driving: Mutex::default(),
            tasks: Tasks::new(tasks),
            wake: Notify::new(),
            stopping: watch::Sender::new(false),
            yielding: watch::Sender::new(false),
            on_trial: AtomicBool::new(false),
            started,
            conversations: Arc::new(ConversationCache::new(limits.recent_bytes)),
            limits,
            deliveries,
            sweeping: tokio::sync::Mutex::default(),
            taking: AtomicUsize::new(0),
        });
        inner.spawn_background_tasks(metric_sink);
        Ok(Self::of_operator(inner))
    }

    fn of_operator(inner: Arc<WorkerState>) -> Self {
        let store = inner.store.clone();
        Self { inner, store, access: Arc::new(Access::operator()) }
    }

    /// Returns a handle to the same worker with this access, which may be wider than that of this handle.
    #[must_use]
    pub fn serving(&self, access: Access) -> Self {
        let inner = self.inner.clone();
        let store = inner.store.clone().serving(access.clone());
        Self { inner, store, access: Arc::new(access) }
    }

    /// Returns the access of this handle.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Finds an organisation by its id or name.
    pub async fn find_org(&self, named: &str) -> Result<OrgId, Error> {
        orgs::find_org(self.inner.store.as_ref(), named).await
    }

    /// Creates an organisation. Requires operator access.
    pub async fn create_org(&self, name: Name) -> Result<Org, Error> {
        let id = OrgId::fresh(self.now(), self.inner.entropy.random_id_bytes());
        let org = Org { id, name, created: self.now() };
        self.store.create_org(org.clone()).await?;
        Ok(org)
    }

    /// Creates an API key. The key is shown only once.
    pub async fn issue_key(&self, grant: ApiKeyGrant) -> Result<ApiKey, Error> {
        let WorkerState { secret, entropy, .. } = &*self.inner;
        issue(self.store.as_ref(), secret, grant, self.now(), entropy.as_ref()).await
    }

    /// Returns the access of an API key. All invalid keys get the same error.
    pub async fn admit(&self, key: &str) -> Result<Access, Error> {
        self.inner.store.authenticate(key.parse()?, self.now()).await
    }

    /// Returns the limits of this worker.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Returns the source of random bits.
    pub fn entropy(&self) -> &dyn Entropy {
        self.inner.entropy.as_ref()
    }

    /// Returns the tools of the default agent.
    pub fn tools(&self) -> &ToolCatalogue {
        self.inner.agent_registry.default_tools()
    }

    /// Returns the store, restricted to the access of this handle.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the attachments, restricted to the access of this handle.
    pub fn attachments(&self) -> Attachments {
        self.inner.attachments.in_store(&self.store)
    }

    /// Returns the sinks of this worker.
    pub fn outlets(&self) -> &[SubscribedSink] {
        self.inner.deliveries.outlets()
    }

    /// Retries one delivery of a sink, or all that were given up, with a fresh number of attempts. Returns how many.
    /// Requires operator access.
    pub async fn redeliver(&self, sink: &str, only: Option<DeliveryId>) -> Result<u64, Error> {
        let revived = self.store.redeliver(sink.to_owned(), only, self.now()).await?;
        self.inner.deliveries.wake_sinks();
        Ok(revived)
    }

    /// Sends an empty test message to a sink of this worker and returns its answer.
    pub async fn try_sink(&self, sink: &str) -> Result<String, Error> {
        let outlet =
            self.outlets().iter().find(|outlet| outlet.subscription.name == sink).ok_or_else(|| {
                let detail =
                    format!("no sink is called `{sink}` here; `outlast sinks` lists those that there are");
                Error::new(Kind::DeliveryNotFound, detail)
            })?;
        let now = self.now();
        outlet.sink.send_test(DeliveryId::fresh(now, self.inner.entropy.random_id_bytes()), now).await
    }

    /// Returns the counters of this worker since it started, and its current gauges. Requires operator access, because
    /// it covers the turns of all organisations.
    pub async fn metrics(&self) -> Result<MetricsSnapshot, Error> {
        metrics_export::snapshot(&self.inner, self.store.as_ref()).await
    }

    /// Deletes contents outside the database that are not referenced.
    pub async fn sweep(&self) -> Result<SweepReport, Error> {
        let _alone = self.inner.sweeping.lock().await;
        self.inner.attachments.in_store(&self.inner.store).sweep(self.inner.worker, self.now()).await
    }

    /// Returns a fresh session id.
    pub fn fresh_session(&self) -> SessionId {
        SessionId::fresh(self.now(), self.inner.entropy.random_id_bytes())
    }

    /// Returns the current time of this worker.
    pub fn now(&self) -> Millis {
        self.inner.clock.now()
    }

    /// Follows a session from a cursor.
    pub fn events(&self, session: SessionId, after: Seq) -> SessionEventStream {
        self.event_stream(LiveListener::new(self.inner.hub.clone(), session), after)
    }

    fn event_stream(&self, live: LiveListener, after: Seq) -> SessionEventStream {
        let (clock, page_rows) = (self.inner.clock.clone(), self.inner.limits.page_rows);
        SessionEventStream::new(self.store.clone(), clock, page_rows, live, after)
    }

    /// Waits until this worker drives no turn, has none to claim, and no delivery is due.
    pub async fn idle(&self) -> Result<(), Error> {
        loop {
            // Check in this order: a claimed session is added to `driving` before it is removed from `taking`.
            let has_work = self.inner.store.has_work(self.inner.worker, self.now()).await?;
            let taking = self.inner.taking.load(Ordering::SeqCst) > 0;
            let rests = !has_work && !taking && lock(&self.inner.driving).is_empty();
            if rests && self.inner.deliveries.are_idle().await? {
                return Ok(());
            }
            self.inner.wake.notify_one();
            self.inner.deliveries.wake_sinks();
            self.inner.clock.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops claiming work, lets turns finish their current step, and hands their sessions back. Turns that need longer
    /// than `patience` are dropped and handed back too. The next worker then finds their calls interrupted.
    pub async fn shut_down(self, patience: Duration) {
        let WorkerState { stopping, yielding, tasks, clock, store, .. } = &*self.inner;
        stopping.send_replace(true);
        yielding.send_replace(true);
        tokio::select! {
            biased;
            () = tasks.ended() => return,
            () = clock.sleep(patience) => {}
        }
        let leases = self.inner.leases();
        tokio::select! {
            biased;
            () = tasks.drop_all() => {}
            // A task that blocks its thread cannot be dropped.
            () = clock.sleep(BLOCKED_WAIT) => {}
        }
        let blocked = self.inner.blocked();
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

impl WorkerState {
    /// Starts everything that runs beside turns.
    fn spawn_background_tasks(self: &Arc<Self>, metric_sink: Option<Arc<dyn MetricSink>>) {
        self.tasks.spawn(background_loops::keep(self.clone()));
        self.deliveries.start(&self.tasks, &self.stopping);
        if self.payments.authority.is_some() {
            let (payments, store) = (self.payments.clone(), self.store.clone());
            let outbox = PaymentOutbox { payments, store, hub: self.hub.clone() };
            self.tasks.spawn(outbox.retry(self.deliveries.subscribe_wakeups(), self.stopping.subscribe()));
        }
        if let Some(sink) = metric_sink {
            self.tasks.spawn(metrics_export::export_metrics(self.clone(), sink));
        }
        self.tasks.spawn(outage_wakeups::wake_after_outages(self.clone()));
        if self.attachments.is_external() {
            self.tasks.spawn(background_loops::sweep(self.clone()));
        }
        if self.agent_reloader.is_some() {
            self.tasks.spawn(background_loops::reload_agents(self.clone()));
        }
    }
}

//! The worker: accepts inputs, claims sessions, drives their turns, renews leases and recovers the sessions of dead
//! workers.
//!
//! [`Runtime`] is the handle to a worker. It knows no HTTP and no SQL. `turn_drive` drives one turn, `background_loops` runs the
//! background work, and `worker_queries` has the read-only queries.
use crate::agents::agent_factory::{
    AgentReloader, ConfigChange, ConfigEffect, FailedAgent, OrgAgentFactory, SavedConfig,
};
use crate::agents::agent_registry::{AgentBundle, AgentRegistry, InputLayers};
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
use crate::limits::budget_meter::BudgetMeter;
use crate::limits::operator_budgets::OperatorBudgets;
use crate::limits::tool_limits::ExternalRateLimiter;
use crate::policy::approvals::Approvals;
use crate::policy::hooks::Hooks;
use crate::turn::cancel::{CancelSignal, Canceller, cancel};
use crate::turn::conversation_cache::ConversationCache;
use crate::turn::drive::TurnDriver;
use crate::turn::model_client::{ModelCatalogue, ModelClient};
use crate::turn::model_request::backoff;
use crate::turn::output_schema::check_schema;
use crate::views::metrics::WorkerMetrics;
use crate::views::unreported_write_time::UnreportedWriteTime;
use crate::worker::keys::{ApiKeyGrant, issue};
use crate::worker::tasks::Tasks;
use outlast_ports::attachment_upload::AttachmentUpload;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::contents::ContentStorage;
use outlast_ports::hook::HookAt;
use outlast_ports::inbox::{AcceptReceipt, AcceptRequest, RetryRequest, SessionTarget};
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
use outlast_ports::turns::{ClaimedTurn, Fence, Lease, LeaseRequest};
use outlast_views::{
    CancelOutcome, ConfigKind, Org, ResolveResult, RetryOutcome, RetryPlace, StoredConfig, TurnState,
    VoteOutcome,
};
use outlast_vocab::access::{Access, ApiKey, Scope};
use outlast_vocab::budget::{Budget, BudgetAccount};
use outlast_vocab::id::{ApprovalId, CallId, DeliveryId};
use outlast_vocab::message::{Message, Name, Part, PluginName, json_size};
use outlast_vocab::overlay::Overlay;
use outlast_vocab::package::Package;
use outlast_vocab::policy::Approval;
use outlast_vocab::record::{InputDelivery, OutcomeVerdict, Seq, TurnEnd};
use outlast_vocab::tool::ClientTool;
use outlast_vocab::trace::TraceParent;
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::{
    Error, Hash, Kind, Limits, Millis, OrgId, ReplayKey, SessionId, TurnId, WorkerId, limits,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

mod background_loops;
pub mod keys;
mod metrics_export;
mod outage_wakeups;
mod suspect_trial;
pub mod system;
pub(crate) mod tasks;
mod trigger_tasks;
mod turn_drive;
mod watchdog;
mod worker_queries;

pub use worker_queries::{RunningTurn, WorkerLoad};

/// How often [`Runtime::outcome`] checks a turn that is parked or driven by another worker.
const LOOK_FOR_END: Duration = Duration::from_millis(100);

/// How long a stopping worker waits for dropped tasks that block their threads.
const BLOCKED_WAIT: Duration = Duration::from_secs(1);

/// How often the attachments of one input are uploaded, if they may have been deleted in between.
const PLACED_AT_MOST: u32 = 5;

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

/// An input for a session.
#[derive(Clone, Debug)]
pub struct Input {
    /// The session.
    pub target: SessionTarget,
    /// The content.
    pub parts: Vec<Part>,
    /// The caller's idempotency key.
    pub key: Option<String>,
    /// The hash of the request. If it is set, reusing the key with another request is an error.
    pub request: Option<Hash>,
    /// The index that its turn must have in the session, from 0. If another input came first, this one is rejected with
    /// `session.moved`. `None` accepts any index.
    pub index: Option<u32>,
    /// How it is delivered if another turn is running.
    pub delivery: InputDelivery,
    /// The head of the session.
    pub head: String,
    /// A JSON Schema that the answer must match.
    pub output: Option<Value>,
    /// Values for plug-ins.
    pub plugins: BTreeMap<PluginName, Value>,
    /// The trace span that caused it. It does not affect the turn: a repeated idempotency key matches whatever the span
    /// is.
    pub traceparent: Option<TraceParent>,
    /// Messages from outside this session that the model is shown before the input.
    pub before: Vec<Message>,
    /// A note of the sender, returned with the input. It does not affect the turn.
    pub note: Option<Value>,
    /// Tools that the sender runs. The turn parks at a call of one until it is resolved.
    pub client_tools: Vec<ClientTool>,
    /// The agent that answers. `None` means the default agent.
    pub agent: Option<String>,
    /// The overlays of the session and of the turn, in this order.
    pub overlays: Vec<Overlay>,
    /// Seconds that its turn waits for a provider that is down. Applies only if neither the agent nor an overlay sets
    /// it.
    pub provider_wait_s: Option<u32>,
    /// The attachments. They are appended to the input, unless a part of it or of the earlier messages refers to them.
    /// The bytes are stored separately, and the message only refers to them. Store a stream first, with
    /// [`Runtime::attachments`].
    pub files: Vec<AttachmentUpload>,
}

impl Input {
    /// Creates an input with a text, on the main head of a session.
    pub fn text(target: SessionTarget, text: impl Into<String>) -> Self {
        let parts = vec![Part::text(text)];
        Self {
            target,
            parts,
            key: None,
            request: None,
            index: None,
            delivery: InputDelivery::Next,
            head: MAIN_HEAD.to_owned(),
            output: None,
            plugins: BTreeMap::new(),
            traceparent: None,
            before: Vec::new(),
            note: None,
            client_tools: Vec::new(),
            agent: None,
            overlays: Vec::new(),
            provider_wait_s: None,
            files: Vec::new(),
        }
    }
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

/// A session that this worker drives.
struct ActiveDrive {
    turn: TurnId,
    fence: Fence,
    canceller: Arc<Canceller>,
    org: OrgId,
    since: Millis,
    /// The agent that answers, once it is known.
    agent: Option<String>,
    /// Measures how long its task blocks its thread.
    poll: Arc<watchdog::PollTimer>,
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

    /// Installs an agent in place of the one with its name, and returns the fingerprint of its package. Turns that were
    /// accepted before keep their package.
    pub fn put_agent(&self, agent: AgentBundle) -> Result<Hash, Error> {
        self.inner.agent_registry.put(agent)
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
        self.inner
            .agent_reloader
            .as_ref()
            .filter(|agent_reloader| agent_reloader.org() == self.access.reach.home())
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

    /// Accepts an input. When this returns, the input is durable, and this worker or the one that holds the session
    /// will drive its turn.
    pub async fn submit(&self, input: Input) -> Result<AcceptReceipt, Error> {
        self.accept_input(input, |_| ()).await.map(|(accepted, ())| accepted)
    }

    /// Accepts an input and follows its session. Subscribes before the turn can start, so no live event is missed.
    pub async fn submit_watched(&self, input: Input) -> Result<(AcceptReceipt, SessionEventStream), Error> {
        let listen = |session| LiveListener::new(self.inner.hub.clone(), session);
        let live = listen(self.session_of(&input.target).await?);
        self.accept_input(input, |accepted| {
            // This is the session that was looked up, unless another caller has just opened it under the same key.
            let live = if live.session() == accepted.session { live } else { listen(accepted.session) };
            self.event_stream(live, Seq(0)).starting_at(accepted)
        })
        .await
    }

    /// Returns the id of the target session, which may not exist yet.
    async fn session_of(&self, target: &SessionTarget) -> Result<SessionId, Error> {
        match target {
            SessionTarget::New(id) | SessionTarget::Id(id) => Ok(*id),
            SessionTarget::Key { key, fresh } => match self.store.session_by_key(key.clone()).await {
                Ok(found) => Ok(found.id),
                Err(error) if error.kind() == Kind::SessionNotFound => Ok(*fresh),
                Err(error) => Err(error),
            },
        }
    }

    /// Accepts an input. Calls `meanwhile` after the input is durable and before its turn starts.
    async fn accept_input<T>(
        &self,
        input: Input,
        meanwhile: impl FnOnce(&AcceptReceipt) -> T,
    ) -> Result<(AcceptReceipt, T), Error> {
        let inner = &self.inner;
        check_input(&input, &inner.limits, self.attachments().most())?;
        inner.plugins.check(&input.plugins)?;
        let Input { target, mut parts, key, request, index, delivery, head, output, .. } = input;
        let Input { plugins, traceparent, before, note, client_tools, agent, overlays, files, .. } = input;
        let provider_wait_s = input.provider_wait_s;
        let layers = InputLayers { overlays: &overlays, client_tools: &client_tools, provider_wait_s };
        let resolved_agent = inner.agent_registry.chosen(agent.as_deref(), layers, self.access.reach)?;
        let before_it = before.iter().filter_map(|message| match message {
            Message::User { parts } => Some(parts.as_slice()),
            Message::Assistant { .. } | Message::Tool { .. } => None,
        });
        let given_parts: Vec<&[Part]> = before_it.chain([parts.as_slice()]).collect();
        let refers = |part: &Part, file: &AttachmentUpload| matches!(part, Part::Attachment { attachment } if attachment.id == file.attachment().id);
        let is_shown = |file: &&AttachmentUpload| {
            given_parts.iter().any(|parts| parts.iter().any(|part| refers(part, file)))
        };
        let others: Vec<Part> = files
            .iter()
            .filter(|file| !is_shown(file))
            .map(|file| Part::Attachment { attachment: file.attachment().clone() })
            .collect();
        parts.extend(others);
        let now = self.now();
        let _taking = ClaimGuard::new(&inner.taking);
        let is_metered = !resolved_agent.budgets.is_empty() || inner.operator_budgets.are_set();
        let file_bytes = files.iter().map(AttachmentUpload::bytes).sum();
        let first = is_metered
            .then(|| {
                BudgetMeter::first(&resolved_agent, &inner.models, &inner.limits, &parts, file_bytes, now)
            })
            .flatten();
        let accept = AcceptRequest {
            target,
            turn: TurnId::fresh(now, inner.entropy.random_id_bytes()),
            key,
            request,
            index,
            delivery,
            head,
            output,
            plugins,
            traceparent,
            before,
            note,
            package: Some(resolved_agent.fingerprint),
            blobs: resolved_agent.to_store(),
            files: Vec::new(),
            now,
            lease_request: inner.lease_request(now),
            first,
            queued_most: inner.limits.queued_inputs,
            parts,
        };
        let began = inner.clock.elapsed();
        let accepted = self.accept(accept, files).await?;
        let waited = inner.clock.elapsed().saturating_sub(began);
        inner.metrics.committed(waited);
        if !accepted.duplicate {
            inner.metrics.accepted();
            inner.unreported_writes.waited(accepted.turn, waited);
        }
        resolved_agent.was_stored();
        let AcceptReceipt { session, turn, duplicate, .. } = &accepted;
        tracing::info!(%session, %turn, duplicate, "an input was accepted");
        let made = meanwhile(&accepted);
        inner.hub.committed(accepted.session, accepted.place.seq);
        let AcceptReceipt { session, turn, duplicate, place, work } = accepted;
        match work {
            Some(work) => inner.spawn(work),
            None => inner.wake.notify_one(),
        }
        Ok((AcceptReceipt { session, turn, duplicate, place, work: None }, made))
    }

    /// Writes an input after its attachments are uploaded. If some of them may have been deleted meanwhile, they are
    /// checked and uploaded again.
    async fn accept(
        &self,
        accept: AcceptRequest,
        mut files: Vec<AttachmentUpload>,
    ) -> Result<AcceptReceipt, Error> {
        let inner = &self.inner;
        if files.is_empty() {
            return self.store.accept(accept).await;
        }
        // Use the worker's store, because where contents are stored does not depend on the access of the handle.
        let attachments = inner.attachments.in_store(&inner.store);
        for tries in 1.. {
            let placed = attachments.place(files.clone()).await?;
            match self.store.accept(AcceptRequest { files: placed, ..accept.clone() }).await {
                Err(error) if error.kind() == Kind::AttachmentSwept && tries < PLACED_AT_MOST => {
                    tracing::info!(%error, "contents are looked for again");
                    let Limits { backoff_first, backoff_most, .. } = *inner.limits;
                    inner.clock.sleep(backoff(backoff_first, backoff_most, tries)).await;
                    files = attachments.confirm(files, inner.worker, self.now()).await?;
                }
                written => return written,
            }
        }
        unreachable!("the last try returns")
    }

    /// Waits until a turn has ended and returns how. An input that joined another turn ends as that one does.
    pub async fn outcome(&self, turn: TurnId) -> Result<TurnEnd, Error> {
        let mut turn = turn;
        loop {
            // Most turns are driven here and publish their end. The store knows the others.
            let end = match self.inner.hub.end_of(turn, self.access.reach).await {
                Some(end) => Some(end),
                None => self.store.turn(turn).await?.end,
            };
            match end {
                Some(TurnEnd::Joined { into }) => turn = into,
                Some(end) => return Ok(end),
                None => self.inner.clock.sleep(LOOK_FOR_END).await,
            }
        }
    }

    /// Cancels a turn. The request is durable when this returns.
    pub async fn cancel(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        let cancelled = self.store.cancel(turn, reason.to_owned(), self.now()).await?;
        self.stop(turn, reason);
        Ok(cancelled)
    }

    /// Cancels a turn and undoes its calls, newest first. The request is durable when this returns.
    pub async fn abort(&self, turn: TurnId, reason: &str) -> Result<CancelOutcome, Error> {
        let aborted = self.store.abort(turn, reason.to_owned(), self.now()).await?;
        self.stop(turn, reason);
        Ok(aborted)
    }

    fn stop(&self, turn: TurnId, reason: &str) {
        for driving in lock(&self.inner.driving).values().filter(|driving| driving.turn == turn) {
            driving.canceller.cancel(reason);
        }
        // A turn that had not begun has ended now.
        self.inner.deliveries.wake_sinks();
        self.inner.wake.notify_one();
    }

    /// Resolves a wait with its completion key. The first resolution wins.
    pub async fn resolve(&self, key: &CompletionKey, resolution: Resolution) -> Result<ResolveResult, Error> {
        key.check(&self.inner.secret)?;
        let resolved = self.store.resolve(key.turn, key.key.clone(), resolution, self.now()).await?;
        self.inner.wake.notify_one();
        Ok(resolved)
    }

    /// Returns the questions for approval in all sessions.
    pub fn approvals(&self) -> Approvals {
        Approvals::new(self.store.clone())
    }

    /// Approves, denies or edits the call of a question.
    pub async fn approve(&self, id: ApprovalId, approval: Approval) -> Result<VoteOutcome, Error> {
        let voted = self.approvals().decide(id, approval, self.now()).await?;
        self.inner.wake.notify_one();
        Ok(voted)
    }

    /// Overrides the budget of an agent, or removes the override. Turns that wait for a budget try again.
    pub async fn set_budget(&self, account: BudgetAccount, budget: Option<Budget>) -> Result<(), Error> {
        self.store.set_budget(account, budget, self.now()).await?;
        self.inner.operator_budgets.refresh(self.inner.store.as_ref()).await?;
        self.inner.wake.notify_one();
        Ok(())
    }

    /// Settles a call of unknown outcome. Its payments are settled or released.
    pub async fn settle(&self, call: CallId, verdict: OutcomeVerdict) -> Result<SessionId, Error> {
        let session = self.store.settle(call, verdict, self.now()).await?;
        self.inner.deliveries.wake_sinks();
        Ok(session)
    }

    /// Returns the completion key of a wait.
    pub async fn key_of(&self, turn: TurnId, wait: &ReplayKey) -> Result<CompletionKey, Error> {
        self.store.completion_key(turn, wait.clone()).await
    }

    /// Wakes a turn that is stuck or waits for its provider, so that it tries again now.
    pub async fn retry(&self, turn: TurnId) -> Result<(), Error> {
        let view = self.store.turn(turn).await?;
        let session = self.store.session(view.session).await?;
        let wakes = |wait: &Wait| match wait.kind {
            WaitKind::Event => wait.key.is_stuck(),
            WaitKind::Provider => true,
            _ => false,
        };
        let wait = session.waits.into_iter().find(wakes);
        let Some(wait) = wait.filter(|_| session.active == Some(turn)) else {
            let detail = format!("{turn} is neither stuck nor waiting for its provider");
            return Err(Error::new(Kind::WaitNotFound, detail));
        };
        let now = self.now();
        self.store.resolve(turn, wait.key, Resolution::Ok(Value::Null), now).await?;
        self.inner.wake.notify_one();
        Ok(())
    }

    /// Retries a turn. A turn that is stuck or waits for its provider continues immediately.
    ///
    /// A turn that failed, was cancelled, was sealed or ran out of budget is retried as a new turn with the same input
    /// and agent. Answers of the original are reused, and calls of unknown outcome stay unknown. Calling this again
    /// returns the same retry while it is running or if it has an answer.
    ///
    /// # Errors
    /// `turn.superseded` if later turns follow on its head and `place` is not a fork, `turn.not_retryable` if it ended
    /// otherwise, `wait.not_found` if it is running and not stuck.
    pub async fn retry_turn(&self, turn: TurnId, place: RetryPlace) -> Result<RetryOutcome, Error> {
        let view = self.store.turn(turn).await?;
        if view.state != TurnState::Ended {
            self.retry(turn).await?;
            return Ok(RetryOutcome::Woken);
        }
        let inner = &self.inner;
        let now = self.now();
        let _taking = ClaimGuard::new(&inner.taking);
        let fork = (place == RetryPlace::Fork).then(|| self.fresh_session());
        let fresh = TurnId::fresh(now, inner.entropy.random_id_bytes());
        let (lease_request, queued_most) = (inner.lease_request(now), inner.limits.queued_inputs);
        let accepted =
            self.store.retry(RetryRequest { turn, fresh, fork, now, lease_request, queued_most }).await?;
        let AcceptReceipt { session, turn: retry, duplicate, place, work } = accepted;
        tracing::info!(%session, %turn, %retry, duplicate, "a turn is retried");
        if !duplicate {
            inner.metrics.accepted();
        }
        inner.hub.committed(session, place.seq);
        match work {
            Some(work) => inner.spawn(work),
            None => inner.wake.notify_one(),
        }
        Ok(RetryOutcome::NewTurn { session, turn: retry, duplicate })
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

fn check_input(input: &Input, limits: &Limits, (name, most): (&'static str, usize)) -> Result<(), Error> {
    let bytes: usize = input.parts.iter().filter_map(Part::as_text).map(str::len).sum();
    let says_nothing = bytes == 0 && input.parts.iter().all(|part| part.as_text().is_some());
    if says_nothing && input.files.is_empty() {
        return Err(Error::new(Kind::InputInvalid, "an input must say something, but this one is empty"));
    }
    let carried: usize = input.plugins.values().chain(&input.note).map(json_size).sum();
    let before: usize = input.before.iter().map(Message::size).sum();
    limits::check("input_bytes", bytes + carried + before, limits.input_bytes)?;
    if !input.before.is_empty() && input.delivery == InputDelivery::Join {
        let detail = "an input that joins a turn cannot bring what was said before it";
        return Err(Error::new(Kind::InputInvalid, detail));
    }
    for value in input.plugins.values() {
        limits::check_depth("json_depth", value, limits.json_depth)?;
    }
    limits::check("key_bytes", input.key.as_ref().map_or(0, String::len), limits.key_bytes)?;
    limits::check("key_bytes", input.head.len(), limits.key_bytes)?;
    limits::check("attachments_per_input", input.files.len(), limits.attachments_per_input)?;
    for file in &input.files {
        limits::check(name, usize::try_from(file.bytes()).unwrap_or(usize::MAX), most)?;
    }
    if let Some(schema) = &input.output {
        check_schema(schema, limits)?;
    }
    check_target(&input.target, limits)
}

fn check_target(target: &SessionTarget, limits: &Limits) -> Result<(), Error> {
    match target {
        SessionTarget::Key { key, .. } if key.is_empty() => {
            Err(Error::new(Kind::InputInvalid, "a session key must not be empty"))
        }
        SessionTarget::Key { key, .. } => limits::check("key_bytes", key.len(), limits.key_bytes),
        SessionTarget::New(_) | SessionTarget::Id(_) => Ok(()),
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

    /// Returns the claim of this worker on a session, unless it is full or stopping.
    fn lease_request(&self, now: Millis) -> Option<LeaseRequest> {
        let free = self.free_slots() > 0 && !*self.stopping.borrow();
        free.then(|| LeaseRequest { worker: self.worker, until: now.after(self.limits.lease) })
    }

    fn free_slots(&self) -> usize {
        self.limits.sessions_at_once.saturating_sub(lock(&self.driving).len())
    }

    /// Drives a session in a separate task.
    fn spawn(self: &Arc<Self>, work: ClaimedTurn) {
        let driven = self.begin(&work);
        self.tasks.spawn(turn_drive::drive_session(self.clone(), work, driven));
    }

    /// Registers a turn as driven here.
    fn begin(&self, work: &ClaimedTurn) -> DriveHandles {
        let ClaimedTurn { lease, org, .. } = work;
        let (canceller, cancel_signal) = cancel();
        let canceller = Arc::new(canceller);
        self.hub.begins(lease.turn, *org);
        let Lease { turn, fence, .. } = *lease;
        let since = self.clock.now();
        let poll = Arc::new(watchdog::PollTimer::default());
        let driving = ActiveDrive {
            turn,
            fence,
            canceller: canceller.clone(),
            org: *org,
            since,
            agent: None,
            poll: poll.clone(),
        };
        lock(&self.driving).insert(lease.session, driving);
        DriveHandles { canceller, cancel: cancel_signal, poll }
    }

    /// Returns whether a session is still driven under this lease. A worker that lost a session may have claimed it
    /// again before the first drive has noticed.
    fn drives(&self, lease: &Lease) -> bool {
        lock(&self.driving).get(&lease.session).is_some_and(|driving| driving.fence == lease.fence)
    }

    /// Returns the leases of all sessions that are driven here.
    fn leases(&self) -> Vec<Lease> {
        let lease = |(session, driving): (&SessionId, &ActiveDrive)| Lease {
            session: *session,
            turn: driving.turn,
            worker: self.worker,
            fence: driving.fence,
        };
        lock(&self.driving).iter().map(lease).collect()
    }

    /// Returns the sessions whose tasks are being polled. After all tasks were dropped, those block their threads.
    fn blocked(&self) -> Vec<SessionId> {
        let driving = lock(&self.driving);
        let polled = driving.iter().filter(|(_, driving)| driving.poll.since().is_some());
        polled.map(|(session, _)| *session).collect()
    }

    /// Records which agent answers under this lease.
    fn is_answered_by(&self, lease: &Lease, agent: &str) {
        if let Some(driving) = lock(&self.driving).get_mut(&lease.session)
            && driving.fence == lease.fence
        {
            driving.agent = Some(agent.to_owned());
        }
    }

    /// Removes a session that is no longer driven under this lease.
    fn stop_driving(&self, lease: &Lease) {
        if let Entry::Occupied(driving) = lock(&self.driving).entry(lease.session)
            && driving.get().fence == lease.fence
        {
            driving.remove();
        }
    }
}

/// The cancellation handles and the poll timer of one drive.
struct DriveHandles {
    canceller: Arc<Canceller>,
    cancel: CancelSignal,
    poll: Arc<watchdog::PollTimer>,
}

/// Counts a claim in progress until it is dropped.
struct ClaimGuard<'a>(&'a AtomicUsize);

impl<'a> ClaimGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

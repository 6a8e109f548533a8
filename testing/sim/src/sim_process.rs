//! One life of a process: the real store and the real worker on a simulated machine.
use crate::effect_recorder::EffectRecorder;
use crate::hooks;
use crate::model::{self, SimModel};
use crate::plan::{ProviderOutage, SimPlan};
use crate::sim_mcp_server::SimMcpClient;
use crate::sim_time::{ProcessClock, SimTime};
use crate::task_scheduler::{SimProcessNo, TaskScheduler};
use crate::tools::{self, ToolEnvironment};
use outlast_disk::Mount;
use outlast_ports::clock::CountingEntropy;
use outlast_ports::payment::InMemoryPaymentAuthority;
use outlast_ports::tool::ToolProvider;
use outlast_runtime::{Runtime, RuntimeConfig};
use outlast_store::{ManualWriter, SimulatedMachine, SqliteOptions, SqliteStore};
use outlast_vocab::package::Package;
use outlast_vocab::policy::Policy;
use outlast_vocab::tool::{ToolContract, ToolManifest};
use outlast_vocab::{Error, Limits, WorkerId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The path of the database on every simulated disk.
pub(crate) const DATABASE: &str = "/outlast.db";

/// The workers that are known to be dead.
#[derive(Clone, Default)]
pub(crate) struct DeadWorkers(Arc<Mutex<BTreeSet<WorkerId>>>);

impl DeadWorkers {
    pub(crate) fn mark_dead(&self, worker: WorkerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(worker);
    }

    fn holds(&self, worker: WorkerId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&worker)
    }
}

/// The state that all lives of a world share.
pub(crate) struct SimSharedState {
    pub(crate) time: Arc<SimTime>,
    pub(crate) witness: Arc<EffectRecorder>,
    pub(crate) dead: DeadWorkers,
    pub(crate) model_faults: Arc<std::collections::BTreeMap<u64, model::SimModelFault>>,
    pub(crate) outages: Arc<Vec<ProviderOutage>>,
    has_fallback: bool,
    pub(crate) limits: Limits,
    /// The payment authority.
    pub(crate) cashbox: Arc<InMemoryPaymentAuthority>,
    /// The changes that scenarios make to the agent.
    special: Vec<fn(&mut Package)>,
}

impl SimSharedState {
    /// Creates the shared state for a plan.
    pub(crate) fn new(plan: &SimPlan) -> Self {
        let mut limits = Limits::default();
        for session in 0..plan.session_scenarios.len() {
            (plan.scenario(session).limits)(&mut limits);
        }
        Self {
            time: Arc::default(),
            witness: Arc::default(),
            dead: DeadWorkers::default(),
            model_faults: Arc::new(plan.model_faults.clone()),
            outages: Arc::new(plan.outages.clone()),
            has_fallback: plan.has_fallback,
            limits,
            cashbox: Arc::new(InMemoryPaymentAuthority::with_money(["100 EUR".parse().expect("an amount")])),
            special: (0..plan.session_scenarios.len()).map(|session| plan.scenario(session).agent).collect(),
        }
    }

    /// Returns the agent without its tools.
    pub(crate) fn agent(&self) -> Result<Package, Error> {
        let mut agent = Package {
            model_calls: self.limits.model_calls,
            policy: Policy { rules: vec![tools::guard()?, tools::trusts_bank()?] },
            ..Package::new("sim", model::NAME.parse()?, "Play.")
        };
        if self.has_fallback {
            agent.fallback_models = vec![model::FALLBACK.parse()?];
        }
        for special in &self.special {
            special(&mut agent);
        }
        Ok(agent)
    }

    /// Returns the contracts of the simulated tools.
    pub(crate) fn contracts(&self) -> Result<Vec<ToolContract>, Error> {
        let clock = ProcessClock::new(self.time.clone(), 0);
        let (witness, time) = (self.witness.clone(), self.time.clone());
        let toolbox = tools::toolbox(&ToolEnvironment { witness, clock, time, life: 0 })?;
        let contract = |manifest: ToolManifest| toolbox.contract(&manifest.name).cloned();
        Ok(toolbox.manifests().into_iter().filter_map(contract).collect())
    }
}

/// A live process.
pub(crate) struct SimProcess {
    pub(crate) no: SimProcessNo,
    pub(crate) worker: WorkerId,
    pub(crate) clock: Arc<ProcessClock>,
    pub(crate) writer: ManualWriter,
    pub(crate) paused_until: u64,
    /// The worker, once it has started.
    runtime: Arc<Mutex<Option<Runtime>>>,
    store: Arc<SqliteStore>,
    // Last, because the connections above use it.
    pub(crate) mount: Mount,
}

/// Opens the database on a mount.
pub(crate) fn open(
    mount: &Mount,
    worker: Option<WorkerId>,
    dead: DeadWorkers,
) -> Result<(SqliteStore, ManualWriter), Error> {
    SqliteStore::open_simulated(SimulatedMachine {
        vfs: mount.vfs().to_owned(),
        path: DATABASE.into(),
        options: SqliteOptions { worker, busy_timeout: Duration::ZERO, ..SqliteOptions::default() },
        is_dead: Arc::new(move |worker| dead.holds(worker)),
    })
}

impl SimProcess {
    /// Starts a process. Its first task starts the worker.
    pub(crate) fn start(
        no: SimProcessNo,
        mount: Mount,
        ahead: i64,
        origin: &SimSharedState,
        schedule: &TaskScheduler,
    ) -> Result<Self, Error> {
        let worker = WorkerId::from_u128(u128::from(no) + 1);
        let (store, writer) = open(&mount, Some(worker), origin.dead.clone())?;
        let store = Arc::new(store);
        let clock = ProcessClock::new(origin.time.clone(), ahead);
        let spawner = schedule.spawner(no);
        let (witness, time) = (origin.witness.clone(), origin.time.clone());
        let around = ToolEnvironment { witness, clock: clock.clone(), time, life: no };
        let toolbox = tools::toolbox(&around)?;
        let bank = SimMcpClient::tools(&around, spawner.clone())?;
        let manifests = toolbox.manifests().into_iter().chain(bank.manifests());
        let config = RuntimeConfig {
            contents: None,
            hooks: hooks::all(&origin.witness)?,
            plugins: outlast_runtime::agents::plugins::Plugins::default(),
            payments: Some(origin.cashbox.clone()),
            policy_engine: None,
            limiter: None,
            sinks: Vec::new(),
            metrics: None,
            store: store.clone(),
            models: vec![Arc::new(SimModel {
                life: no,
                clock: clock.clone(),
                witness: origin.witness.clone(),
                model_faults: origin.model_faults.clone(),
                outages: origin.outages.clone(),
            })],
            package: Package { tools: manifests.map(|manifest| manifest.name).collect(), ..origin.agent()? },
            agents: Vec::new(),
            agent_factory: None,
            tools: vec![Arc::new(toolbox), Arc::new(bank)],
            clock: clock.clone(),
            entropy: Arc::new(CountingEntropy::from(u64::from(no) << 32)),
            tasks: spawner.clone(),
            limits: origin.limits.clone(),
            worker,
        };
        let runtime: Arc<Mutex<Option<Runtime>>> = Arc::default();
        let started = runtime.clone();
        spawner.spawn(Box::pin(async move {
            // If a worker cannot start, its slot stays empty and the world starts another.
            if let Ok(runtime) = Runtime::start(config).await {
                *started.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime);
            }
        }));
        Ok(Self { no, worker, clock, writer, paused_until: 0, runtime, store, mount })
    }

    /// Returns the worker, if it has started.
    pub(crate) fn runtime(&self) -> Option<Runtime> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the process at any point of its work. Its tasks are already dropped.
    pub(crate) fn die(self) {
        self.mount.kill();
        let Self { runtime, store, writer, mount, .. } = self;
        runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop((writer, store));
        drop(mount);
    }

    /// Ends a process that was asked to shut down and has finished.
    pub(crate) fn end(self) {
        let Self { runtime, store, writer, mount, .. } = self;
        runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        writer.close();
        drop(store);
        drop(mount);
    }
}

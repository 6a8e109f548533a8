//! One life of the agent's process: its own thread, tokio runtime and store. A crash drops all three.
use crate::TrialPlan;
use crate::client::{StepTarget, TrialClient};
use crate::clock::OffsetClock;
use crate::crash_point::TrialCrashPoint;
use crate::end_state::EndState;
use crate::guarantee::{Guarantee, GuaranteeFailure};
use crate::tool_runs::{ToolObserver, ToolRunLog};
use outlast_ledger::crashing_store::{CrashPoint, CrashingStore, SimulatedProcess};
use outlast_ports::clock::{Clock, Entropy};
use outlast_ports::tool::DecoratedTools;
use outlast_providers::Rehearsal;
use outlast_runtime::worker::system::SystemEntropy;
use outlast_runtime::{Runtime, RuntimeConfig};
use outlast_store::{SqliteOptions, SqliteStore};
use outlast_vocab::record::Record;
use outlast_vocab::{Error, Kind, WorkerId};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long to wait for work that a dead life left on other threads.
const THREAD_WAIT: Duration = Duration::from_secs(2);

/// Longer than any run, even after its clock was moved forward.
const TIMER_NEVER: Duration = Duration::from_hours(24 * 365 * 1_000);

/// The timeout for shutting down an idle life.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts that all lives of a run share.
pub(crate) struct SharedRunState<W> {
    pub(crate) world: Arc<W>,
    pub(crate) database: PathBuf,
    pub(crate) clock: Arc<OffsetClock>,
    pub(crate) calls: Arc<ToolRunLog>,
    /// The targets of the steps in the run without a crash.
    pub(crate) targets: Option<Arc<[StepTarget]>>,
}

/// One life.
pub(crate) struct AgentProcess<W> {
    pub(crate) plan: Arc<TrialPlan<W>>,
    pub(crate) shared: Arc<SharedRunState<W>>,
    /// The index of this life in the run, counted from 0.
    pub(crate) number: usize,
    pub(crate) crash_point: Option<TrialCrashPoint>,
}

/// The record of a finished life.
pub(crate) struct ProcessRecord {
    /// The records of each of its writes.
    pub(crate) written: Vec<Vec<Record>>,
    pub(crate) end: ProcessEnd,
}

/// How a life ended.
pub(crate) enum ProcessEnd {
    /// It died at its point.
    Crashed,
    /// Everything is idle.
    Idle { left: Box<EndState>, aims: Vec<StepTarget> },
    /// A promise was broken.
    Violated(GuaranteeFailure),
}

impl<W: Send + Sync + 'static> AgentProcess<W> {
    /// Runs the life to its end.
    pub(crate) async fn run(self) -> Result<ProcessRecord, Error> {
        let patience = self.plan.time_limit + THREAD_WAIT + DRAIN_TIMEOUT;
        let (tell, reply) = oneshot::channel();
        // A thread that a tool blocks cannot be stopped. This thread notices and leaves it behind.
        let watch = move || {
            let (to_us, from_life) = mpsc::channel();
            thread::spawn(move || to_us.send(self.run_on_thread()));
            let lived = from_life.recv_timeout(patience).unwrap_or_else(|lost| match lost {
                RecvTimeoutError::Timeout => {
                    Ok(violated("a tool blocked its thread and could not be stopped"))
                }
                RecvTimeoutError::Disconnected => {
                    Err(Error::new(Kind::Internal, "code of the trial panicked; see its message above"))
                }
            });
            // The receiver is gone if the trial was dropped.
            let _heard = tell.send(lived);
        };
        thread::spawn(watch);
        reply.await.unwrap_or_else(|_| Err(Error::new(Kind::Internal, "the thread of a process stopped")))
    }

    fn run_on_thread(&self) -> Result<ProcessRecord, Error> {
        // A single thread, so that a point means the same place in every run.
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|cause| {
            Error::new(Kind::IoFailed, format!("the runtime of a process cannot be started: {cause}"))
                .because(cause)
        })?;
        let mut store = Weak::new();
        let lived = tokio.block_on(self.drive(&mut store));
        tokio.shutdown_timeout(THREAD_WAIT);
        let since = Instant::now();
        while store.strong_count() > 0 && since.elapsed() < THREAD_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
        if store.strong_count() > 0 {
            return Ok(violated(
                "a thread of a tool keeps its process alive, so the next process cannot start",
            ));
        }
        lived
    }

    async fn drive(&self, held: &mut Weak<CrashingStore<SqliteStore>>) -> Result<ProcessRecord, Error> {
        let worker = WorkerId::fresh(self.shared.clock.now(), SystemEntropy.random_id_bytes());
        // Only the process dies here, never the machine, so nothing needs to be synced.
        let options =
            SqliteOptions { worker: Some(worker), unsafe_durability: true, ..SqliteOptions::default() };
        let sqlite = SqliteStore::open_with(&self.shared.database, options)?;
        let store = Arc::new(CrashingStore::new(
            sqlite,
            self.crash_point.map_or(CrashPoint::Never, TrialCrashPoint::store_crash),
        ));
        *held = Arc::downgrade(&store);
        let pulse = store.pulse();
        let runtime = Runtime::start(self.config(store, worker, &pulse)?).await?;
        let end = tokio::select! {
            biased;
            () = pulse.stopped() => ProcessEnd::Crashed,
            end = self.run_client(&runtime, &pulse) => end,
        };
        if !matches!(end, ProcessEnd::Crashed) {
            runtime.shut_down(DRAIN_TIMEOUT).await;
        }
        Ok(ProcessRecord { written: pulse.written(), end })
    }

    fn config(
        &self,
        store: Arc<CrashingStore<SqliteStore>>,
        worker: WorkerId,
        pulse: &Arc<SimulatedProcess>,
    ) -> Result<RuntimeConfig, Error> {
        let clock = self.shared.clock.clone();
        let mut config = (self.plan.setup)(&self.shared.world, clock.clone(), store, worker)?;
        // The script replaces the agent's model. Each new process starts with a new copy of it.
        config.models = vec![Arc::new(Rehearsal::scripted(self.plan.script.parse()?, clock))];
        config.package.model = "rehearsal/trial".parse()?;
        // A death is detected by the lock. Lease renewals would depend on time and shift the numbers of later writes.
        config.limits.lease = TIMER_NEVER;
        let observer = Arc::new(ToolObserver {
            calls: self.shared.calls.clone(),
            process: self.number,
            crash_point: self.crash_point,
            pulse: pulse.clone(),
        });
        for tools in &mut config.tools {
            *tools = Arc::new(DecoratedTools::new(tools.clone(), observer.clone()));
        }
        Ok(config)
    }

    /// Runs the client until everything is idle, and reads the state that is left.
    async fn run_client(&self, runtime: &Runtime, pulse: &SimulatedProcess) -> ProcessEnd {
        let client = TrialClient {
            runtime,
            clock: &self.shared.clock,
            steps: &self.plan.steps,
            targets: self.shared.targets.as_deref(),
        };
        let aims = match tokio::time::timeout(self.plan.time_limit, client.run_steps()).await {
            Ok(Ok(aims)) => aims,
            Ok(Err(broken)) => return ProcessEnd::Violated(broken),
            Err(_) => return ProcessEnd::Violated(self.timeout_violation()),
        };
        let reached = match self.crash_point {
            Some(TrialCrashPoint::Before(write) | TrialCrashPoint::After(write)) => pulse.writes() >= write,
            Some(TrialCrashPoint::During { .. }) | None => false,
        };
        if reached {
            // The last write can be visible to readers before its writer learns that it died.
            pulse.stopped().await;
            return ProcessEnd::Crashed;
        }
        match EndState::read(runtime.store().as_ref()).await {
            Ok(left) => ProcessEnd::Idle { left: Box::new(left), aims },
            Err(error) => ProcessEnd::Violated(error.into()),
        }
    }

    fn timeout_violation(&self) -> GuaranteeFailure {
        let running = self.shared.calls.runs().into_iter().rev().find(|run| run.process == self.number);
        let last =
            running.map_or_else(String::new, |run| format!("; the last tool that ran is `{}`", run.tool));
        let detail =
            format!("the turn did not pause or end within {} s{last}", self.plan.time_limit.as_secs_f32());
        GuaranteeFailure::new(Guarantee::Ends, detail)
    }
}

fn violated(detail: &str) -> ProcessRecord {
    ProcessRecord {
        written: Vec::new(),
        end: ProcessEnd::Violated(GuaranteeFailure::new(Guarantee::Ends, detail)),
    }
}

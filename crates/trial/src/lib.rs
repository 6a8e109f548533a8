//! Kills an agent at every effect and checks the state that is left.
//!
//! A [`Trial`] runs an agent without a crash, then once for each point where its process can die. After each run, it
//! checks the guarantees of Outlast ([`Guarantee`]) and the invariants of the agent's author.
//!
//! This crate does not know the façade: an [`AgentBuilder`] makes the configuration of a runtime on a store of the
//! trial. Users reach a trial through `outlast::trial`, which explains it with an example.
//!
//! Read the modules in this order:
//!
//! - `runner`: the runs of a trial, one after the other
//! - `process`: one life of the agent's process, which `crash_point` ends
//! - `client`: sends the inputs and moves the `clock`
//! - `tool_runs` and `end_state`: the real tool runs, and the state that a run leaves
//! - `guarantee` and `baseline`: check that state
//! - `report`, `observed_run`, `write_description`: what users see

mod baseline;
mod client;
mod clock;
mod crash_point;
mod end_state;
mod guarantee;
mod observed_run;
mod process;
mod report;
mod run_directory;
mod runner;
mod tool_runs;
mod write_description;

pub use crash_point::{Crash, TrialCrashPoint};
pub use guarantee::Guarantee;
pub use observed_run::{InvariantResult, ObservedCall, ObservedRun};
pub use report::{CrashRun, CrashRunOutcome, GuaranteeViolation, TrialReport};

use client::ClientStep;
use outlast_ports::clock::Clock;
use outlast_ports::store::Store;
use outlast_runtime::RuntimeConfig;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, WorkerId};
use runner::TrialRunner;
use serde_json::Value;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The name of the database in the directory of a run.
const DATABASE: &str = "outlast.db";

type WorldFactory<W> = Box<dyn Fn(&Path) -> W + Send + Sync>;
type RuntimeSetup<W> =
    Box<dyn Fn(&W, Arc<dyn Clock>, Arc<dyn Store>, WorkerId) -> Result<RuntimeConfig, Error> + Send + Sync>;
type InvariantCheck<W> = Box<dyn Fn(&ObservedRun, &W) -> Result<(), String> + Send + Sync>;
type ProgressCallback = Box<dyn Fn(TrialProgress) + Send + Sync>;

/// A crash test of an agent that a `B` builds. `W` is the outside world: the state that tools change and a crash does
/// not undo.
pub struct Trial<W, B> {
    plan: TrialPlan<W>,
    settings: TrialSettings<W>,
    builder: PhantomData<fn() -> B>,
}

/// The settings of a trial: its world, its invariants and the crashes to try.
struct TrialSettings<W> {
    world: WorldFactory<W>,
    invariants: Vec<InvariantCheck<W>>,
    twice: bool,
    only: Vec<Crash>,
    keep: Option<PathBuf>,
    watch: ProgressCallback,
}

/// The part that is the same in every life: the agent, the script and the client's steps.
struct TrialPlan<W> {
    setup: RuntimeSetup<W>,
    script: String,
    steps: Vec<ClientStep>,
    time_limit: Duration,
}

/// A builder of agents, such as the one of the façade.
pub trait AgentBuilder: Sized + 'static {
    /// Returns a builder of an agent that uses this clock.
    fn with_clock(clock: Arc<dyn Clock>) -> Self;

    /// Returns the configuration of a runtime of this agent on a store of the trial.
    fn into_runtime_config(self, store: Arc<dyn Store>, worker: WorkerId) -> Result<RuntimeConfig, Error>;
}

/// The return type of the function that builds an agent: a builder, or a result with one.
pub trait IntoBuilder<B> {
    /// Returns the builder.
    fn into_builder(self) -> Result<B, Error>;
}

impl<B: AgentBuilder> IntoBuilder<B> for B {
    fn into_builder(self) -> Result<B, Error> {
        Ok(self)
    }
}

impl<B: AgentBuilder> IntoBuilder<B> for Result<B, Error> {
    fn into_builder(self) -> Result<B, Error> {
        self
    }
}

/// The progress of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialProgress {
    /// The number of finished runs.
    pub done: usize,
    /// The number of runs planned so far.
    pub of: usize,
}

impl<W: Send + Sync + 'static, B: AgentBuilder> Trial<W, B> {
    /// Creates a trial of an agent.
    ///
    /// `world` is called once per run, with an empty directory for that run. `agent` is called once per life and adds
    /// tools to the builder it receives. You can pass the function that builds your agent in production: the trial
    /// replaces its model with the script and its database with its own.
    pub fn new<R: IntoBuilder<B>>(
        world: impl Fn(&Path) -> W + Send + Sync + 'static,
        agent: impl Fn(B, &W) -> R + Send + Sync + 'static,
    ) -> Self {
        let setup = move |world: &W, clock, store, worker| {
            agent(B::with_clock(clock), world).into_builder()?.into_runtime_config(store, worker)
        };
        Self {
            plan: TrialPlan {
                setup: Box::new(setup),
                script: String::new(),
                steps: Vec::new(),
                time_limit: Duration::from_secs(30),
            },
            settings: TrialSettings {
                world: Box::new(world),
                invariants: Vec::new(),
                twice: false,
                only: Vec::new(),
                keep: None,
                watch: Box::new(|_| {}),
            },
            builder: PhantomData,
        }
    }

    /// Sets the model's replies, as a rehearsal script.
    #[must_use]
    pub fn script(mut self, script: impl Into<String>) -> Self {
        self.plan.script = script.into();
        self
    }

    /// Sends an input once the turn before it has ended or waits for a person. In the second case, the input is queued.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.step(ClientStep::Say(text.into()))
    }

    /// Sends an input that joins the waiting turn.
    #[must_use]
    pub fn steer(self, text: impl Into<String>) -> Self {
        self.step(ClientStep::Steer(text.into()))
    }

    /// Completes the first call or event that the turn waits for.
    #[must_use]
    pub fn resolve(self, value: impl Into<Value>) -> Self {
        self.resolve_as(Resolution::Ok(value.into()))
    }

    /// Like [`Trial::resolve`], but also allows an error, a timeout or a cancellation.
    #[must_use]
    pub fn resolve_as(self, resolution: Resolution) -> Self {
        self.step(ClientStep::Resolve(resolution))
    }

    /// Cancels the waiting turn.
    #[must_use]
    pub fn cancel(self, reason: impl Into<String>) -> Self {
        self.step(ClientStep::Cancel(reason.into()))
    }

    fn step(mut self, step: ClientStep) -> Self {
        self.plan.steps.push(step);
        self
    }

    /// Adds an assertion to check after every run. It may panic, like a test, or return an error.
    #[must_use]
    pub fn invariant<V: InvariantResult>(
        mut self,
        holds: impl Fn(&ObservedRun, &W) -> V + Send + Sync + 'static,
    ) -> Self {
        self.settings.invariants.push(Box::new(move |seen, world| {
            catch_unwind(AssertUnwindSafe(|| holds(seen, world).into_result())).unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
                Err(said
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "it panicked".to_owned()))
            })
        }));
        self
    }

    /// Also kills the second life at each of its effects. This squares the number of runs, so use it for short scripts.
    #[must_use]
    pub fn crash_twice(mut self) -> Self {
        self.settings.twice = true;
        self
    }

    /// Tries only this crash, in the notation of the report: `3:after`. Call it again to try several.
    ///
    /// # Panics
    /// If the text is not a valid crash.
    #[must_use]
    #[track_caller]
    pub fn only_crash(self, crash: &str) -> Self {
        match crash.parse() {
            Ok(crash) => self.only_crash_at(crash),
            Err(error) => panic!("{error}"),
        }
    }

    /// Tries only this crash.
    #[must_use]
    pub fn only_crash_at(mut self, crash: Crash) -> Self {
        self.settings.only.push(crash);
        self
    }

    /// Sets the timeout of one life. A life that takes longer breaks the run. The default is 30 seconds.
    #[must_use]
    pub fn timeout(mut self, patience: Duration) -> Self {
        self.plan.time_limit = patience;
        self
    }

    /// Creates the runs' directories below this one, and keeps the directories of broken runs.
    #[must_use]
    pub fn keep_failed_runs(mut self, below: impl Into<PathBuf>) -> Self {
        self.settings.keep = Some(below.into());
        self
    }

    /// Calls a function with the progress after every run.
    #[must_use]
    pub fn on_progress(mut self, watch: impl Fn(TrialProgress) + Send + Sync + 'static) -> Self {
        self.settings.watch = Box::new(watch);
        self
    }

    /// Runs the trial once without a crash, with the same checks.
    pub async fn run_once(self) -> Result<TrialReport, Error> {
        TrialRunner::of(self.plan, self.settings)?.run_baseline_only().await
    }

    /// Runs the trial without a crash, then once for each crash.
    pub async fn kill_every_effect(self) -> Result<TrialReport, Error> {
        TrialRunner::of(self.plan, self.settings)?.run_every_crash().await
    }
}

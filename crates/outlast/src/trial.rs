//! Tests *your* tools against crashes: kills an agent at every effect and checks the state that is left.
//!
//! A trial runs your agent with a [script](outlast_providers::rehearsal::script) as its model. The first runs have no
//! crash. Then there is one run for each point where the process can die:
//!
//! - before each write to the database,
//! - after each write, before its result is known,
//! - while a tool waits.
//!
//! A second life (a new process) on the same file finishes the work. Then the trial checks the guarantees of Outlast
//! and your invariants.
//!
//!
//! ```
//! use outlast::prelude::*;
//! use outlast::trial::Trial;
//! use std::sync::{Arc, Mutex};
//!
//! /// The world outside: what customers really paid. It survives the crash.
//! #[derive(Clone, Default)]
//! struct Till(Arc<Mutex<Vec<String>>>);
//!
//! /// Charges the card.
//! #[tool(idempotent)]
//! async fn charge(cents: u32, till: Service<Till>, call: Call) -> Result<String, Error> {
//!     let mut paid = till.0.lock().unwrap();
//!     let key = call.id.to_string(); // the same on every attempt
//!     if !paid.contains(&key) {
//!         paid.push(key);
//!     }
//!     Ok(format!("{cents} cents"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let report = Trial::new(|_dir| Till::default(), |outlast, till| outlast.service(till.clone()).tool(charge))
//!     .script("call charge {\"cents\": 450}\n---\nsay Paid {{result charge}}.")
//!     .say("buy two cakes")
//!     .invariant(|seen, till| {
//!         assert_eq!(seen.answer(), "Paid 450 cents.");
//!         assert_eq!(till.0.lock().unwrap().len(), 1, "charged once");
//!     })
//!     .kill_every_effect()
//!     .await?;
//! report.assert_guarantees();
//! # Ok(())
//! # }
//! ```
//!
//! # What is checked after every run
//!
//! [`Guarantee`] lists the guarantees:
//!
//! - every turn ends,
//! - every input is answered once,
//! - the hash chain is valid,
//! - an at-most-once call ran at most once,
//! - each call has one key,
//! - unknown outcomes are listed,
//! - the run ended like a run without a crash.
//!
//! The last one is checked up to the first call with an unknown outcome, because the model then receives a different
//! result. Values that differ between two runs without a crash (times, random numbers) are not compared.
//!
//! # What a crash is
//!
//! A crash drops the life: its tokio runtime with every task and running tool, and its store. This frees the lock of
//! its worker, which tells the next life that the worker is dead. The trial does not sync to disk, because only the
//! process dies and never the machine. Outlast's own tests cover power loss.
//!
//! A crash does not stop work on other threads (`spawn_blocking`). The next life starts when that work is done, or
//! after two seconds.
//!
//! Tools run on one thread per life. Trials use the machine's time but do not wait for it: while a turn only sleeps,
//! the clock is moved forward.
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

use crate::Builder;
use client::ClientStep;
use outlast_vocab::Error;
use outlast_vocab::wait::Resolution;
use runner::TrialRunner;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the database in the directory of a run.
const DATABASE: &str = "outlast.db";

type WorldFactory<W> = Box<dyn Fn(&Path) -> W + Send + Sync>;
type AgentSetup<W> = Box<dyn Fn(Builder, &W) -> Result<Builder, Error> + Send + Sync>;
type InvariantCheck<W> = Box<dyn Fn(&ObservedRun, &W) -> Result<(), String> + Send + Sync>;
type ProgressCallback = Box<dyn Fn(TrialProgress) + Send + Sync>;

/// A crash test of an agent. `W` is the outside world: the state that tools change and a crash does not undo.
///
/// The [module](self) contains an example.
pub struct Trial<W> {
    plan: TrialPlan<W>,
    settings: TrialSettings<W>,
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
    agent: AgentSetup<W>,
    script: String,
    steps: Vec<ClientStep>,
    time_limit: Duration,
}

/// The return type of the function that builds an agent: a builder, or a result with one.
pub trait IntoBuilder {
    /// Returns the builder.
    fn into_builder(self) -> Result<Builder, Error>;
}

impl IntoBuilder for Builder {
    fn into_builder(self) -> Result<Builder, Error> {
        Ok(self)
    }
}

impl IntoBuilder for Result<Builder, Error> {
    fn into_builder(self) -> Result<Builder, Error> {
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

impl<W: Send + Sync + 'static> Trial<W> {
    /// Creates a trial of an agent.
    ///
    /// `world` is called once per run, with an empty directory for that run. `agent` is called once per life and adds
    /// tools to the builder it receives. You can pass the function that builds your agent in production: the trial
    /// replaces its model with the script and its database with its own.
    pub fn new<B: IntoBuilder>(
        world: impl Fn(&Path) -> W + Send + Sync + 'static,
        agent: impl Fn(Builder, &W) -> B + Send + Sync + 'static,
    ) -> Self {
        Self {
            plan: TrialPlan {
                agent: Box::new(move |outlast, world| agent(outlast, world).into_builder()),
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
        TrialRunner::of(self)?.run_baseline_only().await
    }

    /// Runs the trial without a crash, then once for each crash.
    pub async fn kill_every_effect(self) -> Result<TrialReport, Error> {
        TrialRunner::of(self)?.run_every_crash().await
    }
}

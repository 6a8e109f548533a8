//! Kills an agent at every effect and looks what is left: a test of *your* tools against crashes.
//!
//! A trial runs your agent with a [script](outlast_providers::rehearsal::script) as its model, first without a crash,
//! then once per place where its process can die: before each write to the database, after it and before anybody
//! knows, and while a tool waits. A second life on the same file brings everything to its end. Then Outlast's own
//! promises must hold, and your invariant.
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
//! report.assert_kept();
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised, and checked after every run
//!
//! [`Promise`] lists it: everything ends, every input is answered once, the chain fits, at-most-once calls ran at most
//! once, calls have one key, unknown outcomes are listed, and the run ended as one without a crash. That last one is
//! held up to the first call whose outcome nobody knows: after it, the model is told something else. What differs
//! between two runs without a crash (times, random numbers) is not compared.
//!
//! # What a crash is here
//!
//! The life is dropped: its tokio runtime with every task and every running tool, and its store. The lock of its worker
//! is free then, which is how the next life knows that it is dead. The disk is not asked to sync, because only a process
//! dies, never the machine; what power loss does is a test of Outlast, not of an agent. Work on a thread of its own
//! (`spawn_blocking`) is not stopped by this; the next life begins when it is done, or after two seconds.
//!
//! Tools run on one thread per life. Time is the machine's, but nobody waits for it: when a turn only sleeps, the clock
//! is put forward.
mod calls;
mod client;
mod clock;
mod left;
mod life;
mod point;
mod promise;
mod report;
mod run;
mod seen;
mod whole;
mod words;

pub use point::{Crash, Point};
pub use promise::Promise;
pub use report::{BrokenPromise, Outcome, Report, Tried};
pub use seen::{Seen, SeenCall, Verdict};

use crate::Builder;
use client::Step;
use outlast_vocab::Error;
use outlast_vocab::wait::Resolution;
use run::Runs;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The database within the directory of a run.
const DATABASE: &str = "outlast.db";

type World<W> = Box<dyn Fn(&Path) -> W + Send + Sync>;
type Agent<W> = Box<dyn Fn(Builder, &W) -> Result<Builder, Error> + Send + Sync>;
type Invariant<W> = Box<dyn Fn(&Seen, &W) -> Result<(), String> + Send + Sync>;
type Watch = Box<dyn Fn(Progress) + Send + Sync>;

/// A trial of an agent. `W` is the world outside of it: whatever its tools change and a crash does not undo.
pub struct Trial<W> {
    play: Play<W>,
    terms: Terms<W>,
}

/// What is tried, and what must hold then.
struct Terms<W> {
    world: World<W>,
    invariants: Vec<Invariant<W>>,
    twice: bool,
    only: Vec<Crash>,
    keep: Option<PathBuf>,
    watch: Watch,
}

/// What every life plays.
struct Play<W> {
    agent: Agent<W>,
    script: String,
    steps: Vec<Step>,
    patience: Duration,
}

/// What the function that builds an agent may give: a builder, or an error that says why there is none.
pub trait Built {
    /// The builder.
    fn built(self) -> Result<Builder, Error>;
}

impl Built for Builder {
    fn built(self) -> Result<Builder, Error> {
        Ok(self)
    }
}

impl Built for Result<Builder, Error> {
    fn built(self) -> Result<Builder, Error> {
        self
    }
}

/// How far a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs that are over.
    pub done: usize,
    /// Runs that are known to come.
    pub of: usize,
}

impl<W: Send + Sync + 'static> Trial<W> {
    /// A trial of an agent.
    ///
    /// `world` is called once per run, with an empty directory that is the run's own. `agent` is called once per life
    /// and adds tools to the builder it is given. The function that builds your agent in production fits here: its
    /// model is replaced by the script, its database by the trial's.
    pub fn new<B: Built>(
        world: impl Fn(&Path) -> W + Send + Sync + 'static,
        agent: impl Fn(Builder, &W) -> B + Send + Sync + 'static,
    ) -> Self {
        Self {
            play: Play {
                agent: Box::new(move |outlast, world| agent(outlast, world).built()),
                script: String::new(),
                steps: Vec::new(),
                patience: Duration::from_secs(30),
            },
            terms: Terms {
                world: Box::new(world),
                invariants: Vec::new(),
                twice: false,
                only: Vec::new(),
                keep: None,
                watch: Box::new(|_| {}),
            },
        }
    }

    /// What the model says, as a rehearsal script.
    #[must_use]
    pub fn script(mut self, script: impl Into<String>) -> Self {
        self.play.script = script.into();
        self
    }

    /// Sends an input once the turn before it has ended or waits for somebody; then it is queued.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.step(Step::Say(text.into()))
    }

    /// Sends an input that joins the turn that waits.
    #[must_use]
    pub fn steer(self, text: impl Into<String>) -> Self {
        self.step(Step::Steer(text.into()))
    }

    /// Finishes the first call or event that the turn waits for.
    #[must_use]
    pub fn resolve(self, value: impl Into<Value>) -> Self {
        self.resolve_as(Resolution::Ok(value.into()))
    }

    /// The same with an error, a timeout or a cancel.
    #[must_use]
    pub fn resolve_as(self, resolution: Resolution) -> Self {
        self.step(Step::Resolve(resolution))
    }

    /// Cancels the turn that waits.
    #[must_use]
    pub fn cancel(self, reason: impl Into<String>) -> Self {
        self.step(Step::Cancel(reason.into()))
    }

    fn step(mut self, step: Step) -> Self {
        self.play.steps.push(step);
        self
    }

    /// Asserts something after every run. It may panic, like a test, or give an error.
    #[must_use]
    pub fn invariant<V: Verdict>(mut self, holds: impl Fn(&Seen, &W) -> V + Send + Sync + 'static) -> Self {
        self.terms.invariants.push(Box::new(move |seen, world| {
            catch_unwind(AssertUnwindSafe(|| holds(seen, world).verdict())).unwrap_or_else(|panic| {
                let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
                Err(said
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "it panicked".to_owned()))
            })
        }));
        self
    }

    /// Kills the second life at each of its effects too. The number of runs is squared: for short scripts.
    #[must_use]
    pub fn twice(mut self) -> Self {
        self.terms.twice = true;
        self
    }

    /// Tries only this crash, as a report names it: `3:after`. Several are tried one after the other.
    ///
    /// # Panics
    /// If the text is no crash.
    #[must_use]
    #[track_caller]
    pub fn only(self, crash: &str) -> Self {
        match crash.parse() {
            Ok(crash) => self.only_at(crash),
            Err(error) => panic!("{error}"),
        }
    }

    /// Tries only this crash.
    #[must_use]
    pub fn only_at(mut self, crash: Crash) -> Self {
        self.terms.only.push(crash);
        self
    }

    /// How long one life may take before the run counts as broken; 30 seconds unless said otherwise.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.play.patience = patience;
        self
    }

    /// Makes the runs' directories below this one, and keeps those of broken runs there.
    #[must_use]
    pub fn keep_broken(mut self, below: impl Into<PathBuf>) -> Self {
        self.terms.keep = Some(below.into());
        self
    }

    /// Tells how far the trial is, after every run.
    #[must_use]
    pub fn watch(mut self, watch: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.terms.watch = Box::new(watch);
        self
    }

    /// Runs it once, without a crash, and checks the same.
    pub async fn run_once(self) -> Result<Report, Error> {
        Runs::of(self)?.once().await
    }

    /// Runs it without a crash, then with one at every place.
    pub async fn kill_every_effect(self) -> Result<Report, Error> {
        Runs::of(self)?.every_crash().await
    }
}

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
pub use outlast_trial::{
    Crash, CrashRun, CrashRunOutcome, Guarantee, GuaranteeViolation, IntoBuilder, InvariantResult,
    ObservedCall, ObservedRun, TrialCrashPoint, TrialProgress, TrialReport,
};

use crate::{Builder, Outlast};
use outlast_ports::clock::Clock;
use outlast_ports::store::Store;
use outlast_runtime::RuntimeConfig;
use outlast_trial::AgentBuilder;
use outlast_vocab::{Error, WorkerId};
use std::sync::Arc;

/// A crash test of an agent. `W` is the outside world: the state that tools change and a crash does not undo.
///
/// The [module](self) contains an example.
pub type Trial<W> = outlast_trial::Trial<W, Builder>;

impl AgentBuilder for Builder {
    fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Outlast::ephemeral().clock(clock)
    }

    fn into_runtime_config(self, store: Arc<dyn Store>, worker: WorkerId) -> Result<RuntimeConfig, Error> {
        self.config(store, worker)
    }
}

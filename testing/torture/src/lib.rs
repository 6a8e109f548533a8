//! Tortures the real binary: kills, stops and restarts it, at random and at chosen times, and compares its journal with
//! the records of an outside witness.
//!
//! Run it with `cargo xtask torture`. To read the code, start with:
//!
//! - [`TorturePlan`]: the settings of a run,
//! - `round`: one database from its creation to the verdict,
//! - `process_faults`: the faults, with `round_state` and `worker` for their mechanics,
//! - `torture_users` and `ledger`: the users and what was acknowledged to them,
//! - `witness` and `witness_protocol`: what really happened,
//! - `journal` and `journal_checker`: the comparison.
#![cfg(unix)]

mod journal;
mod journal_checker;
mod ledger;
mod process_faults;
mod random_stream;
mod round;
mod round_state;
mod run;
mod torture_stats;
mod torture_users;
mod witness;
mod witness_protocol;
mod worker;

pub use journal_checker::{PlantedError, PromiseViolation, PromiseViolationKind};
pub use run::{TorturePlan, TortureReport, run};
pub use torture_stats::{KillKind, TortureStats};
pub use witness::{WitnessPlacement, serve_if_asked};

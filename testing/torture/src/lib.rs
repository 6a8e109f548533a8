//! Tortures the real binary: kills, stops and restarts it, at random and at chosen times, and compares its journal with
//! the records of an outside witness.
//!
//! Run it with `cargo xtask torture`. To read the code, start with:
//!
//! - [`Plan`]: the settings of a run,
//! - `round`: one database from its creation to the verdict,
//! - `scenes`: the faults, with `stage` and `worker` for their mechanics,
//! - `client` and `ledger`: the users and what was acknowledged to them,
//! - `witness` and `sighting`: what really happened,
//! - `journal` and `judge`: the comparison.
#![cfg(unix)]

mod client;
mod dice;
mod figures;
mod journal;
mod judge;
mod ledger;
mod round;
mod run;
mod scenes;
mod sighting;
mod stage;
mod witness;
mod worker;

pub use figures::{Figures, Kind};
pub use judge::{Broken, Planted, Promise};
pub use run::{Plan, Report, run};
pub use witness::{Seat, serve_if_asked};

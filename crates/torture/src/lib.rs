//! Tortures the real binary: kills it, stops it and starts it again, at random times and at chosen ones, and holds what
//! its journal says against what an outside witness saw.
//!
//! `cargo xtask torture` is the way in. Reading order: [`Plan`] (what is asked for), `round` (one database from its first
//! byte to its judgement), `scenes` (what is done to it), `stage` and `worker` (how), `client` and `ledger` (the outside
//! and what it was promised), `witness` and `sighting` (what really happened), `journal` and `judge` (whether that fits).
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

//! Tests of trials: what holds at every crash, and what a trial finds if something does not.
#![allow(clippy::needless_raw_string_hashes, reason = "expectations are written by a program")]

mod correct_agents;
mod found;
mod misuse;
mod server;
mod stage;

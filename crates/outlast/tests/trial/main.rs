//! Trials of agents: what holds at every crash, and what is found where something does not.
#![allow(clippy::needless_raw_string_hashes, reason = "expectations are written by a program")]

mod found;
mod kept;
mod misuse;
mod server;
mod stage;

//! The journal on SQLite: tables, transactions, threads and files. This crate does not know the meaning of a
//! write; [`outlast_ledger::rules`] defines it for all databases.
//!
//! [`SqliteStore`] is the whole interface; it implements [`Backend`](outlast_ledger::Backend). Read the
//! modules in this order:
//!
//! - `sqlite`: the store that a user holds
//! - `writer` (one thread, group commit) and `reader` (on the caller's thread)
//! - `tables`: reads and writes rows
//! - `schema`: the tables and their migrations
//! - `connection`: opens or refuses a file
//! - `checkpoint`: checkpoints the write-ahead log
//! - `workers`: detects dead workers
//! - `writable_path`: refuses a database that a program of an agent could write to
//! - `simulated_machine`: the same store without threads, for a simulator

mod checkpoint;
mod connection;
mod error;
mod job_queue;
mod reader;
mod schema;
mod simulated_machine;
mod sqlite;
mod tables;
mod workers;
mod writable_path;
mod writer;

pub use simulated_machine::{ManualWriter, SimulatedMachine};
pub use sqlite::{SqliteOptions, SqliteStats, SqliteStore};
pub use workers::IsDead;
pub use writable_path::check_writable_path;

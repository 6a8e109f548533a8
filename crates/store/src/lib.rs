//! The journal on SQLite: tables, transactions, threads and files. This crate does not know the meaning of a
//! write; [`outlast_ports::ledger`] defines it for all databases.
//!
//! [`Sqlite`] is the whole interface; it implements [`Backend`](outlast_ports::store::Backend). Read the
//! modules in this order:
//!
//! - `sqlite`: the store that a user holds
//! - `writer` (one thread, group commit) and `reader` (on the caller's thread)
//! - `tables`: reads and writes rows
//! - `schema`: the tables and their migrations
//! - `connect`: opens or refuses a file
//! - `wal`: checkpoints the write-ahead log
//! - `workers`: detects dead workers
//! - `machine`: the same store without threads, for a simulator

mod connect;
mod error;
mod machine;
mod queue;
mod reader;
mod schema;
mod sqlite;
mod tables;
mod wal;
mod workers;
mod writer;

pub use machine::{HandWriter, Machine};
pub use sqlite::{Options, Sqlite, Stats};
pub use workers::IsDead;

//! The journal on SQLite: tables, transactions, threads and files. What a write means is not known here; that is decided
//! once for all databases, in [`outlast_ports::ledger`].
//!
//! [`Sqlite`] is the whole interface; it is a [`Backend`](outlast_ports::store::Backend). Reading order: `sqlite` (what a
//! user holds), `writer` (one thread, group commit) and `reader` (where it is asked), `tables` (rows in and out), `schema`
//! (the tables and their migrations), `connect` (how a file is opened and what is refused), `wal` (when the log moves
//! into the file), `workers` (who is dead), `machine` (the same store on one thread, for a simulator).

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

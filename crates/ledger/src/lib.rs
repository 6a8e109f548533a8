//! The ledger: the rules of every write, the rows that they work on, and a store in memory.
//!
//! - [`rules`] contains every unit of work: a function over rows that runs as one transaction.
//! - [`rows`] are the rows of a database, and the traits that an engine implements to read and write them. Memory, SQLite
//!   and PostgreSQL behave alike, because the rules exist once.
//! - [`Backend`] runs units of work. [`implement_store!`] makes a backend a store of `outlast-ports`.
//! - [`scoped`] restricts a store to one organisation.
//! - [`memory`] is a store in memory. [`crashing_store`] simulates a process that dies at a chosen write.
//!
//! This crate knows neither SQL nor threads nor how a turn is driven. The runtime does not depend on it: it uses the store
//! traits of `outlast-ports`.

mod backend;
pub mod crashing_store;
pub mod implement_store;
pub mod memory;
mod page_rows;
pub mod rows;
pub mod rules;
pub mod scoped;

pub use backend::Backend;

//! The traits that other crates implement, and their in-memory doubles. The crate `outlast-conformance` tests them.
//!
//! Async starts in this crate. It does not know how a turn is driven, SQL or threads. Where to go next:
//!
//! - [`model`], [`tool`], [`hook`], [`plugin`], [`trigger`], [`policy`] and [`payment`] are the extension points.
//! - [`store`] is the interface that the runtime expects from a database. [`ledger`] contains the rules of every write.
//!   It is written once over [`rows`], so memory, SQLite and PostgreSQL behave alike.
//! - [`contents`] stores large attachments outside the database. [`attachment_upload`] keeps them from being lost.
//! - [`sink`] receives the outputs of turns. [`outbox`] makes sure that each of them arrives.
//! - [`votes`] records the decisions of people on approval requests.
//! - [`orgs`] contains organisations and API keys. [`scoped`] restricts a store to one organisation.

pub mod archive;
pub mod attachment_upload;
pub mod budget;
pub mod clock;
pub mod configs;
pub mod contents;
pub mod crashing_store;
pub mod environment;
pub mod hook;
pub mod ledger;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod orgs;
pub mod outbox;
pub mod page;
pub mod payment;
pub mod payment_outbox;
pub mod plugin;
pub mod policy;
pub mod rate;
pub mod rows;
pub mod scoped;
pub mod search;
pub mod service;
pub mod sink;
pub mod spawner;
pub mod store;
pub mod tool;
pub mod trigger;
pub mod votes;

use outlast_vocab::Error;
use std::{future::Future, pin::Pin};

/// A boxed future, for methods of trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed future that returns a `Result`, for methods of trait objects.
pub type ResultFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

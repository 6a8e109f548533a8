//! The traits that other crates implement. The crate `outlast-conformance` tests them.
//!
//! Async starts in this crate. It does not know how a turn is driven, SQL or threads. Where to go next:
//!
//! - [`model`], [`tool`], [`hook`], [`plugin`], [`trigger`], [`policy`] and [`payment`] are the extension points.
//! - [`store`] is the interface that the runtime expects from a database: [`inbox`], [`turns`], [`journal`], [`queries`] and
//!   others, each a module with a trait and its types. `outlast-ledger` implements them for every engine.
//! - [`contents`] stores large attachments outside the database. [`attachment_upload`] keeps them from being lost.
//! - [`sink`] receives the outputs of turns. [`outbox`] makes sure that each of them arrives.
//! - [`votes`] records the decisions of people on approval requests.
//! - [`orgs`] contains organisations and API keys.

pub mod archive;
pub mod attachment_upload;
pub mod branches;
pub mod budget;
pub mod clock;
pub mod configs;
pub mod content_queries;
pub mod contents;
pub mod environment;
pub mod hook;
pub mod inbox;
pub mod journal;
pub mod metrics;
pub mod model;
pub mod orgs;
pub mod outbox;
pub mod page;
pub mod payment;
pub mod payment_outbox;
pub mod plugin;
pub mod policy;
pub mod queries;
pub mod rate;
pub mod search;
pub mod service;
pub mod sink;
pub mod spawner;
pub mod store;
pub mod tool;
pub mod trigger;
pub mod turns;
pub mod votes;

use outlast_vocab::Error;
use std::{future::Future, pin::Pin};

/// A boxed future, for methods of trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed future that returns a `Result`, for methods of trait objects.
pub type ResultFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

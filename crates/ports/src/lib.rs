//! What others implement: traits, in-memory doubles, and one conformance suite per trait that every implementation runs.
//!
//! Async begins here. Nothing in this crate knows how a turn is driven. [`model`] and [`tool`] face outwards;
//! [`store`] is what the runtime asks of a database, [`ledger`] the rules of every write, written once over [`rows`],
//! so that memory, SQLite and PostgreSQL cannot drift apart. [`contents`] is where large contents lie outside of it, and
//! [`filed`] why none of them is lost. [`sink`] is where finished outputs go, and [`outbox`] why each of them arrives.
//! [`votes`] is what people say to questions. [`orgs`] is whose everything is, and [`scoped`] why nobody sees what belongs to others.

pub mod archive;
pub mod budget;
pub mod clock;
pub mod configs;
pub mod conformance;
pub mod contents;
pub mod environment;
pub mod filed;
pub mod hook;
pub mod ledger;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod mortal;
pub mod orgs;
pub mod outbox;
pub mod owed;
pub mod page;
pub mod payment;
pub mod plugin;
pub mod policy;
pub mod rate;
pub mod rows;
pub mod scoped;
pub mod search;
pub mod service;
pub mod sink;
pub mod store;
pub mod task;
pub mod tool;
pub mod trigger;
pub mod votes;

use outlast_vocab::Error;
use std::{future::Future, pin::Pin};

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer that may fail, from a trait object.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

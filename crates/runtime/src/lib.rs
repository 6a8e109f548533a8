//! Drives turns: claim, replay, perform, commit, publish.
//!
//! The path of one turn:
//!
//! 1. [`worker`] accepts an input or claims a session.
//! 2. [`drive`] advances the kernel's steps.
//! 3. [`model`] (through `asking`) and [`tools`] perform the effects that the steps request.
//! 4. A [`host`] records the outcomes: [`journaled`] in a store, [`inline`] nowhere.
//! 5. [`live`] and [`events`] publish progress to subscribers, and `deliver` sends outputs to sinks.
//!
//! Around that path:
//!
//! - [`outfits`] is the registry of agents, and [`tailor`] builds agents from the database.
//! - [`attachments`] reads and writes the contents of attachments.
//! - [`archive`] exports a session to a file and imports it.
//! - [`replay`] drives recorded turns again.
//!
//! This crate knows no SQL, no HTTP and no provider.

pub mod approvals;
pub mod archive;
mod asking;
pub mod attachments;
mod call;
pub mod cancel;
pub mod catalogue;
mod client_side;
pub mod context;
pub mod costs;
mod deliver;
pub mod difference;
pub mod drive;
pub mod durability;
pub mod events;
pub mod feed;
pub mod files;
mod gate;
pub mod governor;
mod grants;
pub mod hooks;
pub mod host;
pub mod inline;
pub mod journaled;
pub mod keys;
pub mod links;
pub mod listing;
pub mod live;
pub mod messages;
mod meter;
pub mod metrics;
pub mod model;
pub mod outfit;
pub mod outfits;
pub mod output;
mod pace;
mod partial_reply;
mod payments;
pub mod plugins;
mod projection;
pub mod provenance;
pub mod provider_health;
pub mod recall;
pub mod recent;
pub mod replay;
mod room;
mod ruling;
pub mod scope;
pub mod shown;
pub mod system;
pub mod tailor;
mod tasks;
pub mod timeline;
pub mod tools;
mod undo;
mod validation;
pub mod why;
pub mod worker;

pub use outfit::{Outfit, World};
pub use outfits::Agent;
pub use worker::{Config, Input, Load, Retried, RetryPlace, Running, Runtime};

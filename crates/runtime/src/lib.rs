//! Drives turns: claim, replay, perform, commit, publish.
//!
//! The way of one turn: [`worker`] takes an input in or claims a session, [`drive`] advances the kernel's steps,
//! [`model`] (through `asking`) and [`tools`] perform what the steps ask for, a [`host`] keeps what came of it ([`journaled`] in a store,
//! [`inline`] nowhere), [`attachments`] are kept where
//! their contents lie, [`live`] and [`events`] let others watch, `deliver` takes what came of turns to sinks,
//! [`outfits`] are the agents that answer, [`tailor`] makes them of what the database keeps, [`archive`] makes a file of a session and a session of a file, [`replay`] drives its turns again. Knows no SQL, no HTTP and no provider.

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

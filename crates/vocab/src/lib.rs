//! The shared vocabulary of all layers of Outlast, and the only types that are written to disk or sent over a
//! wire.
//!
//! Plain data: no clock, no randomness, no I/O, no async, and no iteration order that depends on a hash map.
//! Read [`id`] and [`error`] first, then [`message`] and [`tool`], then [`effect`], [`envelope`] and
//! [`record`], which together are the journal's format. [`access`] defines who makes a request.

pub mod access;
pub mod approval;
pub mod approval_link;
pub mod archive;
pub mod budget;
pub mod canonical_json;
pub mod capability;
pub mod cost;
pub mod effect;
pub mod envelope;
pub mod error;
pub mod event;
pub mod hash;
pub mod hook;
pub mod id;
pub mod key;
pub mod label;
pub mod limits;
pub mod message;
pub mod overlay;
pub mod package;
pub mod payment;
pub mod policy;
pub mod rate;
pub mod record;
pub mod redaction;
pub mod request_size;
pub mod search_terms;
pub mod stream;
pub mod terminal_text;
pub mod time;
pub mod tool;
pub mod trace;
pub mod wait;

pub use error::{Class, Error, ErrorPlace, Failure, Kind};
pub use hash::Hash;
pub use id::{CallId, EffectId, OrgId, SessionId, TurnId, WorkerId};
pub use key::ReplayKey;
pub use limits::Limits;
pub use time::Millis;

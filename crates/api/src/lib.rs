//! The requests and responses of the HTTP API, shared by the server and its clients.
//!
//! Each module has the types of one group of routes: bodies, query parameters and pages. Every type can be read and
//! written as JSON, and describes itself for the OpenAPI document; the doc comments of types and fields are its texts.
//! Where a response shows a type of [`outlast_views`], both conversions are here, side by side.
//!
//! This crate knows neither routes nor connections, and nothing of the runtime: `outlast-server` answers requests, and
//! `outlast-client` sends them. The APIs of other providers are in `outlast-compat`.
pub mod about;
pub mod access;
pub mod agents;
pub mod archive;
pub mod attachments;
pub mod context;
pub mod costs;
pub mod effects;
pub mod events;
pub mod inputs;
pub mod list_page;
pub mod messages;
pub mod problem;
pub mod sessions;
pub mod sinks;
pub mod turns;
pub mod waits;
pub mod why;

use outlast_vocab::{Error, Kind};

/// Returns the error for a value in a response that this version does not know, from a newer server.
fn unknown_value(what: &str, found: &str) -> Error {
    let detail = format!("the server sent `{found}`, which this version does not know as a {what}");
    Error::new(Kind::ServerAnswerInvalid, detail)
}

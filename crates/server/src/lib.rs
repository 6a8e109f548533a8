//! The HTTP API: makes everything that the library can do available to any language.
//!
//! A request passes [`door`], which checks host name, origin and key. Extractors (`extract`) parse it. A
//! handler in `routes` answers it with a `Runtime` that reaches one organisation. `problem` formats errors.
//! `follow` reads events and `sse` streams them. The OpenAPI document is generated from the same routes
//! ([`document`]). This crate contains no rules of turns: handlers call the runtime.

mod accounts;
mod api;
mod around;
mod caller;
mod connections;
mod console;
mod cursor;
pub mod door;
mod extract;
mod follow;
mod forms;
mod head;
mod inputs;
mod keys;
mod links;
mod metrics;
mod page;
mod problem;
mod quota;
mod relay;
pub mod rerun;
mod room;
mod routes;
mod server;
mod shared;
mod sse;
mod streams;
mod strict;
mod wire;

pub use api::document;
pub use door::Door;
pub use outlast_mcp_server as mcp;
pub use server::Server;

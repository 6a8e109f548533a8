//! The HTTP API: everything the library can do, reachable from any language.
//!
//! A request passes [`door`] (by which name, from which page, with which key), becomes a typed request in `extract`, and is
//! answered by a handler in `routes` with a handle of the runtime that shows one organisation. Errors leave through `problem`.
//! Events are followed in `follow` and streamed by `sse`. The OpenAPI document is made from the same routes ([`document`]).
//! Knows no rule of turns: what a route does, the runtime does.

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

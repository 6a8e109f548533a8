//! The HTTP API: makes everything that the library can do available to any language.
//!
//! A request passes [`request_auth`], which checks host name, origin and key. Extractors (`extract`) parse it. A
//! handler in `routes` answers it with a `Runtime` that reaches one organisation. `problem` formats errors.
//! `event_reader` reads events and `sse` streams them. The OpenAPI document is generated from the same routes
//! ([`document`]). This crate contains no rules of turns: handlers call the runtime.

mod admission_control;
mod api;
mod approval_pages;
mod caller;
mod caller_limits;
mod compat;
mod connections;
mod console;
mod cost_cache;
mod cursor;
mod event_reader;
mod extract;
mod head_parser;
mod inputs;
mod key_watch;
mod list_page;
mod metrics;
mod parameter_formats;
mod problem;
mod rate_limit;
pub mod request_auth;
mod request_middleware;
pub mod rerun;
mod routes;
mod server;
mod server_state;
mod session_broadcast;
mod sse;
mod strict_json;

pub use api::document;
pub use outlast_mcp_server as mcp;
pub use request_auth::OriginPolicy;
pub use server::Server;

//! The HTTP API: makes everything that the library can do available to any language.
//!
//! A request passes `request_middleware`, which checks host name and origin. `outlast_http` authenticates its
//! caller and parses it. A handler in `routes` answers it with a `Runtime` that reaches one organisation.
//! `event_reader` reads events and `sse` streams them. `outlast_compat` serves the APIs of other providers. The
//! OpenAPI document is generated from the same routes ([`document`]). This crate contains no rules of turns:
//! handlers call the runtime.

mod api;
mod approval_pages;
mod connections;
mod console;
mod cost_cache;
mod error_statuses;
mod event_reader;
mod head_parser;
mod inputs;
mod metrics;
mod parameter_formats;
mod request_middleware;
pub mod rerun;
mod routes;
mod server;
mod server_state;
mod session_broadcast;
mod sse;
mod unread_body;
mod write_timeout;

pub use api::document;
pub use outlast_http::request_auth::OriginPolicy;
pub use outlast_mcp_server as mcp;
pub use server::Server;

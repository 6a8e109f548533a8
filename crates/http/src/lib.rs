//! What the HTTP handlers of the server and of the compatible endpoints share.
//!
//! A handler starts with a [`caller::Caller`]: it authenticates the request ([`request_auth`]), counts it
//! against the limits of its key ([`rate_limit`], [`caller_limits`]), and has a `Runtime` that reaches one
//! organisation. The extractors of [`extract`] parse the rest of the request. [`problem`] formats errors.
//!
//! This crate has no routes. It knows neither connections nor the order of middleware; `outlast-server` does.

pub mod admission_control;
pub mod caller;
pub mod caller_limits;
pub mod cursor;
pub mod extract;
mod http_state;
pub mod key_watch;
pub mod list_page;
pub mod open_requests;
pub mod problem;
pub mod rate_limit;
pub mod request_auth;
pub mod request_headers;
pub mod strict_json;

pub use http_state::{HttpState, HttpStateInner};

//! Speaks to models: to APIs over HTTP, and to the built-in [`rehearsal`] model, which needs no key and no network.
//!
//! A provider turns a request into a stream of pieces. It does not know turns, journals or retries; those are the
//! runtime's business. [`Providers`] is what is configured; each [`Remote`] in it speaks one [`Api`].
//! The way of a request: `render` makes the body of an API (`chat`, `responses`, `messages`, `gemini`), [`http`] sends
//! it, [`sse`] parts the answer into events, and the decoder of the API makes pieces of them.
mod api;
mod chat;
mod claude;
mod config;
mod failure;
mod gemini;
mod http;
mod messages;
mod models;
mod prefix;
mod registry;
pub mod rehearsal;
mod remote;
mod reply;
mod responses;
mod retry_after;
mod secret;
pub mod sse;
mod wire;

pub use api::Api;
pub use config::ProviderTable;
pub use registry::{Providers, Status};
pub use rehearsal::Rehearsal;
pub use rehearsal::script::Script;
pub use remote::Remote;
pub use reply::decode;
pub use secret::Secret;

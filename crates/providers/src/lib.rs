//! Model providers: HTTP APIs, and the built-in [`rehearsal`] model, which needs no key and no network.
//!
//! A provider turns a request into a stream of events. It does not know turns, journals or retries, which belong to the
//! runtime. [`Providers`] contains the configured providers, and each [`RemoteProvider`] in it uses one [`Api`].
//!
//! A request takes these steps: `render` creates the body for an API (`chat`, `responses`, `messages`, `gemini`),
//! [`http`] sends it, [`sse`] splits the response into events, and the decoder of the API converts them.
mod api;
mod api_error;
mod api_parts;
mod chat;
mod claude;
mod config;
mod gemini;
mod http;
mod messages;
mod model_table;
mod prompt_prefix;
mod registry;
pub mod rehearsal;
mod remote_provider;
mod reply_stream;
mod responses;
mod retry_after;
mod secret;
pub mod sse;

pub use api::Api;
pub use config::ProviderTable;
pub use registry::{ProviderStatus, Providers};
pub use rehearsal::Rehearsal;
pub use rehearsal::script::Script;
pub use remote_provider::RemoteProvider;
pub use reply_stream::decode;
pub use secret::Secret;

//! Model providers: HTTP APIs, and the built-in [`rehearsal`] model, which needs no key and no network.
//!
//! A provider turns a request into a stream of events. It does not know turns, journals or retries, which belong to the
//! runtime. [`Providers`] contains the configured providers, and each [`RemoteProvider`] in it uses one [`Api`].
//!
//! A request takes these steps: `render` creates the body for an API (`chat`, `responses`, `messages`, `gemini`),
//! [`http`] sends it, [`sse`] splits the response into events, and the decoder of the API converts them.
//!
//! Without the feature `providers`, there is only the rehearsal model.
#[cfg(feature = "providers")]
mod api;
#[cfg(feature = "providers")]
mod api_error;
#[cfg(feature = "providers")]
mod api_parts;
#[cfg(feature = "providers")]
mod chat;
#[cfg(feature = "providers")]
mod claude;
#[cfg(feature = "providers")]
mod config;
#[cfg(feature = "providers")]
mod gemini;
#[cfg(feature = "providers")]
mod http;
#[cfg(feature = "providers")]
mod messages;
#[cfg(feature = "providers")]
mod model_table;
#[cfg(feature = "providers")]
mod prompt_prefix;
#[cfg(feature = "providers")]
mod registry;
pub mod rehearsal;
#[cfg(feature = "providers")]
mod remote_provider;
#[cfg(feature = "providers")]
mod reply_stream;
#[cfg(feature = "providers")]
mod responses;
#[cfg(feature = "providers")]
mod retry_after;
#[cfg(feature = "providers")]
mod secret;
#[cfg(feature = "providers")]
pub mod sse;
#[cfg(feature = "providers")]
mod window_discovery;

#[cfg(feature = "providers")]
pub use api::Api;
#[cfg(feature = "providers")]
pub use config::ProviderTable;
#[cfg(feature = "providers")]
pub use registry::{ProviderStatus, Providers};
pub use rehearsal::Rehearsal;
pub use rehearsal::script::Script;
#[cfg(feature = "providers")]
pub use remote_provider::RemoteProvider;
#[cfg(feature = "providers")]
pub use reply_stream::decode;
#[cfg(feature = "providers")]
pub use secret::Secret;

//! Provides the tools of MCP servers as a [`ToolProvider`](outlast_ports::tool::ToolProvider).
//!
//! # Pinning
//!
//! A server's tool definitions are untrusted text. A person reviews them once and pins them ([`PinnedDefinitions`]). The pinned
//! definitions are the contracts, and Outlast connects to a server only when one of its tools is called. On every
//! connection, the server's definitions are compared with the pins. A changed tool is disabled until it is accepted
//! again. The server's claims about side effects are ignored unless the operator trusts them ([`McpServerSettings`]).
//!
//! # Connections
//!
//! [`McpServerSpec`] describes how to reach a server: as a process with its own environment, over streamable HTTP with a
//! client that the caller restricts, or over streams within this program. [`McpTools`] is the provider. A question that
//! a server asks during a call parks the turn.
mod connection;
mod content;
mod elicitation;
mod in_flight;
mod pins;
mod provider;
mod transport;

pub use connection::{McpConnection, PromptLine, ServerListing};
pub use content::ResourceBody;
pub use pins::{PinChange, PinnedDefinitions, ToolDefinition};
pub use provider::{McpServerSettings, McpServerSpec, McpTools, ServerTransport, ToolFlow};
pub use transport::{HttpTransport, NetworkCheck, ProcessTransport, StreamTransport};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning. Every change under a lock is a single step, so the data stays consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Tools of MCP servers, as a [`ToolProvider`](outlast_ports::tool::ToolProvider).
//!
//! What a server says of its tools is text from outside, so it is looked at once by a person and pinned ([`Pins`]); from
//! then on the pinned definitions are the contracts, and nothing is connected until a tool is called. On every connection
//! the server's definitions are held against the pins: a tool that changed is disabled until it is accepted anew. What a
//! server says of its own harmlessness counts for nothing unless the operator says so ([`Settings`]).
//!
//! [`Server`] says how a server is reached: a process with an environment of its own, streamable HTTP by a client that
//! somebody else bounds, or streams within this program. [`McpTools`] is the provider. A question that a server asks in the middle of a call parks the turn.
mod content;
mod flight;
mod form;
mod link;
mod pins;
mod process;
mod provider;

pub use content::Contents;
pub use link::{Line, Link, Listing};
pub use pins::{Change, Definition, Pins};
pub use process::{Http, Process, Streams, Within};
pub use provider::{McpTools, Server, Settings, ToolFlow, Way};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a lock holds is changed in one go, so it is whole even if somebody panicked beside it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A client of the HTTP API. It returns the library's own view types, so the same code can print local and remote data.
//!
//! [`Client`] represents a server and the caller. Each module contains one group of calls: sessions, turns, waits,
//! books, access, agents, attachments, archives, contexts, searches and sinks. [`Following`] streams a session's events
//! across lost connections and server restarts.
//!
//! The client contains no business rules; the server, `outlast-server`, decides what a call does.

mod access;
mod agents;
mod archive;
mod attachments;
mod books;
mod context;
mod following;
mod http;
mod inputs;
mod page;
mod search;
mod sessions;
mod sinks;
mod turns;
mod waits;

pub use access::{NewKey, Whoami};
pub use agents::Agent;
pub use archive::{Again, Exported, TakenIn};
pub use context::{Context, Share, Shown};
pub use following::{Following, Heard};
pub use http::{Client, Key};
pub use inputs::{File, NewInput, Receipt, To};
pub use search::Hit;
pub use sinks::Sink;
pub use turns::Turn;
pub use waits::{Granted, Pending, Unknown};

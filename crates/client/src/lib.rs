//! A client of the HTTP API. Its answers are the library's own views, so whoever prints those prints the same of a server.
//!
//! [`Client`] is the server and who asks it; one file for each group of calls: sessions, turns, waits, books, access, agents,
//! attachments, archives, contexts, searches, sinks. [`Following`] is a session's events, across lost connections and servers that are started anew. Knows no rule:
//! what a call means, the server says. The other end: `outlast-server`.

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

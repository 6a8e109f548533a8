//! A client of the HTTP API. It sends and receives the types of [`api`], and returns view types where a local worker
//! returns them, too, so that the same code can print local and remote data.
//!
//! [`Client`] represents a server and the caller. Each module contains one group of calls: sessions, turns, waits,
//! books, access, agents, attachments, archives, contexts, searches and sinks. [`EventFollower`] streams a session's events
//! across lost connections and server restarts.
//!
//! The client contains no business rules; the server, `outlast-server`, decides what a call does.

mod access;
mod agents;
mod archive;
mod attachments;
mod budgets;
mod follow;
mod http;
mod inputs;
mod page;
mod prompt;
mod search;
mod sessions;
mod sinks;
mod turns;
mod waits;

pub use archive::ExportDownload;
pub use follow::{EventFollower, FollowedItem};
pub use http::{Client, ClientApiKey};
pub use inputs::{InputFile, InputTarget, NewInput};
pub use outlast_api as api;
pub use sinks::SinkStatus;
pub use turns::TurnReport;

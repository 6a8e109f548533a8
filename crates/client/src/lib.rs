//! A client of the HTTP API. It returns the library's own view types, so the same code can print local and remote data.
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

pub use access::{ApiKeyRequest, Whoami};
pub use agents::ServedAgent;
pub use archive::{ExportDownload, ImportSummary, RerunSettings};
pub use follow::{EventFollower, FollowedItem};
pub use http::{Client, ClientApiKey};
pub use inputs::{AcceptedInput, InputFile, InputTarget, NewInput};
pub use prompt::{PromptShare, PromptView, PromptViewMessage};
pub use search::MessageHit;
pub use sinks::SinkStatus;
pub use turns::TurnReport;
pub use waits::{ApprovalDetails, GrantDetails, UnknownCallDetails};

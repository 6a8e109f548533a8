//! Outlast as an MCP server: agents are tools, sessions are resources, approvals are questions to whoever calls.
//!
//! [`McpServer`] answers the messages of one client; what a call of an agent does is in `call`, the questions it asks in
//! `asking`, sessions in `sessions`. Over HTTP an [`Endpoint`] keeps the sessions of the protocol apart by who opened them;
//! over pipes there is one client ([`McpServer::serve`]). Knows no rule of turns and lets nobody in: a [`Guest`] is a handle
//! that somebody else has narrowed.

mod asking;
mod call;
mod calls;
mod endpoint;
mod more;
mod server;
mod sessions;
mod tools;

pub use endpoint::{Endpoint, Guest};
pub use more::More;
pub use rmcp;
pub use server::McpServer;

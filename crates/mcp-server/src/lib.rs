//! Serves Outlast over MCP: agents are tools, sessions are resources, and approvals are questions to the caller.
//!
//! [`McpServer`] answers the messages of one client. The module `call` runs calls of agents, `asking` asks for
//! approvals, and `sessions` serves sessions as resources.
//!
//! Over HTTP, an [`Endpoint`] binds each MCP session to the caller that opened it. Over standard input and output there
//! is one client ([`McpServer::serve`]).
//!
//! This crate does not drive turns and does not authenticate. A [`Guest`] is a handle that another layer has already
//! restricted.

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

//! Serves Outlast over MCP: agents are tools, sessions are resources, and approvals are questions to the caller.
//!
//! [`McpServer`] answers the messages of one client. The module `agent_call` runs calls of agents, `approval_prompt` asks for
//! approvals, and `session_resources` serves sessions as resources.
//!
//! Over HTTP, an [`McpEndpoint`] binds each MCP session to the caller that opened it. Over standard input and output there
//! is one client ([`McpServer::serve`]).
//!
//! This crate does not drive turns and does not authenticate. A [`McpCaller`] is a handle that another layer has already
//! restricted.

mod agent_call;
mod agent_tools;
mod approval_prompt;
mod endpoint;
mod mcp_extension;
mod running_calls;
mod server;
mod session_resources;

pub use endpoint::{McpCaller, McpEndpoint};
pub use mcp_extension::McpExtension;
pub use rmcp;
pub use server::McpServer;

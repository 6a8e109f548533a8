//! Runs tool calls: the catalogue of tools, batches, single calls, and the services that a running call may use.

pub(crate) mod call;
pub(crate) mod call_journal;
pub mod catalogue;
pub(crate) mod client_tool_provider;
pub(crate) mod payments;
pub(crate) mod preparation;
pub mod tool_call_scope;
pub(crate) mod tool_runner;
pub mod tools;

//! Drives turns: claim, replay, perform, commit, publish.
//!
//! The path of one turn:
//!
//! 1. [`worker`] accepts an input or claims a session.
//! 2. [`drive`] advances the kernel's steps.
//! 3. [`model`] (through `model_request`) and [`tools`] perform the effects that the steps request.
//! 4. A [`host`] records the outcomes: [`journaled_host`] in a store, [`inline_host`] nowhere.
//! 5. [`live`] and [`events`] publish progress to subscribers, and `sink_delivery` sends outputs to sinks.
//!
//! Around that path:
//!
//! - [`agent_registry`] is the registry of agents, and [`agent_factory`] builds agents from the database.
//! - [`attachments`] reads and writes the contents of attachments.
//! - [`archive`] exports a session to a file and imports it.
//! - [`replay`] drives recorded turns again.
//!
//! This crate knows no SQL, no HTTP and no provider.

pub mod agent_factory;
pub mod agent_registry;
pub mod approval_links;
pub mod approvals;
pub mod archive;
pub mod attachment_cache;
mod attachment_references;
pub mod attachments;
mod budget_meter;
mod call;
pub mod cancel;
pub mod catalogue;
mod client_tool_provider;
mod compaction;
pub mod context_usage;
pub mod conversation_cache;
pub mod conversation_reader;
pub mod costs;
pub mod difference;
pub mod drive;
pub mod durability;
pub mod events;
pub mod feed;
mod grants;
pub mod hooks;
pub mod host;
pub mod inline_host;
pub mod journaled_host;
pub mod keys;
pub mod live;
pub mod messages;
pub mod metrics;
pub mod model;
mod model_request;
pub mod output_schema;
mod partial_reply;
mod payments;
pub mod plugins;
mod policy_evaluator;
mod policy_points;
pub mod prompt_snapshot;
pub mod provenance;
pub mod provider_health;
pub mod provider_limits;
pub mod replay;
pub mod resolved_agent;
pub mod session_list;
mod sink_delivery;
pub mod system;
mod tasks;
pub mod timeline;
pub mod tool_call_scope;
mod tool_limits;
pub mod tools;
mod undo;
mod validation;
pub mod wait_explanation;
pub mod worker;

pub use agent_registry::AgentBundle;
pub use resolved_agent::{ResolvedAgent, RuntimeServices};
pub use worker::{Input, RetryOutcome, RetryPlace, RunningTurn, Runtime, RuntimeConfig, WorkerLoad};

//! Drives turns: claims sessions, replays journals, performs effects, commits outcomes, notifies subscribers.
//!
//! The path of one turn:
//!
//! 1. [`worker`] accepts an input or claims a session.
//! 2. [`turn::drive::TurnDriver`] advances the kernel's steps.
//! 3. [`turn::model`] (through `model_request`) and [`calls::tools`] perform the effects that the steps request.
//! 4. A [`turn::host`] records the outcomes: `turn::journaled_host` in a store, [`turn::inline_host`] nowhere.
//! 5. [`delivery::live`] and [`delivery::events`] publish progress to subscribers. `sink_delivery` sends outputs to sinks.
//!
//! Around that path:
//!
//! - [`agents`] resolves agents, and builds those that are stored in the database.
//! - [`policy`] decides what a turn may do; [`limits`] decides how much.
//! - [`views`] answers questions about sessions and turns.
//! - [`attachments`] reads and writes the contents of attachments.
//! - [`archive`] exports a session to a file and imports it.
//! - [`replay`] drives recorded turns again.
//!
//! This crate knows no SQL, no HTTP and no provider.

pub mod agents;
pub mod archive;
pub mod attachments;
pub mod calls;
pub mod delivery;
pub mod limits;
pub mod policy;
pub mod replay;
pub mod turn;
pub mod views;
pub mod worker;

pub use agents::agent_registry::AgentBundle;
pub use agents::agent_resolver::AgentResolver;
pub use agents::resolved_agent::ResolvedAgent;
pub use worker::{Input, RepeatableRequest, RunningTurn, Runtime, RuntimeConfig, WorkerLoad};

//! A durable agent runtime. A turn that was accepted is not lost: a process killed at any instant resumes where it stood,
//! and nothing that must happen once happens twice.
//!
//! ```no_run
//! # async fn example() -> Result<(), outlast::Error> {
//! let outlast = outlast::Outlast::at("agent.db").builtin_tools().start().await?;
//! let turn = outlast.session("ann").send("what time is it?").await?;
//! println!("{}", turn.answer().await?);
//! # Ok(())
//! # }
//! ```
//!
//! [`Builder`] puts the parts together; [`Session`] takes inputs; [`Turn`] is one of them on its way to its end, and
//! [`Sending::watched`] follows it from its first word. Tools are written against [`tool`], models against [`model`].
//! [`trial`] kills an agent at every effect and looks what is left.

mod builder;
mod sending;
mod session;
#[cfg(feature = "trial")]
pub mod trial;

pub use builder::{Builder, Outlast};
pub use outlast_ports::memory::Memory;
pub use outlast_ports::{clock, model, service, store, tool};
pub use outlast_providers as providers;
pub use outlast_runtime as runtime;
pub use outlast_runtime::events::Events;
pub use outlast_store as sqlite;
pub use outlast_tools as tools;
pub use outlast_vocab as vocab;
pub use outlast_vocab::{Error, Kind, Limits, SessionId, TurnId};
pub use sending::Sending;
pub use session::{Session, Turn};

// Tools derive their arguments' schema; a program that embeds Outlast should not have to pick versions of these.
pub use {schemars, serde, serde_json};

/// What a program that writes tools needs most.
pub mod prelude {
    pub use crate::service::{Cancellation, Completion, Events, Progress, Service, Steps, Timer, Values};
    pub use crate::tool::{About, Call, Probe, Ran, Tool, done, failed};
    pub use crate::{Error, Outlast, Session, Turn};
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
}

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
//! [`sinks`] take what came of turns elsewhere. [`Outlast::export`] makes a file of a session, which
//! [`replay`] drives again without anything outside, and [`rerun`] with another agent. [`Outlast::within`] serves organisations that do not see each other. [`trial`] kills an agent at every effect and looks what is left.

mod archived;
mod builder;
mod capability;
mod plugged;
pub mod rerun;
mod sending;
mod session;
#[cfg(feature = "trial")]
pub mod trial;

pub use builder::{Builder, Outlast};
pub use capability::Capability;
#[cfg(feature = "cedar")]
pub use outlast_cedar as cedar;
/// Makes a tool of an `async fn`.
///
/// ```
/// use outlast::prelude::*;
///
/// /// Tells the temperature in a city, in °C.
/// #[tool(pure, attempts = 3, deadline_s = 10)]
/// async fn weather(
///     /// The city, in English.
///     city: String,
///     /// How many days ahead; today when absent.
///     days: Option<u8>,
///     stations: Service<Vec<(String, i32)>>,
/// ) -> Result<i32, Error> {
///     let found = stations.iter().find(|(name, _)| *name == city);
///     let (_, now) = found.ok_or_else(|| failed(format!("no station in {city}")))?;
///     Ok(now - i32::from(days.unwrap_or(0)))
/// }
///
/// # async fn example() -> Result<(), Error> {
/// let stations = vec![("Paris".to_owned(), 21)];
/// let outlast = Outlast::ephemeral().service(stations).tool(weather).start().await?;
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
/// ```
///
/// The tool is called like the function, and its doc comment is what the model is told. The function becomes a type of its
/// name that implements [`Tool`](trait@tool::Tool); the function itself is `weather::call(…)`.
///
/// **Parameters** whose type is called `Service`, `Steps`, `Timer`, `Events`, `Completion`, `Progress`, `Values`,
/// `Attachments`, `Models`, `Tools`, `Payments` or `Cancellation`, and those marked `#[service]`, are handed over by the runtime. `Call` is the facts of the call. All
/// others are arguments: their doc comments describe them to the model, `Option<T>` may be left out, `#[default]` and
/// `#[default(10)]` say what is meant then, attributes of serde and schemars are passed on. What the tool does not know is
/// refused. One parameter marked `#[args]` takes all arguments as a type of your own.
///
/// **It gives** `Result<T, Error>`, where `T` serialises, or `Result<Ran, Error>` if it may be finished later.
///
/// **In the attribute**
///
/// | word | meaning |
/// |---|---|
/// | `pure`, `idempotent`, `transactional`, `at_most_once` | what may happen to an interrupted call; at most once when it says nothing |
/// | `serial`, `key = "account"` | runs alone; runs in order with calls of the same key |
/// | `attempts = 3`, `backoff_ms = 200` | a failure that may pass is tried again |
/// | `deadline_s = 30` | how long one attempt may take |
/// | `approval` | somebody should be asked before it runs |
/// | `returns` | the form of `T` is part of the contract; `T` derives `JsonSchema` |
/// | `durable` | it needs a durable host; implied by `Steps`, `Timer`, `Events` and `Completion` |
/// | `name = "weather-now"` | what the model calls it |
/// | `crate = "my::outlast"` | where Outlast is, if not at `::outlast` |
///
/// A tool with state of its own, with `prepare` or with `probe`, implements the trait.
pub use outlast_macros::tool;
#[cfg(feature = "mcp")]
pub use outlast_mcp as mcp;
#[cfg(feature = "objects")]
pub use outlast_objects as objects;
pub use outlast_ports::Answer;
pub use outlast_ports::memory::Memory;
pub use outlast_ports::{
    archive, budget, clock, configs, contents, filed, hook, metrics, model, orgs, outbox, owed, payment,
    plugin, policy, rate, search, service, sink, store, task, tool, trigger, votes,
};
pub use outlast_providers as providers;
pub use outlast_runtime as runtime;
pub use outlast_runtime::archive::Export;
pub use outlast_runtime::events::Events;
pub use outlast_runtime::replay;
#[cfg(feature = "server")]
pub use outlast_server as server;
pub use outlast_sinks as sinks;
pub use outlast_store as sqlite;
#[cfg(feature = "telemetry")]
pub use outlast_telemetry as telemetry;
pub use outlast_tools as tools;
pub use outlast_vocab as vocab;
pub use outlast_vocab::{Error, Kind, Limits, OrgId, SessionId, TurnId};
pub use sending::Sending;
pub use session::{Session, Turn};

// Tools derive their arguments' schema; a program that embeds Outlast should not have to pick versions of these.
pub use {schemars, serde, serde_json};

/// What a program that writes tools needs most.
pub mod prelude {
    pub use crate::payment::Payments;
    pub use crate::service::{
        Attached, Attachments, Cancellation, Completion, Events, Models, Progress, Service, Steps, Timer,
        Tools, Values,
    };
    pub use crate::tool::{About, Call, Probe, Ran, Tool, done, failed};
    pub use crate::{Error, Outlast, Session, Turn};
    pub use outlast_macros::tool;
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
}

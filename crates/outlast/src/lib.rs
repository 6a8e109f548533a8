//! Outlast is a durable runtime for agents.
//!
//! Outlast records every step of a turn in a journal. If the process is killed, a worker resumes the turn from the last
//! record. An accepted turn is never lost, and an at-most-once call never runs twice.
//!
//! # Example
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
//! # Where to go next
//!
//! - [`Builder`] configures and starts a worker, [`Session`] takes inputs, and [`Turn`] represents one accepted input.
//! - [`InputBuilder::watched`] streams the events of a turn from its start.
//! - [`tool`] contains what tools are written against, and [`model`] what model providers are written against.
//! - [`sinks`] deliver the outputs of turns to other systems.
//! - [`Outlast::export`] writes a session to a file. [`replay`] runs that file again without any outside call, and
//!   [`rerun`] runs it with another agent.
//! - [`Outlast::for_org`] serves another organisation. Organisations cannot see each other's data.
//! - [`trial`] kills an agent at every effect and checks the state that is left.

mod agent_plugins;
mod builder;
mod capability;
mod input_builder;
pub mod rerun;
mod session;
mod session_archive;
#[cfg(feature = "trial")]
pub mod trial;

pub use builder::{Builder, Outlast};
pub use capability::Capability;
pub use input_builder::InputBuilder;
#[cfg(feature = "cedar")]
pub use outlast_cedar as cedar;
/// Turns an `async fn` into a tool.
///
/// # Example
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
/// The tool has the name of the function, and the model sees the function's doc comment as the tool's description. The
/// function becomes a type of the same name that implements [`Tool`](trait@tool::Tool). To call the function itself,
/// use `weather::call(…)`.
///
/// # Parameters
///
/// - **Services** are injected by the runtime. A parameter is a service if it is marked `#[service]` or its type is
///   called `Service`, `Steps`, `Timer`, `Events`, `Completion`, `Progress`, `Values`, `Attachments`, `Models`,
///   `Tools`, `Payments` or `Cancellation`.
/// - **`Call`** contains the facts of the call, such as its id.
/// - **All other parameters** are arguments. Their doc comments describe them to the model. An `Option<T>` is optional;
///   `#[default]` and `#[default(10)]` set the default of an absent argument. Attributes of serde and schemars are
///   passed on. Unknown arguments are rejected.
/// - **One parameter marked `#[args]`** takes all arguments as one type that you define.
///
/// # Return type
///
/// `Result<T, Error>`, where `T: Serialize`, or `Result<Ran, Error>` if the call may complete later.
///
/// # Options of the attribute
///
/// | option | meaning |
/// |---|---|
/// | `pure`, `idempotent`, `transactional`, `at_most_once` | how to recover an interrupted call; default `at_most_once`
/// |
/// | `serial`, `key = "account"` | runs alone; runs in order with calls of the same key |
/// | `attempts = 3`, `backoff_ms = 200` | retries transient failures |
/// | `deadline_s = 30` | the timeout of one attempt |
/// | `approval` | a person should approve each call |
/// | `returns` | the schema of `T` is part of the contract; `T` derives `JsonSchema` |
/// | `durable` | needs a durable host; implied by `Steps`, `Timer`, `Events` and `Completion` |
/// | `name = "weather-now"` | the name that the model sees |
/// | `crate = "my::outlast"` | the path of Outlast, if it is not `::outlast` |
///
/// Implement the trait directly for a tool that has its own state or needs `prepare` or `probe`.
pub use outlast_macros::tool;
#[cfg(feature = "mcp")]
pub use outlast_mcp as mcp;
#[cfg(feature = "objects")]
pub use outlast_objects as objects;
pub use outlast_ports::ResultFuture;
pub use outlast_ports::memory::MemoryStore;
pub use outlast_ports::{
    archive, attachment_upload, budget, clock, configs, contents, hook, metrics, model, orgs, outbox,
    payment, payment_outbox, plugin, policy, rate, search, service, sink, spawner, store, tool, trigger,
    votes,
};
pub use outlast_providers as providers;
pub use outlast_runtime as runtime;
pub use outlast_runtime::archive::Export;
pub use outlast_runtime::delivery::events::SessionEventStream;
pub use outlast_runtime::replay;
#[cfg(feature = "server")]
pub use outlast_server as server;
#[cfg(feature = "sinks")]
pub use outlast_sinks as sinks;
pub use outlast_store as sqlite;
#[cfg(feature = "telemetry")]
pub use outlast_telemetry as telemetry;
pub use outlast_tools as tools;
pub use outlast_vocab as vocab;
pub use outlast_vocab::{Error, Kind, Limits, OrgId, SessionId, TurnId};
pub use session::{Session, Turn};

// Tools derive the schemas of their arguments. Re-exported so that programs need not pick matching versions.
pub use {schemars, serde, serde_json};

/// The items that programs with tools need most often.
pub mod prelude {
    pub use crate::payment::Payments;
    pub use crate::service::{
        AttachmentRef, Attachments, Cancellation, Completion, Events, Models, Progress, Service, Steps,
        Timer, Tools, Values,
    };
    pub use crate::tool::{Call, ProbeResult, Tool, ToolRunOutcome, ToolSpec, done, failed};
    pub use crate::{Error, Outlast, Session, Turn};
    pub use outlast_macros::tool;
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
}

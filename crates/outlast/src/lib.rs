//! Outlast is a durable runtime for agents.
//!
//! Outlast records every step of a turn in a journal: the input, each model call, each tool call, each wait. If the
//! process is killed, a worker resumes the turn from the last record. An accepted turn is never lost, and an
//! at-most-once call never runs twice. You need one SQLite file, and no server.
//!
//! # First turn
//!
//! ```no_run
//! # async fn example() -> Result<(), outlast::Error> {
//! let outlast = outlast::Outlast::at("agent.db").builtin_tools().start().await?;
//! let turn = outlast.session("ann").send("what time is it?").await?;
//! println!("{}", turn.answer().await?);
//! outlast.shut_down().await;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Outlast::at`] returns a [`Builder`], which configures and starts a worker.
//! - A [`Session`] takes inputs, one after the other. You choose its key, and the first input creates it.
//! - When `send` returns, the input is on disk. If this process dies, the next one that opens `agent.db` answers it.
//! - A [`Turn`] is one accepted input and the work on its answer.
//!
//! Without a provider, the built-in rehearsal model answers: it follows a few rules and needs no key. To use a real
//! model, add `.provider(Providers::from_env()?).model("openai/gpt-5")` ([`providers`]). The examples below run with the
//! rehearsal model, which makes the call that the input asks for.
//!
//! # Tools
//!
//! An `async fn` with [`#[tool]`](macro@tool) is a tool. Its arguments come from the model, its
//! [services](service) from the runtime.
//!
//! ```
//! use outlast::prelude::*;
//!
//! /// Sends a parcel to the customer.
//! #[tool] // at most once, unless it says otherwise
//! async fn ship(item: String, call: Call) -> Result<String, Error> {
//!     println!("{item} leaves under the key {}", call.id);
//!     Ok(format!("a parcel with {item}"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let outlast = Outlast::ephemeral().tool(ship).start().await?;
//! // The same idempotency key is the same turn, so the parcel leaves once.
//! for _ in 0..2 {
//!     let turn = outlast.session("ann").send_once("order-17", r#"call ship {"item": "tea"}"#).await?;
//!     assert_eq!(turn.answer().await?, "ship gave a parcel with tea.");
//! }
//! # outlast.shut_down().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`tools`] contains ready tools: a calculator, a clock, values, files, HTTP and a sandboxed shell.
//!
//! # Streaming
//!
//! [`InputBuilder::watched`] subscribes before the turn starts. Durable events are records with a cursor, from which any
//! process can continue to read. Live events show text while the model writes it, and are not stored.
//!
//! ```
//! use outlast::prelude::*;
//! use outlast::vocab::event::{Event, LiveEventKind};
//! use outlast::vocab::record::Fact;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let outlast = Outlast::ephemeral().builtin_tools().start().await?;
//! let (_turn, mut events) = outlast.session("ann").send("add 2 and 3").watched().await?;
//! let mut text = String::new();
//! loop {
//!     match events.next().await? {
//!         Event::Live(live) => {
//!             if let LiveEventKind::Text { text: part, .. } = live.what {
//!                 text += &part;
//!             }
//!         }
//!         Event::Durable(record) if matches!(record.fact, Fact::Ended { .. }) => break,
//!         _ => {}
//!     }
//! }
//! assert_eq!(text, "2 + 3 is 5.");
//! # outlast.shut_down().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Waiting and approvals
//!
//! A turn that waits for a person, a timer or another system holds no process. A rule can ask a person before a call
//! runs:
//!
//! ```
//! use outlast::prelude::*;
//! use outlast::vocab::policy::{Approval, ApprovalRequirement, ApprovalVerdict, Policy, PolicyDecision, Rule};
//!
//! /// Pays a person.
//! #[tool(idempotent)]
//! async fn pay(to: String, euros: u32) -> Result<String, Error> {
//!     Ok(format!("{euros} euros to {to}"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let ask = PolicyDecision::Ask(ApprovalRequirement::default());
//! let rule = Rule { tool: "pay".to_owned(), ..Rule::new("ask-first".parse()?, ask) };
//! let outlast = Outlast::ephemeral().tool(pay).policy(Policy { rules: vec![rule] }).start().await?;
//! let turn = outlast.session("ann").send(r#"call pay {"to": "Bob", "euros": 5}"#).await?;
//!
//! // Usually in another process: the console, `outlast approvals`, or a page of yours.
//! let runtime = outlast.runtime();
//! let question = loop {
//!     if let Some(question) = runtime.approvals().pending(1, runtime.now()).await?.pop() {
//!         break question;
//!     }
//!     tokio::task::yield_now().await;
//! };
//! runtime.approve(question.id, Approval::new("boss", ApprovalVerdict::Approve)).await?;
//! assert_eq!(turn.answer().await?, "pay gave 5 euros to Bob.");
//! # outlast.shut_down().await;
//! # Ok(())
//! # }
//! ```
//!
//! A tool waits with [`Timer`](service::Timer), [`Events`](service::Events) or [`Completion`](service::Completion).
//!
//! # Typed answers
//!
//! [`Session::ask`] returns a value of your type. The model receives its JSON Schema, and an answer that does not match
//! goes back to the model with the errors.
//!
//! ```
//! use outlast::prelude::*;
//! use outlast::providers::{Rehearsal, Script};
//! use outlast::runtime::worker::system::SystemClock;
//! use std::sync::Arc;
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(crate = "outlast::serde")]
//! #[schemars(crate = "outlast::schemars")]
//! struct Weather {
//!     /// In degrees Celsius.
//!     degrees: i32,
//!     rain: bool,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! // A script plays the model.
//! let script: Script = r#"say {"degrees": 20, "rain": false}"#.parse()?;
//! let model = Rehearsal::scripted(script, Arc::new(SystemClock));
//! let outlast = Outlast::ephemeral().provider(model).start().await?;
//! let weather: Weather = outlast.new_session().ask("What is the weather in Lisbon?").await?;
//! assert_eq!((weather.degrees, weather.rain), (20, false));
//! # outlast.shut_down().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! A tool declares how to recover a call that a crash interrupted:
//!
//! | class | after a crash |
//! |---|---|
//! | `pure` | runs again |
//! | `idempotent` | runs again under the same [`Call::id`](field@tool::Call::id), which the other side uses as an idempotency key |
//! | `transactional` | runs again; its writes to the session commit with its result |
//! | `at_most_once` (default) | does not run again; an operator records what happened |
//!
//! [`Steps`](service::Steps) split a tool into parts that run once each. [`trial`] kills your agent at every effect in a
//! test, and checks what is left.
//!
//! ```
//! # use outlast::prelude::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! # let directory = std::env::temp_dir().join(format!("outlast-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory).map_err(failed)?;
//! # let path = directory.join("agent.db");
//! let first = Outlast::at(&path).builtin_tools().start().await?;
//! let id = first.session("ann").send("add 2 and 3").await?.id();
//! first.shut_down().await; // or the process dies
//!
//! let second = Outlast::at(&path).builtin_tools().start().await?;
//! assert_eq!(second.turn(id).await?.answer().await?, "2 + 3 is 5.");
//! # second.shut_down().await;
//! # std::fs::remove_dir_all(&directory).map_err(failed)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! With the default features, 175 crates are compiled, SQLite and TLS included. Without any, 105.
//!
//! | feature | enables | additional crates |
//! |---|---|---|
//! | `providers` (default) | [`providers`]: model APIs over HTTP | 69 of the 175 |
//! | `trial` (default) | [`trial`]: crash tests of your agent | 1 of the 175 |
//! | `http2` | HTTP/2 to model APIs | 5 |
//! | `fetch` | [`Builder`]`::fetch`: web pages, and egress rules: `outlast::tools::egress` | 5 |
//! | `commands` | [`Builder`]`::shell`, and programs as tools and hooks: `outlast::tools::command` | 7 |
//! | `sinks` | `outlast::sinks`: webhooks, files and programs; includes `fetch` and `commands` | 13 |
//! | `mcp` | `outlast::mcp`: tools of MCP servers | 14 |
//! | `telemetry` | [`Builder`]`::telemetry`: traces and metrics over OTLP; includes `fetch` | 20 |
//! | `objects` | [`Builder`]`::attachments`: attachments in a directory or in S3 | 35 |
//! | `server` | `outlast::server`: the HTTP API and the console | 42 |
//! | `cedar` | `outlast::cedar`: Cedar policies | 43 |
//! | `full` | everything except `cedar` | 91 |
//!
//! # Where to go next
//!
//! - [`Builder`] has all settings: models, rules, budgets, rate limits, hooks, plug-ins, payments.
//! - [`tool`](mod@tool) contains what tools are written against, and [`model`] what model providers are written against.
//! - [`sinks`] deliver the outputs of turns to other systems.
//! - [`Outlast::export`] writes a session to a file. [`replay`] runs that file again without any outside call, and
//!   [`rerun`] runs it with another agent.
//! - [`Outlast::for_org`] serves another organisation. Organisations cannot see each other's data.
//! - The guide in `docs/guide` explains each topic. `cargo xtask book` builds it as a book.

mod builder;
mod capability;
#[cfg(doctest)]
mod guide;
mod handle;
mod input_builder;
mod ports;
pub mod replay;
pub mod rerun;
pub mod service;
mod session;
mod session_archive;
mod start;
#[cfg(feature = "trial")]
pub mod trial;

pub use builder::Builder;
pub use capability::Capability;
pub use handle::Outlast;
pub use input_builder::InputBuilder;
/// Decides by Cedar policies instead of rules.
///
/// ```no_run
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
/// use outlast::cedar::{Cedar, PolicyFiles};
///
/// let files = PolicyFiles { policies: "policies.cedar".into(), ..PolicyFiles::default() };
/// let outlast = Outlast::at("agent.db").policy_engine(Cedar::load(&files)?).start().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "cedar")]
pub use outlast_cedar as cedar;
pub use outlast_ledger::memory::MemoryStore;
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
/// `Result<T, Error>`, where `T: Serialize`, or `Result<ToolRunOutcome, Error>` if the call may complete
/// later.
///
/// # Options of the attribute
///
/// | option | meaning |
/// |---|---|
/// | `pure`, `idempotent`, `transactional`, `at_most_once` | how to recover an interrupted call; `at_most_once` if absent |
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
/// Gives an agent the tools of MCP servers.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use outlast::Outlast;
/// use outlast::mcp::{McpServerSettings, McpServerSpec, McpTools, PinnedDefinitions, ProcessTransport, ServerTransport};
///
/// // The definitions that `outlast mcp accept` has pinned.
/// let pins = PinnedDefinitions::parse(&std::fs::read_to_string("agent.mcp.json")?)?;
/// let transport = ServerTransport::Process(ProcessTransport {
///     program: "weather-server".into(),
///     args: Vec::new(),
///     dir: ".".into(),
///     passed_env: vec!["WEATHER_KEY".to_owned()],
///     launcher: None,
/// });
/// let weather = McpServerSpec { name: "weather".to_owned(), transport, settings: McpServerSettings::default() };
/// let outlast = Outlast::at("agent.db").tools(McpTools::new(vec![weather], &pins)?).start().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "mcp")]
pub use outlast_mcp as mcp;
/// Stores the contents of attachments outside the database.
///
/// ```no_run
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
///
/// let outlast = Outlast::at("agent.db").attachments("s3://my-bucket/agents").start().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "objects")]
pub use outlast_objects as objects;
pub use outlast_ports::ResultFuture;
pub use outlast_ports::{
    archive, clock, contents, hook, metrics, model, payment, plugin, policy, search, spawner, tool, trigger,
};
/// Connects agents to models.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use outlast::Outlast;
/// use outlast::providers::Rehearsal;
/// use outlast::runtime::worker::system::SystemClock;
/// use std::sync::Arc;
///
/// let model = Rehearsal::scripted("say Good morning.".parse()?, Arc::new(SystemClock));
/// let outlast = Outlast::ephemeral().provider(model).start().await?;
/// assert_eq!(outlast.session("ann").send("hello").await?.answer().await?, "Good morning.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
/// ```
///
/// For a model over HTTP, use `.provider(Providers::from_env()?).model("openai/gpt-5")`.
pub use outlast_providers as providers;
/// Answers questions about a running worker.
///
/// ```
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
///
/// let outlast = Outlast::ephemeral().start().await?;
/// let turn = outlast.session("ann").send("hello").await?;
/// turn.answer().await?;
/// let why = outlast.runtime().why(turn.session()).await?;
/// assert_eq!(why.progress.name(), "rests");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
/// ```
pub use outlast_runtime as runtime;
pub use outlast_runtime::archive::Export;
pub use outlast_runtime::delivery::events::SessionEventStream;
/// Serves agents over HTTP, from your own program.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use outlast::server::Server;
/// use outlast::vocab::access::Access;
/// use outlast::{OrgId, Outlast};
///
/// let outlast = Outlast::at("agent.db").start().await?;
/// let local = Access::to(OrgId::DEFAULT); // the access of local requests without a key
/// let server = Server::bind(outlast.runtime(), "127.0.0.1:7777".parse()?, local).await?;
/// server.serve(async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
/// outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "server")]
pub use outlast_server as server;
/// Delivers the outputs of turns to webhooks, files and programs.
///
/// ```no_run
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
/// use outlast::sink::SubscribedSink;
/// use outlast::sinks::JsonLinesFile;
///
/// let audit = SubscribedSink::new("audit", JsonLinesFile::new("audit.jsonl")?)?;
/// let outlast = Outlast::at("agent.db").sink(audit).start().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "sinks")]
pub use outlast_sinks as sinks;
/// Stores sessions in an SQLite file.
///
/// ```no_run
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
///
/// let outlast = Outlast::at("agent.db").start().await?; // creates the file, or upgrades an older one
/// for session in outlast.store().sessions(None, 20).await? {
///     println!("{} {:?}", session.id, session.state);
/// }
/// # Ok(())
/// # }
/// ```
pub use outlast_store as sqlite;
/// Sends traces and metrics to an OpenTelemetry collector.
///
/// ```no_run
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
/// use outlast::telemetry::TelemetrySettings;
///
/// let collector = TelemetrySettings::to("http://127.0.0.1:4318")?.service("shop");
/// let outlast = Outlast::at("agent.db").telemetry(collector).start().await?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "telemetry")]
pub use outlast_telemetry as telemetry;
/// Contains tools that most agents need.
///
/// ```
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
/// use outlast::tools::Calculator;
///
/// let outlast = Outlast::ephemeral().tool(Calculator).start().await?;
/// let turn = outlast.session("ann").send("what is 6 * 7?").await?;
/// assert!(turn.answer().await?.contains("42"));
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
/// ```
pub use outlast_tools as tools;
/// Defines what queries return.
///
/// ```
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
/// use outlast::views::SessionState;
///
/// let outlast = Outlast::ephemeral().start().await?;
/// outlast.session("ann").send("hello").await?.answer().await?;
/// let session = outlast.store().sessions(None, 1).await?.remove(0);
/// assert_eq!((session.key.as_deref(), session.state), (Some("ann"), SessionState::Idle));
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
/// ```
pub use outlast_views as views;
/// Defines records, events, errors and ids.
///
/// ```
/// # async fn example() -> Result<(), outlast::Error> {
/// use outlast::Outlast;
/// use outlast::vocab::record::Seq;
///
/// let outlast = Outlast::ephemeral().start().await?;
/// let turn = outlast.session("ann").send("hello").await?;
/// turn.answer().await?;
/// let records = outlast.store().records(turn.session(), Seq(0), 100).await?;
/// let names: Vec<&str> = records.iter().map(|record| record.fact.name()).collect();
/// assert_eq!(names.last(), Some(&"turn.ended"));
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
/// ```
pub use outlast_vocab as vocab;
pub use outlast_vocab::{Error, Kind, Limits, OrgId, SessionId, TurnId};
pub use ports::{attachment_upload, budget, configs, orgs, outbox, payment_outbox, rate, sink, store, votes};
pub use session::{Session, Turn};

// Tools derive the schemas of their arguments. Re-exported so that programs need not pick matching versions.
pub use {schemars, serde, serde_json};

/// The items that programs with tools need most often.
pub mod prelude {
    pub use crate::payment::Payments;
    #[doc(no_inline)]
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

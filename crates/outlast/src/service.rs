//! Services for tools, found by type and checked once at start-up.
//!
//! A parameter of a [`tool`](macro@crate::tool) whose type is one of these is not an argument: the runtime provides it.
//! [`Service`] is a value of your program. The others belong to one call.
//!
//! | service | use it to |
//! |---|---|
//! | [`Service`] | use a value of your program, such as a client or a connection pool |
//! | [`Steps`] | run a part of the tool once, across retries and crashes |
//! | [`Timer`] | sleep across restarts |
//! | [`Events`], [`Completion`] | wait for an external system |
//! | [`Progress`], [`Cancellation`] | report progress; stop early |
//! | [`Values`], [`Attachments`] | store data with the session |
//! | [`Models`], [`Tools`], [`Agent`] | ask a model, run another tool, read the agent's rules |
//! | [`Payments`](crate::payment::Payments) | reserve and spend money |

pub use outlast_ports::service::{
    CallAttachments, CallCancellation, CallEvents, CallModels, CallPayments, CallPermissions, CallProgress,
    CallScope, CallSteps, CallTools, CallValues, Needs, Services, UnavailableScope,
};

/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// struct Prices {
///     tea: u32,
/// }
///
/// /// Tells the price of an item, in cents.
/// #[tool(pure)]
/// async fn price(item: String, prices: Service<Prices>) -> Result<u32, Error> {
///     if item == "tea" { Ok(prices.tea) } else { Err(failed(format!("no price for {item}"))) }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().service(Prices { tea: 450 }).tool(price).start().await?;
/// let turn = outlast.new_session().send(r#"call price {"item": "tea"}"#).await?;
/// assert_eq!(turn.answer().await?, "price gave 450.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Service;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
///
/// /// Orders an item.
/// // The first attempt fails after the charge. The second one does not charge again.
/// #[tool(idempotent, attempts = 2, backoff_ms = 1)]
/// async fn order(item: String, charges: Service<AtomicU32>, steps: Steps, call: Call) -> Result<u32, Error> {
///     let charge = async { Ok(charges.fetch_add(1, SeqCst) + 1) };
///     let number: u32 = steps.run("charge", &item, charge).await?;
///     if call.attempt == 1 {
///         return Err(Error::new(outlast::Kind::ToolUnavailable, "the warehouse does not answer"));
///     }
///     Ok(number)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().service(AtomicU32::new(0)).tool(order).start().await?;
/// let turn = outlast.new_session().send(r#"call order {"item": "tea"}"#).await?;
/// assert_eq!(turn.answer().await?, "order gave 1.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Steps;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use std::time::Duration;
///
/// /// Boils an egg.
/// #[tool(idempotent)]
/// async fn boil(cook_ms: u64, timer: Timer) -> Result<String, Error> {
///     timer.sleep(Duration::from_millis(cook_ms)).await?;
///     Ok("an egg".to_owned())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().tool(boil).start().await?;
/// let turn = outlast.new_session().send(r#"call boil {"cook_ms": 20}"#).await?;
/// assert_eq!(turn.answer().await?, "boil gave an egg.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Timer;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::serde_json::json;
/// use outlast::vocab::wait::{CompletionKey, Resolution};
/// use std::time::Duration;
/// use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
///
/// /// Sends a parcel and waits until it is delivered.
/// #[tool(idempotent)]
/// async fn deliver(
///     item: String,
///     carrier: Service<UnboundedSender<CompletionKey>>,
///     steps: Steps,
///     events: Events,
/// ) -> Result<String, Error> {
///     let key = events.key("delivered")?;
///     steps.run("hand over", &item, async { carrier.send(key).map_err(failed) }).await?;
///     match events.wait("delivered", Some(Duration::from_secs(86_400))).await? {
///         Resolution::Ok(proof) => Ok(format!("{item} for {}", proof["to"])),
///         _ => Err(failed("not delivered within a day")),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let (sender, mut carrier) = unbounded_channel();
/// let outlast = Outlast::ephemeral().service(sender).tool(deliver).start().await?;
/// let turn = outlast.new_session().send(r#"call deliver {"item": "tea"}"#).await?;
/// // Any process that knows the key can resolve the event: a webhook handler, or `outlast resolve`.
/// let key = carrier.recv().await.expect("the tool handed out its key");
/// outlast.runtime().resolve(&key, Resolution::Ok(json!({"to": "Ann"}))).await?;
/// assert_eq!(turn.answer().await?, r#"deliver gave tea for "Ann"."#);
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Events;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::serde_json::json;
/// use outlast::vocab::event::Event;
/// use outlast::vocab::record::Fact;
/// use outlast::vocab::wait::{CompletionKey, Resolution};
/// use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
///
/// /// Asks a person. The turn waits without holding a process.
/// #[tool(idempotent)]
/// async fn ask_person(
///     question: String,
///     desk: Service<UnboundedSender<(String, CompletionKey)>>,
///     completion: Completion,
/// ) -> Result<ToolRunOutcome, Error> {
///     desk.send((question, completion.key()?)).map_err(failed)?;
///     Ok(ToolRunOutcome::Pending)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let (sender, mut desk) = unbounded_channel::<(String, CompletionKey)>();
/// let outlast = Outlast::ephemeral().service(sender).tool(ask_person).start().await?;
/// let (turn, mut events) = outlast.new_session().send(r#"call ask_person {"question": "Tea?"}"#).watched().await?;
/// // A key can be resolved as soon as the turn waits.
/// while !matches!(events.next().await?, Event::Durable(record) if matches!(record.fact, Fact::Parked { .. })) {}
/// let (_question, key) = desk.recv().await.expect("the tool asks");
/// outlast.runtime().resolve(&key, Resolution::Ok(json!("yes"))).await?;
/// assert_eq!(turn.answer().await?, "ask_person gave yes.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Completion;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::vocab::event::{Event, LiveEventKind};
///
/// /// Reads some pages.
/// #[tool(pure)]
/// async fn read_pages(pages: u32, progress: Progress) -> Result<u32, Error> {
///     for page in 1..=pages {
///         progress.note(format!("page {page} of {pages}"));
///     }
///     Ok(pages)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().tool(read_pages).start().await?;
/// let (_turn, mut events) = outlast.new_session().send(r#"call read_pages {"pages": 2}"#).watched().await?;
/// let note = loop {
///     if let Event::Live(live) = events.next().await?
///         && let LiveEventKind::Progress { note, .. } = live.what
///     {
///         break note;
///     }
/// };
/// assert_eq!(note, "page 1 of 2");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Progress;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::serde_json::json;
///
/// /// Puts an item into the basket. Returns how many it contains now.
/// #[tool(transactional, key = "basket")]
/// async fn put(item: String, values: Values) -> Result<u64, Error> {
///     let before = values.get(&item).await?.and_then(|count| count.as_u64()).unwrap_or(0);
///     values.set(&item, json!(before + 1))?; // commits with the result of the call
///     Ok(before + 1)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().tool(put).start().await?;
/// let turn = outlast.new_session().send(r#"call put {"item": "tea"}"#).await?;
/// assert_eq!(turn.answer().await?, "put gave 1.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Values;

/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// /// Draws a chart and returns the id of its file.
/// #[tool(idempotent)]
/// async fn chart(title: String, attachments: Attachments) -> Result<outlast::vocab::id::AttachmentId, Error> {
///     let drawing = format!("<svg><title>{title}</title></svg>");
///     let file = attachments.put("image/svg+xml", Some("chart.svg".to_owned()), drawing.into_bytes())?;
///     Ok(file.id)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().tool(chart).start().await?;
/// let turn = outlast.new_session().send(r#"call chart {"title": "Tea"}"#).await?;
/// assert!(turn.answer().await?.starts_with("chart gave att_"));
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Attachments;

/// # Example
///
/// ```
/// use outlast::prelude::*;
///
/// /// Counts the bytes of a file.
/// #[tool(pure)]
/// async fn count_bytes(file: AttachmentRef, attachments: Attachments) -> Result<u64, Error> {
///     Ok(attachments.info(file.0).await?.bytes)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().tool(count_bytes).start().await?;
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::AttachmentRef;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::providers::{Rehearsal, Script};
/// use outlast::runtime::worker::system::SystemClock;
/// use std::sync::Arc;
///
/// /// Sums up a text.
/// #[tool(idempotent)]
/// async fn sum_up(text: String, models: Models) -> Result<String, Error> {
///     models.ask(format!("Sum up: {text}")).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let script: Script = r#"
/// when sum up:
/// say Short.
///
/// any
/// call sum_up {"text": "A long story."}
/// ---
/// say {{result sum_up}}
/// "#.parse()?;
/// let model = Rehearsal::scripted(script, Arc::new(SystemClock));
/// let outlast = Outlast::ephemeral().provider(model).tool(sum_up).start().await?;
/// let turn = outlast.new_session().send("make it short").await?;
/// assert_eq!(turn.answer().await?, "Short.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Models;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::serde_json::json;
///
/// /// Adds up amounts.
/// #[tool(idempotent, durable)]
/// async fn total(amounts: Vec<u32>, tools: Tools) -> Result<String, Error> {
///     let terms: Vec<String> = amounts.iter().map(ToString::to_string).collect();
///     let sum = tools.call("calculator", json!({ "expression": terms.join(" + ") })).await?;
///     Ok(sum.as_str().unwrap_or_default().to_owned())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().builtin_tools().tool(total).start().await?;
/// let turn = outlast.new_session().send(r#"call total {"amounts": [3, 4]}"#).await?;
/// assert_eq!(turn.answer().await?, "total gave 7.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Tools;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::service::Agent;
///
/// /// Returns whether the agent may reach any host.
/// #[tool(pure)]
/// async fn is_unrestricted(#[service] agent: Agent) -> Result<bool, Error> {
///     Ok(agent.network()? == outlast::vocab::overlay::NetworkAllowList::default())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let outlast = Outlast::ephemeral().tool(is_unrestricted).start().await?;
/// let turn = outlast.new_session().send("call is_unrestricted {}").await?;
/// assert_eq!(turn.answer().await?, "is_unrestricted gave true.");
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Agent;

/// # Example
///
/// ```
/// use outlast::prelude::*;
/// use outlast::vocab::record::TurnEnd;
/// use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
///
/// /// Waters the garden until the turn is cancelled.
/// #[tool(idempotent)]
/// async fn water(hose: Service<UnboundedSender<&'static str>>, cancellation: Cancellation) -> Result<(), Error> {
///     hose.send("open").map_err(failed)?;
///     cancellation.requested().await;
///     hose.send("closed").map_err(failed)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let (sender, mut hose) = unbounded_channel();
/// let outlast = Outlast::ephemeral().service(sender).tool(water).start().await?;
/// let turn = outlast.new_session().send("call water {}").await?;
/// assert_eq!(hose.recv().await, Some("open"));
/// turn.cancel("it rains").await?;
/// assert_eq!(hose.recv().await, Some("closed"));
/// assert!(matches!(turn.outcome().await?, TurnEnd::Cancelled { .. }));
/// # outlast.shut_down().await;
/// # Ok(())
/// # }
/// ```
pub use outlast_ports::service::Cancellation;

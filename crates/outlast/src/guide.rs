//! Compiles the Rust code of the guide.
//!
//! Each block of `docs/guide` stands here with the hidden lines that make it a program. The test
//! `guide_code_is_compiled` checks that the visible lines are those of the guide. The guide itself cannot hold the
//! hidden lines, because viewers of Markdown show them.
//!
//! # agents.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::vocab::overlay::Overlay;
//! # /// Pays.
//! # #[tool]
//! # async fn pay(to: String) -> Result<String, Error> {
//! #     Ok(to)
//! # }
//! # async fn example() -> Result<(), Error> {
//! let clerk = Outlast::agent("clerk").system("Sell cakes.").tool(pay);
//! let outlast = Outlast::at("shop.db").system("Help.").add_agent(clerk).start().await?;
//! let session = outlast.session("ann").answered_by("clerk");
//! let brief = Overlay { system: vec!["Be brief.".to_owned()], ..Overlay::default() };
//! session.send("two cakes, please").with_overlay(brief).await?.answer().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # attachments.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # async fn example(session: Session, bytes: Vec<u8>) -> Result<(), Error> {
//! let turn = session.send("What is this?").attach("image/png", Some("picture.png".into()), bytes)?.await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::vocab::id::AttachmentId;
//! # async fn example(outlast: Outlast, session: Session, file: &[u8], id: AttachmentId) -> Result<(), Error> {
//! let sending = session.send("What is in it?").attach_stream("video/mp4", Some("talk.mp4".into()), file).await?;
//! let turn = sending.await?;
//! let attachments = outlast.attachments();
//! let (about, pieces) = attachments.open(turn.session(), id).await?;      // a stream of bytes
//! let head = attachments.read(turn.session(), id, 0..1024).await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::serde_json::json;
//! # fn example(attachments: Attachments, png: Vec<u8>) -> Result<ToolRunOutcome, Error> {
//! let chart = attachments.put("image/png", Some("chart.png".into()), png)?;
//! done(json!({ "chart": chart.id }))
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::vocab::effect::DirectCall;
//! # use outlast::vocab::message::{Attachment, Message, Part};
//! # async fn example(models: Models, chart: Attachment) -> Result<(), Error> {
//! let parts = vec![Part::text("What does the chart show?"), Part::Attachment { attachment: chart }];
//! let question = DirectCall { messages: vec![Message::User { parts }], ..models.question("")? };
//! let reply = models.call(question).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # built-in-tools.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::tools::egress::{Egress, EgressRules};
//! # /// Looks up prices.
//! # #[tool]
//! # async fn prices(of: String) -> Result<String, Error> {
//! #     Ok(of)
//! # }
//! # async fn example() -> Result<(), Error> {
//! let rules = EgressRules::public().only(["api.example.com".parse()?]);
//! let outlast = Outlast::at("agent.db").fetch(Egress::new(rules)?).tool(prices).start().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # getting-started.md
//!
//! ```no_run
//! use outlast::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let outlast = Outlast::at("agent.db").builtin_tools().start().await?;
//!     let turn = outlast.session("ann").send("what time is it?").await?;
//!     println!("{}", turn.answer().await?);
//!     outlast.shut_down().await;
//!     Ok(())
//! }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::vocab::event::{Event, LiveEvent, LiveEventKind};
//! # use outlast::vocab::record::Fact;
//! # async fn example(outlast: Outlast) -> Result<(), Error> {
//! let (turn, mut events) = outlast.session("ann").send("tell me a story").watched().await?;
//! loop {
//!     match events.next().await? {
//!         Event::Live(LiveEvent { what: LiveEventKind::Text { text, .. }, .. }) => print!("{text}"),
//!         Event::Durable(record) if matches!(record.fact, Fact::Ended { .. }) => break,
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # hooks.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use std::time::Duration;
//! # async fn example() -> Result<(), Error> {
//! use outlast::hook::{BeforeTool, HookAt};
//! use outlast::vocab::hook::{CallHookInput, CallPatch, HookCall};
//!
//! let cap = HookAt::new::<BeforeTool>("cap", |_: HookCall, call: CallHookInput| async move {
//!     let large = call.arguments["euros"].as_u64() > Some(100);
//!     Ok(large.then(|| CallPatch::Refuse("ask a manager".to_owned())))
//! })?;
//! let outlast = Outlast::at("agent.db").hook(cap.within(Duration::from_secs(5))).start().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # models.md
//!
//! ```no_run
//! # async fn example() -> Result<(), outlast::Error> {
//! use outlast::prelude::*;
//! use outlast::providers::Providers;
//!
//! let outlast = Outlast::at("agent.db")
//!     .provider(Providers::from_env()?)            // or Providers::from_file(Path::new("outlast.toml"))?
//!     .model("openai/gpt-5")
//!     .builtin_tools()
//!     .start()
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # organisations.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # async fn example() -> Result<(), Error> {
//! let outlast = Outlast::at("agents.db").start().await?;               // serves `default`
//! outlast.operator().runtime().create_org("acme".parse()?).await?;     // for the operator alone
//! let acme = outlast.for_org("acme").await?;
//! let turn = acme.session("ann").send("good morning").await?;
//! let ann = acme.acting_as("person:ann".parse()?);                     // the audit log names her
//! ann.turn(turn.id()).await?.cancel("not needed any more").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # rates.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::vocab::rate::{RateLimit, RatePeriod};
//! # use std::num::NonZeroU32;
//! # async fn example(five: NonZeroU32, thirty: NonZeroU32) -> Result<(), Error> {
//! let mail = RateLimit { burst: five, ..RateLimit::new("mail".parse()?, "mail_*", thirty, RatePeriod::Minute) };
//! let outlast = Outlast::at("shop.db").rates([mail]).start().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # rehearsal-scripts.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::providers::{Rehearsal, Script};
//! # use outlast::runtime::worker::system::SystemClock;
//! # use std::sync::Arc;
//! # async fn example() -> Result<(), Error> {
//! let script: Script = "say hello".parse()?;                       // or Script::read(path)?
//! let model = Rehearsal::scripted(script, Arc::new(SystemClock));
//! let outlast = Outlast::ephemeral().provider(model).start().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # sessions-and-branches.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # async fn example(outlast: Outlast) -> Result<(), Error> {
//! let draft = outlast.session("ann").on_head("draft");
//! let turn = draft.send("and shorter?").await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::SessionId;
//! # use outlast::store::{ForkRequest, ForkTo};
//! # use outlast::vocab::record::Seq;
//! # async fn example(outlast: Outlast, session: SessionId) -> Result<(), Error> {
//! # let (fresh, now) = (outlast.runtime().fresh_session(), outlast.runtime().now());
//! let fork = ForkRequest { from: session, at: Some(Seq(7)), to: ForkTo::Session { fresh, key: None }, now };
//! let branch = outlast.store().fork(fork).await?;
//! outlast.store().rewind(session, "main".into(), Some(Seq(7)), now).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # sinks.md
//!
//! ```no_run
//! # fn example(id: &str, timestamp: &str, signature: &str, body: &[u8], now_ms: u64) -> Result<(), Box<dyn std::error::Error>> {
//! use outlast::sinks::{SignatureHeaders, WebhookSecrets};
//!
//! let secrets = WebhookSecrets::parse(&std::env::var("CRM_SECRET")?)?;         // one or more, separated by spaces
//! let signed = SignatureHeaders { id, timestamp, signature };            // the three headers
//! secrets.verify(signed, &body, outlast::vocab::Millis(now_ms))?;       // the raw body, before you parse it
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::Outlast;
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use outlast::sink::SubscribedSink;
//! use outlast::sinks::{JsonLinesFile, WebhookSecrets, WebhookSink};
//! use outlast::tools::egress::Network;
//!
//! let secrets = WebhookSecrets::parse(&std::env::var("CRM_SECRET")?)?;
//! let crm = WebhookSink::new("https://crm.example.com/outputs", secrets, Network::Public)?;
//! let outlast = Outlast::at("agent.db")
//!     .sink(SubscribedSink::new("crm", crm)?.with_ends(["answered"])?)
//!     .sink(SubscribedSink::new("audit", JsonLinesFile::new("audit.jsonl")?)?.from_the_beginning())
//!     .start()
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # testing-your-agent.md
//!
//! ```no_run
//! # use outlast::trial::ObservedRun;
//! # struct Shop;
//! # impl Shop {
//! #     fn parcels(&self) -> u32 {
//! #         1
//! #     }
//! # }
//! # fn example(seen: &ObservedRun, shop: &Shop) {
//! if seen.has_unknown() {
//!     assert!(shop.parcels() <= 1);
//! } else {
//!     assert_eq!(shop.parcels(), 1);
//! }
//! # }
//! ```
//!
//! # typed-answers.md
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # async fn example(session: Session) -> Result<(), Error> {
//! #[derive(Deserialize, JsonSchema)]
//! struct Weather {
//!     /// In degrees Celsius.
//!     degrees: i32,
//!     rain: bool,
//! }
//!
//! let weather: Weather = session.ask("What is the weather in Lisbon?").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # writing-a-tool.md
//!
//! ```no_run
//! # struct Stations;
//! # impl Stations {
//! #     fn temperature(&self, city: &str, days: u8) -> Result<i32, String> {
//! #         Err(format!("no station in {city} for day {days}"))
//! #     }
//! # }
//! use outlast::prelude::*;
//!
//! /// Tells the temperature in a city.
//! #[tool(pure)]
//! async fn weather(
//!     /// The city, in English.
//!     city: String,
//!     /// How many days ahead; today when absent.
//!     days: Option<u8>,
//!     stations: Service<Stations>,
//! ) -> Result<i32, Error> {
//!     stations.temperature(&city, days.unwrap_or(0)).map_err(failed)
//! }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(crate = "outlast::serde")]
//! #[schemars(crate = "outlast::schemars")]
//! struct Place {
//!     city: String,
//! }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::serde_json::json;
//! # use outlast::vocab::CallId;
//! # use outlast::vocab::message::ToolResult;
//! # struct Ledger;
//! # impl Ledger {
//! #     async fn find(&self, call: CallId) -> Result<Option<String>, Error> {
//! #         Ok(Some(call.to_string()))
//! #     }
//! #     fn is_complete(&self) -> bool {
//! #         true
//! #     }
//! # }
//! # struct Pay {
//! #     ledger: Ledger,
//! # }
//! # impl Tool for Pay {
//! #     type Args = String;
//! #     type Needs = ();
//! #     fn spec(&self) -> ToolSpec {
//! #         ToolSpec::new("pay", "Pays.")
//! #     }
//! #     async fn run(&self, _: (), _: Call, to: String) -> Result<ToolRunOutcome, Error> {
//! #         done(to)
//! #     }
//! async fn probe(&self, call: CallId, args: Self::Args) -> Result<ProbeResult, Error> {
//!     Ok(match self.ledger.find(call).await? {
//!         Some(receipt) => ProbeResult::Happened(ToolResult::Ok(json!(receipt))),
//!         None if self.ledger.is_complete() => ProbeResult::DidNotHappen,
//!         None => ProbeResult::CannotTell,
//!     })
//! }
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # struct Shop;
//! # impl Shop {
//! #     async fn reserve(&self, item: &str) -> Result<String, Error> {
//! #         Ok(item.to_owned())
//! #     }
//! #     async fn charge(&self, key: outlast::vocab::CallId, cents: u32) -> Result<String, Error> {
//! #         Ok(format!("{key}: {cents}"))
//! #     }
//! # }
//! # async fn example(steps: Steps, shop: Shop, call: Call, item: String, cents: u32) -> Result<(), Error> {
//! let reserved: String = steps.run("reserve", &item, shop.reserve(&item)).await?;
//! let receipt: String = steps.run("charge", &cents, shop.charge(call.id, cents)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::vocab::CallId;
//! # use outlast::vocab::wait::CompletionKey;
//! # struct Mail;
//! # impl Mail {
//! #     async fn ask(&self, _who: &str, _what: &str, _key: CompletionKey, _id: CallId) -> Result<(), Error> {
//! #         Ok(())
//! #     }
//! # }
//! /// Asks a person.
//! #[tool(idempotent)]
//! async fn ask(who: String, what: String, mail: Service<Mail>, completion: Completion, call: Call) -> Result<ToolRunOutcome, Error> {
//!     mail.ask(&who, &what, completion.key()?, call.id).await?;
//!     Ok(ToolRunOutcome::Pending)
//! }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::serde_json::Value;
//! # use outlast::vocab::wait::Resolution;
//! # use std::time::Duration;
//! # struct Shop;
//! # impl Shop {
//! #     async fn order(&self, item: &str) -> Result<String, Error> {
//! #         Ok(item.to_owned())
//! #     }
//! # }
//! # async fn example(steps: Steps, events: Events, shop: Shop, item: String) -> Result<Value, Error> {
//! let order: String = steps.run("order", &item, shop.order(&item)).await?;
//! match events.wait("delivered", Some(Duration::from_secs(86_400))).await? {
//!     Resolution::Ok(proof) => Ok(proof),
//!     _ => Err(failed(format!("order {order} was not delivered within a day"))),
//! }
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use outlast::serde_json::json;
//! # use outlast::vocab::wait::{CompletionKey, Resolution};
//! # async fn example(outlast: Outlast, key: CompletionKey) -> Result<(), Error> {
//! let resolved = outlast.runtime().resolve(&key, Resolution::Ok(json!({"approved": true}))).await?;
//! println!("this resolution applies: {}", resolved.is_yours);
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! # use outlast::prelude::*;
//! # use std::time::Duration;
//! # struct Ledger;
//! # #[derive(Serialize, Deserialize, JsonSchema)]
//! # #[serde(crate = "outlast::serde")]
//! # #[schemars(crate = "outlast::schemars")]
//! # struct Payment {
//! #     euros: u32,
//! # }
//! # struct Bank;
//! # impl Bank {
//! #     async fn pay(&self, key: outlast::vocab::CallId, payment: &Payment) -> Result<String, Error> {
//! #         Ok(format!("{key}: {}", payment.euros))
//! #     }
//! # }
//! struct Pay(Ledger);
//!
//! impl Tool for Pay {
//!     type Args = Payment; // derives Deserialize and JsonSchema
//!     type Needs = (Service<Bank>, Steps); // one service, or a tuple of up to five
//!
//!     fn spec(&self) -> ToolSpec {
//!         ToolSpec::new("pay", "Pays a person.").attempts(3, Duration::from_millis(200)).approval().durable()
//!     }
//!
//!     async fn run(&self, (bank, steps): Self::Needs, call: Call, args: Payment) -> Result<ToolRunOutcome, Error> {
//!         done(steps.run("pay", &args.euros, bank.pay(call.id, &args)).await?)
//!     }
//! }
//! ```

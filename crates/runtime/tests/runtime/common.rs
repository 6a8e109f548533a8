//! Shared fixtures for the runtime tests: a scripted model, counting tools, a store that crashes on command, virtual
//! time.
use futures_util::stream;
pub(crate) use outlast_ledger::crashing_store::{CrashPoint, CrashingStore};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::BoxFuture;
use outlast_ports::clock::{Clock, CountingEntropy};
use outlast_ports::inbox::SessionTarget;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::service::{Completion, Events, Models, Services, Steps, Timer, Values};
use outlast_ports::spawner::Spawner;
use outlast_ports::store::Store;
use outlast_ports::tool::{Call, ProbeResult, Tool, ToolProvider, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::agents::plugins::Plugins;
use outlast_runtime::{Input, Runtime, RuntimeConfig};
use outlast_vocab::cost::{Prices, PricesPerMillion};
use outlast_vocab::effect::{Generation, StopReason, Usage};
use outlast_vocab::event::Event;
use outlast_vocab::message::{CallArguments, Message, ModelName, ToolResult, ToolUse};
use outlast_vocab::package::Package;
use outlast_vocab::record::{Fact, Seq, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::wait::CompletionKey;
use outlast_vocab::{CallId, Error, Kind, Limits, Millis, SessionId, TurnId, WorkerId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A clock that follows tokio's paused time, which advances when all tasks are idle.
pub(crate) struct PausedClock(tokio::time::Instant);

impl PausedClock {
    pub(crate) fn new() -> Arc<Self> {
        Self::since(tokio::time::Instant::now())
    }

    pub(crate) fn since(began: tokio::time::Instant) -> Arc<Self> {
        Arc::new(Self(began))
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Millis {
        Millis(1_000_000).after(self.0.elapsed())
    }

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while self.now() < until {
                tokio::time::sleep(self.now().until(until)).await;
            }
        })
    }
}

/// The behaviour of the model in one call.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Say(&'static str),
    Call(Vec<(&'static str, Value)>),
    /// Says something and pays.
    SayAndPay(&'static str),
    Refuse(&'static str),
    Fail(Kind),
    /// Asks to come back in three seconds.
    Busy,
    /// The stream breaks off the first time it is played in this process. Later it is complete.
    Cut,
    Hang,
}

/// A model that plays one line per call. The number of assistant messages selects the line.
pub(crate) struct Script {
    pub(crate) lines: Vec<Line>,
    pub(crate) calls: AtomicU64,
    pub(crate) cuts: AtomicU64,
    pub(crate) shown: Mutex<Vec<Vec<String>>>,
    /// The description of each tool in the last call.
    pub(crate) tool_descriptions: Mutex<BTreeMap<String, String>>,
    /// The system prompt and the options of each call.
    pub(crate) asked: Mutex<Vec<(String, Generation)>>,
}

impl Script {
    pub(crate) fn new(lines: Vec<Line>) -> Arc<Self> {
        let (calls, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
        let (shown, tool_descriptions, asked) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { lines, calls, cuts, shown, tool_descriptions, asked })
    }
}

/// The [`ModelProvider`] of a shared script.
pub(crate) struct ScriptedModel(pub(crate) Arc<Script>);

impl ModelProvider for ScriptedModel {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let script = &self.0;
        script.calls.fetch_add(1, Ordering::SeqCst);
        let shown = request.messages().map(|message| message.text().into_owned()).collect();
        script.shown.lock().unwrap().push(shown);
        script.asked.lock().unwrap().push((request.system.to_owned(), request.call.options.clone()));
        let tools = request.tools.iter().map(|tool| (tool.name.to_string(), tool.description.clone()));
        *script.tool_descriptions.lock().unwrap() = tools.collect();
        let played =
            request.messages().filter(|message| matches!(message, Message::Assistant { .. })).count();
        let line = script.lines.get(played).cloned().unwrap_or(Line::Say("nothing more to say"));
        let usage = ModelEvent::Usage(Usage { input: 3, output: 2, ..Usage::default() });
        let events = match line {
            Line::Say(text) => {
                let words = text.split_inclusive(' ').map(|word| Ok(ModelEvent::Text(word.to_owned())));
                words.chain([Ok(usage), Ok(ModelEvent::End(StopReason::End))]).collect()
            }
            Line::Call(calls) => {
                let ask = |(i, (tool, args)): (usize, (&str, Value))| {
                    Ok(ModelEvent::Call(ToolUse::new(
                        format!("c{played}_{i}").parse().unwrap(),
                        tool.parse().unwrap(),
                        CallArguments::Json(args),
                    )))
                };
                let asks = calls.into_iter().enumerate().map(ask);
                asks.chain([Ok(usage), Ok(ModelEvent::End(StopReason::ToolUse))]).collect()
            }
            Line::SayAndPay(text) => {
                let pay = ToolUse::new(
                    format!("c{played}_0").parse().unwrap(),
                    "pay".parse().unwrap(),
                    CallArguments::Json(json!({ "text": "7" })),
                );
                let said = [Ok(ModelEvent::Text(text.to_owned())), Ok(ModelEvent::Call(pay))];
                said.into_iter().chain([Ok(usage), Ok(ModelEvent::End(StopReason::ToolUse))]).collect()
            }
            Line::Refuse(text) => {
                let said = [Ok(ModelEvent::Text(text.to_owned())), Ok(usage)];
                said.into_iter().chain([Ok(ModelEvent::End(StopReason::Refusal))]).collect()
            }
            Line::Fail(kind) => vec![Err(Error::new(kind, "the script says so"))],
            Line::Busy => {
                let busy = Error::new(Kind::ModelUnavailable, "come back later");
                vec![Err(busy.retry_after(Duration::from_secs(3)))]
            }
            Line::Cut if script.cuts.fetch_add(1, Ordering::SeqCst) == 0 => {
                vec![Ok(ModelEvent::Text("half an ".into()))]
            }
            Line::Cut => vec![Ok(ModelEvent::Text("whole".into())), Ok(ModelEvent::End(StopReason::End))],
            Line::Hang => return Box::pin(stream::pending()),
        };
        Box::pin(stream::iter(events))
    }
}

/// Counts what tools really did, over all processes of a test.
#[derive(Default)]
pub(crate) struct Witness {
    pub(crate) did: Mutex<Vec<(String, CallId, u32)>>,
    pub(crate) keys: Mutex<BTreeMap<String, CompletionKey>>,
}

impl Witness {
    pub(crate) fn count(&self, what: &str) -> usize {
        self.did.lock().unwrap().iter().filter(|(name, ..)| name == what).count()
    }

    pub(crate) fn saw(&self, what: &str, call: &Call) {
        self.did.lock().unwrap().push((what.to_owned(), call.id, call.attempt));
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Note {
    /// What to note.
    #[serde(default)]
    pub(crate) text: String,
}

macro_rules! tools {
    ($($name:ident($needs:ty) = $spec:expr, |$tool:pat_param, $got:pat_param, $call:pat_param, $args:pat_param| $body:expr;)*) => {$(
        pub(crate) struct $name(pub(crate) Arc<Witness>);

        impl Tool for $name {
            type Args = Note;
            type Needs = $needs;

            fn spec(&self) -> ToolSpec { $spec }

            async fn run(&self, $got: $needs, call: Call, args: Note) -> Result<ToolRunOutcome, Error> {
                let ($tool, $call, $args) = (self, call, args);
                $body
            }
        }
    )*};
}

tools! {
    Look(()) = ToolSpec::new("look", "Looks.").pure(), |tool, (), call, args| {
        tool.0.saw("look", &call);
        done(format!("saw {}", args.text))
    };
    Put(()) = ToolSpec::new("put", "Puts.").idempotent(), |tool, (), call, args| {
        tool.0.saw("put", &call);
        done(format!("put {}", args.text))
    };
    Pay(()) = ToolSpec::new("pay", "Pays."), |tool, (), call, args| {
        tool.0.saw("pay", &call);
        done(format!("paid {}", args.text))
    };
    Wait((Completion,)) = ToolSpec::new("wait", "Waits for somebody.").idempotent().durable(),
    |tool, (completion,), call, args| {
        tool.0.saw("wait", &call);
        tool.0.keys.lock().unwrap().insert(args.text, completion.key()?);
        Ok(ToolRunOutcome::Pending)
    };
    Restepped((Steps, Timer)) = ToolSpec::new("stepped", "Works in other steps.").idempotent().durable(),
    |tool, (steps, _), call, args| {
        let one: String = steps.run("one", &format!("not {}", args.text), async {
            tool.0.saw("step one", &call);
            Ok(String::new())
        }).await?;
        done(one)
    };
    Stepped((Steps, Timer)) = ToolSpec::new("stepped", "Works in steps.").idempotent().durable(),
    |tool, (steps, timer), call, args| {
        let one: String = steps.run("one", &args.text, async {
            tool.0.saw("step one", &call);
            Ok(format!("1{}", args.text))
        }).await?;
        timer.sleep(Duration::from_mins(1)).await?;
        let two: String = steps.run("two", &one, async {
            tool.0.saw("step two", &call);
            Ok(format!("{one}2"))
        }).await?;
        done(two)
    };
    Ask((Events,)) = ToolSpec::new("ask", "Waits for an event.").idempotent().durable(),
    |tool, (events,), call, args| {
        tool.0.saw("ask", &call);
        tool.0.keys.lock().unwrap().insert(args.text.clone(), events.key(&args.text)?);
        let resolution = events.wait(&args.text, Some(Duration::from_mins(1))).await?;
        done(format!("{resolution:?}"))
    };
    Keep((Values,)) = ToolSpec::new("keep", "Keeps a value.").transactional(), |tool, (values,), call, _| {
        tool.0.saw("keep", &call);
        let count = values.get("count").await?.and_then(|count| count.as_i64()).unwrap_or(0);
        values.set("count", json!(count + 1))?;
        done(values.get("count").await?)
    };
    Panics(()) = ToolSpec::new("panics", "Panics.").idempotent(), |tool, (), call, args| {
        tool.0.saw("panics", &call);
        panic!("boom {}", args.text)
    };
    Flaky(()) = ToolSpec::new("flaky", "Fails at first.").idempotent().attempts(3, Duration::from_millis(10)),
    |tool, (), call, _| {
        tool.0.saw("flaky", &call);
        if call.attempt < 3 {
            return Err(Error::new(Kind::ToolUnavailable, "not yet"));
        }
        done("at last")
    };
    Hangs((outlast_ports::service::Cancellation,)) = ToolSpec::new("hangs", "Never comes back.").deadline(Duration::from_secs(5)),
    |tool, (cancellation,), call, args| {
        tool.0.saw("hangs", &call);
        let kind = match args.text.as_str() {
            "polite" => Kind::ToolFailed,
            "cancelled" => Kind::ToolCancelled,
            "interrupted" => Kind::ToolInterrupted,
            _ => std::future::pending().await,
        };
        cancellation.requested().await;
        Err(Error::new(kind, "stopped when asked"))
    };
}

/// The stepped tool under another contract, with a different description, schema and number of attempts.
pub(crate) struct ChangedContractTool(pub(crate) Arc<Witness>);

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Wording {
    text: String,
    /// Whether to say more.
    #[serde(default)]
    aloud: bool,
}

impl Tool for ChangedContractTool {
    type Args = Wording;
    type Needs = (Steps, Timer);

    fn spec(&self) -> ToolSpec {
        let about = ToolSpec::new("stepped", "Works in steps, and says so.").idempotent().durable();
        about.attempts(7, Duration::from_secs(1)).deadline(Duration::from_hours(1))
    }

    async fn run(&self, needs: Self::Needs, call: Call, args: Wording) -> Result<ToolRunOutcome, Error> {
        assert!(!args.aloud);
        Stepped(self.0.clone()).run(needs, call, Note { text: args.text }).await
    }
}

/// The stepped tool with another effect class.
pub(crate) struct Unrepeatable(pub(crate) Arc<Witness>);

impl Tool for Unrepeatable {
    type Args = Note;
    type Needs = (Steps, Timer);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("stepped", "Works in steps.").durable()
    }

    async fn run(&self, needs: Self::Needs, call: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        Stepped(self.0.clone()).run(needs, call, args).await
    }
}

/// An at-most-once tool that can tell whether a call happened.
pub(crate) struct ProbedBooking(pub(crate) Arc<Witness>);

impl Tool for ProbedBooking {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("book", "Books; can be asked whether it did.")
    }

    async fn run(&self, (): (), call: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        self.0.saw("book", &call);
        done(format!("booked {}", args.text))
    }

    async fn probe(&self, call: CallId, args: Note) -> Result<ProbeResult, Error> {
        let happened = self.0.did.lock().unwrap().iter().any(|(what, id, _)| what == "book" && *id == call);
        Ok(if happened {
            ProbeResult::Happened(ToolResult::Ok(json!(format!("booked {}", args.text))))
        } else {
            ProbeResult::DidNotHappen
        })
    }
}

/// Tasks that end together, like those of a process.
#[derive(Default)]
pub(crate) struct ProcessTasks(Mutex<tokio::task::JoinSet<()>>);

impl Spawner for ProcessTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().spawn(task);
    }
}

/// One worker process on a store.
pub(crate) struct Life {
    pub(crate) runtime: Runtime,
    pub(crate) script: Arc<Script>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) worker: WorkerId,
    tasks: Arc<ProcessTasks>,
}

pub(crate) async fn live(
    store: Arc<dyn Store>,
    lines: Vec<Line>,
    witness: Arc<Witness>,
    number: u128,
) -> Life {
    live_with(store, lines, witness, number, |_| {}).await.unwrap()
}

/// Returns all tools. The stepped one is optional.
pub(crate) fn toolbox(witness: Arc<Witness>, stepped: bool) -> Result<Toolbox, Error> {
    let mut toolbox = Toolbox::new(Services::default());
    toolbox.add(Look(witness.clone()))?;
    toolbox.add(Put(witness.clone()))?;
    toolbox.add(Pay(witness.clone()))?;
    toolbox.add(Wait(witness.clone()))?;
    toolbox.add(Ask(witness.clone()))?;
    toolbox.add(Keep(witness.clone()))?;
    toolbox.add(Panics(witness.clone()))?;
    toolbox.add(Flaky(witness.clone()))?;
    toolbox.add(Hangs(witness.clone()))?;
    toolbox.add(ProbedBooking(witness.clone()))?;
    if stepped {
        toolbox.add(Stepped(witness))?;
    }
    Ok(toolbox)
}

/// Returns an agent with these tools.
pub(crate) fn package(toolbox: &Toolbox) -> Package {
    Package {
        tools: toolbox.manifests().into_iter().map(|manifest| manifest.name).collect(),
        model_calls: 10,
        ..Package::new("tester", "test/script".parse().unwrap(), "Test.")
    }
}

pub(crate) async fn live_with(
    store: Arc<dyn Store>,
    lines: Vec<Line>,
    witness: Arc<Witness>,
    number: u128,
    change: impl FnOnce(&mut RuntimeConfig),
) -> Result<Life, Error> {
    let script = Script::new(lines);
    let toolbox = toolbox(witness.clone(), true)?;
    let package = package(&toolbox);
    let worker = WorkerId::from_u128(number);
    let tasks = Arc::new(ProcessTasks::default());
    let mut config = RuntimeConfig {
        contents: None,
        hooks: Vec::new(),
        plugins: Plugins::default(),
        payments: None,
        policy_engine: None,
        limiter: None,
        sinks: Vec::new(),
        metrics: None,
        store,
        models: vec![Arc::new(ScriptedModel(script.clone()))],
        tools: vec![Arc::new(toolbox)],
        package,
        agents: Vec::new(),
        agent_factory: None,
        clock: PausedClock::new(),
        entropy: Arc::new(CountingEntropy::from(u64::try_from(number).unwrap() << 32)),
        tasks: tasks.clone(),
        limits: Limits::default(),
        worker,
    };
    change(&mut config);
    let runtime = Runtime::start(config).await?;
    Ok(Life { runtime, script, witness, worker, tasks })
}

/// Starts a worker on a fresh memory store.
pub(crate) async fn fresh(lines: Vec<Line>) -> (MemoryStore, Life) {
    let memory = MemoryStore::new();
    let life = live(Arc::new(memory.clone()), lines, Arc::default(), 1).await;
    (memory, life)
}

/// Starts a worker on a fresh memory store, whose turns wait this long for a provider that is down.
pub(crate) async fn impatient(lines: Vec<Line>, wait: Duration) -> Life {
    let change = |config: &mut RuntimeConfig| config.limits.provider_wait = wait;
    live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap()
}

pub(crate) const SESSION: SessionId = SessionId::from_u128(77);

pub(crate) fn input(text: &str) -> Input {
    Input::text(SessionTarget::Key { key: "test".into(), fresh: SESSION }, text)
}

/// Returns an input with an idempotency key.
pub(crate) fn keyed_input(key: &str, text: &str) -> Input {
    Input { key: Some(key.to_owned()), ..input(text) }
}

/// Returns an input for this agent.
pub(crate) fn input_for(agent: &str, text: &str) -> Input {
    Input { agent: Some(agent.to_owned()), ..input(text) }
}

pub(crate) fn call(tool: &'static str, text: &str) -> Line {
    Line::Call(vec![(tool, json!({ "text": text }))])
}

impl Life {
    pub(crate) async fn send(&self, text: &str) -> TurnId {
        self.runtime.submit(input(text)).await.unwrap().turn
    }

    pub(crate) async fn end(&self, turn: TurnId) -> TurnEnd {
        let a_day = Duration::from_hours(24);
        let end = tokio::time::timeout(a_day, self.runtime.outcome(turn)).await;
        end.expect("a turn ends within a day").unwrap()
    }

    /// Waits until a fact with this name is durable.
    pub(crate) async fn until(&self, name: &str) {
        let mut events = self.runtime.events(SESSION, Seq(0));
        let seen = async {
            loop {
                if let Event::Durable(record) = events.next().await.unwrap()
                    && record.fact.name() == name
                {
                    return;
                }
            }
        };
        let a_day = Duration::from_hours(24);
        tokio::time::timeout(a_day, seen).await.unwrap_or_else(|_| panic!("`{name}` never came"));
    }

    pub(crate) async fn facts(&self) -> Vec<Fact> {
        let records = self.runtime.store().records(SESSION, Seq(0), 10_000).await.unwrap();
        records.into_iter().map(|record| record.fact).collect()
    }

    pub(crate) async fn names(&self) -> Vec<&'static str> {
        self.facts().await.iter().map(Fact::name).collect()
    }

    /// Returns the messages of the last model call.
    pub(crate) fn last_shown(&self) -> Vec<String> {
        self.script.shown.lock().unwrap().last().cloned().unwrap_or_default()
    }

    /// Kills the worker. Its memory is lost, and the store knows that the worker is dead.
    pub(crate) async fn die(self, memory: &MemoryStore) -> Arc<Witness> {
        let mut tasks = std::mem::take(&mut *self.tasks.0.lock().unwrap());
        tasks.shutdown().await;
        memory.bury(self.worker);
        self.witness
    }
}

/// A tool that calls a model.
pub(crate) struct ModelCallingTool;

impl Tool for ModelCallingTool {
    type Args = Note;
    type Needs = Models;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("wonder", "Wonders.").idempotent().durable()
    }

    async fn run(&self, models: Models, _: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        done(models.ask("why?").await?)
    }
}

/// Returns the info of the script's model with prices: one dollar per million input tokens, two per million output
/// tokens.
pub(crate) fn priced(model: &ModelName) -> Option<ModelCapabilities> {
    let price = |dollars: &str| dollars.parse().unwrap();
    let per_million =
        PricesPerMillion { input: price("1"), cache_read: None, cache_write: None, output: price("2") };
    let prices = Prices::try_from(per_million).ok();
    (model.as_str() == "test/script")
        .then(|| ModelCapabilities { prices, ..ModelCapabilities::of_window(1 << 20) })
}

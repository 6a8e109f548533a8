//! Compaction of conversations that are too long for their model.
use crate::common::*;
use futures_util::stream;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::branches::ForkRequest;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::service::Services;
use outlast_ports::store::Store;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{ForkTo, SessionState};
use outlast_vocab::effect::StopReason;
use outlast_vocab::label::TrustGuard;
use outlast_vocab::message::{CallArguments, Message, ModelName, ToolUse};
use outlast_vocab::policy::{Policy, PolicyDecision, PolicyPoint, Rule};
use outlast_vocab::record::{CompactionMethod, CompactionRecord, Fact, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind, Millis, SessionId};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WINDOW: usize = 8_000;

/// A model with a small context window. It repeats its input. `long` makes its answer long, `look TEXT` makes it call
/// the tool first. Its summaries say how many lines it was shown.
struct Small {
    /// The size and messages of each call.
    shown: ShownMessages,
    /// Its real context window, which may differ from the declared one.
    takes: usize,
}

impl ModelProvider for Small {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        // The reply takes no part of the window.
        let info = ModelCapabilities { reply_tokens: Some(1), ..ModelCapabilities::of_window(WINDOW) };
        (model.as_str() == "test/script").then_some(info)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let last = request.messages().last().map(|last| last.text().into_owned()).unwrap_or_default();
        let events = if request.system.contains("summary") {
            assert!(last.len() <= WINDOW);
            vec![Ok(text(&format!("{} lines", last.lines().count()))), Ok(end())]
        } else {
            let size: usize = request.messages().map(Message::size).sum();
            let texts = request.messages().map(|message| message.text().chars().take(30).collect()).collect();
            self.shown.lock().unwrap().push((size, texts));
            match last.split_once(' ') {
                _ if size > self.takes => vec![Err(Error::new(Kind::ModelContextExceeded, "too long"))],
                Some(("look", what)) => {
                    let arguments = CallArguments::Json(json!({ "text": what }));
                    let id = format!("c{}", request.messages().count()).parse().unwrap();
                    vec![
                        Ok(ModelEvent::Call(ToolUse::new(id, "often".parse().unwrap(), arguments))),
                        Ok(end()),
                    ]
                }
                Some(("long", _)) => vec![Ok(text(&"y".repeat(1_500))), Ok(end())],
                _ => vec![Ok(text("ok")), Ok(end())],
            }
        };
        Box::pin(stream::iter(events))
    }
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.to_owned())
}

fn end() -> ModelEvent {
    ModelEvent::End(StopReason::End)
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct RepeatArgs {
    text: String,
}

/// A tool that repeats a text five hundred times.
struct Repeat;

impl Tool for Repeat {
    type Args = RepeatArgs;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("often", "Says a text often.").pure()
    }

    async fn run(&self, (): (), _: Call, args: RepeatArgs) -> Result<ToolRunOutcome, Error> {
        done(args.text.repeat(500))
    }
}

type ShownMessages = Arc<Mutex<Vec<(usize, Vec<String>)>>>;

fn small(shown: &ShownMessages, takes: usize) -> impl FnOnce(&mut RuntimeConfig) + use<> {
    let shown = shown.clone();
    move |config| {
        config.models = vec![Arc::new(Small { shown, takes })];
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Repeat).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
    }
}

async fn life(store: Arc<dyn Store>, shown: &ShownMessages, takes: usize, number: u128) -> Life {
    live_with(store, vec![], Arc::default(), number, small(shown, takes)).await.unwrap()
}

async fn say(life: &Life, number: usize, text: &str) -> TurnEnd {
    let keyed = keyed_input(&number.to_string(), text);
    let turn = life.runtime.submit(keyed).await.unwrap().turn;
    life.end(turn).await
}

async fn compactions(life: &Life) -> Vec<CompactionRecord> {
    let facts = life.facts().await.into_iter();
    facts
        .filter_map(|fact| if let Fact::Compacted(compacted) = fact { Some(compacted) } else { None })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn long_conversation_compacts_and_journal_stays_whole() {
    let shown: ShownMessages = Arc::default();
    let life = life(Arc::new(MemoryStore::new()), &shown, WINDOW, 1).await;
    for number in 0..12 {
        assert_eq!(
            say(&life, number, &format!("long {number}")).await,
            TurnEnd::Answered { text: "y".repeat(1_500) }
        );
    }
    let sizes: Vec<usize> = shown.lock().unwrap().iter().map(|(size, _)| *size).collect();
    assert!(sizes.iter().all(|size| *size <= WINDOW), "{sizes:?}");
    let made = compactions(&life).await;
    assert!((2..6).contains(&made.len()), "{made:?}");
    assert!(made.iter().all(
        |made| matches!(&made.shorter, CompactionMethod::Summary { text, .. } if text.ends_with("lines"))
    ));
    let (_, last) = shown.lock().unwrap().last().cloned().unwrap();
    assert!(last[0].starts_with("[What was said before, in shor"), "{last:?}");
    assert_eq!(last.last().unwrap(), "long 11");
    // Between two compactions the prompt only grows at the end, so that a provider can cache it.
    let calls = shown.lock().unwrap().clone();
    let grows = calls.windows(2).filter(|pair| pair[1].1.starts_with(&pair[0].1)).count();
    assert!(grows >= 12 - 1 - made.len(), "{grows} of {}", calls.len());
    // Readers of the session still get everything.
    let said = life.facts().await.iter().filter(|fact| matches!(fact, Fact::Accepted(_))).count();
    assert_eq!(said, 12);
}

#[tokio::test(start_paused = true)]
async fn tool_results_are_dropped_before_summarising() {
    let shown: ShownMessages = Arc::default();
    let life = life(Arc::new(MemoryStore::new()), &shown, WINDOW, 1).await;
    for number in 0..6 {
        say(&life, number, "look abcd").await;
    }
    let made = compactions(&life).await;
    assert!(
        !made.is_empty() && made.iter().all(|made| made.shorter == CompactionMethod::Results),
        "{made:?}"
    );
    let (size, last) = shown.lock().unwrap().last().cloned().unwrap();
    assert!(size <= WINDOW);
    let left_out = last.iter().filter(|text| *text == "[a result of about 2002 bytes ").count();
    assert_eq!((left_out, last.iter().filter(|text| text.starts_with("abcd")).count()), (4, 2), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn smaller_actual_context_window_triggers_compaction() {
    let shown: ShownMessages = Arc::default();
    let life = life(Arc::new(MemoryStore::new()), &shown, 3_500, 1).await;
    for number in 0..4 {
        assert_eq!(
            say(&life, number, &format!("long {number}")).await,
            TurnEnd::Answered { text: "y".repeat(1_500) }
        );
    }
    assert!(!compactions(&life).await.is_empty());
    // A single message that is too long cannot be compacted.
    let TurnEnd::Failed { failure } = say(&life, 9, &"x".repeat(5_000)).await else { panic!("it must fail") };
    assert_eq!(failure.code, Kind::ModelContextExceeded);
}

#[tokio::test(start_paused = true)]
async fn policy_decides_about_summary_model_call() {
    let tokens = |then| Rule { at: PolicyPoint::Model, ..Rule::new("short".parse().unwrap(), then) };
    let set = PolicyDecision::Modify {
        set: [("/options/tokens_most".to_owned(), json!(64))].into(),
        redact: vec![],
    };
    let shown: ShownMessages = Arc::default();
    let small = small(&shown, WINDOW);
    let change = |config: &mut RuntimeConfig| {
        small(config);
        config.package.policy = Policy { rules: vec![tokens(set)] };
        config.package.guard = TrustGuard::Strict;
    };
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    say(&life, 0, "look x").await;
    for number in 1..7 {
        say(&life, number, &format!("long {number}")).await;
    }
    let made: Vec<String> = compactions(&life).await.into_iter().map(|made| made.key.to_string()).collect();
    let summaries = compactions(&life)
        .await
        .into_iter()
        .filter(|made| matches!(made.shorter, CompactionMethod::Summary { .. }));
    let ruled: Vec<String> = life
        .facts()
        .await
        .into_iter()
        .filter_map(|fact| match fact {
            Fact::Ruled(ruled) if ruled.key.as_str().contains("compact") => Some(ruled.key.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(ruled, summaries.map(|made| made.key.to_string()).collect::<Vec<_>>(), "{made:?}");
    assert!(!ruled.is_empty(), "{made:?}");
    // The summarised text was read, so its labels stay.
    let labels = life.facts().await.into_iter().rev().find_map(|fact| match fact {
        Fact::Started(started) => started.labels,
        _ => None,
    });
    assert_eq!(labels.unwrap().to_string(), "tool:often");
}

#[tokio::test(start_paused = true)]
async fn fork_before_compaction_shows_original_conversation() {
    let shown: ShownMessages = Arc::default();
    let life = life(Arc::new(MemoryStore::new()), &shown, WINDOW, 1).await;
    for number in 0..5 {
        say(&life, number, &format!("long {number}")).await;
    }
    assert_eq!(compactions(&life).await.len(), 1);
    let store = life.runtime.store();
    let turns = store.turns(SESSION, 0, 10).await.unwrap();
    let fresh = SessionId::from_u128(5);
    let at = Some(turns[2].span.1);
    let to = ForkTo::Session { fresh, key: None };
    store.fork(ForkRequest { from: SESSION, at, to, now: Millis(1) }).await.unwrap();
    let turn = life.runtime.submit(Input::text(SessionTarget::Id(fresh), "and now?")).await.unwrap().turn;
    life.end(turn).await;
    let (_, last) = shown.lock().unwrap().last().cloned().unwrap();
    let said: Vec<&String> = last.iter().filter(|text| !text.starts_with('y')).collect();
    assert_eq!(said, ["long 0", "long 1", "long 2", "and now?"]);
}

#[tokio::test(start_paused = true)]
async fn compaction_survives_crash_and_is_paid_once() {
    let whole = {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::Never);
        let pulse = crashing_store.pulse();
        let shown: ShownMessages = Arc::default();
        let life = life(Arc::new(crashing_store), &shown, WINDOW, 1).await;
        play(&life).await;
        (pulse.writes(), texts(&life).await)
    };
    assert!(whole.1.iter().any(|text| text.starts_with("compacted")), "{:?}", whole.1);
    for write in 0..whole.0 {
        for death in [CrashPoint::Before(write), CrashPoint::AfterWrite(write)] {
            let memory = MemoryStore::new();
            let crashing_store = CrashingStore::new(memory.clone(), death);
            let pulse = crashing_store.pulse();
            let shown: ShownMessages = Arc::default();
            let first = life(Arc::new(crashing_store), &shown, WINDOW, 1).await;
            tokio::select! {
                () = play(&first) => {}
                () = pulse.stopped() => {}
            }
            first.die(&memory).await;
            let second = life(Arc::new(memory.clone()), &shown, WINDOW, 2).await;
            play(&second).await;
            assert_eq!(texts(&second).await, whole.1, "{death:?}");
            assert!(shown.lock().unwrap().iter().all(|(size, _)| *size <= WINDOW));
        }
    }
}

async fn play(life: &Life) {
    for (number, text) in
        ["long 0", "look abcd", "long 2", "long 3", "long 4", "look abcd", "long 6"].into_iter().enumerate()
    {
        say(life, number, text).await;
    }
}

/// Returns the inputs, replies and compactions of the session, without what a crash may add.
async fn texts(life: &Life) -> Vec<String> {
    let requests = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Accepted(accepted) => Some(outlast_vocab::message::text_of(&accepted.parts).into_owned()),
        Fact::Compacted(CompactionRecord { here, shorter, .. }) => {
            Some(format!("compacted {here} {shorter:?}"))
        }
        Fact::Ended { end } => Some(format!("{end:?}").chars().take(20).collect()),
        _ => None,
    });
    requests.collect()
}

/// A small model whose provider rejects requests for summaries for two hours.
struct WithoutQuota {
    small: Small,
    until: tokio::time::Instant,
    summaries: Arc<AtomicUsize>,
}

impl ModelProvider for WithoutQuota {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        self.small.info(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        if request.system.contains("summary") {
            self.summaries.fetch_add(1, Ordering::SeqCst);
            let left = self.until.saturating_duration_since(tokio::time::Instant::now());
            if !left.is_zero() {
                let error = Error::new(Kind::ModelUnavailable, "429").retry_after(left);
                return Box::pin(stream::iter([Err(error)]));
            }
        }
        self.small.stream(request)
    }
}

#[tokio::test(start_paused = true)]
async fn turn_parks_until_provider_can_summarise() {
    let (shown, summaries) = (ShownMessages::default(), Arc::<AtomicUsize>::default());
    let until = tokio::time::Instant::now() + Duration::from_hours(2);
    let change = |config: &mut RuntimeConfig| {
        small(&shown, WINDOW)(config);
        let small = Small { shown: shown.clone(), takes: WINDOW };
        config.models = vec![Arc::new(WithoutQuota { small, until, summaries: summaries.clone() })];
    };
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    for number in 0..3 {
        say(&life, number, &format!("long {number}")).await;
    }
    let mut turn = life.send("long 3").await;
    while tokio::time::timeout(Duration::from_mins(1), life.runtime.outcome(turn)).await.is_ok() {
        turn = life.send("long again").await;
    }
    let session = life.runtime.store().session(SESSION).await.unwrap();
    assert_eq!((session.state, summaries.load(Ordering::SeqCst)), (SessionState::Parked, 1));
    // The next call is made when the quota is back, and no turn is left out.
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "y".repeat(1_500) });
    assert_eq!(summaries.load(Ordering::SeqCst), 2);
    assert!(matches!(
        compactions(&life).await[..],
        [CompactionRecord { shorter: CompactionMethod::Summary { .. }, .. }]
    ));
    assert!(tokio::time::Instant::now() >= until);
}

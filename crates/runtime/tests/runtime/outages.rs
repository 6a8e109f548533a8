//! A provider that is down delays turns and does not end them.
use crate::common::*;
use futures_util::stream;
use outlast_ledger::Backend;
use outlast_ledger::memory::MemoryStore;
use outlast_ledger::rows::{QueryRows, Rows};
use outlast_ports::BoxFuture;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::metrics::MetricValues;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::service::Services;
use outlast_ports::store::StoreStatus;
use outlast_ports::tool::Toolbox;

use outlast_runtime::{AgentBundle, Input, RuntimeConfig};
use outlast_views::{RetryOutcome, RetryPlace, SessionState, TurnProgress, Unblocker};
use outlast_vocab::budget::{Budget, Budgets};
use outlast_vocab::cost::{Prices, PricesPerMillion};
use outlast_vocab::effect::{Command, Generation, ModelOutcome, Outcome, StopReason, Usage};
use outlast_vocab::message::ModelName;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::package::Package;
use outlast_vocab::policy::{Comparison, Policy, PolicyDecision, PolicyPoint, Rule, RuleTest};
use outlast_vocab::record::{EffectPerformed, Fact, InputDelivery, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, Kind, Limits, SessionId, TurnId};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// A provider with two models, each of which fails until a given time.
#[derive(Clone)]
struct Flaky {
    began: Instant,
    /// Until when the models `one/big` and `two/small` fail, and with which error.
    down: Arc<Mutex<[(Duration, Kind); 2]>>,
    asked_for: Option<Duration>,
    /// The time and model of each call.
    calls: Arc<Mutex<Vec<(Duration, ModelName)>>>,
    /// The options of the last call.
    options: Arc<Mutex<Generation>>,
    /// The bytes of conversation in the last call of each model.
    shown_bytes: Arc<Mutex<[usize; 2]>>,
}

/// The bytes of conversation that fit into the window of `two/small`.
const SMALL_WINDOW: usize = 4 << 10;

impl Flaky {
    /// Creates a provider whose first model is down for this long.
    fn down_for(time: Duration) -> Self {
        let down = [(time, Kind::ModelUnavailable), (Duration::ZERO, Kind::ModelUnavailable)];
        let (down, calls, options) = (Arc::new(Mutex::new(down)), Arc::default(), Arc::default());
        let shown_bytes = Arc::default();
        Self { began: Instant::now(), down, asked_for: None, calls, options, shown_bytes }
    }

    fn set(&self, number: usize, until: Duration, kind: Kind) {
        self.down.lock().unwrap()[number] = (until, kind);
    }

    fn calls(&self) -> Vec<Duration> {
        self.calls.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }

    fn life<'a>(&self, limits: Limits) -> impl FnOnce(&mut RuntimeConfig) + use<'a> {
        let provider = self.clone();
        move |config| {
            config.package.model = "one/big".parse().unwrap();
            config.limits = limits;
            // The time of all processes is the same.
            config.clock = PausedClock::since(provider.began);
            config.models = vec![Arc::new(provider)];
        }
    }
}

impl ModelProvider for Flaky {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        let dollar = || "1".parse().unwrap();
        let per_million =
            PricesPerMillion { input: dollar(), cache_read: None, cache_write: None, output: dollar() };
        match model.as_str() {
            "one/big" => Some(ModelCapabilities::of_window(1 << 20)),
            "two/small" => Some(ModelCapabilities {
                prices: Prices::try_from(per_million).ok(),
                ..ModelCapabilities::of_window(SMALL_WINDOW)
            }),
            _ => None,
        }
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let (at, model) = (self.began.elapsed(), &request.call.model);
        self.calls.lock().unwrap().push((at, model.clone()));
        self.options.lock().unwrap().clone_from(&request.call.options);
        let number = usize::from(model.as_str() == "two/small");
        self.shown_bytes.lock().unwrap()[number] =
            request.messages().map(|message| message.text().len()).sum();
        let (until, kind) = self.down.lock().unwrap()[number];
        if at < until {
            let error = Error::new(kind, "503");
            let error =
                self.asked_for.map_or_else(|| Error::new(kind, "503"), |pause| error.retry_after(pause));
            return Box::pin(stream::iter([Err(error)]));
        }
        let usage = ModelEvent::Usage(Usage { input: 3, output: 2, ..Usage::default() });
        let text = ModelEvent::Text(format!("{} answers", model.as_str()));
        Box::pin(stream::iter([text, usage, ModelEvent::End(StopReason::End)].map(Ok)))
    }
}

async fn start(provider: &Flaky, limits: Limits) -> Life {
    start_on(&MemoryStore::new(), provider, limits, 1).await
}

async fn start_on(memory: &MemoryStore, provider: &Flaky, limits: Limits, number: u128) -> Life {
    let change = provider.life(limits);
    live_with(Arc::new(memory.clone()), Vec::new(), Arc::default(), number, change).await.unwrap()
}

async fn start_with(provider: &Flaky, change: impl FnOnce(&mut RuntimeConfig)) -> Life {
    let own = provider.life(Limits::default());
    let both = |config: &mut RuntimeConfig| {
        own(config);
        change(config);
    };
    live_with(Arc::new(MemoryStore::new()), Vec::new(), Arc::default(), 1, both).await.unwrap()
}

fn in_session(number: u128) -> Input {
    Input::text(SessionTarget::New(SessionId::from_u128(number)), "go")
}

/// Returns how a turn ends within this time, or `None` if it does not.
async fn end_within(life: &Life, turn: TurnId, time: Duration) -> Option<TurnEnd> {
    tokio::time::timeout(time, life.runtime.outcome(turn)).await.ok().map(Result::unwrap)
}

fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn outage_of_two_hours_delays_the_answer() {
    let provider = Flaky::down_for(2 * HOUR);
    let life = start(&provider, Limits::default()).await;
    let turn = life.send("go").await;
    assert_eq!(end_within(&life, turn, 4 * HOUR).await, Some(answered("one/big answers")));
    let calls = provider.calls();
    // A few quick attempts, then pauses that double up to an hour.
    assert!((12..=20).contains(&calls.len()), "{calls:?}");
    let pauses: Vec<Duration> = calls.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert!(pauses.iter().all(|pause| *pause <= HOUR + MINUTE), "{pauses:?}");
    let waits = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Parked { waits } => Some(waits),
        _ => None,
    });
    let kinds: Vec<WaitKind> = waits.flatten().map(|wait| wait.kind).collect();
    assert!(kinds.len() > 5 && kinds.iter().all(|kind| *kind == WaitKind::Provider), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn turn_fails_when_provider_wait_expires() {
    assert_eq!(Limits::default().provider_wait, 24 * HOUR);
    let provider = Flaky::down_for(1_000 * HOUR);
    let life = start(&provider, Limits { provider_wait: 20 * MINUTE, ..Limits::default() }).await;
    let turn = life.send("go").await;
    assert_eq!(end_within(&life, turn, 19 * MINUTE).await, None);
    let end = end_within(&life, turn, 2 * MINUTE).await;
    let Some(TurnEnd::Failed { failure }) = end else { panic!("it did not fail: {end:?}") };
    assert_eq!(failure.code, Kind::ModelUnavailable);
    assert_eq!(failure.detail, "503; the turn has waited 1200 s for its provider");
}

#[tokio::test(start_paused = true)]
async fn agent_and_input_provider_waits_apply() {
    let provider = Flaky::down_for(1_000 * HOUR);
    let life = start_with(&provider, |config| config.package.provider_wait_s = Some(3_600)).await;
    let of_agent = life.runtime.submit(in_session(1)).await.unwrap().turn;
    let overlay = Overlay { provider_wait_s: Some(60), ..Overlay::default() };
    let of_input = Input { overlays: vec![overlay], ..in_session(2) };
    let of_input = life.runtime.submit(of_input).await.unwrap().turn;
    // The setting of the input is ignored if the agent has one.
    let of_wire = Input { provider_wait_s: Some(5), ..in_session(3) };
    let of_wire = life.runtime.submit(of_wire).await.unwrap().turn;
    assert!(matches!(end_within(&life, of_input, 2 * MINUTE).await, Some(TurnEnd::Failed { .. })));
    assert_eq!(end_within(&life, of_wire, 50 * MINUTE).await, None);
    assert!(matches!(end_within(&life, of_agent, 12 * MINUTE).await, Some(TurnEnd::Failed { .. })));
}

#[tokio::test(start_paused = true)]
async fn retry_calls_the_provider_at_once() {
    let provider = Flaky::down_for(HOUR);
    let life = start(&provider, Limits::default()).await;
    let turn = life.send("go").await;
    tokio::time::sleep(50 * MINUTE).await;
    provider.set(0, Duration::ZERO, Kind::ModelUnavailable);
    let before = provider.calls().len();
    life.runtime.retry(turn).await.unwrap();
    assert_eq!(end_within(&life, turn, Duration::from_secs(5)).await, Some(answered("one/big answers")));
    assert_eq!(provider.calls().len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn why_names_provider_failure_and_next_attempt() {
    let provider = Flaky::down_for(HOUR);
    let life = start(&provider, Limits::default()).await;
    let turn = life.send("go").await;
    tokio::time::sleep(10 * MINUTE).await;
    let why =
        outlast_runtime::views::wait_explanation::of_turn(life.runtime.store().as_ref(), turn).await.unwrap();
    assert_eq!((why.progress.clone(), why.waits.len()), (TurnProgress::Waits, 1));
    let Unblocker::Provider { name, failure } = &why.waits[0].unblocked_by else { panic!("{:?}", why.waits) };
    assert_eq!(name.as_deref(), Some("one"));
    assert_eq!(failure.as_ref().map(|failure| failure.code), Some(Kind::ModelUnavailable));
    assert!(why.waits[0].wait.deadline.is_some_and(|at| at > life.runtime.now()));
}

#[tokio::test(start_paused = true)]
async fn one_probe_serves_many_turns_that_wake_paced() {
    let provider = Flaky::down_for(HOUR);
    let life = start(&provider, Limits::default()).await;
    let mut turns = Vec::new();
    for number in 1..=30 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    tokio::time::sleep(MINUTE).await;
    let in_flight = provider.calls().len();
    tokio::time::sleep(58 * MINUTE).await;
    let probes = provider.calls().len() - in_flight;
    assert!((3..=12).contains(&probes), "{probes} probes for 30 turns");
    for turn in &turns {
        assert_eq!(end_within(&life, *turn, 2 * HOUR).await, Some(answered("one/big answers")));
    }
    let after: Vec<Duration> = provider.calls().into_iter().filter(|at| *at >= HOUR).collect();
    assert_eq!(after.len(), 30);
    // A deadline that passes meanwhile wakes none earlier.
    assert!(smallest_gap(&after) >= Limits::default().provider_wake_apart, "{after:?}");
    // All of them woke after the probe, and not at their deadlines.
    assert!(after.last().unwrap().saturating_sub(after[0]) < MINUTE, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn restart_during_outage_sends_one_shared_probe() {
    let (memory, provider) = (MemoryStore::new(), Flaky::down_for(2 * HOUR));
    let life = start_on(&memory, &provider, Limits::default(), 1).await;
    let mut turns = Vec::new();
    for number in 1..=20 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    tokio::time::sleep(HOUR).await;
    life.die(&memory).await;
    // Every deadline passes while no process is running.
    tokio::time::sleep(50 * MINUTE).await;
    let before = provider.calls().len();
    let life = start_on(&memory, &provider, Limits::default(), 2).await;
    tokio::time::sleep(MINUTE).await;
    let probes = provider.calls().len() - before;
    assert!(probes <= 3, "{probes} calls for 20 turns");
    for turn in &turns {
        assert_eq!(end_within(&life, *turn, 3 * HOUR).await, Some(answered("one/big answers")));
    }
}

/// Returns the shortest time between two calls.
fn smallest_gap(calls: &[Duration]) -> Duration {
    calls.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min().unwrap_or_default()
}

/// Lets 100 sessions wait for their provider, and starts another process after the outage and after all deadlines. Every
/// turn must be answered, and the calls of the new process must be paced.
async fn restart_after_outage_paces_calls(limits: Limits) {
    let (memory, provider) = (MemoryStore::new(), Flaky::down_for(100 * HOUR));
    let life = start_on(&memory, &provider, limits.clone(), 1).await;
    let mut turns = Vec::new();
    for number in 1..=100 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    tokio::time::sleep(HOUR).await;
    life.die(&memory).await;
    provider.set(0, Duration::ZERO, Kind::ModelUnavailable);
    tokio::time::sleep(2 * HOUR).await;
    let life = start_on(&memory, &provider, limits, 2).await;
    for turn in &turns {
        assert_eq!(end_within(&life, *turn, MINUTE).await, Some(answered("one/big answers")));
    }
    let calls: Vec<Duration> = provider.calls().into_iter().filter(|at| *at >= 3 * HOUR).collect();
    assert_eq!(calls.len(), turns.len());
    assert!(smallest_gap(&calls) >= Limits::default().provider_wake_apart, "{calls:?}");
}

// Regression: the first due turn probed the provider. The others called it together as soon as it had answered.
#[tokio::test(start_paused = true)]
async fn due_turns_call_paced_after_restart() {
    restart_after_outage_paces_calls(Limits::default()).await;
}

// Regression: a turn calls its provider once more before it fails. After a restart, many turns did so together.
#[tokio::test(start_paused = true)]
async fn last_calls_are_paced_after_restart() {
    restart_after_outage_paces_calls(Limits { provider_wait: 2 * HOUR, ..Limits::default() }).await;
}

// Regression: the retry waited for the next probe of an outage that was over, and failed if that call broke off.
#[tokio::test(start_paused = true)]
async fn retry_of_ended_turn_calls_at_once() {
    let provider = Flaky::down_for(1_000 * HOUR);
    let life = start(&provider, Limits { provider_wait: 2 * HOUR, ..Limits::default() }).await;
    let mut turns = Vec::new();
    for number in 1..=2 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    for turn in &turns {
        let end = end_within(&life, *turn, 3 * HOUR).await;
        assert!(matches!(&end, Some(TurnEnd::Failed { .. })), "{end:?}");
    }
    provider.set(0, Duration::ZERO, Kind::ModelUnavailable);
    let retry = retry_as_new_turn(&life, turns[0]).await;
    assert_eq!(end_within(&life, retry, Duration::from_secs(1)).await, Some(answered("one/big answers")));
}

/// Retries an ended turn. Returns the new turn.
async fn retry_as_new_turn(life: &Life, ended: TurnId) -> TurnId {
    let retried = life.runtime.retry_turn(ended, RetryPlace::SameHead).await.unwrap();
    let RetryOutcome::NewTurn { turn, .. } = retried else { panic!("{retried:?}") };
    turn
}

#[tokio::test(start_paused = true)]
async fn retry_of_impatient_turn_waits_again() {
    let limits = Limits { provider_wait: 20 * MINUTE, ..Limits::default() };
    for dies in [false, true] {
        let (memory, provider) = (MemoryStore::new(), Flaky::down_for(1_000 * HOUR));
        let mut life = start_on(&memory, &provider, limits.clone(), 1).await;
        let turn = life.send("go").await;
        let end = end_within(&life, turn, 21 * MINUTE).await;
        assert!(matches!(&end, Some(TurnEnd::Failed { .. })), "{end:?}");
        let retry = retry_as_new_turn(&life, turn).await;
        if dies {
            life.die(&memory).await;
            life = start_on(&memory, &provider, limits.clone(), 2).await;
        }
        assert_eq!(end_within(&life, retry, 19 * MINUTE).await, None);
        provider.set(0, Duration::ZERO, Kind::ModelUnavailable);
        assert_eq!(end_within(&life, retry, 2 * MINUTE).await, Some(answered("one/big answers")));
    }
}

#[tokio::test(start_paused = true)]
async fn provider_is_not_called_before_its_retry_after() {
    let provider = Flaky { asked_for: Some(2 * HOUR), ..Flaky::down_for(MINUTE) };
    let life = start(&provider, Limits::default()).await;
    let first = life.runtime.submit(in_session(1)).await.unwrap().turn;
    tokio::time::sleep(2 * MINUTE).await;
    let second = life.runtime.submit(in_session(2)).await.unwrap().turn;
    for turn in [first, second] {
        assert_eq!(end_within(&life, turn, 3 * HOUR).await, Some(answered("one/big answers")));
    }
    let calls = provider.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls[1] >= 2 * HOUR, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn wall_time_budget_does_not_count_an_outage() {
    let provider = Flaky::down_for(HOUR);
    let turn = Budget { time: Some(Duration::from_secs(1)), ..Budget::default() };
    let budgets = Budgets { turn: Some(turn), ..Budgets::default() };
    let life = start_with(&provider, |config| config.package.budgets = budgets).await;
    let turn = life.send("go").await;
    assert_eq!(end_within(&life, turn, 3 * HOUR).await, Some(answered("one/big answers")));
}

#[tokio::test(start_paused = true)]
async fn turn_is_stuck_on_refused_key_or_account() {
    for kind in [Kind::ModelUnauthorized, Kind::ModelNoCredit] {
        let provider = Flaky::down_for(HOUR);
        provider.set(0, 1_000 * HOUR, kind);
        let life = start(&provider, Limits::default()).await;
        let turn = life.send("go").await;
        tokio::time::sleep(MINUTE).await;
        let why = outlast_runtime::views::wait_explanation::of_turn(life.runtime.store().as_ref(), turn)
            .await
            .unwrap();
        let TurnProgress::Stuck(failure) = why.progress else { panic!("{:?}", why.progress) };
        assert_eq!(failure.code, kind);
        provider.set(0, Duration::ZERO, kind);
        life.runtime.retry(turn).await.unwrap();
        assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("one/big answers")));
    }
}

fn with_fallback(config: &mut RuntimeConfig) {
    config.package.fallback_models = vec!["two/small".parse().unwrap()];
}

/// Returns the models that the records of a session name.
async fn models(life: &Life) -> Vec<String> {
    let calls = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Performed(performed) => match performed.command {
            Command::ModelCall(call) => Some(call.model.to_string()),
            _ => None,
        },
        _ => None,
    });
    calls.collect()
}

#[tokio::test(start_paused = true)]
async fn fallback_model_answers_while_first_is_down() {
    for kind in [Kind::ModelUnavailable, Kind::ModelUnauthorized, Kind::ModelNoCredit] {
        let provider = Flaky::down_for(HOUR);
        provider.set(0, HOUR, kind);
        let life = start_with(&provider, with_fallback).await;
        let turn = life.send("go").await;
        assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("two/small answers")));
        tokio::time::sleep(2 * HOUR).await;
        let turn = life.send("again").await;
        assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("one/big answers")));
        assert_eq!(models(&life).await, ["two/small", "one/big"]);
    }
}

#[tokio::test(start_paused = true)]
async fn fallback_model_has_its_own_window_and_price() {
    let provider = Flaky::down_for(Duration::ZERO);
    let life = start_with(&provider, with_fallback).await;
    for _ in 0..3 {
        let turn = life.send(&"word ".repeat(400)).await;
        assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("one/big answers")));
    }
    provider.set(0, 1_000 * HOUR, Kind::ModelUnavailable);
    let turn = life.send("go").await;
    assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("two/small answers")));
    let [big, small] = *provider.shown_bytes.lock().unwrap();
    assert!(big > SMALL_WINDOW && small <= SMALL_WINDOW, "{big} and {small} bytes");
    let replies = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Performed(EffectPerformed {
            command: Command::ModelCall(call),
            outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
            ..
        }) => Some((call.model.to_string(), reply.cost.map(|cost| cost.to_string()))),
        _ => None,
    });
    let replies: Vec<(String, Option<String>)> = replies.collect();
    assert_eq!(replies[0], ("one/big".to_owned(), None));
    // Three tokens in and two out, at a dollar per million.
    assert_eq!(replies.last(), Some(&("two/small".to_owned(), Some("0.000005".to_owned()))));
}

/// Returns the values of a gauge, each with its labels.
async fn gauge(life: &Life, name: &str) -> Vec<(Vec<String>, f64)> {
    let snapshot = life.runtime.metrics().await.unwrap();
    let family = snapshot.families.into_iter().find(|family| family.name == name);
    let Some(MetricValues::Gauge(samples)) = family.map(|family| family.values) else {
        panic!("{name} is no gauge")
    };
    let labels = |labels: Vec<(_, String)>| labels.into_iter().map(|(_, value)| value).collect();
    samples.into_iter().map(|sample| (labels(sample.labels), sample.value)).collect()
}

#[tokio::test(start_paused = true)]
async fn metrics_count_waiting_turns_and_providers_down() {
    const WAITING: &str = "outlast.turns.waiting_for_provider";
    const DOWN: &str = "outlast.provider.down";
    let provider = Flaky::down_for(HOUR);
    let life = start(&provider, Limits::default()).await;
    assert_eq!((gauge(&life, WAITING).await, gauge(&life, DOWN).await), (vec![(vec![], 0.0)], vec![]));
    let mut turns = Vec::new();
    for number in 1..=3 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(gauge(&life, WAITING).await, [(vec![], 3.0)]);
    assert_eq!(gauge(&life, DOWN).await, [(vec!["one".to_owned()], 1.0)]);
    for turn in turns {
        assert_eq!(end_within(&life, turn, 3 * HOUR).await, Some(answered("one/big answers")));
    }
    assert_eq!((gauge(&life, WAITING).await, gauge(&life, DOWN).await), (vec![(vec![], 0.0)], vec![]));
}

/// Runs a turn whose answers never match the schema, from the model that is up. An input joins it after this much time.
async fn failed_with_joined_input(provider: &Flaky, after: Duration) -> (Life, TurnId) {
    let life = start_with(provider, |config| {
        with_fallback(config);
        config.limits.output_repairs = 1;
    })
    .await;
    let wanted = Input { output: Some(serde_json::json!({"type": "integer"})), ..input("go") };
    let turn = life.runtime.submit(wanted).await.unwrap().turn;
    tokio::time::sleep(after).await;
    life.runtime.submit(Input { delivery: InputDelivery::Join, ..input("and") }).await.unwrap();
    let end = end_within(&life, turn, HOUR).await;
    assert!(matches!(&end, Some(TurnEnd::Failed { .. })), "{end:?}");
    assert_eq!(models(&life).await, ["two/small", "two/small"]);
    (life, turn)
}

#[tokio::test(start_paused = true)]
async fn retry_names_the_fallback_model_that_answered() {
    let provider = Flaky::down_for(HOUR);
    provider.set(1, MINUTE, Kind::ModelUnavailable);
    // The input joins after the first reply, so that reply stays.
    let (life, turn) = failed_with_joined_input(&provider, MINUTE / 2).await;
    tokio::time::sleep(2 * HOUR).await;
    life.runtime.retry_turn(turn, RetryPlace::SameHead).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(models(&life).await[2..], ["two/small", "one/big"]);
}

#[tokio::test(start_paused = true)]
async fn retry_keeps_input_joined_at_failure() {
    let provider = Flaky::down_for(HOUR);
    let (life, turn) = failed_with_joined_input(&provider, Duration::ZERO).await;
    tokio::time::sleep(2 * HOUR).await;
    life.runtime.retry_turn(turn, RetryPlace::SameHead).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(models(&life).await[2..], ["one/big", "one/big", "one/big"]);
    let joined = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Performed(EffectPerformed { outcome: Outcome::Checkpoint(joined), .. }) => {
            Some(joined.inputs.len())
        }
        _ => None,
    });
    assert_eq!(joined.collect::<Vec<_>>(), [0, 1, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn refused_key_falls_back_without_provider_wait() {
    let provider = Flaky::down_for(HOUR);
    provider.set(0, HOUR, Kind::ModelUnauthorized);
    let life = start_with(&provider, |config| {
        with_fallback(config);
        config.limits.provider_wait = MINUTE;
    })
    .await;
    let turn = life.send("go").await;
    assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("two/small answers")));
}

#[tokio::test(start_paused = true)]
async fn rejection_by_fallback_does_not_end_turn() {
    for kind in [Kind::ModelRejected, Kind::ModelUnknown, Kind::ModelContextExceeded] {
        let provider = Flaky::down_for(HOUR);
        provider.set(1, 100 * HOUR, kind);
        let life = start_with(&provider, with_fallback).await;
        let turn = life.send("go").await;
        assert_eq!(end_within(&life, turn, 3 * HOUR).await, Some(answered("one/big answers")), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn zero_provider_wait_still_calls_provider() {
    let provider = Flaky::down_for(6 * HOUR);
    let life = start(&provider, Limits::default()).await;
    for session in [1, 2] {
        life.runtime.submit(in_session(session)).await.unwrap();
    }
    // The next probe is up to an hour away when the provider comes back.
    tokio::time::sleep(5 * HOUR).await;
    provider.set(0, Duration::ZERO, Kind::ModelUnavailable);
    let overlay = Overlay { provider_wait_s: Some(0), ..Overlay::default() };
    let impatient = Input { overlays: vec![overlay], ..in_session(3) };
    let turn = life.runtime.submit(impatient).await.unwrap().turn;
    assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("one/big answers")));
}

#[tokio::test(start_paused = true)]
async fn stuck_time_does_not_count_as_provider_wait() {
    let provider = Flaky::down_for(HOUR);
    provider.set(0, 1_000 * HOUR, Kind::ModelUnauthorized);
    let life = start(&provider, Limits::default()).await;
    let turn = life.send("go").await;
    tokio::time::sleep(25 * HOUR).await;
    provider.set(0, 27 * HOUR, Kind::ModelUnavailable);
    life.runtime.retry(turn).await.unwrap();
    assert_eq!(end_within(&life, turn, 5 * HOUR).await, Some(answered("one/big answers")));
}

#[tokio::test(start_paused = true)]
async fn answer_to_other_session_wakes_one_turn() {
    let provider = Flaky::down_for(Duration::ZERO);
    let life = start(&provider, Limits::default()).await;
    let first = life.runtime.submit(in_session(3)).await.unwrap().turn;
    assert_eq!(end_within(&life, first, MINUTE).await, Some(answered("one/big answers")));
    provider.set(0, 4 * HOUR, Kind::ModelUnavailable);
    let turn = life.runtime.submit(in_session(1)).await.unwrap().turn;
    // The pauses have grown to an hour. The provider recovers during one.
    tokio::time::sleep(4 * HOUR + MINUTE).await;
    assert!(end_within(&life, turn, Duration::ZERO).await.is_none());
    let other = life.runtime.submit(in_session(2)).await.unwrap().turn;
    assert_eq!(end_within(&life, other, MINUTE).await, Some(answered("one/big answers")));
    assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("one/big answers")));
}

#[tokio::test(start_paused = true)]
async fn turn_waits_when_every_model_is_down() {
    let provider = Flaky::down_for(2 * HOUR);
    provider.set(1, HOUR, Kind::ModelUnavailable);
    let life = start_with(&provider, with_fallback).await;
    let turn = life.send("go").await;
    tokio::time::sleep(30 * MINUTE).await;
    let session = life.runtime.store().session(SESSION).await.unwrap();
    assert_eq!(session.state, SessionState::Parked);
    assert_eq!(end_within(&life, turn, 3 * HOUR).await, Some(answered("two/small answers")));
}

#[tokio::test(start_paused = true)]
async fn turn_wakes_when_any_provider_is_back() {
    for back in [0, 1] {
        let provider = Flaky::down_for(1_000 * HOUR);
        provider.set(1, 1_000 * HOUR, Kind::ModelUnavailable);
        let life = start_with(&provider, with_fallback).await;
        let turn = life.runtime.submit(in_session(1)).await.unwrap().turn;
        // The pauses have grown to an hour. One provider is back during one.
        tokio::time::sleep(6 * HOUR).await;
        provider.set(back, Duration::ZERO, Kind::ModelUnavailable);
        let other = life.runtime.submit(in_session(2)).await.unwrap().turn;
        let expected = answered(["one/big answers", "two/small answers"][back]);
        assert_eq!(end_within(&life, other, Duration::from_secs(20)).await.as_ref(), Some(&expected));
        assert_eq!(end_within(&life, turn, Duration::from_secs(20)).await, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn recovered_provider_causes_no_probe_of_another() {
    let provider = Flaky::down_for(1_000 * HOUR);
    provider.set(1, 6 * HOUR, Kind::ModelUnavailable);
    let life = start_with(&provider, with_fallback).await;
    let mut turns = Vec::new();
    for number in 1..=8 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    for turn in turns {
        assert_eq!(end_within(&life, turn, 8 * HOUR).await, Some(answered("two/small answers")));
    }
    let calls = provider.calls.lock().unwrap().clone();
    let late = calls.iter().filter(|(at, model)| *at > 6 * HOUR && model.as_str() == "one/big").count();
    assert!(late <= 3, "{late} probes of the provider that is still down");
}

#[tokio::test(start_paused = true)]
async fn why_shows_each_provider_with_its_own_failure() {
    let provider = Flaky::down_for(HOUR);
    provider.set(1, HOUR, Kind::ModelStalled);
    let life = start_with(&provider, with_fallback).await;
    let turn = life.send("go").await;
    tokio::time::sleep(10 * MINUTE).await;
    let store = life.runtime.store();
    let why = outlast_runtime::views::wait_explanation::of_turn(store.as_ref(), turn).await.unwrap();
    let mut shown: Vec<(Option<String>, Option<&str>)> = Vec::new();
    for wait in &why.waits {
        let Unblocker::Provider { name, failure } = &wait.unblocked_by else { panic!("{wait:?}") };
        shown.push((name.clone(), failure.as_ref().map(|failure| failure.code.code())));
    }
    shown.sort();
    let expected = [("one", Kind::ModelUnavailable), ("two", Kind::ModelStalled)];
    assert_eq!(shown, expected.map(|(name, code)| (Some(name.to_owned()), Some(code.code()))));
}

#[tokio::test(start_paused = true)]
async fn failed_call_keeps_the_attempts_of_other_models() {
    let provider = Flaky::down_for(HOUR);
    provider.set(1, HOUR, Kind::ModelStalled);
    let life = start_with(&provider, |config| {
        with_fallback(config);
        config.limits.provider_wait = Duration::ZERO;
    })
    .await;
    let turn = life.send("go").await;
    let end = end_within(&life, turn, MINUTE).await;
    assert!(matches!(&end, Some(TurnEnd::Failed { .. })), "{end:?}");
    let performed = life.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Performed(performed) => Some(performed),
        _ => None,
    });
    let EffectPerformed { outcome, tried, .. } = performed.unwrap();
    let Outcome::ModelCall(ModelOutcome::Failed(failed)) = outcome else { panic!("{outcome:?}") };
    let count = |code| tried.iter().filter(|tried| tried.failure.code == code).count();
    // The outcome is the last failure of the first model. It is not among the attempts before it.
    assert_eq!(failed.failure.code, Kind::ModelUnavailable);
    let attempts =
        provider.calls.lock().unwrap().iter().filter(|(_, model)| model.as_str() == "one/big").count();
    assert_eq!(
        (count(Kind::ModelUnavailable) + 1, count(Kind::ModelStalled) * 2),
        (attempts, provider.calls().len())
    );
}

/// A rule that sets options of one model.
fn options_of(model: &str, set: &[(&str, Value)]) -> Rule {
    let set = set.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect();
    let modify = PolicyDecision::Modify { set, redact: Vec::new() };
    let test = RuleTest { path: "/model".to_owned(), is: Comparison::OneOf(vec![json!(model)]) };
    let id = model.replace('/', "_").parse().unwrap();
    Rule { at: PolicyPoint::Model, tests: vec![test], ..Rule::new(id, modify) }
}

#[tokio::test(start_paused = true)]
async fn fallback_model_is_called_with_its_own_options() {
    let rules = vec![
        options_of("one/big", &[("/options/variant", json!("high")), ("/options/tokens_most", json!(64))]),
        options_of("two/small", &[("/options/temperature_milli", json!(200))]),
    ];
    let provider = Flaky::down_for(HOUR);
    let life = start_with(&provider, |config| {
        with_fallback(config);
        config.package.policy = Policy { rules };
    })
    .await;
    let turn = life.send("go").await;
    assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("two/small answers")));
    // A quarter of its window.
    let own = Generation { temperature_milli: Some(200), tokens_most: Some(341), ..Generation::default() };
    assert_eq!(*provider.options.lock().unwrap(), own);
    tokio::time::sleep(2 * HOUR).await;
    let turn = life.send("again").await;
    assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("one/big answers")));
    let first =
        Generation { variant: Some("high".to_owned()), tokens_most: Some(64), ..Generation::default() };
    assert_eq!(*provider.options.lock().unwrap(), first);
    let recorded = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Performed(EffectPerformed { command: Command::ModelCall(call), .. }) => Some(call.options),
        _ => None,
    });
    assert_eq!(recorded.collect::<Vec<_>>(), [own, first]);
}

#[tokio::test(start_paused = true)]
async fn fallback_reply_is_replayed_after_crash() {
    let provider = Flaky::down_for(100 * HOUR);
    let memory = MemoryStore::new();
    let both = |config: &mut RuntimeConfig| {
        provider.life(Limits::default())(config);
        with_fallback(config);
    };
    // Crash at each write until the turn gets through.
    for death in 1..20_u64 {
        let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::AfterWrite(death));
        let pulse = crashing_store.pulse();
        let life = live_with(Arc::new(crashing_store), Vec::new(), Arc::default(), death.into(), both)
            .await
            .unwrap();
        let input = keyed_input("k", "go");
        let done = tokio::select! {
            end = async { life.end(life.runtime.submit(input).await.unwrap().turn).await } => Some(end),
            () = pulse.stopped() => None,
        };
        life.die(&memory).await;
        if let Some(end) = done {
            assert_eq!(end, answered("two/small answers"));
            return;
        }
    }
    panic!("it never got through");
}

#[tokio::test(start_paused = true)]
async fn tool_model_request_waits_for_its_provider() {
    let memory = MemoryStore::new();
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(ModelCallingTool).unwrap();
        config.package.tools = vec!["wonder".parse().unwrap()];
        config.tools = vec![Arc::new(toolbox)];
    };
    let lines = vec![Line::Call(vec![("wonder", serde_json::json!({}))]), Line::Say("done")];
    let script = Outage {
        script: ScriptedModel(Script::new(lines)),
        began: Instant::now(),
        until: Arc::new(Mutex::new(HOUR)),
    };
    let both = |config: &mut RuntimeConfig| {
        change(config);
        config.models = vec![Arc::new(script)];
    };
    let life = live_with(Arc::new(memory), Vec::new(), Arc::default(), 1, both).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(end_within(&life, turn, 3 * HOUR).await, Some(answered("done")));
    assert!(life.names().await.contains(&"turn.parked"));
}

/// A script whose provider is down until this time for the model calls of tools.
struct Outage {
    script: ScriptedModel,
    began: Instant,
    until: Arc<Mutex<Duration>>,
}

impl ModelProvider for Outage {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        self.script.info(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let asked_by_tool = request.messages().any(|message| message.text() == "why?");
        if asked_by_tool && self.began.elapsed() < *self.until.lock().unwrap() {
            return Box::pin(stream::iter([Err(Error::new(Kind::ModelUnavailable, "503"))]));
        }
        self.script.stream(request)
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_turn_can_be_cancelled() {
    let provider = Flaky::down_for(HOUR);
    let life = start(&provider, Limits::default()).await;
    let turn = life.send("go").await;
    tokio::time::sleep(10 * MINUTE).await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert!(matches!(end_within(&life, turn, MINUTE).await, Some(TurnEnd::Cancelled { .. })));
}

/// A store whose reads and writes fail while it is busy.
#[derive(Clone)]
struct BusyStore {
    inner: MemoryStore,
    is_busy: Arc<AtomicBool>,
}

impl BusyStore {
    fn refusal<T>(&self) -> Option<BoxFuture<'_, Result<T, Error>>> {
        let refused = || async { Err(Error::new(Kind::StoreBusy, "another process writes")) };
        self.is_busy
            .load(Ordering::SeqCst)
            .then(|| -> BoxFuture<'_, Result<T, Error>> { Box::pin(refused()) })
    }
}

impl Backend for BusyStore {
    fn write<T, F>(&self, unit: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Rows) -> Result<T, Error> + Send + 'static,
    {
        self.refusal().unwrap_or_else(|| self.inner.write(unit))
    }

    fn read<T, F>(&self, query: F) -> BoxFuture<'_, Result<T, Error>>
    where
        T: Send + 'static,
        F: FnOnce(&dyn QueryRows) -> Result<T, Error> + Send + 'static,
    {
        self.refusal().unwrap_or_else(|| self.inner.read(query))
    }

    fn changes(&self) -> BoxFuture<'_, Result<u64, Error>> {
        Backend::changes(&self.inner)
    }

    fn status(&self) -> BoxFuture<'_, Result<StoreStatus, Error>> {
        Backend::status(&self.inner)
    }
}

outlast_ledger::implement_store!(BusyStore);

#[tokio::test(start_paused = true)]
async fn busy_store_delays_wake_ups_and_loses_none() {
    let provider = Flaky::down_for(1_000 * HOUR);
    let is_busy = Arc::<AtomicBool>::default();
    let store = BusyStore { inner: MemoryStore::new(), is_busy: is_busy.clone() };
    let change = provider.life(Limits::default());
    let life = live_with(Arc::new(store), Vec::new(), Arc::default(), 1, change).await.unwrap();
    let mut turns = Vec::new();
    for number in 1..=20 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    // The pauses have grown to an hour. The provider is back during one, and the store is busy after two turns have
    // woken.
    tokio::time::sleep(6 * HOUR).await;
    provider.set(0, Duration::ZERO, Kind::ModelUnavailable);
    let before = provider.calls().len();
    let other = life.runtime.submit(in_session(21)).await.unwrap().turn;
    life.runtime.retry(turns[0]).await.unwrap();
    while provider.calls().len() < before + 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_busy.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(5)).await;
    is_busy.store(false, Ordering::SeqCst);
    turns.push(other);
    for turn in turns {
        assert_eq!(end_within(&life, turn, MINUTE).await, Some(answered("one/big answers")));
    }
}

/// Returns an input to an agent with the second model.
fn of_other_provider(number: u128) -> Input {
    Input { agent: Some("other".to_owned()), ..in_session(number) }
}

#[tokio::test(start_paused = true)]
async fn waking_turns_of_one_provider_delays_no_other() {
    let provider = Flaky::down_for(1_000 * HOUR);
    provider.set(1, 1_000 * HOUR, Kind::ModelUnavailable);
    let life = start_with(&provider, |config| {
        config.limits.provider_wake_apart = MINUTE;
        let other = Package {
            agent: "other".to_owned(),
            model: "two/small".parse().unwrap(),
            ..config.package.clone()
        };
        config.agents = vec![AgentBundle { package: other, tools: config.tools.clone(), hooks: Vec::new() }];
    })
    .await;
    for number in 1..=30 {
        life.runtime.submit(in_session(number)).await.unwrap();
    }
    let mut others = Vec::new();
    for number in 41..=42 {
        others.push(life.runtime.submit(of_other_provider(number)).await.unwrap().turn);
    }
    // The pauses have grown to an hour. Both providers are back during one.
    tokio::time::sleep(6 * HOUR).await;
    provider.set(0, Duration::ZERO, Kind::ModelUnavailable);
    provider.set(1, Duration::ZERO, Kind::ModelUnavailable);
    let first = life.runtime.submit(in_session(31)).await.unwrap().turn;
    tokio::time::sleep(Duration::from_secs(1)).await;
    life.runtime.retry(first).await.unwrap();
    assert_eq!(end_within(&life, first, MINUTE / 2).await, Some(answered("one/big answers")));
    life.runtime.retry(others[0]).await.unwrap();
    for turn in others {
        assert_eq!(end_within(&life, turn, 2 * MINUTE).await, Some(answered("two/small answers")));
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_quota_is_named_when_wait_expires() {
    let provider = Flaky { asked_for: Some(12 * HOUR), ..Flaky::down_for(1_000 * HOUR) };
    let life = start(&provider, Limits { provider_wait: 20 * MINUTE, ..Limits::default() }).await;
    let turn = life.send("go").await;
    let end = end_within(&life, turn, 21 * MINUTE).await;
    let Some(TurnEnd::Failed { failure }) = end else { panic!("it did not fail: {end:?}") };
    assert_eq!(failure.detail, "503; the turn has waited 1200 s for its provider");
    // The provider named a time that has not come, so it was not called again.
    assert_eq!(provider.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_key_fails_turns_of_waiting_senders_only() {
    let provider = Flaky::down_for(HOUR);
    provider.set(0, HOUR, Kind::ModelUnauthorized);
    let life = start(&provider, Limits::default()).await;
    let overlay = Overlay { provider_wait_s: Some(60), ..Overlay::default() };
    let native = Input { overlays: vec![overlay], ..in_session(1) };
    let native = life.runtime.submit(native).await.unwrap().turn;
    let of_wire = Input { provider_wait_s: Some(60), ..in_session(2) };
    let of_wire = life.runtime.submit(of_wire).await.unwrap().turn;
    assert!(matches!(end_within(&life, of_wire, MINUTE).await, Some(TurnEnd::Failed { .. })));
    assert_eq!(end_within(&life, native, 50 * MINUTE).await, None);
    assert_eq!(end_within(&life, native, HOUR).await, Some(answered("one/big answers")));
}

#[tokio::test(start_paused = true)]
async fn metric_forgets_outage_without_waiting_turns() {
    let provider = Flaky::down_for(1_000 * HOUR);
    let life = start(&provider, Limits::default()).await;
    let mut turns = Vec::new();
    for number in 1..=2 {
        turns.push(life.runtime.submit(in_session(number)).await.unwrap().turn);
    }
    tokio::time::sleep(MINUTE).await;
    let down = async || {
        let snapshot = life.runtime.metrics().await.unwrap();
        let family = snapshot.families.into_iter().find(|family| family.name == "outlast.provider.down");
        let Some(MetricValues::Gauge(readings)) = family.map(|family| family.values) else { return 0 };
        readings.len()
    };
    assert_eq!(down().await, 1);
    for turn in turns {
        life.runtime.cancel(turn, "enough").await.unwrap();
        life.end(turn).await;
    }
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!(down().await, 0);
}

#[tokio::test(start_paused = true)]
async fn retry_wakes_all_parallel_tool_calls() {
    let down = Arc::new(Mutex::new(1_000 * HOUR));
    let calls = vec![("wonder", json!({})), ("wonder", json!({}))];
    let script = Script::new(vec![Line::Call(calls), Line::Say("done")]);
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(ModelCallingTool).unwrap();
        config.package.tools = vec!["wonder".parse().unwrap()];
        config.tools = vec![Arc::new(toolbox)];
        let began = Instant::now();
        config.models = vec![Arc::new(Outage { script: ScriptedModel(script), began, until: down.clone() })];
    };
    let life = live_with(Arc::new(MemoryStore::new()), Vec::new(), Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    tokio::time::sleep(HOUR).await;
    life.runtime.retry(turn).await.unwrap();
    let by_person = life
        .facts()
        .await
        .into_iter()
        .filter(|fact| matches!(fact, Fact::Resolved { resolution: Resolution::Ok(_), .. }));
    assert_eq!(by_person.count(), 2);
    // Both calls are made now, and answered.
    *down.lock().unwrap() = Duration::ZERO;
    assert_eq!(end_within(&life, turn, MINUTE / 6).await, Some(answered("done")));
}

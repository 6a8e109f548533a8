//! Turns whose workers die: suspects run alone, and only a turn that is proven to be the cause is sealed.
use crate::common::*;
use futures_util::stream;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::BoxFuture;
use outlast_ports::clock::Clock;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::queries::Queries;
use outlast_random::SeededRandom;
use outlast_runtime::worker::system::WorkerThreads;
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{SessionState, TurnProgress};
use outlast_vocab::effect::StopReason;
use outlast_vocab::limits::{SEALED_DEATHS, SUSPECT_DEATHS};
use outlast_vocab::message::{Message, ModelName};
use outlast_vocab::record::TurnEnd;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Limits, Millis, SessionId, TurnId};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// A model whose answer takes as many milliseconds as the input says. The input `fatal` kills its worker, and `again N`
/// makes it answer after N tool calls.
struct Deadly {
    clock: Arc<PausedClock>,
    kill: Arc<Notify>,
    running: Arc<AtomicUsize>,
    /// The most calls that ran at the same time as one with the input `lonely`.
    beside: Arc<AtomicUsize>,
}

impl Deadly {
    fn new(clock: &Arc<PausedClock>) -> Arc<Self> {
        let (kill, running, beside) = (Arc::default(), Arc::default(), Arc::default());
        Arc::new(Self { clock: clock.clone(), kill, running, beside })
    }
}

/// The [`ModelProvider`] of a shared [`Deadly`].
struct DeadlyProvider(Arc<Deadly>);

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ModelProvider for DeadlyProvider {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let first = request.messages().find(|message| matches!(message, Message::User { .. }));
        let text = first.map(|message| message.text().into_owned()).unwrap_or_default();
        let calls = request.messages().filter(|message| matches!(message, Message::Assistant { .. })).count();
        let number = |word: &str| {
            let mut words = text.split(' ').skip_while(|found| *found != word).skip(1);
            words.next().and_then(|number| number.parse::<u64>().ok())
        };
        let took = Duration::from_millis(number("takes").unwrap_or(200));
        let more = calls < usize::try_from(number("again").unwrap_or(0)).unwrap();
        let (fatal, lonely) = (text.contains("fatal"), text.contains("lonely"));
        let deadly = &self.0;
        Box::pin(
            stream::once(async move {
                let others = deadly.running.fetch_add(1, Ordering::SeqCst);
                let _running = Counted(deadly.running.clone());
                if lonely {
                    deadly.beside.fetch_max(others, Ordering::SeqCst);
                }
                if fatal {
                    deadly.kill.notify_one();
                    std::future::pending::<()>().await;
                }
                deadly.clock.sleep(took).await;
                more
            })
            .flat_map(move |more| {
                let events = if more {
                    let put = outlast_vocab::message::ToolUse::new(
                        format!("c{calls}").parse().unwrap(),
                        "put".parse().unwrap(),
                        outlast_vocab::message::CallArguments::Json(serde_json::json!({ "text": "a" })),
                    );
                    vec![Ok(ModelEvent::Call(put)), Ok(ModelEvent::End(StopReason::ToolUse))]
                } else {
                    vec![Ok(ModelEvent::Text("done".into())), Ok(ModelEvent::End(StopReason::End))]
                };
                stream::iter(events)
            }),
        )
    }
}

use futures_util::StreamExt;

/// Starts a worker with that model.
async fn life(memory: &MemoryStore, deadly: &Arc<Deadly>, number: u128) -> Life {
    let change = |config: &mut RuntimeConfig| {
        config.models = vec![Arc::new(DeadlyProvider(deadly.clone()))];
        config.clock = deadly.clock.clone();
        config.package.model_calls = 100;
        let patience = Duration::from_hours(1);
        config.limits = Limits { model_stall: patience, model_idle: patience, ..Limits::default() };
    };
    live_with(Arc::new(memory.clone()), Vec::new(), Arc::default(), number, change).await.unwrap()
}

fn session(number: usize) -> SessionId {
    SessionId::from_u128(1_000 + number as u128)
}

async fn submit(life: &Life, number: usize, text: &str) -> TurnId {
    life.runtime.submit(Input::text(SessionTarget::New(session(number)), text)).await.unwrap().turn
}

async fn ends(memory: &MemoryStore, turns: &[TurnId]) -> Vec<Option<TurnEnd>> {
    let mut ends = Vec::new();
    for turn in turns {
        ends.push(memory.turn(*turn).await.unwrap().end);
    }
    ends
}

async fn all_ended(memory: &MemoryStore, turns: &[TurnId]) {
    while ends(memory, turns).await.iter().any(Option::is_none) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn answered() -> TurnEnd {
    TurnEnd::Answered { text: "done".into() }
}

#[tokio::test(start_paused = true)]
async fn only_the_fatal_turn_of_many_is_sealed() {
    let memory = MemoryStore::new();
    let deadly = Deadly::new(&PausedClock::new());
    let first = life(&memory, &deadly, 1).await;
    let mut turns = Vec::new();
    for number in 0..64 {
        turns.push(submit(&first, number, if number == 20 { "fatal" } else { "harmless" }).await);
    }
    first.die(&memory).await;
    let mut deaths = 1;
    loop {
        let next = life(&memory, &deadly, deaths + 1).await;
        let died = tokio::select! {
            () = deadly.kill.notified() => true,
            () = all_ended(&memory, &turns) => false,
        };
        next.die(&memory).await;
        if !died {
            break;
        }
        deaths += 1;
        assert!(deaths < 20, "the number of restarts has no bound");
    }
    let claims = SUSPECT_DEATHS + SEALED_DEATHS;
    assert_eq!(deaths, u128::from(claims));
    for (number, end) in ends(&memory, &turns).await.into_iter().enumerate() {
        let sealed = TurnEnd::Sealed { claims, alone: SEALED_DEATHS, hung: false };
        assert_eq!(end, Some(if number == 20 { sealed } else { answered() }), "turn {number}");
    }
    // The session of the sealed turn accepts further inputs.
    let last = life(&memory, &deadly, 99).await;
    let input = Input::text(SessionTarget::Id(session(20)), "harmless");
    let next = last.runtime.submit(input).await.unwrap().turn;
    assert!(last.runtime.store().turn(next).await.unwrap().end.is_none());
}

#[tokio::test(start_paused = true)]
async fn random_kills_seal_no_turn() {
    for seed in 0..2 {
        let mut random = SeededRandom::new(seed, 0);
        let memory = MemoryStore::new();
        let deadly = Deadly::new(&PausedClock::new());
        let mut turns = Vec::new();
        for number in 1..=118 {
            let life = life(&memory, &deadly, number).await;
            for _ in 0..random.below(3) {
                let text = format!("takes {} again {}", 100 + random.below(4_000), random.below(4));
                turns.push(submit(&life, turns.len(), &text).await);
            }
            tokio::time::sleep(Duration::from_millis(random.below(2_500))).await;
            life.die(&memory).await;
        }
        let _last = life(&memory, &deadly, 1_000).await;
        all_ended(&memory, &turns).await;
        let ends = ends(&memory, &turns).await;
        assert!(ends.len() > 50 && ends.iter().all(|end| *end == Some(answered())), "seed {seed}: {ends:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deployment_that_always_crashes_seals_no_turn() {
    for lifetime in [1, 9, 15, 50, 300] {
        let memory = MemoryStore::new();
        let deadly = Deadly::new(&PausedClock::new());
        let first = life(&memory, &deadly, 1).await;
        // No worker lives long enough for their first step.
        let patient = format!("takes {}", (lifetime + 60) * 1_000);
        let turns = vec![submit(&first, 0, &patient).await, submit(&first, 1, &patient).await];
        first.die(&memory).await;
        for number in 2..60 {
            let next = life(&memory, &deadly, number).await;
            tokio::time::sleep(Duration::from_secs(lifetime)).await;
            next.die(&memory).await;
        }
        assert_eq!(ends(&memory, &turns).await, [None, None], "lifetime {lifetime}");
        let _healthy = life(&memory, &deadly, 1_000).await;
        all_ended(&memory, &turns).await;
        assert_eq!(ends(&memory, &turns).await, [Some(answered()), Some(answered())], "lifetime {lifetime}");
    }
}

#[tokio::test(start_paused = true)]
async fn clean_shutdowns_count_as_no_crash() {
    let memory = MemoryStore::new();
    let deadly = Deadly::new(&PausedClock::new());
    let first = life(&memory, &deadly, 1).await;
    let turn = submit(&first, 0, "takes 20000").await;
    first.runtime.clone().shut_down(Duration::from_secs(1)).await;
    for number in 2..20 {
        let next = life(&memory, &deadly, number).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        next.runtime.clone().shut_down(Duration::from_secs(1)).await;
        let session = memory.session(session(0)).await.unwrap();
        assert_eq!((session.state, session.deaths), (SessionState::Ready, 0));
    }
    let _last = life(&memory, &deadly, 99).await;
    all_ended(&memory, &[turn]).await;
    assert_eq!(ends(&memory, &[turn]).await, [Some(answered())]);
}

#[tokio::test(start_paused = true)]
async fn held_turn_reports_reason_and_release_time() {
    let memory = MemoryStore::new();
    let deadly = Deadly::new(&PausedClock::new());
    let first = life(&memory, &deadly, 1).await;
    let turn = submit(&first, 0, "takes 5000").await;
    first.die(&memory).await;
    for number in 2..=u128::from(SUSPECT_DEATHS) {
        let next = life(&memory, &deadly, number).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        next.die(&memory).await;
    }
    let last = life(&memory, &deadly, 99).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let why = last.runtime.why_turn(turn).await.unwrap();
    let until = memory.session(session(0)).await.unwrap().wake_at;
    assert!(until.is_some_and(|until| until > last.runtime.now()));
    assert_eq!(why.progress, TurnProgress::Held { deaths: SUSPECT_DEATHS, until });
    let metrics = last.runtime.metrics().await.unwrap();
    let held = metrics.families.iter().find(|family| family.name == "outlast.sessions.held").unwrap();
    assert!(format!("{:?}", held.values).contains("value: 1.0"), "{:?}", held.values);
    all_ended(&memory, &[turn]).await;
    assert_eq!(ends(&memory, &[turn]).await, [Some(answered())]);
    assert_eq!(memory.session(session(0)).await.unwrap().deaths, 0);
}

#[tokio::test(start_paused = true)]
async fn busy_worker_pauses_its_turns_for_a_suspect() {
    let memory = MemoryStore::new();
    let deadly = Deadly::new(&PausedClock::new());
    let first = life(&memory, &deadly, 1).await;
    let suspect = submit(&first, 0, "lonely takes 3000").await;
    first.die(&memory).await;
    for number in 2..=u128::from(SUSPECT_DEATHS) {
        let next = life(&memory, &deadly, number).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        next.die(&memory).await;
    }
    deadly.beside.store(0, Ordering::SeqCst);
    let last = life(&memory, &deadly, 99).await;
    let mut busy = Vec::new();
    for number in 1..5 {
        busy.push(submit(&last, number, "takes 7000 again 60").await);
    }
    let begun = last.runtime.now();
    all_ended(&memory, &[suspect]).await;
    // The others pause between two steps, and continue afterwards.
    let waited = begun.until(last.runtime.now());
    assert!(waited > Limits::default().suspect_wait && waited < Duration::from_mins(2), "{waited:?}");
    assert_eq!(ends(&memory, &busy).await, [const { None }; 4]);
    assert_eq!(deadly.beside.load(Ordering::SeqCst), 0);
    all_ended(&memory, &busy).await;
    assert!(ends(&memory, &busy).await.iter().all(|end| *end == Some(answered())));
    let paused = memory.session(session(1)).await.unwrap();
    assert_eq!((paused.state, paused.deaths), (SessionState::Idle, 0));
}

/// Real time plus a manual offset.
struct SkewedClock {
    skew: AtomicU64,
    began: std::time::Instant,
}

impl Clock for SkewedClock {
    fn now(&self) -> Millis {
        Millis(1_000_000 + self.skew.load(Ordering::SeqCst)).after(self.began.elapsed())
    }

    fn sleep_until(&self, until: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move { tokio::time::sleep(self.now().until(until)).await })
    }
}

/// A model that blocks its thread until it is released.
struct Blocking(Arc<Mutex<()>>);

impl ModelProvider for Blocking {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
        drop(self.0.lock().unwrap());
        Box::pin(stream::iter([Ok(ModelEvent::Text("late".into())), Ok(ModelEvent::End(StopReason::End))]))
    }
}

async fn until(what: impl AsyncFn() -> bool) {
    let looks = async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), looks).await.expect("it comes true within two minutes");
}

#[test]
fn thread_blocking_turn_is_sealed_after_restart() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let threads = Arc::new(WorkerThreads::new(NonZeroUsize::new(4).unwrap()).unwrap());
    let blocked = Arc::new(Mutex::new(()));
    let held = blocked.lock().unwrap();
    tokio.block_on(async {
        let memory = MemoryStore::new();
        let clock = Arc::new(SkewedClock { skew: AtomicU64::new(0), began: std::time::Instant::now() });
        let change = |config: &mut RuntimeConfig| {
            config.models = vec![Arc::new(Blocking(blocked.clone()))];
            config.clock = clock.clone();
            config.tasks = threads.clone();
            config.limits = Limits { turn_hang: Duration::from_millis(500), ..Limits::default() };
        };
        let live = async |number| {
            live_with(Arc::new(memory.clone()), Vec::new(), Arc::default(), number, change).await.unwrap()
        };
        let first = live(1).await;
        let turn = submit(&first, 0, "go").await;
        let view = async || memory.session(session(0)).await.unwrap();
        until(async || view().await.deaths == SUSPECT_DEATHS - 1).await;
        // It cannot be stopped, so its session is not handed back.
        first.runtime.clone().shut_down(Duration::ZERO).await;
        assert_eq!(view().await.state, SessionState::Leased);
        memory.bury(first.worker);
        let second = live(2).await;
        until(async || view().await.state == SessionState::Held).await;
        clock.skew.fetch_add(20_000, Ordering::SeqCst);
        until(async || memory.turn(turn).await.unwrap().end.is_some()).await;
        let end = memory.turn(turn).await.unwrap().end;
        assert_eq!(end, Some(TurnEnd::Sealed { claims: SUSPECT_DEATHS, alone: 0, hung: true }));
        let metrics = format!("{:?}", second.runtime.metrics().await.unwrap().families);
        assert!(metrics.contains("outlast.turns.hung"));
        // The worker drives other turns again.
        until(async || second.runtime.load().driven == 0).await;
    });
    drop(held);
}

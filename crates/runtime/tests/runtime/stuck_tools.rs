//! A tool whose model call is refused, for its key or its account, parks its turn as stuck.
use crate::common::*;
use futures_util::stream;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::service::{Models, Steps};
use outlast_ports::store::Store;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done};
use outlast_runtime::RuntimeConfig;
use outlast_runtime::views::wait_explanation;
use outlast_views::{LastEnd, LastTurn, RetryOutcome, RetryPlace, TurnProgress, Unblocker};
use outlast_vocab::effect::StopReason;
use outlast_vocab::message::ModelName;
use outlast_vocab::record::TurnEnd;
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Error, Kind, TurnId};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

/// A script whose provider refuses the model calls of tools at first.
#[derive(Clone)]
struct Refusing {
    script: Arc<ScriptedModel>,
    kind: Kind,
    /// How many more model calls of tools it refuses.
    refusals: Arc<Mutex<usize>>,
    /// How many model calls of tools it got.
    asked: Arc<AtomicUsize>,
}

impl Refusing {
    fn new(kind: Kind, refusals: usize, tools: &[&'static str]) -> Self {
        let calls = tools.iter().map(|tool| (*tool, json!({ "text": "" }))).collect();
        let script = Arc::new(ScriptedModel(Script::new(vec![Line::Call(calls), Line::Say("done")])));
        Self { script, kind, refusals: Arc::new(Mutex::new(refusals)), asked: Arc::default() }
    }

    async fn life(&self, store: Arc<dyn Store>, witness: &Arc<Witness>, number: u128) -> Life {
        let change = |config: &mut RuntimeConfig| {
            let mut toolbox = toolbox(witness.clone(), false).unwrap();
            toolbox.add(ModelCallingTool).unwrap();
            toolbox.add(PayAndAsk(witness.clone())).unwrap();
            toolbox.add(Hum(witness.clone())).unwrap();
            config.package = package(&toolbox);
            config.tools = vec![Arc::new(toolbox)];
            config.models = vec![Arc::new(self.clone())];
        };
        live_with(store, Vec::new(), witness.clone(), number, change).await.unwrap()
    }

    /// Starts a worker and a turn that gets stuck.
    async fn stuck(&self) -> (Life, TurnId) {
        let life = self.life(Arc::new(MemoryStore::new()), &Arc::default(), 1).await;
        let turn = life.send("go").await;
        life.until("turn.stuck").await;
        life.until("turn.parked").await;
        (life, turn)
    }

    fn accept(&self) {
        *self.refusals.lock().unwrap() = 0;
    }
}

impl ModelProvider for Refusing {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        self.script.info(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        if !request.messages().any(|message| message.text() == "why?") {
            return self.script.stream(request);
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut refusals = self.refusals.lock().unwrap();
        if let Some(left) = refusals.checked_sub(1) {
            *refusals = left;
            return Box::pin(stream::iter([Err(Error::new(self.kind, "no"))]));
        }
        let answer = [ModelEvent::Text("because".to_owned()), ModelEvent::End(StopReason::End)];
        Box::pin(stream::iter(answer.map(Ok)))
    }
}

/// Pays, then asks a model. Paying must happen at most once.
struct PayAndAsk(Arc<Witness>);

impl Tool for PayAndAsk {
    type Args = Note;
    type Needs = (Models, Steps);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("pay_and_ask", "Pays, then asks.").durable()
    }

    async fn run(&self, (models, steps): Self::Needs, call: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        let pays = async {
            self.0.saw("paid", &call);
            Ok("paid".to_owned())
        };
        let paid: String = steps.run("pay", &(), pays).await?;
        done(json!([paid, models.ask("why?").await?]))
    }
}

/// Never comes back.
struct Hum(Arc<Witness>);

impl Tool for Hum {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("hum", "Hums.").idempotent().deadline(Duration::from_hours(1))
    }

    async fn run(&self, (): (), call: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        self.0.saw("hum", &call);
        std::future::pending().await
    }
}

async fn count(life: &Life, name: &str) -> usize {
    life.names().await.into_iter().filter(|recorded| *recorded == name).count()
}

fn answered() -> TurnEnd {
    TurnEnd::Answered { text: "done".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn refused_model_call_of_tool_makes_turn_stuck() {
    for kind in [Kind::ModelUnauthorized, Kind::ModelNoCredit] {
        let provider = Refusing::new(kind, usize::MAX, &["wonder"]);
        let (life, turn) = provider.stuck().await;
        let store = life.runtime.store();
        let why = wait_explanation::of_turn(store.as_ref(), turn).await.unwrap();
        let TurnProgress::Stuck(failure) = &why.progress else { panic!("{why:?}") };
        assert_eq!((failure.code, failure.detail.as_str()), (kind, "no"));
        let [wait] = &why.waits[..] else { panic!("{why:?}") };
        assert!(wait.wait.kind == WaitKind::Event && matches!(wait.unblocked_by, Unblocker::Retry));
        assert_eq!(wait.call.as_ref().map(|(tool, _)| tool.as_str()), Some("wonder"));
        let session = store.session(SESSION).await.unwrap();
        assert_eq!(session.last_turn, Some(LastTurn { id: turn, end: LastEnd::Stuck }));
        // The time limit for outages does not apply. The pauses grow from five seconds to ten minutes.
        tokio::time::sleep(Duration::from_hours(30)).await;
        let asked = provider.asked.load(Ordering::SeqCst);
        assert!((180..=190).contains(&asked), "{asked}");
        provider.accept();
        life.runtime.retry(turn).await.unwrap();
        let end = tokio::time::timeout(Duration::from_secs(1), life.end(turn)).await.unwrap();
        assert_eq!((end, provider.asked.load(Ordering::SeqCst)), (answered(), asked + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn stuck_tool_continues_without_a_person() {
    let provider = Refusing::new(Kind::ModelNoCredit, 3, &["wonder"]);
    let (life, turn) = provider.stuck().await;
    assert_eq!(life.end(turn).await, answered());
    assert_eq!((count(&life, "turn.stuck").await, count(&life, "turn.parked").await), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn parallel_stuck_tools_count_as_one_turn() {
    let provider = Refusing::new(Kind::ModelUnauthorized, usize::MAX, &["wonder", "pay_and_ask"]);
    let (life, turn) = provider.stuck().await;
    assert_eq!(life.runtime.store().session(SESSION).await.unwrap().waits.len(), 2);
    let ends = life.runtime.store().load().await.unwrap().last_ends;
    assert_eq!(ends.into_iter().find(|(end, _)| *end == LastEnd::Stuck), Some((LastEnd::Stuck, 1)));
    provider.accept();
    life.runtime.retry(turn).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(1), life.end(turn)).await.unwrap();
    assert_eq!((end, count(&life, "turn.stuck").await), (answered(), 1));
}

#[tokio::test(start_paused = true)]
async fn tool_of_waiting_sender_gets_refusal_at_once() {
    let provider = Refusing::new(Kind::ModelUnauthorized, usize::MAX, &["wonder"]);
    let life = provider.life(Arc::new(MemoryStore::new()), &Arc::default(), 1).await;
    let of_wire = outlast_runtime::Input { provider_wait_s: Some(60), ..input("go") };
    let turn = life.runtime.submit(of_wire).await.unwrap().turn;
    let end = tokio::time::timeout(MINUTE, life.end(turn)).await.unwrap();
    assert_eq!((end, count(&life, "turn.stuck").await), (answered(), 0));
}

#[tokio::test(start_paused = true)]
async fn stuck_tool_pays_once_wherever_it_dies() {
    let points = (1..100).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]);
    for (died, point) in points.enumerate() {
        let (memory, witness) = (MemoryStore::new(), Arc::default());
        let provider = Refusing::new(Kind::ModelUnauthorized, 2, &["pay_and_ask"]);
        let mortal = CrashingStore::new(memory.clone(), point);
        let pulse = mortal.pulse();
        let first = provider.life(Arc::new(mortal), &witness, 1).await;
        let end = async {
            let turn = first.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
            first.end(turn).await
        };
        let finished = tokio::select! {
            end = end => Some(end),
            () = pulse.stopped() => None,
        };
        first.die(&memory).await;
        if let Some(end) = finished {
            assert!(end == answered() && died > 10, "{end:?} after {died} deaths");
            return;
        }
        let second = provider.life(Arc::new(memory.clone()), &witness, 2).await;
        let turn = second.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
        assert_eq!(second.end(turn).await, answered());
        assert!(witness.count("paid") <= 1, "{point:?}");
        second.die(&memory).await;
    }
    panic!("it never got through");
}

#[tokio::test(start_paused = true)]
async fn cancelled_stuck_tool_is_not_repeated_by_retry() {
    let provider = Refusing::new(Kind::ModelUnauthorized, usize::MAX, &["pay_and_ask"]);
    let (life, turn) = provider.stuck().await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".into() });
    provider.accept();
    let retried = life.runtime.retry_turn(turn, RetryPlace::SameHead).await.unwrap();
    let RetryOutcome::NewTurn { turn: retry, .. } = retried else { panic!("{retried:?}") };
    assert_eq!(life.end(retry).await, answered());
    assert_eq!(life.witness.count("paid"), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_at_most_once_call_is_not_repeated_by_retry() {
    // The turn is cancelled before it parks, because the other call still runs.
    let provider = Refusing::new(Kind::ModelUnauthorized, usize::MAX, &["pay_and_ask", "hum"]);
    let life = provider.life(Arc::new(MemoryStore::new()), &Arc::default(), 1).await;
    let turn = life.send("go").await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!((life.witness.count("paid"), count(&life, "turn.parked").await), (1, 0));
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    life.runtime.retry_turn(turn, RetryPlace::SameHead).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!((life.witness.count("hum"), life.witness.count("paid")), (2, 1));
}

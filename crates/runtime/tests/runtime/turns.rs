//! The behaviour of turns, on the memory store and in virtual time.
use crate::common::*;
use expect_test::expect;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::service::{Services, Steps};
use outlast_ports::store::Store;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::CancelOutcome;
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{Fact, InputDelivery, Seq, TurnEnd};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Kind, Limits};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.into() }
}

#[tokio::test(start_paused = true)]
async fn tool_turn_commits_four_times_plain_turn_twice() {
    let memory = outlast_ledger::memory::MemoryStore::new();
    let store = CrashingStore::new(memory, CrashPoint::Never);
    let pulse = store.pulse();
    let lines = vec![Line::Say("hello"), call("pay", "5"), Line::Say("done")];
    let life = live(Arc::new(store), lines, Arc::default(), 1).await;
    let turn = life.send("hi").await;
    assert_eq!(life.end(turn).await, answered("hello"));
    assert_eq!(pulse.writes(), 2);
    let turn = life.send("pay").await;
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(pulse.writes(), 6);
}

#[tokio::test(start_paused = true)]
async fn journal_records_tool_turn_in_order() {
    let (_memory, life) = fresh(vec![call("pay", "5"), Line::Say("done")]).await;
    let turn = life.send("pay five").await;
    life.end(turn).await;
    expect![[r#"
        [
            "session.opened",
            "turn.accepted",
            "turn.started",
            "effect.performed",
            "effect.asked",
            "effect.answered",
            "effect.performed",
            "turn.ended",
        ]
    "#]]
    .assert_debug_eq(&life.names().await);
    assert_eq!(life.last_shown(), ["pay five", "", "paid 5"]);
    assert_eq!(life.runtime.store().verify(SESSION).await.unwrap(), 8);
}

#[tokio::test(start_paused = true)]
async fn parallel_batch_survives_one_failing_call() {
    let calls = Line::Call(vec![
        ("look", json!({"text": "a"})),
        ("panics", json!({"text": "b"})),
        ("nothing", json!({})),
        ("pay", json!({"text": 5})),
        ("put", json!({"text": "c"})),
    ]);
    let (_memory, life) = fresh(vec![calls, Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let shown = life.last_shown();
    assert_eq!(shown[2], "saw a");
    assert_eq!(shown[3], "error tool.panicked: the tool panicked: boom b");
    assert!(
        shown[4].starts_with("error tool.unknown: no tool is called `nothing`; there are: ask, book"),
        "{}",
        shown[4]
    );
    assert_eq!(
        shown[5],
        "error tool.args_invalid: the arguments do not fit the schema; at /text: 5 is not of type \"string\""
    );
    assert_eq!(shown[6], "put c");
    assert_eq!(life.witness.count("pay"), 0);
}

#[tokio::test(start_paused = true)]
async fn tool_sees_attempt_number_and_stable_key() {
    let (_memory, life) = fresh(vec![call("flaky", ""), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let did = life.witness.did.lock().unwrap().clone();
    assert_eq!(did.iter().map(|(_, _, attempt)| *attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(did.iter().all(|(_, id, _)| *id == did[0].1));
}

#[tokio::test(start_paused = true)]
async fn tool_over_deadline_is_cancelled_and_reported() {
    let (_memory, life) = fresh(vec![call("hangs", ""), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(life.last_shown()[2], "error tool.timed_out: the tool did not finish within 5000 ms");
    assert_eq!(life.witness.count("hangs"), 1);
}

#[tokio::test(start_paused = true)]
async fn pending_call_parks_turn_until_completed_once() {
    let (_memory, life) = fresh(vec![call("wait", "k"), Line::Say("thanks")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    let key = life.witness.keys.lock().unwrap()["k"].clone();
    let first = life.runtime.resolve(&key, Resolution::Ok(json!("signed"))).await.unwrap();
    assert!(first.is_yours);
    let second = life.runtime.resolve(&key, Resolution::Timeout).await.unwrap();
    assert_eq!((second.first, second.is_yours), (Resolution::Ok(json!("signed")), false));
    assert_eq!(life.end(turn).await, answered("thanks"));
    assert_eq!(life.last_shown()[2], "signed");
    assert_eq!(life.witness.count("wait"), 1);
    let late = life.runtime.resolve(&key, Resolution::Timeout).await.unwrap();
    assert_eq!((late.first, late.is_yours), (Resolution::Ok(json!("signed")), false));
}

#[tokio::test(start_paused = true)]
async fn tool_sleep_parks_turn_without_repeating_steps() {
    let (_memory, life) = fresh(vec![call("stepped", "x"), Line::Say("done")]).await;
    let begun = life.runtime.now();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(life.last_shown()[2], "1x2");
    assert_eq!((life.witness.count("step one"), life.witness.count("step two")), (1, 1));
    assert!(begun.until(life.runtime.now()) >= Duration::from_mins(1));
    assert!(life.names().await.contains(&"turn.parked"));
}

#[tokio::test(start_paused = true)]
async fn event_wait_ends_at_its_deadline() {
    let (_memory, life) = fresh(vec![call("ask", "e"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(life.last_shown()[2], "Timeout");
    let key = life.witness.keys.lock().unwrap()["e"].clone();
    let late = life.runtime.resolve(&key, Resolution::Ok(json!(1))).await.unwrap();
    assert_eq!((late.first, late.is_yours), (Resolution::Timeout, false));
}

/// Runs a step whose name is the argument.
struct NamedStep;

impl Tool for NamedStep {
    type Args = Note;
    type Needs = Steps;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("named_step", "Runs a step with this name.").idempotent().durable()
    }

    async fn run(&self, steps: Steps, _: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        done(steps.run::<_, String, _>(&args.text, &(), async { Ok("ran".to_owned()) }).await?)
    }
}

#[tokio::test(start_paused = true)]
async fn blank_step_name_is_refused() {
    let mut toolbox = Toolbox::new(Services::default());
    toolbox.add(NamedStep).unwrap();
    let change = |config: &mut RuntimeConfig| {
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
    };
    let calls = ["", " \t\n\u{a0}", "named"].map(|name| ("named_step", json!({ "text": name }))).to_vec();
    let lines = vec![Line::Call(calls), Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let refused = "error step.name_invalid: a step's name must have 1 to 256 bytes and a character that is not white \
                   space, found";
    assert_eq!(
        life.last_shown()[2..],
        [format!("{refused} \"\""), format!("{refused} \" \\t\\n\\u{{a0}}\""), "ran".to_owned()]
    );
}

#[tokio::test(start_paused = true)]
async fn empty_event_key_is_refused() {
    let (_memory, life) = fresh(vec![call("ask", ""), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let refused = "error input.invalid: expected an event key of 1 to 256 bytes, found an empty one";
    assert_eq!(life.last_shown()[2], refused);
}

#[tokio::test(start_paused = true)]
async fn values_a_tool_writes_commit_with_its_answer() {
    let (_memory, life) = fresh(vec![call("keep", ""), call("keep", ""), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let value = life.runtime.store().value(SESSION, "count".into()).await.unwrap();
    assert_eq!(value, Some(json!(2)));
    assert_eq!(life.last_shown()[4], "2");
}

#[tokio::test(start_paused = true)]
async fn steering_input_joins_next_checkpoint_once() {
    let (_memory, life) = fresh(vec![call("ask", "e"), Line::Say("both done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    let steer = Input { delivery: InputDelivery::Join, ..input("and this") };
    let joined = life.runtime.submit(steer).await.unwrap().turn;
    let key = life.witness.keys.lock().unwrap()["e"].clone();
    life.runtime.resolve(&key, Resolution::Ok(json!(1))).await.unwrap();
    assert_eq!(life.end(turn).await, answered("both done"));
    assert_eq!(life.end(joined).await, answered("both done"));
    assert_eq!(life.last_shown(), ["go", "", "Ok(Number(1))", "and this"]);
    let next = life.send("more").await;
    life.end(next).await;
    assert_eq!(life.last_shown(), ["go", "", "Ok(Number(1))", "and this", "both done", "more"]);
}

#[tokio::test(start_paused = true)]
async fn input_during_turn_waits_for_next_turn() {
    let (_memory, life) = fresh(vec![call("wait", "k"), Line::Say("one"), Line::Say("two")]).await;
    let first = life.send("a").await;
    life.until("turn.parked").await;
    let second = life.send("b").await;
    let key = life.witness.keys.lock().unwrap()["k"].clone();
    life.runtime.resolve(&key, Resolution::Ok(json!("ok"))).await.unwrap();
    assert_eq!(life.end(first).await, answered("one"));
    assert_eq!(life.end(second).await, answered("two"));
    assert_eq!(life.last_shown(), ["a", "", "ok", "one", "b"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_reaches_the_model_stream() {
    let (_memory, life) = fresh(vec![Line::Hang, Line::Say("next")]).await;
    let turn = life.send("go").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(life.runtime.cancel(turn, "enough").await.unwrap(), CancelOutcome::Requested);
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".into() });
    let late = life.runtime.cancel(turn, "again").await.unwrap();
    assert_eq!(late, CancelOutcome::AlreadyEnded(TurnEnd::Cancelled { reason: "enough".into() }));
}

#[tokio::test(start_paused = true)]
async fn cancel_gives_every_running_call_an_outcome() {
    let calls = Line::Call(vec![
        ("hangs", json!({"text": "polite"})),
        ("hangs", json!({"text": "rude"})),
        ("wait", json!({"text": "k"})),
    ]);
    let (_memory, life) = fresh(vec![calls, Line::Say("next")]).await;
    let turn = life.send("go").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".into() });
    let unknown = life.runtime.store().unknown(10).await.unwrap();
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0].arguments, json!({"text": "rude"}));
    let next = life.send("and now").await;
    assert_eq!(life.end(next).await, answered("next"));
    let shown = life.last_shown();
    assert_eq!(shown[2], "error tool.failed: stopped when asked");
    assert!(shown[3].starts_with("error tool.outcome_unknown: "), "{}", shown[3]);
    assert_eq!(shown[4], "error tool.interrupted: the call was left behind before it had a result");
}

#[tokio::test(start_paused = true)]
async fn cancel_reaches_a_parked_turn() {
    let (_memory, life) = fresh(vec![call("wait", "k")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.cancel(turn, "never mind").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "never mind".into() });
    let key = life.witness.keys.lock().unwrap()["k"].clone();
    let late = life.runtime.resolve(&key, Resolution::Ok(json!(1))).await.unwrap();
    assert_eq!((late.first, late.is_yours), (Resolution::Cancelled, false));
}

#[tokio::test(start_paused = true)]
async fn transient_error_retries_and_retracts_cut_text() {
    let (_memory, life) = fresh(vec![Line::Cut]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("whole"));
    assert_eq!(life.script.calls.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn permanent_error_fails_turn_without_retry() {
    let (_memory, life) = fresh(vec![Line::Fail(Kind::ModelRejected)]).await;
    let turn = life.send("go").await;
    let TurnEnd::Failed { failure } = life.end(turn).await else { panic!("the turn did not fail") };
    assert_eq!(failure.code, Kind::ModelRejected);
    assert_eq!(life.script.calls.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn silent_stream_is_retried_up_to_limit() {
    let life = impatient(vec![Line::Hang], Duration::ZERO).await;
    let turn = life.send("go").await;
    let TurnEnd::Failed { failure } = life.end(turn).await else { panic!("the turn did not fail") };
    assert_eq!(failure.code, Kind::ModelStalled);
    assert_eq!(
        life.script.calls.load(std::sync::atomic::Ordering::SeqCst),
        u64::from(Limits::default().model_attempts)
    );
}

#[tokio::test(start_paused = true)]
async fn turn_reports_exhausted_model_calls() {
    let (_memory, life) = fresh((0..20).map(|_| call("look", "a")).collect()).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::OutOfModelCalls { limit: 10 });
}

#[tokio::test(start_paused = true)]
async fn same_idempotency_key_yields_one_turn() {
    let (_memory, life) = fresh(vec![Line::Say("once")]).await;
    let first = life.runtime.submit(keyed_input("k1", "hi")).await.unwrap();
    let second = life.runtime.submit(keyed_input("k1", "hi")).await.unwrap();
    assert_eq!((first.turn, false, true), (second.turn, first.duplicate, second.duplicate));
    assert_eq!(first.place, second.place);
    let other = keyed_input("k1", "other");
    assert_eq!(life.runtime.submit(other).await.unwrap_err().kind(), Kind::InputKeyReused);
}

#[tokio::test(start_paused = true)]
async fn input_is_accepted_up_to_its_limit() {
    let (_memory, life) = fresh(vec![Line::Say("long")]).await;
    let most = Limits::default().input_bytes;
    let turn = life.send(&"a".repeat(most)).await;
    assert_eq!(life.end(turn).await, answered("long"));
    let error = life.runtime.submit(input(&"a".repeat(most + 1))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::LimitExceeded);
    assert_eq!(life.runtime.submit(input("")).await.unwrap_err().kind(), Kind::InputInvalid);
}

#[tokio::test(start_paused = true)]
async fn missing_port_is_found_at_startup() {
    let start = |change: fn(&mut outlast_runtime::RuntimeConfig)| async move {
        let store = Arc::new(outlast_ledger::memory::MemoryStore::new());
        live_with(store, vec![], Arc::default(), 1, change).await.err().map(|error| error.kind())
    };
    assert_eq!(start(|config| config.models.clear()).await, Some(Kind::PortMissing));
    assert_eq!(start(|config| config.tools.clear()).await, Some(Kind::ToolUnknown));
    assert_eq!(
        start(|config| config.package.model = "no/such".parse().unwrap()).await,
        Some(Kind::ModelUnknown)
    );
}

#[tokio::test(start_paused = true)]
async fn mid_batch_fork_is_repaired_with_event() {
    let (_memory, life) = fresh(vec![call("pay", "5"), Line::Say("done"), Line::Say("again")]).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    let facts = life.facts().await;
    let reply = facts.iter().position(|fact| matches!(fact, Fact::Performed(_))).unwrap() + 1;
    life.runtime
        .store()
        .rewind(SESSION, "main".into(), Some(Seq(reply as u64)), life.runtime.now())
        .await
        .unwrap();
    let next = life.send("what now").await;
    life.end(next).await;
    assert_eq!(life.last_shown(), ["go", "", "paid 5", "what now"]);
    assert!(life.names().await.contains(&"transcript.repaired"));
}

#[tokio::test(start_paused = true)]
async fn operator_settlement_of_unknown_call_reaches_model() {
    let (_memory, life) = fresh(vec![call("hangs", "rude"), Line::Say("ok"), Line::Say("fine")]).await;
    let turn = life.send("go").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    life.runtime.cancel(turn, "stop").await.unwrap();
    life.end(turn).await;
    let store: &Arc<dyn Store> = life.runtime.store();
    let unknown = store.unknown(10).await.unwrap().remove(0);
    let verdict = outlast_vocab::record::OutcomeVerdict::Happened(ToolResult::Ok(json!("it did")));
    store.settle(unknown.call, verdict.clone(), life.runtime.now()).await.unwrap();
    let again = store.settle(unknown.call, verdict, life.runtime.now()).await;
    assert_eq!(again.unwrap_err().kind(), Kind::ClaimNotFound);
    let next = life.send("well?").await;
    life.end(next).await;
    assert_eq!(life.last_shown()[2], "it did");
}

#[tokio::test(start_paused = true)]
async fn long_model_wait_parks_and_keeps_attempt_count() {
    let life = impatient(vec![Line::Busy], Duration::from_secs(10)).await;
    let turn = life.send("go").await;
    let TurnEnd::Failed { failure } = life.end(turn).await else { panic!("the turn did not fail") };
    assert_eq!(failure.code, Kind::ModelUnavailable);
    let attempts = life.script.calls.load(std::sync::atomic::Ordering::SeqCst);
    let parked = life.names().await.into_iter().filter(|name| *name == "turn.parked").count();
    assert!(parked == 3 && (3..=4).contains(&attempts), "{parked} waits, {attempts} attempts");
}

//! A turn that crashes at any write ends as if it had not. Each scenario crashes before and after each of its writes.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{RetryOutcome, RetryPlace};
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::message::{Message, ToolResult};
use outlast_vocab::record::{Fact, InputDelivery, Seq, TurnEnd};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Kind, TurnId};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The external events of a scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Nothing,
    /// The wait `k` is resolved.
    Resolves,
    /// An input joins the parked turn, then the wait `k` is resolved.
    Steers,
    /// The parked turn is cancelled.
    Cancels,
    /// A second input is queued.
    Queues,
    /// The input asks for a number.
    WantsNumber,
    /// Hooks change everything they can.
    Hooks,
    /// As `Hooks`, and the wait `k` is resolved.
    HooksAndResolves,
    /// The parked turn is cancelled and retried, then the wait `k` of the retry is resolved.
    Retries,
}

impl Outside {
    /// Configures the agent for the scenario.
    fn prepare(self, config: &mut RuntimeConfig) {
        if [Self::Hooks, Self::HooksAndResolves].contains(&self) {
            let hooks = crate::hooks::all().into_iter().chain([crate::hooks::note()]);
            crate::hooks::hooked(hooks.collect())(config);
        }
    }
}

fn scenarios() -> Vec<(&'static str, Outside, Vec<Line>)> {
    let batch = || {
        Line::Call(vec![
            ("look", json!({"text": "a"})),
            ("put", json!({"text": "b"})),
            ("pay", json!({"text": "c"})),
            ("keep", json!({})),
            ("book", json!({"text": "d"})),
        ])
    };
    let hooked = || {
        let text = |text: &str| json!({ "text": text });
        Line::Call(vec![
            ("put", text("1000")),
            ("pay", text("a")),
            ("book", text("b")),
            ("keep", text("")),
            ("nothing", text("")),
        ])
    };
    vec![
        ("plain", Outside::Nothing, vec![Line::Say("hello there")]),
        ("pure tool", Outside::Nothing, vec![call("look", "a"), Line::Say("done")]),
        ("idempotent tool", Outside::Nothing, vec![call("put", "a"), Line::Say("done")]),
        ("at-most-once tool", Outside::Nothing, vec![call("pay", "a"), Line::Say("done")]),
        ("tool with a probe", Outside::Nothing, vec![call("book", "a"), Line::Say("done")]),
        ("transactional tool", Outside::Nothing, vec![call("keep", ""), call("keep", ""), Line::Say("done")]),
        ("parallel tools", Outside::Nothing, vec![batch(), Line::Say("done")]),
        ("durable steps and a sleep", Outside::Nothing, vec![call("stepped", "x"), Line::Say("done")]),
        ("pending completion", Outside::Resolves, vec![call("wait", "k"), Line::Say("done")]),
        ("event", Outside::Resolves, vec![call("ask", "k"), Line::Say("done")]),
        ("steering", Outside::Steers, vec![call("wait", "k"), Line::Say("done")]),
        ("cancel", Outside::Cancels, vec![call("wait", "k"), Line::Say("done")]),
        ("queued input", Outside::Queues, vec![call("put", "a"), Line::Say("one"), Line::Say("two")]),
        ("typed answer", Outside::WantsNumber, vec![call("pay", "a"), Line::Say("three"), Line::Say("3")]),
        ("hooks", Outside::Hooks, vec![hooked(), Line::Say("perhaps"), Line::Say("done")]),
        ("hooks and a completion", Outside::HooksAndResolves, vec![call("wait", "k"), Line::Say("done")]),
        ("retries", Outside::Nothing, vec![call("flaky", ""), Line::Say("done")]),
        ("retry", Outside::Retries, vec![batch(), call("wait", "k"), Line::Say("done")]),
        ("bad call", Outside::Nothing, vec![call("nothing", ""), Line::Say("done")]),
    ]
}

/// The final state of a scenario.
#[derive(Debug, PartialEq, Eq)]
struct FinalState {
    ends: Vec<String>,
    transcript: Vec<String>,
    count: Option<serde_json::Value>,
}

/// Runs a scenario to its end over as many processes as needed. The first crashes at `death`.
async fn play(outside: Outside, lines: &[Line], death: CrashPoint) -> (FinalState, Arc<Witness>, u64) {
    let memory = MemoryStore::new();
    let witness: Arc<Witness> = Arc::default();
    let crashing_store = CrashingStore::new(memory.clone(), death);
    let pulse = crashing_store.pulse();
    let prepare = |config: &mut RuntimeConfig| outside.prepare(config);
    let first =
        live_with(Arc::new(crashing_store), lines.to_vec(), witness.clone(), 1, prepare).await.unwrap();
    let done = tokio::select! {
        () = act(&first, outside) => true,
        () = pulse.stopped() => false,
    };
    let witness = first.die(&memory).await;
    if !done {
        let prepare = |config: &mut RuntimeConfig| outside.prepare(config);
        let second =
            live_with(Arc::new(memory.clone()), lines.to_vec(), witness.clone(), 2, prepare).await.unwrap();
        act(&second, outside).await;
        second.die(&memory).await;
    }
    let reader = live(Arc::new(memory.clone()), lines.to_vec(), witness.clone(), 3).await;
    let left = look(&reader).await;
    check_oracles(&reader, &witness).await;
    crate::archive::reads_back(Arc::new(memory)).await;
    (left, witness, pulse.writes())
}

/// Performs the external events. They are idempotent, because a client repeats a request that got no answer.
async fn act(life: &Life, outside: Outside) {
    let output = (outside == Outside::WantsNumber).then(|| json!({ "type": "number" }));
    let turn = life.runtime.submit(Input { output, ..keyed_input("first", "go") }).await.unwrap().turn;
    let second = match outside {
        Outside::Nothing | Outside::WantsNumber | Outside::Hooks => None,
        Outside::Queues => Some(life.runtime.submit(keyed_input("second", "more")).await.unwrap().turn),
        Outside::Resolves | Outside::HooksAndResolves => {
            resolve(life, turn).await;
            None
        }
        Outside::Steers => {
            life.until("turn.parked").await;
            let steer = Input { delivery: InputDelivery::Join, ..keyed_input("second", "also") };
            let joined = life.runtime.submit(steer).await.unwrap().turn;
            resolve(life, turn).await;
            Some(joined)
        }
        Outside::Cancels => {
            life.until("turn.parked").await;
            life.runtime.cancel(turn, "enough").await.unwrap();
            None
        }
        Outside::Retries => {
            life.until("turn.parked").await;
            life.runtime.cancel(turn, "enough").await.unwrap();
            life.end(turn).await;
            let retried = life.runtime.retry_turn(turn, RetryPlace::SameHead).await.unwrap();
            let RetryOutcome::NewTurn { turn: retry, .. } = retried else { panic!("{retried:?}") };
            complete(life, retry).await;
            Some(retry)
        }
    };
    life.end(turn).await;
    if let Some(second) = second {
        life.end(second).await;
    }
}

async fn resolve(life: &Life, turn: TurnId) {
    life.until("turn.parked").await;
    let key = life.witness.keys.lock().unwrap()["k"].clone();
    assert_eq!(key.turn, turn);
    life.runtime.resolve(&key, Resolution::Ok(json!("resolved"))).await.unwrap();
}

/// Resolves the wait `k` of this turn once it is parked, unless the turn has ended.
async fn complete(life: &Life, turn: TurnId) {
    while life.runtime.store().turn(turn).await.unwrap().end.is_none() {
        let key = life.witness.keys.lock().unwrap().get("k").cloned();
        if let Some(key) = key.filter(|key| key.turn == turn) {
            life.runtime.resolve(&key, Resolution::Ok(json!("resolved"))).await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn look(life: &Life) -> FinalState {
    let store = life.runtime.store();
    let turns = store.turns(SESSION, 0, 100).await.unwrap();
    let ends = turns.iter().map(|turn| match turn.end.clone().expect("every accepted input is answered") {
        TurnEnd::Joined { into } => {
            format!("joined turn {}", turns.iter().position(|turn| turn.id == into).unwrap())
        }
        end => format!("{end:?}"),
    });
    let ends = ends.collect();
    let view = store.session(SESSION).await.unwrap();
    let head = view.heads.iter().find(|(name, _)| name == "main").and_then(|(_, node)| *node).unwrap();
    let history = store.history(head, usize::MAX).await.unwrap();
    let messages = history.into_iter().rev().flat_map(|turn| {
        let transcript = outlast_kernel::transcript::of_turn(turn.records, turn.last_in_branch);
        transcript.messages
    });
    let transcript = messages.map(|message| message_text(&message)).collect();
    let count = store.value(SESSION, "count".into()).await.unwrap();
    FinalState { ends, transcript, count }
}

/// Returns a message in a form that a crash must not change. A crash may only change whether an at-most-once call is
/// known to have happened.
fn message_text(message: &Message) -> String {
    match message {
        Message::Tool { tool, result: ToolResult::Err(failure), .. }
            if [Kind::ToolOutcomeUnknown, Kind::ToolInterrupted].contains(&failure.code) =>
        {
            format!("{tool} ran or nobody knows")
        }
        Message::Tool { tool, .. } if ["pay", "book"].contains(&tool.as_str()) => {
            format!("{tool} ran or nobody knows")
        }
        message => message.text().into_owned(),
    }
}

async fn check_oracles(life: &Life, witness: &Witness) {
    let store = life.runtime.store();
    store.verify(SESSION).await.unwrap();
    let records = store.records(SESSION, Seq(0), 10_000).await.unwrap();
    let numbers: Vec<u64> = records.iter().map(|record| record.seq.0).collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>(), "the sequence has a gap or a repeat");
    let mut by_call: BTreeMap<(String, outlast_vocab::CallId), usize> = BTreeMap::new();
    for (what, id, _) in witness.did.lock().unwrap().iter() {
        *by_call.entry((what.clone(), *id)).or_default() += 1;
    }
    for ((what, id), times) in &by_call {
        if ["pay", "book"].contains(&what.as_str()) {
            assert_eq!(*times, 1, "{what} ({id}) ran {times} times");
        }
    }
    let mut calls: Vec<&String> = by_call.keys().map(|(what, _)| what).collect();
    let distinct = calls.len();
    calls.dedup();
    assert!(
        calls.len() == distinct || by_call.keys().any(|(what, _)| what == "keep"),
        "one call had two keys"
    );
    for record in &records {
        if let Fact::Answered(answered) = &record.fact
            && let outlast_vocab::effect::Outcome::ToolCall(ToolOutcome::Unknown) = answered.outcome
        {
            assert!(store.unknown(100).await.unwrap().iter().any(|call| call.claim == answered.claim));
        }
    }
    let state = store.session(SESSION).await.unwrap().state;
    assert_eq!(state.name(), "idle", "something is left running");
}

/// Crashes a scenario at each of its writes and compares the result with the uninterrupted run.
async fn crash_everywhere(name: &str, outside: Outside, lines: &[Line]) {
    let (whole, _, writes) = play(outside, lines, CrashPoint::Never).await;
    assert!(writes >= 2, "{name} writes");
    for at in 0..writes {
        for death in [CrashPoint::Before(at), CrashPoint::AfterWrite(at)] {
            let (left, ..) = play(outside, lines, death).await;
            assert_eq!(left, whole, "{name}, {death:?}");
        }
    }
}

macro_rules! crash_tests {
    ($($test:ident = $name:literal;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $test() {
            let (name, outside, lines) = scenarios().into_iter().find(|(name, ..)| *name == $name).unwrap();
            crash_everywhere(name, outside, &lines).await;
        }
    )*};
}

crash_tests! {
    a_plain_turn_that_dies_anywhere_ends_as_if_it_had_not = "plain";
    a_turn_with_a_pure_tool_that_dies_anywhere_ends_as_if_it_had_not = "pure tool";
    a_turn_with_an_idempotent_tool_that_dies_anywhere_ends_as_if_it_had_not = "idempotent tool";
    a_turn_with_an_at_most_once_tool_that_dies_anywhere_never_repeats_it = "at-most-once tool";
    a_turn_with_a_probed_tool_that_dies_anywhere_never_repeats_it = "tool with a probe";
    a_transactional_tool_that_dies_anywhere_counts_exactly_once = "transactional tool";
    a_batch_that_dies_anywhere_runs_only_what_is_missing = "parallel tools";
    a_tool_with_steps_and_a_sleep_that_dies_anywhere_ends_as_if_it_had_not = "durable steps and a sleep";
    a_pending_completion_survives_a_death_anywhere = "pending completion";
    an_awaited_event_survives_a_death_anywhere = "event";
    steering_input_survives_a_death_anywhere_and_is_read_once = "steering";
    a_cancel_survives_a_death_anywhere = "cancel";
    a_queued_input_survives_a_death_anywhere = "queued input";
    a_correction_of_the_answer_survives_a_death_anywhere = "typed answer";
    what_hooks_change_survives_a_death_anywhere = "hooks";
    what_hooks_change_of_a_completion_survives_a_death_anywhere = "hooks and a completion";
    a_retried_call_survives_a_death_anywhere = "retries";
    retry_survives_a_death_anywhere = "retry";
    a_refused_call_survives_a_death_anywhere = "bad call";
}

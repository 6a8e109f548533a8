//! A turn that ended is retried as a new turn. Answers are reused, and nothing happens twice.
use crate::archive::{exported, taken_in, tampered, unsigned};
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::branches::ForkRequest;
use outlast_ports::store::Store;
use outlast_runtime::views::costs;
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{CancelOutcome, ForkTo, RetryOutcome, RetryPlace, SessionState};
use outlast_vocab::budget::{Budget, BudgetAccount, Budgets};
use outlast_vocab::effect::{Outcome, ToolOutcome};
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{EffectPerformed, Fact, InputDelivery, OutcomeVerdict, TurnEnd, TurnEndKind};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{CallId, Error, Kind, SessionId, TurnId};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.into() }
}

async fn retry_at(life: &Life, turn: TurnId, place: RetryPlace) -> (SessionId, TurnId, bool) {
    match life.runtime.retry_turn(turn, place).await.unwrap() {
        RetryOutcome::NewTurn { session, turn, duplicate } => (session, turn, duplicate),
        RetryOutcome::Woken => panic!("{turn} was woken"),
    }
}

async fn retry(life: &Life, turn: TurnId) -> TurnId {
    let (session, retry, duplicate) = retry_at(life, turn, RetryPlace::SameHead).await;
    assert_eq!((session, duplicate), (SESSION, false));
    retry
}

async fn refused(life: &Life, turn: TurnId) -> Error {
    life.runtime.retry_turn(turn, RetryPlace::SameHead).await.unwrap_err()
}

/// Lets a first worker run these turns, and returns a second worker with other lines.
async fn after(first: Vec<Line>, second: Vec<Line>, texts: &[&str]) -> (MemoryStore, Life, Vec<TurnId>) {
    let (memory, life) = fresh(first).await;
    let mut turns = Vec::new();
    for text in texts {
        turns.push(life.send(text).await);
        life.end(turns[turns.len() - 1]).await;
    }
    let witness = life.die(&memory).await;
    let life = live(Arc::new(memory.clone()), second, witness, 2).await;
    (memory, life, turns)
}

/// Returns the messages of the main head, as a model reads them.
async fn transcript(life: &Life, session: SessionId) -> Vec<String> {
    let store = life.runtime.store();
    let view = store.session(session).await.unwrap();
    let Some(node) = view.heads[0].1 else { return Vec::new() };
    let turns = store.history(node, usize::MAX).await.unwrap();
    let messages = turns
        .into_iter()
        .rev()
        .flat_map(|turn| outlast_kernel::transcript::of_turn(turn.records, turn.last_in_branch).messages);
    messages.map(|message| message.text().into_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn retry_takes_over_replies_and_results() {
    let fails = vec![call("pay", "5"), call("put", "a"), Line::Fail(Kind::ModelRejected)];
    let works = vec![call("pay", "5"), call("put", "a"), Line::Say("done")];
    let (_, life, turns) = after(fails, works, &["go"]).await;
    let again = retry(&life, turns[0]).await;
    assert_eq!(life.end(again).await, answered("done"));
    assert_eq!((life.witness.count("pay"), life.witness.count("put")), (1, 1));
    // Only the failed call was repeated, and the input is included once.
    assert_eq!(life.script.calls.load(Ordering::SeqCst), 1);
    assert_eq!(life.last_shown(), ["go", "", "paid 5", "", "put a"]);
    assert_eq!(transcript(&life, SESSION).await, ["go", "", "paid 5", "", "put a", "done"]);
    let store = life.runtime.store();
    let view = store.turn(again).await.unwrap();
    assert_eq!((view.retry_of, view.index, view.parent), (Some(turns[0]), 1, None));
    let reused = store.turn_records(again).await.unwrap().into_iter().filter(|record| {
        matches!(
            &record.fact,
            Fact::Performed(EffectPerformed { reused: true, outcome: Outcome::ModelCall(_), .. })
        )
    });
    assert_eq!(reused.count(), 2);
    // Reused replies are paid for once.
    let spent = costs::spent_by_turn(store.as_ref(), SESSION).await.unwrap();
    assert_eq!((spent[&turns[0]].replies, spent[&again].replies), (2, 1));
    store.verify(SESSION).await.unwrap();
    crate::archive::reads_back(store.clone()).await;
}

#[tokio::test(start_paused = true)]
async fn retry_asks_again_after_invalid_output() {
    let (memory, life) = fresh(vec![Line::Say("a"), Line::Say("b"), Line::Say("c"), Line::Say("d")]).await;
    let wanted = Input { output: Some(json!({"type": "integer"})), ..input("go") };
    let turn = life.runtime.submit(wanted).await.unwrap().turn;
    assert!(matches!(life.end(turn).await, TurnEnd::Failed { .. }));
    let witness = life.die(&memory).await;
    let life = live(Arc::new(memory.clone()), vec![Line::Say("7")], witness, 2).await;
    let again = retry(&life, turn).await;
    assert_eq!(life.end(again).await, answered("7"));
    assert_eq!(life.last_shown(), ["go"]);
}

#[tokio::test(start_paused = true)]
async fn retry_never_repeats_a_call_of_unknown_outcome() {
    let lines = || vec![call("hangs", "x"), Line::Say("done")];
    let (_memory, life) = fresh(lines()).await;
    let turn = life.send("go").await;
    life.until("effect.asked").await;
    while life.witness.count("hangs") == 0 {
        tokio::task::yield_now().await;
    }
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await.kind(), TurnEndKind::Cancelled);
    let again = retry(&life, turn).await;
    assert_eq!(life.end(again).await, answered("done"));
    assert_eq!(life.witness.count("hangs"), 1);
    assert!(life.last_shown()[2].starts_with("error tool.outcome_unknown"), "{:?}", life.last_shown());
    // It is one call, so one verdict settles it for both turns.
    let store = life.runtime.store();
    let unknown = store.unknown(10).await.unwrap();
    assert_eq!(unknown.len(), 2);
    assert_eq!(unknown[0].call, unknown[1].call);
    let verdict = OutcomeVerdict::Happened(ToolResult::Ok(json!("it did")));
    life.runtime.settle(unknown[0].call, verdict).await.unwrap();
    assert_eq!(store.unknown(10).await.unwrap().len(), 0);
    for turn in [turn, again] {
        let records = store.turn_records(turn).await.unwrap();
        assert!(records.iter().any(|record| matches!(record.fact, Fact::Settled(_))), "{turn}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_never_repeats_call_stopped_by_cancel() {
    for text in ["cancelled", "interrupted"] {
        let (_memory, life) = fresh(vec![call("hangs", text), Line::Say("done")]).await;
        let turn = life.send("go").await;
        while life.witness.count("hangs") == 0 {
            tokio::task::yield_now().await;
        }
        life.runtime.cancel(turn, "enough").await.unwrap();
        assert_eq!(life.end(turn).await.kind(), TurnEndKind::Cancelled);
        let again = retry(&life, turn).await;
        assert_eq!(life.end(again).await, answered("done"));
        assert_eq!(life.witness.count("hangs"), 1, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn imported_turn_is_retried_only_with_proof() {
    let (memory, life) = fresh(vec![Line::Fail(Kind::ModelRejected)]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await.kind(), TurnEndKind::Failed);
    let store: Arc<dyn Store> = Arc::new(memory);
    let file = exported(&store, SESSION).await;
    for text in [unsigned(&file), tampered(&file)] {
        store.delete(SESSION, life.runtime.now()).await.unwrap();
        taken_in(&text, &store).await.unwrap();
        assert_eq!(refused(&life, turn).await.kind(), Kind::TurnNotRetryable);
    }
    store.delete(SESSION, life.runtime.now()).await.unwrap();
    taken_in(&file, &store).await.unwrap();
    retry(&life, turn).await;
}

#[tokio::test(start_paused = true)]
async fn retry_makes_a_call_that_a_budget_stopped() {
    let calls = |calls| Budget { calls: Some(calls), ..Budget::default() };
    let budgets = Budgets { session: Some(calls(1)), ..Budgets::default() };
    let change = |config: &mut RuntimeConfig| config.package.budgets = budgets;
    let lines = vec![call("pay", "x"), Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await.kind(), TurnEndKind::OutOfBudget);
    life.runtime.set_budget(BudgetAccount::Session(SESSION), Some(calls(20))).await.unwrap();
    let again = retry(&life, turn).await;
    assert_eq!(life.end(again).await, answered("done"));
    assert_eq!(life.witness.count("pay"), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_keeps_settled_calls() {
    let (_memory, life) = fresh(vec![call("hangs", "x"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    while life.witness.count("hangs") == 0 {
        tokio::task::yield_now().await;
    }
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    let call = life.runtime.store().unknown(1).await.unwrap()[0].call;
    life.runtime.settle(call, OutcomeVerdict::Happened(ToolResult::Ok(json!("it did")))).await.unwrap();
    let again = retry(&life, turn).await;
    assert_eq!(life.end(again).await, answered("done"));
    assert_eq!((life.witness.count("hangs"), life.last_shown()[2].as_str()), (1, "it did"));
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_runs_again_under_the_same_id() {
    let lines = vec![call("stepped", "x"), Line::Say("done")];
    let (_memory, life) = fresh(lines).await;
    let turn = life.send("go").await;
    // The call has completed its first step and sleeps.
    life.until("turn.parked").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    let again = retry(&life, turn).await;
    assert_eq!(life.end(again).await, answered("done"));
    // The completed step is not repeated.
    assert_eq!((life.witness.count("step one"), life.witness.count("step two")), (1, 1));
    let ids: Vec<CallId> = life.witness.did.lock().unwrap().iter().map(|(_, id, _)| *id).collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(life.last_shown()[2], "1x2");
}

#[tokio::test(start_paused = true)]
async fn repeated_retry_returns_the_same_turn() {
    let (_memory, life) = fresh(vec![call("wait", "k"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    let first = retry(&life, turn).await;
    let same = (SESSION, first, true);
    assert_eq!(retry_at(&life, turn, RetryPlace::SameHead).await, same);
    assert!(matches!(life.runtime.cancel(first, "enough").await.unwrap(), CancelOutcome::Requested));
    life.end(first).await;
    // The retry ended without an answer too, so it is retried itself.
    let second = retry(&life, turn).await;
    assert_ne!(second, first);
    assert_eq!(life.runtime.store().turn(second).await.unwrap().retry_of, Some(first));
    loop {
        let key = life.witness.keys.lock().unwrap()["k"].clone();
        if key.turn == second {
            life.runtime.resolve(&key, Resolution::Ok(json!("signed"))).await.unwrap();
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(life.end(second).await, answered("done"));
    // A retry with an answer is final.
    assert_eq!(retry_at(&life, turn, RetryPlace::SameHead).await, (SESSION, second, true));
    assert_eq!(refused(&life, second).await.kind(), Kind::TurnNotRetryable);
    assert_eq!(transcript(&life, SESSION).await, ["go", "", "signed", "done"]);
}

#[tokio::test(start_paused = true)]
async fn retry_of_an_earlier_turn_needs_a_fork() {
    let fails = vec![call("pay", "5"), Line::Fail(Kind::ModelRejected)];
    let works = vec![call("pay", "5"), Line::Say("fine"), Line::Say("later")];
    let (_, life, turns) = after(fails, works, &["go"]).await;
    let later = life.send("next").await;
    assert_eq!(life.end(later).await, answered("fine"));
    let error = refused(&life, turns[0]).await;
    assert_eq!(error.kind(), Kind::TurnSuperseded);
    assert!(error.detail().contains(&later.to_string()), "{}", error.detail());
    let before = transcript(&life, SESSION).await;
    let (session, again, duplicate) = retry_at(&life, turns[0], RetryPlace::Fork).await;
    assert_ne!((session, duplicate), (SESSION, true));
    assert_eq!(life.end(again).await, answered("fine"));
    assert_eq!(transcript(&life, session).await, ["go", "", "paid 5", "fine"]);
    assert_eq!((transcript(&life, SESSION).await, life.witness.count("pay")), (before, 1));
    let view = life.runtime.store().session(session).await.unwrap();
    assert_eq!((view.state, view.turns), (SessionState::Idle, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_continues_after_the_previous_turn() {
    let fails = vec![Line::Say("hello"), Line::Fail(Kind::ModelRejected)];
    let works = vec![Line::Say("hello"), Line::Say("sunny"), Line::Say("bye")];
    let (_, life, turns) = after(fails, works, &["hi", "weather?"]).await;
    let again = retry(&life, turns[1]).await;
    assert_eq!(life.end(again).await, answered("sunny"));
    let next = life.send("thanks").await;
    assert_eq!(life.end(next).await, answered("bye"));
    assert_eq!(life.last_shown(), ["hi", "hello", "weather?", "sunny", "thanks"]);
}

#[tokio::test(start_paused = true)]
async fn only_turns_without_an_answer_are_retried() {
    let (_memory, life) = fresh(vec![Line::Say("hello"), Line::Refuse("no"), call("wait", "k")]).await;
    let first = life.send("hi").await;
    life.end(first).await;
    let second = life.send("do it").await;
    assert_eq!(life.end(second).await.kind(), TurnEndKind::Refused);
    for turn in [first, second] {
        assert_eq!(refused(&life, turn).await.kind(), Kind::TurnNotRetryable);
    }
    let third = life.send("wait").await;
    life.until("turn.parked").await;
    assert_eq!(refused(&life, third).await.kind(), Kind::WaitNotFound);
    life.runtime.abort(third, "enough").await.unwrap();
    assert_eq!(life.end(third).await.kind(), TurnEndKind::Aborted);
    assert_eq!(refused(&life, third).await.kind(), Kind::TurnNotRetryable);
}

#[tokio::test(start_paused = true)]
async fn retry_keeps_inputs_that_had_joined() {
    let (_memory, life) = fresh(vec![call("wait", "k"), call("wait", "l"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    let steer = Input { delivery: InputDelivery::Join, ..input("also") };
    let joined = life.runtime.submit(steer).await.unwrap().turn;
    let resolve = async |name: &str, of: TurnId| loop {
        let key = life.witness.keys.lock().unwrap().get(name).cloned();
        if let Some(key) = key.filter(|key| key.turn == of) {
            life.runtime.resolve(&key, Resolution::Ok(json!(name))).await.unwrap();
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    resolve("k", turn).await;
    while life.witness.count("wait") < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    let again = retry(&life, turn).await;
    resolve("l", again).await;
    assert_eq!(life.end(again).await, answered("done"));
    assert_eq!(life.last_shown(), ["go", "", "k", "also", "", "l"]);
    assert_eq!(life.runtime.store().turn(joined).await.unwrap().end, Some(TurnEnd::Joined { into: turn }));
    assert_eq!(refused(&life, joined).await.kind(), Kind::TurnNotRetryable);
}

#[tokio::test(start_paused = true)]
async fn sealed_turn_is_retried() {
    let memory = MemoryStore::new();
    let lines = || vec![call("pay", "5"), call("look", "a"), Line::Hang];
    let life = live(Arc::new(memory.clone()), lines(), Arc::default(), 1).await;
    let turn = life.send("go").await;
    while life.script.calls.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    let mut witness = life.die(&memory).await;
    // Every worker crashes as soon as it drives the turn, until the turn is sealed.
    let mut end = None;
    for number in 2..20 {
        let life = live(Arc::new(memory.clone()), lines(), witness, number).await;
        let is_driven = async {
            while life.script.calls.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        end = tokio::select! {
            end = life.end(turn) => Some(end.kind()),
            () = is_driven => None,
        };
        witness = life.die(&memory).await;
        if end.is_some() {
            break;
        }
    }
    assert_eq!(end, Some(TurnEndKind::Sealed));
    let works = vec![call("pay", "5"), call("look", "a"), Line::Say("done")];
    let life = live(Arc::new(memory), works, witness, 30).await;
    let again = retry(&life, turn).await;
    assert_eq!(life.end(again).await, answered("done"));
    assert_eq!((life.witness.count("pay"), life.witness.count("look")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_fails_once_its_original_is_deleted() {
    let (_memory, life) = fresh(vec![call("wait", "k"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    let (session, again, _) = retry_at(&life, turn, RetryPlace::Fork).await;
    let store = life.runtime.store();
    while store.session(session).await.unwrap().state != SessionState::Parked {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    store.delete(SESSION, life.runtime.now()).await.unwrap();
    let key = life.witness.keys.lock().unwrap()["k"].clone();
    life.runtime.resolve(&key, Resolution::Ok(json!("signed"))).await.unwrap();
    let TurnEnd::Failed { failure } = life.end(again).await else { panic!("it has not failed") };
    assert_eq!(failure.code, Kind::TurnNotFound);
}

#[tokio::test(start_paused = true)]
async fn retry_waits_for_a_turn_of_another_head() {
    let (_memory, life) = fresh(vec![Line::Say("hello"), call("wait", "k"), Line::Say("done")]).await;
    let first = life.send("hi").await;
    life.end(first).await;
    let second = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.cancel(second, "enough").await.unwrap();
    life.end(second).await;
    let store = life.runtime.store();
    let at = store.turn(first).await.unwrap().span.1;
    let fork =
        ForkRequest { from: SESSION, at: Some(at), to: ForkTo::Head("side".into()), now: life.runtime.now() };
    store.fork(fork).await.unwrap();
    let side = life.runtime.submit(Input { head: "side".into(), ..input("aside") }).await.unwrap().turn;
    while store.session(SESSION).await.unwrap().state != SessionState::Parked {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let again = retry(&life, second).await;
    life.runtime.cancel(side, "enough").await.unwrap();
    life.end(side).await;
    while store.turn(again).await.unwrap().end.is_none() {
        let key = life.witness.keys.lock().unwrap()["k"].clone();
        if key.turn == again {
            life.runtime.resolve(&key, Resolution::Ok(json!("signed"))).await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(transcript(&life, SESSION).await, ["hi", "hello", "go", "", "signed", "done"]);
    let unknown = life.facts().await.into_iter().filter(
        |fact| matches!(fact, Fact::Answered(answered) if answered.outcome == ToolOutcome::Unknown.into()),
    );
    assert_eq!(unknown.count(), 0);
}

//! The incidents of an effect are kept with it.
use crate::common::*;
use crate::points::{deny, lines, rule, under};
use outlast_ledger::memory::MemoryStore;
use outlast_runtime::views::timeline::{
    DecisionView, EffectIncident, EffectState, EffectView, IncidentKind, Timeline, TurnResume, of_turn,
};
use outlast_vocab::effect::{BatchCall, Command, Outcome, ToolBatch, ToolOutcome};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::limits::ATTEMPTS_RECORDED;
use outlast_vocab::message::ToolResult;
use outlast_vocab::policy::{self, PolicyDecision, PolicyPoint};
use outlast_vocab::record::{
    CallReclaimed, ClaimRef, EffectAnswered, EffectRequested, Fact, Record, Seq, TurnEnd, TurnResumed,
};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::{CallId, Failure, Hash, Kind, Limits, Millis, ReplayKey, TurnId, WorkerId};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const CLAIM: ClaimRef = ClaimRef { asked: Seq(3), child: 0 };

fn effects(facts: Vec<Fact>) -> Vec<EffectView> {
    let records = (3..).zip(facts).map(|(seq, fact)| Record {
        seq: Seq(seq),
        turn: None,
        at: Millis(seq * 100),
        hash: Hash::ZERO,
        fact,
    });
    of_turn(records.collect()).effects
}

fn batch() -> Fact {
    let call = PreparedCall {
        id: CallId::from_u128(1),
        model_id: "c1".parse().unwrap(),
        tool: "put".parse().unwrap(),
        class: EffectClass::Idempotent,
        arguments: json!({ "text": "a" }),
        payload: None,
        ruling: None,
        labels: Labels::default(),
        provenance: Provenance::default(),
    };
    let command = Command::ToolBatch(ToolBatch { calls: vec![BatchCall::Run(call)] });
    Fact::Asked(EffectRequested { key: ReplayKey::turn(0).tools(0), command })
}

#[test]
fn timeline_keeps_every_attempt_with_time() {
    let again = |attempt| Fact::Reclaimed(CallReclaimed { claim: CLAIM, attempt });
    let renewed = again(1);
    let done = Outcome::ToolCall(ToolOutcome::Done(ToolResult::Ok(json!("put a"))));
    let answered = Fact::Answered(EffectAnswered { claim: CLAIM, outcome: done, cost: None });
    let [effect] = &effects(vec![batch(), renewed, again(2), again(3), answered])[..] else { panic!() };
    let tried = |seq, attempt| EffectIncident {
        seq: Seq(seq),
        at: Millis(seq * 100),
        what: IncidentKind::Again { attempt },
    };
    assert_eq!(effect.incidents, [tried(5, 2), tried(6, 3)]);
    assert_eq!((effect.attempts, effect.state), (3, EffectState::Done));
}

#[test]
fn timeline_shows_incident_on_its_effect() {
    let failure = Failure::new(Kind::JournalDiverged, "the tool is gone");
    let stuck = Fact::Stuck { failure: failure.clone() };
    let [effect] = &effects(vec![stuck.clone(), batch()])[..] else { panic!() };
    let incident = |seq| EffectIncident {
        seq: Seq(seq),
        at: Millis(seq * 100),
        what: IncidentKind::Stuck(failure.clone()),
    };
    assert_eq!(effect.incidents, [incident(3)]);
    let [effect] = &effects(vec![batch(), stuck])[..] else { panic!() };
    assert_eq!(effect.incidents, [incident(4)]);
}

async fn timeline(life: &Life, turn: TurnId) -> Timeline {
    of_turn(life.runtime.store().turn_records(turn).await.unwrap())
}

/// Returns the failed attempts: number, duration and error.
fn failed(effect: &EffectView) -> Vec<(u32, Duration, Kind)> {
    let failed = effect.incidents.iter().filter_map(|incident| match &incident.what {
        IncidentKind::Failed(failed) => Some(failed),
        _ => None,
    });
    failed.map(|failed| (failed.attempt, failed.from.until(failed.until), failed.failure.code)).collect()
}

#[tokio::test(start_paused = true)]
async fn failed_model_attempts_are_recorded_without_commit() {
    let store = CrashingStore::new(MemoryStore::new(), CrashPoint::Never);
    let pulse = store.pulse();
    let life = live(Arc::new(store), vec![Line::Cut], Arc::default(), 1).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "whole".into() });
    let Timeline { effects, .. } = timeline(&life, turn).await;
    let [call] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(failed(call), [(1, Duration::ZERO, Kind::ModelCut)]);
    assert_eq!((call.attempts, call.state), (2, EffectState::Done));
    assert_eq!(pulse.writes(), 2);
    assert_eq!(
        life.names().await[2..],
        ["turn.started", "effect.interrupted", "effect.performed", "turn.ended"]
    );
}

#[tokio::test(start_paused = true)]
async fn model_attempts_count_from_one_each_turn() {
    let (_memory, life) = fresh(vec![Line::Say("first"), Line::Cut]).await;
    let first = life.send("go").await;
    life.end(first).await;
    let second = life.send("go on").await;
    assert_eq!(life.end(second).await, TurnEnd::Answered { text: "whole".into() });
    let mut seen = Vec::new();
    for turn in [first, second] {
        let Timeline { effects, .. } = timeline(&life, turn).await;
        seen.extend(effects.iter().map(|call| (call.attempts, failed(call))));
    }
    assert_eq!(seen, [(1, vec![]), (2, vec![(1, Duration::ZERO, Kind::ModelCut)])]);
}

#[tokio::test(start_paused = true)]
async fn stalled_attempts_are_recorded_with_their_duration() {
    let life = impatient(vec![Line::Hang], Duration::ZERO).await;
    let turn = life.send("go").await;
    assert!(matches!(life.end(turn).await, TurnEnd::Failed { .. }));
    let Timeline { effects, .. } = timeline(&life, turn).await;
    let [call] = &effects[..] else { panic!("{effects:?}") };
    let Limits { model_attempts, model_stall, .. } = Limits::default();
    // The last attempt is the outcome.
    let stalled = (1..model_attempts).map(|attempt| (attempt, model_stall, Kind::ModelStalled));
    assert_eq!(failed(call), stalled.collect::<Vec<_>>());
    assert_eq!((call.attempts, call.state), (model_attempts, EffectState::Failed));
    assert!(call.from.until(call.until.unwrap()) >= model_stall * model_attempts);
}

#[tokio::test(start_paused = true)]
async fn attempts_before_park_belong_to_same_call() {
    let life = impatient(vec![Line::Busy], Duration::from_secs(10)).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    let Timeline { effects, .. } = timeline(&life, turn).await;
    let [call] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((call.state, call.waits.len()), (EffectState::Waits, 1));
    assert_eq!(failed(call), [(1, Duration::ZERO, Kind::ModelUnavailable)]);
    life.end(turn).await;
    let Timeline { effects, .. } = timeline(&life, turn).await;
    let [call] = &effects[..] else { panic!("{effects:?}") };
    let attempts = 4;
    let numbers: Vec<u32> = failed(call).into_iter().map(|(attempt, ..)| attempt).collect();
    assert_eq!(numbers.len(), 3, "{numbers:?}");
    assert_eq!((call.state, call.waits.len()), (EffectState::Failed, 0));
    // The turn was parked during every pause, and the call lasted over all of them.
    assert!(call.from.until(call.until.unwrap()) >= Duration::from_secs(3) * (attempts - 1));
}

#[tokio::test(start_paused = true)]
async fn attempts_of_cancelled_call_are_kept() {
    let (_memory, life) = fresh(vec![Line::Hang]).await;
    let turn = life.send("go").await;
    tokio::time::sleep(Limits::default().model_stall + Duration::from_secs(5)).await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert!(matches!(life.end(turn).await, TurnEnd::Cancelled { .. }));
    let Timeline { effects, .. } = timeline(&life, turn).await;
    let [call] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(failed(call), [(1, Limits::default().model_stall, Kind::ModelStalled)]);
    // The partial text before the cancellation is kept. It is empty here.
    let said = json!({ "interrupted": { "text": "" } });
    assert_eq!((call.state, &call.outcome), (EffectState::Failed, &Some(said)));
}

/// Runs a turn whose model is always unavailable, within these limits.
async fn never_there(limits: Limits) -> (Life, TurnId) {
    let limits = Limits { provider_wait: Duration::ZERO, ..limits };
    let lines = vec![Line::Fail(Kind::ModelUnavailable)];
    let change = |config: &mut outlast_runtime::RuntimeConfig| config.limits = limits;
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    assert!(matches!(life.end(turn).await, TurnEnd::Failed { .. }));
    (life, turn)
}

#[tokio::test(start_paused = true)]
async fn record_keeps_the_last_failed_attempts() {
    let backoff_most = Duration::from_secs(1);
    let (life, turn) = never_there(Limits { model_attempts: 40, backoff_most, ..Limits::default() }).await;
    let records = life.runtime.store().turn_records(turn).await.unwrap();
    let found = records.iter().find_map(|record| match &record.fact {
        Fact::Performed(performed) => Some(performed.tried.iter().map(|tried| tried.attempt)),
        _ => None,
    });
    let first = 40 - u32::try_from(ATTEMPTS_RECORDED).unwrap();
    // The last attempt is the outcome.
    assert_eq!(found.unwrap().collect::<Vec<_>>(), (first + 1..40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn quick_attempts_are_all_recorded() {
    let (life, turn) =
        never_there(Limits { backoff_most: Duration::from_secs(1), model_attempts: 8, ..Limits::default() })
            .await;
    assert_eq!(life.script.calls.load(std::sync::atomic::Ordering::SeqCst), 8);
    let effects = timeline(&life, turn).await.effects;
    assert_eq!(failed(&effects[0]).len(), 7);
}

#[tokio::test(start_paused = true)]
async fn policy_decisions_appear_with_their_effects() {
    for (at, then) in [
        (PolicyPoint::Turn, PolicyDecision::Allow),
        (PolicyPoint::Turn, deny()),
        (PolicyPoint::Model, PolicyDecision::Allow),
        (PolicyPoint::Model, deny()),
        (PolicyPoint::Output, PolicyDecision::Allow),
    ] {
        let life = under(vec![rule(at, then.clone())], lines(at)).await;
        let turn = life.send("go").await;
        life.end(turn).await;
        let Timeline { effects, decisions, .. } = timeline(&life, turn).await;
        let of_calls: Vec<DecisionView> =
            effects.iter().flat_map(|effect| effect.decisions.clone()).collect();
        let (with, others) =
            if at == PolicyPoint::Turn { (decisions, of_calls) } else { (of_calls, decisions) };
        assert_eq!(others, [], "{at}");
        let [decided] = &with[..] else { panic!("{at}: {with:?}") };
        let ruled = &crate::points::rulings(&life).await[0];
        assert_eq!((decided.point, &decided.key, &decided.ruling), (at, &ruled.key, &ruled.ruling));
        if at == PolicyPoint::Model {
            let [call] = &effects[..] else { panic!("{effects:?}") };
            let refused = then == deny();
            let state = if refused { EffectState::Refused } else { EffectState::Done };
            assert_eq!((&call.key, call.state), (&decided.key, state));
            assert_eq!(call.answered == Some(decided.seq), refused);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deferred_model_call_is_same_effect_after_wait() {
    let defer = PolicyDecision::Defer { pause: Duration::from_hours(2), resume: policy::AfterDeferral::Go };
    let life = under(vec![rule(PolicyPoint::Model, defer)], lines(PolicyPoint::Model)).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    let waits = timeline(&life, turn).await.effects;
    assert_eq!(waits.iter().map(|effect| effect.state).collect::<Vec<_>>(), [EffectState::Waits]);
    life.end(turn).await;
    let done = timeline(&life, turn).await.effects;
    let call = done.iter().find(|effect| effect.key == waits[0].key).unwrap();
    assert_eq!(
        (call.state, &call.decisions, call.from),
        (EffectState::Done, &waits[0].decisions, waits[0].from)
    );
}

#[tokio::test(start_paused = true)]
async fn model_call_starts_at_previous_write() {
    let life = impatient(vec![call("look", "a"), Line::Hang], Duration::ZERO).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    let effects = timeline(&life, turn).await.effects;
    let [.., tool, last] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(Some(last.from), tool.until);
}

/// Runs a turn with a tool call whose first worker crashes at `death`. Returns the result of the second worker.
async fn resumed_after(death: CrashPoint) -> (Life, Timeline, Vec<Record>) {
    let memory = MemoryStore::new();
    let lines = || vec![call("put", "a"), Line::Say("done")];
    let dies = CrashingStore::new(memory.clone(), death);
    let first = live(Arc::new(dies), lines(), Arc::default(), 1).await;
    let turn = first.send("go").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let witness = first.die(&memory).await;
    let second = live(Arc::new(memory), lines(), witness, 2).await;
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    let records = second.runtime.store().turn_records(turn).await.unwrap();
    (second, of_turn(records.clone()), records)
}

#[tokio::test(start_paused = true)]
async fn resumed_turn_records_worker_time_and_progress() {
    let deaths = [
        (CrashPoint::Before(1), vec![0, 0, 0]),
        (CrashPoint::AfterWrite(1), vec![1, 0, 0]),
        (CrashPoint::AfterWrite(2), vec![1, 1, 0]),
    ];
    for (death, replayed) in deaths {
        let (life, timeline, records) = resumed_after(death).await;
        let [TurnResume { seq, by, replayed: count }] = &timeline.resumes[..] else { panic!("{timeline:?}") };
        assert_eq!((by.worker, by.lease), (WorkerId::from_u128(2), 2));
        assert!(by.since <= life.runtime.now());
        assert_eq!(timeline.effects.iter().map(|effect| effect.replays).collect::<Vec<_>>(), replayed);
        assert_eq!(*count, replayed.iter().sum::<usize>());
        // The resume is part of the first write, so it costs no extra one.
        let after = records.iter().find(|record| record.seq.0 == seq.0 + 1).unwrap();
        let resumed = records.iter().find(|record| record.seq == *seq).unwrap();
        assert_eq!(resumed.at, after.at, "{death:?}: {:?}", after.fact);
        let began = |effect: &&EffectView| effect.answered > Some(*seq) && effect.seq > *seq;
        assert!(timeline.effects.iter().filter(began).all(|effect| effect.from >= by.since));
    }
}

#[tokio::test(start_paused = true)]
async fn mid_turn_resume_costs_no_extra_commit() {
    let memory = MemoryStore::new();
    let lines = || vec![call("put", "a"), Line::Say("done")];
    let dies = CrashingStore::new(memory.clone(), CrashPoint::AfterWrite(2));
    let first = live(Arc::new(dies), lines(), Arc::default(), 1).await;
    let turn = first.send("go").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let witness = first.die(&memory).await;
    let store = CrashingStore::new(memory, CrashPoint::Never);
    let pulse = store.pulse();
    let second = live(Arc::new(store), lines(), witness, 2).await;
    second.end(turn).await;
    // The claim of the session, then the last reply and the end.
    assert_eq!(pulse.writes(), 2);
    assert_eq!(
        second.names().await.iter().rev().take(3).collect::<Vec<_>>(),
        [&"turn.ended", &"effect.performed", &"turn.resumed"]
    );
}

#[tokio::test(start_paused = true)]
async fn only_handed_back_turn_records_a_resume() {
    let (memory, first) = fresh(vec![call("hangs", "polite"), Line::Say("done")]).await;
    let turn = first.send("go").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    first.runtime.clone().shut_down(Duration::from_secs(10)).await;
    let lines = vec![call("hangs", "polite"), Line::Say("done")];
    let second = live(Arc::new(memory), lines, first.witness, 2).await;
    second.end(turn).await;
    let resumes = timeline(&second, turn).await.resumes;
    let by: Vec<&TurnResumed> = resumes.iter().map(|resume| &resume.by).collect();
    assert_eq!(by.iter().map(|by| (by.worker, by.lease)).collect::<Vec<_>>(), [(WorkerId::from_u128(2), 2)]);

    let life = impatient(vec![Line::Busy], Duration::from_secs(10)).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    assert!(life.names().await.contains(&"turn.parked"));
    assert_eq!(timeline(&life, turn).await.resumes, []);
}

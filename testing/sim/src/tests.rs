//! Tests of the simulator: it is deterministic, it can fail, and the bugs it has found stay fixed.
use crate::exhaustive::{CrashCoverage, SearchLimit, kill_everywhere, run_without_faults};
use crate::limit_scenarios;
use crate::model::{self, SimModelFault};
use crate::oracle::SessionEndState;
use crate::plan::{Fault, FaultKind, FaultTime, ProviderOutage, SimPlan};
use crate::scenario::catalogue;
use crate::seed_search::{FaultFreeOutcomes, verdict};
use crate::sim_process::{self, DeadWorkers};
use crate::simulation::{SimOutcome, run};
use outlast_conformance::block_on;
use outlast_disk::{ChangeFailure, Disk, PowerLossEffect};
use outlast_ports::inbox::{Inbox, SessionTarget};
use outlast_ports::queries::Queries;
use outlast_store::{ManualWriter, SqliteStore};
use outlast_vocab::{Error, Millis, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn play(name: &str) -> usize {
    catalogue().iter().position(|scenario| scenario.name == name).expect("it is in the catalogue")
}

fn kill_one(name: &str, limit: SearchLimit) -> (CrashCoverage, usize) {
    let (covered, left) = kill_everywhere(&[play(name)], limit);
    (covered.into_iter().next().expect("one scenario was searched"), left)
}

#[test]
fn every_scenario_succeeds_and_is_deterministic() {
    assert!(catalogue().len() >= 25, "{}", catalogue().len());
    for no in 0..catalogue().len() {
        let whole = run_without_faults(no).unwrap();
        assert_eq!(whole.end_states.len(), 1);
        assert!(whole.turns >= 1);
    }
}

#[test]
fn search_crashes_at_every_point_and_pair() {
    let (covered, _) = kill_one("plain", SearchLimit::default());
    assert_eq!(covered.broken, Vec::<String>::new());
    assert_eq!(covered.died, covered.points, "a point was not reached");
    assert!(covered.points > 100 && covered.pairs >= 12, "{covered:?}");
}

#[test]
fn a_time_limit_keeps_kills_around_transactions() {
    let (all, none_left) = kill_one("plain", SearchLimit::default());
    assert_eq!(none_left, 0);
    let (some, left) = kill_one("plain", SearchLimit { time: Some(Duration::ZERO), rotation: 1 });
    let transactions = run(&SimPlan::of(play("plain"))).writes.len() as u64;
    assert_eq!((some.points, some.pairs), (2 * transactions, 0));
    assert_eq!(some.died, some.points);
    assert!(left as u64 > all.points - some.points, "pairs are left out too: {left}");
}

#[test]
fn crash_never_repeats_an_mcp_call() {
    let (covered, _) = kill_one("MCP call", SearchLimit::default());
    assert_eq!(covered.broken, Vec::<String>::new());
    assert_eq!(covered.died, covered.points, "a point was not reached");
    assert!(covered.points > 200 && covered.pairs >= 60, "{covered:?}");
}

#[test]
fn same_seed_repeats_the_run_exactly() {
    let trace = |seed| run(&SimPlan::draw_from_seed(seed, None)).trace;
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn random_seeds_cover_every_scenario() {
    let drawn: BTreeSet<usize> =
        (0..2_000).flat_map(|seed| SimPlan::draw_from_seed(seed, None).session_scenarios).collect();
    assert_eq!(drawn, (0..catalogue().len()).collect());
}

#[test]
fn sample_seeds_keep_every_guarantee() {
    let expected = FaultFreeOutcomes::new();
    for seed in 0..10 {
        let plan = SimPlan::draw_from_seed(seed, None);
        assert_eq!(verdict(&plan, &expected).1, None, "{plan}");
    }
}

// Regression: after a failed sync, the system showed log frames that had not reached the disk. The next process treated
// them as committed and appended to them.
#[test]
fn writes_after_failed_sync_survive_power_loss() {
    for pattern in 0..20 {
        let mut plan = SimPlan::of(play("three turns"));
        plan.faults = vec![
            Fault { at: FaultTime::AfterWrite(1), fault_kind: FaultKind::SyncFails },
            Fault { at: FaultTime::AfterWrite(8), fault_kind: FaultKind::PowerLoss(pattern) },
        ];
        let outcome = run(&plan);
        assert_eq!(outcome.hits.len(), 2, "{:?}", outcome.hits);
        assert_eq!(outcome.broken, Vec::<String>::new(), "{plan}");
    }
}

// Regression: pauses were absolute times, so a worker whose clock was set back by an hour paused for that hour.
#[test]
fn clock_set_back_delays_no_turn() {
    for action in 2..20 {
        let mut plan = SimPlan::of(play("retries"));
        plan.faults =
            vec![Fault { at: FaultTime::Action(action, 0), fault_kind: FaultKind::Jump(-3_000_000) }];
        let outcome = run(&plan);
        assert_eq!(outcome.broken, Vec::<String>::new(), "{plan}");
        assert!(outcome.actions < 1_000, "{} actions", outcome.actions);
    }
}

// The limits of turns hold at every crash: no budget is overspent, untrusted text causes no call, hook output is read
// back, each payment is made once, and no rate limit is exceeded.
#[test]
fn turn_limits_hold_across_crashes_between_writes() {
    for scenario in limit_scenarios::scenarios_with_limits() {
        let whole = run_without_faults(play(scenario.name)).unwrap();
        for write in 0..whole.writes.len() as u64 {
            for at in [FaultTime::BeforeWrite(write), FaultTime::AfterWrite(write)] {
                let mut plan = SimPlan::of(play(scenario.name));
                plan.faults = vec![Fault { at, fault_kind: FaultKind::Kill(0) }];
                let outcome = run(&plan);
                assert_eq!(outcome.broken, Vec::<String>::new(), "{plan}");
                if scenario.is_deterministic {
                    assert_eq!(outcome.end_states, whole.end_states, "{plan}");
                }
            }
        }
    }
}

/// Opens a session in a store with a manual writer.
fn open_session(store: &SqliteStore, writer: &mut ManualWriter, number: u128) -> Result<(), Error> {
    let mut opened = store.open(SessionTarget::New(SessionId::from_u128(number)), Millis(1));
    let mut waiting = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(opened.as_mut().poll(&mut waiting).is_pending(), "nobody has written yet");
    writer.step();
    block_on(opened).map(drop)
}

fn sessions(store: &SqliteStore) -> Result<usize, Error> {
    Ok(block_on(store.sessions(None, 100))?.len())
}

// Regression: the next process checkpointed what a failed sync had left, but the disk still had the old log without it.
// A power loss before the first write replayed that old log over the file.
#[test]
fn reads_after_failed_sync_survive_power_loss() -> Result<(), Error> {
    for change in 0..6 {
        let disk = Disk::new();
        let mount = disk.mount();
        let (store, mut writer) = sim_process::open(&mount, None, DeadWorkers::default())?;
        open_session(&store, &mut writer, 1)?;
        mount.fail_once_at(mount.changes() + change, ChangeFailure::SyncError);
        // The acknowledgement does not matter for this test.
        let _ = open_session(&store, &mut writer, 2);
        mount.kill();
        drop((store, writer));
        drop(mount);
        let mount = disk.mount();
        let (store, writer) = sim_process::open(&mount, None, DeadWorkers::default())?;
        let read = sessions(&store)?;
        assert!(read >= 1);
        disk.lose_power(&mut |_| PowerLossEffect::Dropped);
        mount.kill();
        drop((store, writer));
        drop(mount);
        let mount = disk.mount();
        let (store, _writer) = sim_process::open(&mount, None, DeadWorkers::default())?;
        assert_eq!(sessions(&store)?, read, "at change {change}");
    }
    Ok(())
}

// Regression: the guard counted claims, so one fatal turn sealed every turn that was in flight with it.
fn seals_only_the_fatal_turn_of_64(workers: usize, deaths_show: bool) {
    const FATAL: usize = 20;
    let mut plan = SimPlan { workers, deaths_visible: deaths_show, ..SimPlan::of(play("plain")) };
    plan.session_scenarios = vec![play("plain"); 64];
    plan.session_scenarios[FATAL] = play("poison");
    // Slow answers keep the other turns in flight until the fatal one runs.
    plan.model_faults = (0..10_000).map(|request| (request, SimModelFault::Slow(1_000))).collect();
    let outcome = run(&plan);
    assert_eq!(outcome.broken, Vec::<String>::new());
    let sealed = |left: &SessionEndState| left.ends == ["sealed"];
    let which: Vec<usize> =
        (0..64).filter(|session| outcome.end_states[*session].iter().any(sealed)).collect();
    assert_eq!(which, [FATAL]);
    assert!(outcome.lives <= 20, "{} lives", outcome.lives);
}

#[test]
fn only_the_fatal_turn_of_64_is_sealed() {
    seals_only_the_fatal_turn_of_64(1, true);
}

#[test]
fn two_workers_seal_only_the_fatal_turn() {
    seals_only_the_fatal_turn_of_64(2, true);
}

#[test]
fn hidden_deaths_seal_only_the_fatal_turn() {
    seals_only_the_fatal_turn_of_64(1, false);
}

/// Returns a plan of 8 sessions that share two outages of their provider: one from the start, and one after the first
/// calls of tools.
fn shared_outages() -> SimPlan {
    const SCENARIOS: [&str; 8] = [
        "plain",
        "at-most-once tool",
        "parallel tools",
        "durable steps",
        "queued input",
        "cancel in an outage",
        "retry of a waiting turn",
        "pending completion",
    ];
    let outage = |from_ms, until_ms| ProviderOutage { model: model::NAME, from_ms, until_ms };
    SimPlan {
        session_scenarios: SCENARIOS.map(play).into(),
        // Slow answers keep turns between their first and their last call when the second outage begins.
        model_faults: (0..10_000).map(|request| (request, SimModelFault::Slow(1_000))).collect(),
        outages: vec![outage(0, 5_000), outage(7_000, 14_000)],
        ..SimPlan::of(0)
    }
}

/// The distance of the transactions at which one run is killed. Several runs together are killed at each.
const APART: u64 = 24;

/// Returns kills at every 24th transaction, from this one. There are few, or the slow model would never get to its end.
fn kills_from(first: u64, at: fn(u64) -> FaultTime) -> Vec<Fault> {
    let kill = |number| Fault { at: at(first + APART * number), fault_kind: FaultKind::Kill(0) };
    (0..7).map(kill).collect()
}

/// Plays a plan. Every session must end as it does alone and without faults.
#[track_caller]
fn ends_as_without_faults(plan: &SimPlan, alone: &BTreeMap<usize, SimOutcome>) -> SimOutcome {
    let outcome = run(plan);
    assert_eq!(outcome.broken, Vec::<String>::new(), "{:?}", plan.faults);
    for (session, ended) in outcome.end_states.iter().enumerate() {
        let whole = &alone[&plan.session_scenarios[session]].end_states[0];
        assert_eq!(ended, whole, "session {session} with {:?}", plan.faults);
    }
    outcome
}

/// Plays each scenario of a plan alone and without faults.
fn each_alone(plan: &SimPlan) -> BTreeMap<usize, SimOutcome> {
    plan.session_scenarios.iter().map(|scenario| (*scenario, run(&SimPlan::of(*scenario)))).collect()
}

fn survives_kills_in_shared_outages(at: fn(u64) -> FaultTime) {
    let alone = each_alone(&shared_outages());
    for first in 0..APART {
        let plan = SimPlan { faults: kills_from(first, at), ..shared_outages() };
        let outcome = ends_as_without_faults(&plan, &alone);
        assert!(outcome.lives > 5, "{} lives", outcome.lives);
    }
}

#[test]
fn shared_outage_survives_kills_before_writes() {
    survives_kills_in_shared_outages(FaultTime::BeforeWrite);
}

#[test]
fn shared_outage_survives_kills_after_writes() {
    survives_kills_in_shared_outages(FaultTime::AfterWrite);
}

#[test]
fn waiting_sessions_wake_paced_after_shared_outage() {
    // The outage ends in a pause between two probes, so that every session waits then.
    for until_ms in [20_000, 60_000, 600_000] {
        let outages = vec![ProviderOutage { model: model::NAME, from_ms: 0, until_ms }];
        let session_scenarios = vec![play("at-most-once tool"); 16];
        let plan = SimPlan { session_scenarios, outages, ..SimPlan::of(0) };
        ends_as_without_faults(&plan, &each_alone(&plan));
    }
}

// Regression: the turns that a new process found due called their provider together once the first one had an answer.
#[test]
fn waiting_sessions_wake_paced_after_kills() {
    // While no process is running, the outage ends and deadlines pass.
    let kill = |write| Fault { at: FaultTime::AfterWrite(write), fault_kind: FaultKind::Kill(15_000) };
    for first in [70, 80, 90, 100] {
        let outages = vec![ProviderOutage { model: model::NAME, from_ms: 0, until_ms: 20_000 }];
        let session_scenarios = vec![play("at-most-once tool"); 16];
        let faults = (0..3).map(|number| kill(first + 40 * number)).collect();
        let plan = SimPlan { session_scenarios, faults, outages, ..SimPlan::of(0) };
        let outcome = ends_as_without_faults(&plan, &each_alone(&plan));
        assert!(outcome.lives >= 3, "{} lives", outcome.lives);
    }
}

// Regression: the retry waited for the next probe of its process, and had only that one attempt.
#[test]
fn broken_stream_does_not_end_a_retry() {
    let mut plan = SimPlan::of(play("retry after the patience"));
    plan.workers = 2;
    plan.schedule = 0x82;
    plan.model_faults = [(0, SimModelFault::Down), (10, SimModelFault::Cut(2))].into();
    ends_as_without_faults(&plan, &each_alone(&plan));
}

#[test]
fn rejection_by_fallback_is_no_repeated_call() {
    let outages = vec![ProviderOutage { model: model::NAME, from_ms: 0, until_ms: 600_000 }];
    let plan = SimPlan { outages, has_fallback: true, ..SimPlan::of(play("model that refuses")) };
    ends_as_without_faults(&plan, &each_alone(&plan));
}

#[test]
fn fallback_model_serves_sessions_during_outage() {
    let outages = vec![ProviderOutage { model: model::NAME, from_ms: 0, until_ms: 40_000_000 }];
    let plan = SimPlan { outages, has_fallback: true, ..shared_outages() };
    ends_as_without_faults(&plan, &each_alone(&plan));
}

#[test]
fn sessions_fail_when_outage_exceeds_their_patience() {
    let mut plan = shared_outages();
    plan.session_scenarios = vec![play("plain"); 12];
    // It shortens the patience of all sessions.
    plan.session_scenarios[11] = play("outage longer than the patience");
    plan.outages = vec![ProviderOutage { model: model::NAME, from_ms: 0, until_ms: 100_000 }];
    for first in [0, 8, 16] {
        let faults = kills_from(first, FaultTime::AfterWrite);
        let outcome = run(&SimPlan { faults, ..plan.clone() });
        assert_eq!(outcome.broken, Vec::<String>::new());
        for left in &outcome.end_states {
            let end = &left[0].ends[0];
            assert!(end.contains("the turn has waited"), "{end}");
        }
    }
}

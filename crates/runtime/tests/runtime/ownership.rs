//! Which worker drives a session: leases, fences, recovery and the crash guard.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::turns::{LeaseRequest, Turns};
use outlast_views::SessionState;
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Kind, Limits, WorkerId};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn starting_worker_resumes_accepted_turn() {
    let memory = MemoryStore::new();
    let dies = CrashingStore::new(memory.clone(), CrashPoint::AfterWrite(1));
    let first = live(Arc::new(dies), vec![call("put", "a"), Line::Say("done")], Arc::default(), 1).await;
    let turn = first.send("go").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let witness = first.die(&memory).await;
    let second = live(Arc::new(memory), vec![call("put", "a"), Line::Say("done")], witness, 2).await;
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
}

#[tokio::test(start_paused = true)]
async fn expired_lease_rejects_writes_of_silent_worker() {
    let memory = MemoryStore::new();
    let stops = CrashingStore::new(memory.clone(), CrashPoint::Before(1));
    let lines = || vec![Line::Say("hello")];
    let first = live(Arc::new(stops), lines(), Arc::default(), 1).await;
    let turn = first.send("go").await;
    let second = live(Arc::new(memory.clone()), lines(), Arc::default(), 2).await;
    let begun = second.runtime.now();
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "hello".into() });
    let waited = begun.until(second.runtime.now());
    assert!(waited + Duration::from_secs(1) >= Limits::default().lease, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn working_worker_keeps_session_despite_short_lease() {
    let memory = MemoryStore::new();
    let clock = PausedClock::new();
    let short = |config: &mut outlast_runtime::RuntimeConfig| {
        config.limits = Limits { lease: Duration::from_millis(300), ..Limits::default() };
        config.clock = clock.clone();
    };
    let lines = || vec![call("hangs", "for five seconds"), Line::Say("done")];
    let first = live_with(Arc::new(memory.clone()), lines(), Arc::default(), 1, short).await.unwrap();
    let turn = first.send("go").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = live_with(Arc::new(memory), lines(), first.witness.clone(), 2, short).await.unwrap();
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    // A lost session would leave a claim that another worker took over.
    assert!(!first.names().await.contains(&"effect.reclaimed"));
}

#[test]
fn two_millisecond_lease_still_makes_progress() {
    let (to_us, ended) = std::sync::mpsc::channel();
    // On a separate thread, because a loop that never awaits would also block the timeout.
    std::thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let end = tokio.unwrap().block_on(async {
            let tiny = |config: &mut outlast_runtime::RuntimeConfig| {
                config.limits = Limits { lease: Duration::from_millis(2), ..Limits::default() };
            };
            let memory = Arc::new(MemoryStore::new());
            let life = live_with(memory, vec![Line::Say("done")], Arc::default(), 1, tiny).await.unwrap();
            let turn = life.send("go").await;
            life.end(turn).await
        });
        to_us.send(end).unwrap();
    });
    let end = ended.recv_timeout(Duration::from_secs(20));
    assert_eq!(end, Ok(TurnEnd::Answered { text: "done".into() }));
}

#[tokio::test(start_paused = true)]
async fn worker_that_reclaims_session_drives_it_to_end() {
    let (memory, life) =
        fresh(vec![call("hangs", "once"), call("hangs", "once more"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    // As if this worker had been suspended for an hour: another claims the session and hands it back before this one
    // notices.
    let later = life.runtime.now().after(Duration::from_hours(1));
    let other = LeaseRequest { worker: WorkerId::from_u128(2), until: later };
    let work = memory.claim(other, later, 1).await.unwrap().remove(0);
    memory.release_lease(work.lease, life.runtime.now()).await.unwrap();
    // Its first drive ends after five seconds, when its tool does. That must not end the second drive.
    tokio::time::sleep(Duration::from_secs(2)).await;
    life.runtime.idle().await.unwrap();
    assert!(life.runtime.store().turn(turn).await.unwrap().end.is_some());
}

#[tokio::test(start_paused = true)]
async fn worker_shutdown_releases_its_session() {
    let (memory, first) = fresh(vec![call("hangs", "polite"), Line::Say("done")]).await;
    let turn = first.send("go").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    first.runtime.clone().shut_down(Duration::from_secs(10)).await;
    let state = first.runtime.store().session(SESSION).await.unwrap().state;
    assert_eq!(state, SessionState::Ready);
    let second =
        live(Arc::new(memory), vec![call("hangs", "polite"), Line::Say("done")], first.witness, 2).await;
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
}

#[tokio::test(start_paused = true)]
async fn worker_shutdown_releases_session_with_unfinished_step() {
    let lines = || vec![call("hangs", "rude"), Line::Say("done")];
    let (memory, first) = fresh(lines()).await;
    let turn = first.send("go").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    first.runtime.clone().shut_down(Duration::from_secs(1)).await;
    let session = first.runtime.store().session(SESSION).await.unwrap();
    assert_eq!((session.state, session.worker), (SessionState::Ready, None));
    let begun = tokio::time::Instant::now();
    let second = live(Arc::new(memory), lines(), first.witness, 2).await;
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    // It did not wait for the lease to expire.
    assert!(begun.elapsed() < Limits::default().lease);
    assert_eq!(second.witness.count("hangs"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_keeps_the_configuration_it_began_with() {
    let (memory, first) = fresh(vec![call("wait", "k"), Line::Say("done")]).await;
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    let key = witness.keys.lock().unwrap()["k"].clone();
    let edited =
        |config: &mut outlast_runtime::RuntimeConfig| config.package.system = "Something else.".into();
    let lines = vec![call("wait", "k"), Line::Say("done")];
    let second = live_with(Arc::new(memory), lines, witness, 2, edited).await.unwrap();
    second.runtime.resolve(&key, Resolution::Ok(json!("yes"))).await.unwrap();
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    let packages: Vec<_> = second
        .facts()
        .await
        .into_iter()
        .filter_map(|fact| match fact {
            Fact::Started(started) => Some(started.package),
            _ => None,
        })
        .collect();
    assert_eq!(packages.len(), 1);
}

/// Parks a turn in a stepped tool, restarts with other tools so that the turn gets stuck, and then fixes it.
async fn stuck_with(tools: fn(&mut outlast_runtime::RuntimeConfig), want: Kind) -> String {
    let (memory, first) = fresh(vec![call("stepped", "x"), Line::Say("done")]).await;
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    let lines = || vec![call("stepped", "x"), Line::Say("done")];
    let second = live_with(Arc::new(memory.clone()), lines(), witness.clone(), 2, tools).await.unwrap();
    second.until("turn.stuck").await;
    let stuck = second.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Stuck { failure } => Some(failure),
        _ => None,
    });
    let stuck = stuck.unwrap();
    assert_eq!(stuck.code, want);
    second.die(&memory).await;
    let third = live(Arc::new(memory), lines(), witness, 3).await;
    third.runtime.retry(turn).await.unwrap();
    assert_eq!(third.end(turn).await, TurnEnd::Answered { text: "done".into() });
    assert_eq!(third.runtime.retry(turn).await.unwrap_err().kind(), Kind::WaitNotFound);
    stuck.detail
}

#[tokio::test(start_paused = true)]
async fn diverged_turn_is_stuck_until_code_is_fixed() {
    let other_steps = |config: &mut outlast_runtime::RuntimeConfig| {
        let mut toolbox = toolbox(Arc::default(), false).unwrap();
        toolbox.add(Restepped(Arc::default())).unwrap();
        config.tools = vec![Arc::new(toolbox)];
    };
    stuck_with(other_steps, Kind::JournalDiverged).await;
}

#[tokio::test(start_paused = true)]
async fn turn_with_missing_tools_is_stuck_until_restored() {
    let fewer_tools = |config: &mut outlast_runtime::RuntimeConfig| {
        config.tools = vec![Arc::new(toolbox(Arc::default(), false).unwrap())];
        config.package.tools.retain(|tool| tool.as_str() != "stepped");
    };
    stuck_with(fewer_tools, Kind::PackageUnavailable).await;
}

#[tokio::test(start_paused = true)]
async fn turn_with_changed_contract_is_stuck_with_reason() {
    let unrepeatable = |config: &mut outlast_runtime::RuntimeConfig| {
        let mut toolbox = toolbox(Arc::default(), false).unwrap();
        toolbox.add(Unrepeatable(Arc::default())).unwrap();
        config.tools = vec![Arc::new(toolbox)];
    };
    assert_eq!(
        stuck_with(unrepeatable, Kind::PackageUnavailable).await,
        "the turn began under another configuration: the tool `stepped` was idempotent when the turn began, but is at_most_once here"
    );
}

#[tokio::test(start_paused = true)]
async fn stuck_turn_resumes_when_its_program_returns() {
    let (memory, first) = fresh(vec![call("stepped", "x"), Line::Say("done")]).await;
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    let fewer_tools = |config: &mut outlast_runtime::RuntimeConfig| {
        config.tools = vec![Arc::new(toolbox(Arc::default(), false).unwrap())];
        config.package.tools.retain(|tool| tool.as_str() != "stepped");
    };
    let lines = || vec![call("stepped", "x"), Line::Say("done")];
    let other = live_with(Arc::new(memory.clone()), lines(), witness.clone(), 2, fewer_tools).await.unwrap();
    other.until("turn.stuck").await;
    other.die(&memory).await;
    let back = live(Arc::new(memory), lines(), witness, 3).await;
    assert_eq!(back.end(turn).await, TurnEnd::Answered { text: "done".into() });
}

#[tokio::test(start_paused = true)]
async fn input_uses_configuration_of_accepting_worker() {
    let memory = MemoryStore::new();
    let dies = CrashingStore::new(memory.clone(), CrashPoint::AfterWrite(0));
    let first = live(Arc::new(dies), vec![Line::Say("mine")], Arc::default(), 1).await;
    tokio::select! {
        _ = first.send("go") => panic!("the worker died before it could say so"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    let witness = first.die(&memory).await;
    let other = |config: &mut outlast_runtime::RuntimeConfig| {
        config.tools = vec![Arc::new(toolbox(Arc::default(), false).unwrap())];
        config.package.tools.retain(|tool| tool.as_str() != "stepped");
    };
    let second =
        live_with(Arc::new(memory.clone()), vec![Line::Say("not mine")], witness.clone(), 2, other).await;
    let second = second.unwrap();
    second.until("turn.stuck").await;
    second.die(&memory).await;
    let back = live(Arc::new(memory), vec![Line::Say("mine")], witness, 3).await;
    let turns = back.runtime.store().turns(SESSION, 0, 10).await.unwrap();
    assert_eq!(back.end(turns[0].id).await, TurnEnd::Answered { text: "mine".into() });
}

#[tokio::test(start_paused = true)]
async fn worker_at_capacity_takes_next_session_when_free() {
    use outlast_ports::inbox::SessionTarget;
    use outlast_runtime::Input;
    let memory = MemoryStore::new();
    let one_at_a_time = |config: &mut outlast_runtime::RuntimeConfig| {
        config.limits = Limits { sessions_at_once: 1, ..Limits::default() };
    };
    let lines = vec![call("flaky", ""), Line::Say("done")];
    let life = live_with(Arc::new(memory), lines, Arc::default(), 1, one_at_a_time).await.unwrap();
    let mut turns = Vec::new();
    for _ in 0..5 {
        let target = SessionTarget::New(life.runtime.fresh_session());
        turns.push(life.runtime.submit(Input::text(target, "go")).await.unwrap().turn);
    }
    for turn in turns {
        assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".into() });
    }
}

//! Which worker drives a session: leases, fences, recovery and the crash guard.
use crate::common::*;
use outlast_ports::memory::MemoryStore;
use outlast_ports::store::{LeaseRequest, SessionState, Turns};
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Kind, Limits, WorkerId};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn an_accepted_turn_goes_on_by_itself_when_a_worker_starts() {
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
async fn a_silent_worker_loses_its_session_after_its_lease_and_its_writes_change_nothing() {
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
async fn a_worker_keeps_its_session_for_as_long_as_it_works_however_short_its_lease_is() {
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
fn a_worker_with_a_lease_of_two_milliseconds_still_gets_to_work() {
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
async fn a_worker_that_gets_its_lost_session_back_drives_it_until_it_is_done() {
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
async fn a_worker_that_shuts_down_hands_its_session_back() {
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
async fn a_worker_that_shuts_down_hands_a_session_back_whose_step_it_cannot_wait_for() {
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
async fn a_turn_whose_code_parted_from_its_history_gets_stuck_until_it_is_mended() {
    let other_steps = |config: &mut outlast_runtime::RuntimeConfig| {
        let mut toolbox = toolbox(Arc::default(), false).unwrap();
        toolbox.add(Restepped(Arc::default())).unwrap();
        config.tools = vec![Arc::new(toolbox)];
    };
    stuck_with(other_steps, Kind::JournalDiverged).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_tools_are_not_in_this_build_gets_stuck_until_they_are() {
    let fewer_tools = |config: &mut outlast_runtime::RuntimeConfig| {
        config.tools = vec![Arc::new(toolbox(Arc::default(), false).unwrap())];
        config.package.tools.retain(|tool| tool.as_str() != "stepped");
    };
    stuck_with(fewer_tools, Kind::PackageUnavailable).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_tool_promises_something_else_by_now_gets_stuck_and_says_what() {
    let unrepeatable = |config: &mut outlast_runtime::RuntimeConfig| {
        let mut toolbox = toolbox(Arc::default(), false).unwrap();
        toolbox.add(Unrepeatable(Arc::default())).unwrap();
        config.tools = vec![Arc::new(toolbox)];
    };
    assert_eq!(
        stuck_with(unrepeatable, Kind::PackageUnavailable).await,
        "the turn began under another configuration: the tool `stepped` was idempotent when the turn began, and is at_most_once here"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stuck_turn_looks_again_by_itself_once_its_program_is_back() {
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
async fn an_input_is_answered_under_the_configuration_of_whoever_took_it_in() {
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
async fn a_worker_with_its_hands_full_takes_the_next_session_when_one_is_free() {
    use outlast_ports::store::SessionTarget;
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

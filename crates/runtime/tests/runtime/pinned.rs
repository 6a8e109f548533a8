//! A turn keeps what it started with: the package and the contracts of its tools.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::branches::MAIN_HEAD;
use outlast_ports::content_queries::ContentQueries;
use outlast_ports::inbox::{AcceptRequest, Inbox, SessionTarget};
use outlast_ports::turns::{Commit, LeaseRequest, TurnTransition, Turns};
use outlast_vocab::effect::Command;
use outlast_vocab::package::{Package, PinnedPackage};
use outlast_vocab::record::{Fact, TurnAccepted, TurnEnd, TurnStarted};
use outlast_vocab::{Hash, Millis, TurnId, WorkerId, canonical_json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn with_reworded(config: &mut outlast_runtime::RuntimeConfig) {
    let mut tools = toolbox(Arc::default(), false).unwrap();
    tools.add(ChangedContractTool(Arc::default())).unwrap();
    config.tools = vec![Arc::new(tools)];
}

fn description_of_stepped(life: &Life) -> String {
    life.script.tool_descriptions.lock().unwrap()["stepped"].clone()
}

#[tokio::test(start_paused = true)]
async fn running_turn_keeps_its_pinned_contracts() {
    let lines = || vec![call("stepped", "x"), Line::Say("done"), Line::Say("again")];
    let (memory, first) = fresh(lines()).await;
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    let second = live_with(Arc::new(memory), lines(), witness, 2, with_reworded).await.unwrap();
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    assert_eq!(description_of_stepped(&second), "Works in steps.");
    // The next turn starts with the current contracts.
    let next = second.send("more").await;
    assert_eq!(second.end(next).await, TurnEnd::Answered { text: "again".into() });
    assert_eq!(description_of_stepped(&second), "Works in steps, and says so.");
}

/// Creates a turn that was accepted, and perhaps driven, by an older version.
async fn left_by_an_older_program(memory: &MemoryStore, package: Vec<u8>, facts: Vec<Fact>) -> TurnId {
    let (turn, now) = (TurnId::from_u128(5), Millis(1_000));
    let lease_request = LeaseRequest { worker: WorkerId::from_u128(9), until: Millis(2_000) };
    let pinned = Hash::of(&package);
    let accept = AcceptRequest {
        accepted: TurnAccepted { package: Some(pinned), ..TurnAccepted::text("go") },
        blobs: vec![package],
        lease_request: Some(lease_request),
        ..AcceptRequest::text(SessionTarget::New(SESSION), turn, "go", now)
    };
    let lease = memory.accept(accept).await.unwrap().work.unwrap().lease;
    if !facts.is_empty() {
        memory.commit(Commit::new(lease, now, facts, TurnTransition::Continue)).await.unwrap();
    }
    memory.release_lease(lease, now).await.unwrap();
    turn
}

#[tokio::test(start_paused = true)]
async fn turn_without_stored_contracts_uses_current_ones() {
    let package = package(&toolbox(Arc::default(), true).unwrap());
    let package = canonical_json::to_string(&package).into_bytes();
    for begun in [false, true] {
        let memory = MemoryStore::new();
        let started = TurnStarted {
            kernel: 1,
            package: Hash::of(&package),
            head: MAIN_HEAD.to_owned(),
            parent: None,
            labels: None,
        };
        let facts = if begun { vec![Fact::Started(started)] } else { vec![] };
        let turn = left_by_an_older_program(&memory, package.clone(), facts).await;
        let life = live(Arc::new(memory.clone()), vec![Line::Say("done")], Arc::default(), 1).await;
        assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".into() });
        // A turn that had not started is pinned to contracts when it starts.
        let started = life.facts().await.into_iter().find_map(|fact| match fact {
            Fact::Started(started) => Some(started.package),
            _ => None,
        });
        let pinned = memory.blob(started.unwrap()).await.unwrap();
        let pinned: PinnedPackage = serde_json::from_slice(&pinned).unwrap();
        assert_eq!(pinned.contracts.is_some(), !begun);
    }
}

#[tokio::test(start_paused = true)]
async fn turn_with_missing_package_starts_under_no_other() {
    let memory = MemoryStore::new();
    // Accepted with a package that only the second worker can run.
    let package = Package { agent: "clerk".to_owned(), ..package(&toolbox(Arc::default(), true).unwrap()) };
    let contracts = None;
    let blob = canonical_json::to_string(&PinnedPackage { package, contracts }).into_bytes();
    let turn = left_by_an_older_program(&memory, blob.clone(), vec![]).await;
    let lacks = |config: &mut outlast_runtime::RuntimeConfig| {
        config.package.tools.retain(|tool| tool.as_str() != "stepped");
        config.tools = vec![Arc::new(toolbox(Arc::default(), false).unwrap())];
    };
    let first = live_with(Arc::new(memory.clone()), Vec::new(), Arc::default(), 1, lacks).await.unwrap();
    first.until("turn.stuck").await;
    let begun = |facts: Vec<Fact>| facts.into_iter().filter(|fact| matches!(fact, Fact::Started(_))).count();
    assert_eq!(begun(first.facts().await), 0);
    first.die(&memory).await;
    let clerk = |config: &mut outlast_runtime::RuntimeConfig| config.package.agent = "clerk".to_owned();
    let lines = vec![Line::Say("done")];
    let second = live_with(Arc::new(memory), lines, Arc::default(), 2, clerk).await.unwrap();
    second.runtime.retry(turn).await.unwrap();
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    assert_eq!(begun(second.facts().await), 1);
}

#[tokio::test(start_paused = true)]
async fn recorded_call_without_reply_bound_still_matches() {
    let lines = || vec![call("stepped", "x"), Line::Say("done")];
    let (memory, first) = fresh(lines()).await;
    first.send("go").await;
    first.until("turn.parked").await;
    let mut facts: Vec<Fact> = first.facts().await.into_iter().skip(2).take(2).collect();
    first.die(&memory).await;
    let [Fact::Started(started), Fact::Performed(performed)] = &mut facts[..] else { panic!("{facts:?}") };
    let Command::ModelCall(call) = &mut performed.command else { panic!("{performed:?}") };
    assert_eq!(call.options.tokens_most.take(), Some(8_192));
    let package = memory.blob(started.package).await.unwrap();

    let older = MemoryStore::new();
    let turn = left_by_an_older_program(&older, package, facts).await;
    let second = live(Arc::new(older), lines(), Arc::default(), 2).await;
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    // Only the second call was sent.
    assert_eq!(second.script.calls.load(Ordering::SeqCst), 1);
}

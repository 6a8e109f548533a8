//! Several agents in one runtime, overlays of sessions and turns, and turns that keep the package they started with.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::inbox::{AcceptRequest, Inbox, SessionTarget};
use outlast_ports::policy::{EngineDecision, PolicyEngine};
use outlast_ports::service::{Agent as AgentFacts, Services};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_ports::turns::{LeaseRequest, Turns};
use outlast_runtime::{AgentBundle, Input, RuntimeConfig};
use outlast_vocab::overlay::{NetworkAllowList, Overlay};
use outlast_vocab::package::Package;
use outlast_vocab::policy::PolicyFacts;
use outlast_vocab::record::{Fact, TurnAccepted, TurnEnd};
use outlast_vocab::{Error, Hash, Kind, Millis, TurnId, WorkerId, limits};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A tool `look` that returns its owner, its description, and what its agent may reach and open.
struct Owned(&'static str, String);

impl Tool for Owned {
    type Args = Note;
    type Needs = AgentFacts;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("look", self.1.clone()).pure()
    }

    async fn run(&self, agent: AgentFacts, _: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        let document = agent.document(&args.text).unwrap_or_else(|error| error.detail().to_owned());
        let hosts: Vec<_> = agent.network()?.lists().cloned().collect();
        done(format!("{} opens {document}, reaches {hosts:?}", self.0))
    }
}

fn agent(name: &'static str, system: &str, description: &str) -> AgentBundle {
    let mut tools = Toolbox::new(Services::default());
    tools.add(Owned(name, description.to_owned())).unwrap();
    let package = Package {
        tools: vec!["look".parse().unwrap()],
        ..Package::new(name, "test/script".parse().unwrap(), system)
    };
    AgentBundle { package, tools: vec![Arc::new(tools)], hooks: Vec::new() }
}

fn beside(agents: Vec<AgentBundle>) -> impl FnOnce(&mut RuntimeConfig) {
    move |config| config.agents = agents
}

fn overlay(value: Value) -> Overlay {
    Overlay::from_json(value).unwrap()
}

/// Returns the packages that the turns of the session started with, in order.
async fn packages(life: &Life) -> Vec<(Hash, Package)> {
    let mut packages = Vec::new();
    for fact in life.facts().await {
        if let Fact::Started(started) = fact {
            let store = life.runtime.store().as_ref();
            let pinned = outlast_runtime::agents::agent_registry::read(store, started.package).await.unwrap();
            packages.push((started.package, pinned.package));
        }
    }
    packages
}

async fn life(lines: Vec<Line>, agents: Vec<AgentBundle>) -> Life {
    live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, beside(agents)).await.unwrap()
}

async fn answered(life: &Life, input: Input) -> String {
    let turn = life.runtime.submit(input).await.unwrap().turn;
    match life.end(turn).await {
        TurnEnd::Answered { .. } => life.last_shown().last().cloned().unwrap(),
        end => format!("{end:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn input_selects_agent_with_its_own_tools() {
    let lines = vec![call("look", "x"), Line::Say("a"), call("look", "x"), Line::Say("b"), Line::Say("c")];
    let life = life(lines, vec![agent("clerk", "Sell.", "Looks."), agent("judge", "Judge.", "Looks.")]).await;
    let expected =
        |who: &str| format!("{who} opens the agent has no document `x`; there are: none, reaches []");
    assert_eq!(answered(&life, input_for("clerk", "one")).await, expected("clerk"));
    assert_eq!(answered(&life, input_for("judge", "two")).await, expected("judge"));
    answered(&life, input("three")).await;
    let names: Vec<String> = packages(&life).await.into_iter().map(|(_, package)| package.agent).collect();
    assert_eq!(names, ["clerk", "judge", "tester"]);
    let refused = life.runtime.submit(input_for("cleric", "four")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "agent.not_found: no agent is called `cleric` here; there are: clerk, judge, tester"
    );
}

#[tokio::test(start_paused = true)]
async fn duplicate_agent_names_are_refused_at_startup() {
    let agents = vec![agent("clerk", "", "a"), agent("clerk", "", "b")];
    let started = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, beside(agents)).await;
    assert_eq!(
        started.err().unwrap().to_string(),
        "config.invalid: two agents are called `clerk`; names must be unique"
    );
}

/// A policy engine that decides nothing and counts how often its version is read: once per resolved package.
#[derive(Default)]
struct Folds(AtomicUsize);

impl PolicyEngine for Folds {
    fn version(&self) -> Hash {
        self.0.fetch_add(1, Ordering::SeqCst);
        Hash::ZERO
    }

    fn judge<'a>(&'a self, _: PolicyFacts<'a>) -> ResultFuture<'a, Option<EngineDecision>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[tokio::test(start_paused = true)]
async fn session_and_turn_overlays_resolve_agent_once() {
    let lines = vec![call("look", "a.md"), Line::Say("1"), Line::Say("2"), Line::Say("3")];
    let mut clerk = agent("clerk", "Sell.", "Looks.");
    clerk.package.network = NetworkAllowList::only(["a", "b"]);
    clerk.package.documents.insert("a.md".to_owned(), "first".to_owned());
    let folds = Arc::new(Folds::default());
    let counting = folds.clone();
    let change = |config: &mut RuntimeConfig| {
        config.agents = vec![clerk];
        config.policy_engine = Some(counting);
    };
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let at_start = folds.0.load(Ordering::SeqCst);
    let over = || Input {
        overlays: vec![
            overlay(json!({"system": "Be brief.", "network": ["b", "c"]})),
            overlay(json!({"system": "Rhyme.", "model_calls": 2, "documents": {"a.md": "second"}})),
        ],
        ..input_for("clerk", "one")
    };
    let said = r#"clerk opens second, reaches [{"a", "b"}, {"b", "c"}]"#;
    assert_eq!(answered(&life, over()).await, said);
    answered(&life, over()).await;
    assert_eq!(folds.0.load(Ordering::SeqCst), at_start + 1, "the fold is made once");
    answered(&life, input_for("clerk", "plain")).await;
    let packages = packages(&life).await;
    let [(first, over), (second, _), (_, plain)] = packages.as_slice() else { panic!("three turns") };
    assert_eq!(first, second);
    assert_eq!((over.system.as_str(), over.model_calls), ("Sell.\n\nBe brief.\n\nRhyme.", 2));
    assert_eq!((plain.system.as_str(), plain.model_calls), ("Sell.", 50));
    let refused = Input { overlays: vec![overlay(json!({"builtin": ["clock"]}))], ..input_for("clerk", "x") };
    assert_eq!(life.runtime.submit(refused).await.unwrap_err().kind(), Kind::ConfigInvalid);
}

#[tokio::test(start_paused = true)]
async fn agent_edit_changes_no_running_or_replayed_turn() {
    let lines = || {
        vec![call("stepped", "x"), Line::Say("old"), Line::Say("new"), call("stepped", "y"), Line::Say("end")]
    };
    let (memory, first) = fresh(lines()).await;
    let running = first.send("go").await;
    first.until("turn.parked").await;
    let queued = first.send("wait").await;
    // Edit the agent while one turn is running and another is queued.
    let mut tools = toolbox(first.witness.clone(), false).unwrap();
    tools.add(ChangedContractTool(first.witness.clone())).unwrap();
    let package = Package { system: "Edited.".into(), ..package(&tools) };
    first
        .runtime
        .put_agent(AgentBundle { package: package.clone(), tools: vec![Arc::new(tools)], hooks: Vec::new() })
        .unwrap();
    assert_eq!(first.end(running).await, TurnEnd::Answered { text: "old".into() });
    assert_eq!(first.end(queued).await, TurnEnd::Answered { text: "new".into() });
    let after = first.send("again").await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let systems = |packages: Vec<(Hash, Package)>| -> Vec<String> {
        packages.into_iter().map(|(_, package)| package.system).collect()
    };
    assert_eq!(systems(packages(&first).await), ["Test.", "Test.", "Edited."]);
    // Another process, which knows only the original agent, resumes the edited turn as it started.
    let witness = first.die(&memory).await;
    let second = live(Arc::new(memory), lines(), witness, 2).await;
    assert_eq!(second.end(after).await, TurnEnd::Answered { text: "end".into() });
    assert_eq!(second.script.tool_descriptions.lock().unwrap()["stepped"], "Works in steps, and says so.");
}

#[tokio::test(start_paused = true)]
async fn turn_of_missing_agent_uses_no_other_tools() {
    let lines = || vec![call("stepped", "x"), call("pay", "eve"), Line::Say("done")];
    let clerk = |witness: &Arc<Witness>| {
        let tools = toolbox(witness.clone(), true).unwrap();
        let package = Package { agent: "clerk".to_owned(), ..package(&tools) };
        AgentBundle { package, tools: vec![Arc::new(tools)], hooks: Vec::new() }
    };
    let (memory, witness): (MemoryStore, Arc<Witness>) = (MemoryStore::new(), Arc::default());
    let agents = beside(vec![clerk(&witness)]);
    let first = live_with(Arc::new(memory.clone()), lines(), witness, 1, agents).await.unwrap();
    let turn = first.runtime.submit(input_for("clerk", "go")).await.unwrap().turn;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    // The default agent has tools with the same names.
    let second = live(Arc::new(memory.clone()), lines(), witness, 2).await;
    second.until("turn.stuck").await;
    let stuck = second.facts().await.into_iter().rev().find_map(|fact| match fact {
        Fact::Stuck { failure, .. } => Some(failure.to_string()),
        _ => None,
    });
    assert_eq!(
        stuck.unwrap(),
        "package.unavailable: the turn began under another configuration: no agent is called `clerk` here; there are: tester"
    );
    let witness = second.die(&memory).await;
    assert_eq!(witness.count("pay"), 0);
    let agents = beside(vec![clerk(&witness)]);
    let third = live_with(Arc::new(memory), lines(), witness, 3, agents).await.unwrap();
    assert_eq!(third.end(turn).await, TurnEnd::Answered { text: "done".into() });
    assert_eq!(third.witness.count("pay"), 1);
}

#[tokio::test(start_paused = true)]
async fn turn_continues_with_sidecar_contracts() {
    let large = "x".repeat(limits::INLINE_BYTES);
    let lines = || vec![call("stepped", "x"), call("look", "x"), Line::Say("done")];
    let (memory, first) = fresh(lines()).await;
    let mut tools = toolbox(first.witness.clone(), true).unwrap();
    tools.add(Named("huge", large.clone())).unwrap();
    let package = package(&tools);
    first
        .runtime
        .put_agent(AgentBundle { package, tools: vec![Arc::new(tools)], hooks: Vec::new() })
        .unwrap();
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    let second = live_with(Arc::new(memory), lines(), witness, 2, |config| {
        let mut tools = toolbox(Arc::default(), true).unwrap();
        tools.add(Named("huge", "Small by now.".to_owned())).unwrap();
        config.tools = vec![Arc::new(tools)];
    })
    .await
    .unwrap();
    assert_eq!(second.end(turn).await, TurnEnd::Answered { text: "done".into() });
    assert_eq!(second.script.tool_descriptions.lock().unwrap()["huge"], large);
}

/// A tool that has only a name.
struct Named(&'static str, String);

impl Tool for Named {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.0, self.1.clone()).pure()
    }

    async fn run(&self, (): (), _: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        done(())
    }
}

#[tokio::test(start_paused = true)]
async fn turn_with_unparsable_package_is_stuck() {
    let memory = MemoryStore::new();
    let (turn, now, package) = (TurnId::from_u128(5), Millis(1_000), b"{\"agent\": 7}".to_vec());
    let accept = AcceptRequest {
        accepted: TurnAccepted { package: Some(Hash::of(&package)), ..TurnAccepted::text("go") },
        blobs: vec![package],
        lease_request: Some(LeaseRequest { worker: WorkerId::from_u128(9), until: Millis(2_000) }),
        ..AcceptRequest::text(SessionTarget::Key { key: "test".into(), fresh: SESSION }, turn, "go", now)
    };
    let lease = memory.accept(accept).await.unwrap().work.unwrap().lease;
    memory.release_lease(lease, now).await.unwrap();
    let life = live(Arc::new(memory), vec![Line::Say("never")], Arc::default(), 1).await;
    life.until("turn.stuck").await;
    assert_eq!(life.script.calls.load(std::sync::atomic::Ordering::SeqCst), 0);
}

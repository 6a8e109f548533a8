//! Agents loaded from the database. Changes apply from the next input, invalid ones are rejected, and a turn keeps the
//! agent it started with.
use crate::common::*;
use crate::hooks::hook;
use crate::policy::{done, paid, question, rule, say};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::configs::ConfigStore;
use outlast_ports::hook::{BeforeTool, HookAt};
use outlast_ports::inbox::{AcceptRequest, SessionTarget};
use outlast_ports::service::{CallScope, Services};
use outlast_ports::store::Store;
use outlast_ports::tool::{Call, ToolProvider, ToolRunOutcome, Toolbox};
use outlast_runtime::agents::agent_factory::{
    AgentFactory, AgentPlan, ConfigEffect, FailedAgent, OrgAgentFactory,
};
use outlast_runtime::{AgentBundle, Input, Runtime, RuntimeConfig};
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::access::Access;
use outlast_vocab::message::ToolName;
use outlast_vocab::package::Package;
use outlast_vocab::policy::{ApprovalRequirement, ApprovalVerdict, Policy, PolicyDecision};
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::tool::{PreparedCall, ToolContract, ToolManifest};
use outlast_vocab::{Error, Failure, Hash, Kind, Millis, OrgId, SessionId, TurnId, canonical_json};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

/// Builds an agent from its own `system`, that of its harness, and the tools that it `uses`. The only tool is `pay`.
struct TestAgentFactory(Arc<Witness>);

impl AgentFactory for TestAgentFactory {
    fn plans(&self, stored: &[StoredConfig]) -> Result<Vec<AgentPlan>, Error> {
        let plan = |config: &StoredConfig| {
            let parent = config.body["parent"].as_str();
            let under =
                stored.iter().find(|one| one.kind == ConfigKind::Harness && Some(&*one.name) == parent);
            let said: Vec<Value> = under.into_iter().chain([config]).map(|one| one.body.clone()).collect();
            let (name, witness) = (config.name.clone(), self.0.clone());
            let layers = canonical_json::fingerprint(&said);
            let lacks = parent
                .filter(|_| under.is_none())
                .map(|parent| Error::new(Kind::HarnessNotFound, format!("there is no harness `{parent}`")));
            AgentPlan {
                name: name.clone(),
                is_kept: true,
                layers,
                make: Box::new(move || lacks.map_or_else(|| sewn(&name, &said, witness), Err)),
            }
        };
        Ok(stored.iter().filter(|config| config.kind == ConfigKind::Agent).map(plan).collect())
    }

    fn check(&self, new: &StoredConfig, _: &[StoredConfig]) -> Result<(), Error> {
        let torn = new.body.get("torn").map(|_| Error::new(Kind::ConfigInvalid, "it is torn"));
        torn.map_or(Ok(()), Err)
    }
}

fn sewn(name: &str, said: &[Value], witness: Arc<Witness>) -> Result<AgentBundle, Error> {
    let text = |key: &str| said.iter().filter_map(|one| one[key].as_str()).collect::<Vec<_>>();
    let uses = said.iter().filter_map(|one| one["uses"].as_array()).flatten().filter_map(Value::as_str);
    let tools: Arc<dyn ToolProvider> = if let Some(program) = text("program").last() {
        Arc::new(Runs::new(program, witness))
    } else {
        let mut tools = Toolbox::new(Services::default());
        tools.add(Pay(witness))?;
        Arc::new(tools)
    };
    let hooks: Vec<HookAt> = text("hook").into_iter().map(watches).collect();
    let model = text("model").last().copied().unwrap_or("test/script").parse()?;
    let ask = rule("ask", "pay", PolicyDecision::Ask(ApprovalRequirement::default()));
    let package = Package {
        tools: uses.map(str::parse).collect::<Result<_, Error>>()?,
        policy: Policy { rules: vec![ask] },
        hooks: hooks.iter().map(|hook| hook.usage.clone()).collect(),
        ..Package::new(name, model, text("system").join(" "))
    };
    Ok(AgentBundle { package, tools: vec![tools], hooks })
}

/// The tool `pay` as a program. The witness records it under the name of the program.
struct Runs {
    program: String,
    contract: ToolContract,
    witness: Arc<Witness>,
}

impl Runs {
    fn new(program: &str, witness: Arc<Witness>) -> Self {
        let contract = ToolContract::new("pay".parse().unwrap(), "Pays.", json!({}));
        let contract = ToolContract { made_of: Some(Hash::of(program.as_bytes())), ..contract };
        Self { program: program.to_owned(), contract, witness }
    }
}

impl ToolProvider for Runs {
    fn manifests(&self) -> Vec<ToolManifest> {
        vec![self.contract.manifest()]
    }

    fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        (*tool == self.contract.name).then_some(&self.contract)
    }

    fn execute<'a>(
        &'a self,
        _: &'a PreparedCall,
        call: Call,
        _: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        self.witness.saw(&self.program, &call);
        Box::pin(ready(Ok(ToolRunOutcome::Completed(json!("paid")))))
    }
}

/// Returns a hook that is this program.
fn watches(program: &str) -> HookAt {
    let mut hook = hook::<BeforeTool>("watch", |_| Ok(None));
    hook.usage.made_of = Some(Hash::of(program.as_bytes()));
    hook
}

fn with_factory(witness: Arc<Witness>) -> impl FnOnce(&mut RuntimeConfig) {
    let by = Arc::new(TestAgentFactory(witness));
    |config| config.agent_factory = Some(OrgAgentFactory { org: OrgId::DEFAULT, by })
}

async fn life_on(memory: &MemoryStore, lines: Vec<Line>, witness: Arc<Witness>, number: u128) -> Life {
    let change = with_factory(witness.clone());
    live_with(Arc::new(memory.clone()), lines, witness, number, change).await.unwrap()
}

async fn life(lines: Vec<Line>) -> (MemoryStore, Life) {
    let memory = MemoryStore::new();
    let life = life_on(&memory, lines, Arc::default(), 1).await;
    (memory, life)
}

/// Stores configuration as another process does, without a notification here.
async fn keep(memory: &MemoryStore, kind: ConfigKind, name: &str, body: Value) {
    memory.put_config(kind, name.to_owned(), body, Millis(1)).await.unwrap();
}

impl Life {
    async fn put(&self, kind: ConfigKind, name: &str, body: Value) -> Result<ConfigEffect, Error> {
        Ok(self.runtime.put_config(kind, name.to_owned(), body).await?.counts)
    }

    async fn delete(&self, kind: ConfigKind, name: &str) -> Result<StoredConfig, Error> {
        self.runtime.delete_config(kind, name.to_owned(), None).await
    }

    async fn put_agent(&self, name: &str, body: Value) -> Result<ConfigEffect, Error> {
        self.put(ConfigKind::Agent, name, body).await
    }

    /// Returns the system prompt of this agent.
    async fn prompt_of(&self, agent: &str) -> String {
        let turn = self.runtime.submit(input_for(agent, "hi")).await.unwrap().turn;
        self.end(turn).await;
        self.script.asked.lock().unwrap().last().unwrap().0.clone()
    }

    async fn versions(&self, kind: ConfigKind, name: &str) -> usize {
        self.runtime.store().config_versions(kind, name.to_owned(), 10).await.unwrap().len()
    }
}

#[tokio::test(start_paused = true)]
async fn saved_agent_answers_from_next_input() {
    let (_, life) = life(vec![]).await;
    assert_eq!(life.runtime.submit(input_for("clerk", "hi")).await.unwrap_err().kind(), Kind::AgentNotFound);
    assert_eq!(life.put_agent("clerk", json!({ "system": "Sell." })).await.unwrap(), ConfigEffect::Here);
    assert_eq!(life.prompt_of("clerk").await, "Sell.");
    life.put_agent("clerk", json!({ "system": "Sell more." })).await.unwrap();
    assert_eq!(life.prompt_of("clerk").await, "Sell more.");
    let names: Vec<String> = life.runtime.agents().into_iter().map(|agent| agent.name).collect();
    assert_eq!(names, ["clerk", "tester"]);
}

#[tokio::test(start_paused = true)]
async fn unrunnable_agent_is_refused_and_not_saved() {
    let (_, life) = life(vec![]).await;
    life.put_agent("clerk", json!({ "system": "Sell." })).await.unwrap();
    for (body, why) in [
        (
            json!({ "uses": ["lathe"] }),
            "tool.unknown: the agent `clerk` uses the tool `lathe`, which does not exist here",
        ),
        (json!({ "model": "nobody/x" }), "model.unknown: no provider serves the model `nobody/x`"),
    ] {
        assert_eq!(life.put_agent("clerk", body).await.unwrap_err().to_string(), why);
    }
    assert_eq!(life.versions(ConfigKind::Agent, "clerk").await, 1);
    assert_eq!(life.prompt_of("clerk").await, "Sell.");
    assert_eq!(life.runtime.left_out(), []);
}

#[tokio::test(start_paused = true)]
async fn harness_change_that_breaks_agent_is_refused() {
    let (_, life) = life(vec![]).await;
    life.put(ConfigKind::Harness, "base", json!({ "system": "Be kind." })).await.unwrap();
    life.put_agent("clerk", json!({ "system": "Sell.", "parent": "base" })).await.unwrap();
    life.put_agent("judge", json!({ "system": "Judge." })).await.unwrap();
    let fingerprint = |name: &str| {
        life.runtime.agents().into_iter().find(|agent| agent.name == name).map(|agent| agent.fingerprint)
    };
    let judge = fingerprint("judge");
    life.put(ConfigKind::Harness, "base", json!({ "system": "Be brief." })).await.unwrap();
    assert_eq!(life.prompt_of("clerk").await, "Be brief. Sell.");
    assert_eq!(fingerprint("judge"), judge);
    let refused = life.put(ConfigKind::Harness, "base", json!({ "model": "nobody/x" })).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "model.unknown: the agent `clerk` could no longer be built: no provider serves the model `nobody/x`"
    );
    assert_eq!(life.versions(ConfigKind::Harness, "base").await, 2);
}

#[tokio::test(start_paused = true)]
async fn approved_call_runs_after_agent_loses_tool() {
    let (memory, life) = life(paid()).await;
    life.put_agent("clerk", json!({ "system": "Sell.", "uses": ["pay"] })).await.unwrap();
    let waiting = life.runtime.submit(input_for("clerk", "go")).await.unwrap().turn;
    let asked = question(&life).await;
    let queued = life.runtime.submit(input_for("clerk", "queued")).await.unwrap().turn;
    life.put_agent("clerk", json!({ "system": "Sell nothing." })).await.unwrap();
    // The worker releases a parked turn, so it resolves the turn's package again.
    tokio::time::sleep(Duration::from_hours(1)).await;
    say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap();
    assert_eq!((life.end(waiting).await, life.witness.count("pay")), (done(), 1));
    life.end(queued).await;
    let asked: Vec<String> =
        life.script.asked.lock().unwrap().iter().map(|(prompt, _)| prompt.clone()).collect();
    assert_eq!(asked, ["Sell.", "Sell.", "Sell."]);
    assert_eq!(life.prompt_of("clerk").await, "Sell nothing.");
    crate::archive::reads_back(Arc::new(memory)).await;
}

#[tokio::test(start_paused = true)]
async fn approval_is_bound_to_the_approved_program() {
    let lines = vec![call("pay", "7"), Line::Say("done"), call("pay", "7"), Line::Say("done")];
    let (_, life) = life(lines).await;
    let with = |program: &str| json!({ "uses": ["pay"], "program": program });
    life.put_agent("clerk", with("pay.sh")).await.unwrap();
    let waiting = life.runtime.submit(input_for("clerk", "go")).await.unwrap().turn;
    let asked = question(&life).await;
    life.put_agent("clerk", with("other.sh")).await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    say(&life, &asked, "ann", ApprovalVerdict::ApproveForSession).await.unwrap();
    assert_eq!(life.end(waiting).await, done());
    let ran = || (life.witness.count("pay.sh"), life.witness.count("other.sh"));
    assert_eq!(ran(), (1, 0));
    // The session approval was for the other program.
    let next = life.runtime.submit(input_for("clerk", "again")).await.unwrap().turn;
    let asked = loop {
        let waiting = life.runtime.approvals().of_turn(next).await.unwrap();
        match waiting.into_iter().next() {
            Some(asked) => break asked,
            None => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    };
    assert_eq!(ran(), (1, 0));
    say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap();
    assert_eq!((life.end(next).await, ran()), (done(), (1, 1)));
}

#[tokio::test(start_paused = true)]
async fn turn_is_stuck_until_its_program_returns() {
    let began = json!({ "uses": ["pay"], "program": "pay.sh", "hook": "watch.sh" });
    for (part, program, why) in [
        ("program", "other.sh", "the tool `pay` was another program or address when the turn began"),
        (
            "hook",
            "blind.sh",
            "the agent `clerk` uses the hook `watch` at before_tool, which is another program here",
        ),
    ] {
        let (memory, first) = life(paid()).await;
        first.put_agent("clerk", began.clone()).await.unwrap();
        let turn = first.runtime.submit(input_for("clerk", "go")).await.unwrap().turn;
        let asked = question(&first).await;
        let witness = first.die(&memory).await;
        let mut now = began.clone();
        now[part] = json!(program);
        keep(&memory, ConfigKind::Agent, "clerk", now).await;
        let second = life_on(&memory, paid(), witness, 2).await;
        say(&second, &asked, "ann", ApprovalVerdict::Approve).await.unwrap();
        second.until("turn.stuck").await;
        let stuck = second.facts().await.into_iter().find_map(|fact| match fact {
            Fact::Stuck { failure } => Some(failure),
            _ => None,
        });
        let detail = format!("the turn began under another configuration: {why}");
        assert_eq!(stuck, Some(Failure::new(Kind::PackageUnavailable, detail)));
        second.put_agent("clerk", began.clone()).await.unwrap();
        second.runtime.retry(turn).await.unwrap();
        assert_eq!(second.end(turn).await, done());
        assert_eq!((second.witness.count("pay.sh"), second.witness.count("other.sh")), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn overlaid_input_uses_current_agent() {
    let (_, life) = life(vec![]).await;
    let over = || Input {
        overlays: vec![serde_json::from_value(json!({ "system": "Rhyme." })).unwrap()],
        ..input_for("clerk", "hi")
    };
    for text in ["Sell.", "Sell more."] {
        life.put_agent("clerk", json!({ "system": text })).await.unwrap();
        let turn = life.runtime.submit(over()).await.unwrap().turn;
        life.end(turn).await;
        let prompt = life.script.asked.lock().unwrap().last().unwrap().0.clone();
        assert_eq!(prompt, format!("{text}\n\nRhyme."));
    }
}

#[tokio::test(start_paused = true)]
async fn reloader_loads_remote_changes_and_skips_invalid_ones() {
    let memory = MemoryStore::new();
    keep(&memory, ConfigKind::Agent, "clerk", json!({ "system": "Sell." })).await;
    let life = life_on(&memory, vec![], Arc::default(), 1).await;
    keep(&memory, ConfigKind::Agent, "clerk", json!({ "uses": ["lathe"] })).await;
    keep(&memory, ConfigKind::Agent, "judge", json!({ "system": "Judge." })).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(life.prompt_of("judge").await, "Judge.");
    assert_eq!(life.prompt_of("clerk").await, "Sell.");
    let why = "the agent `clerk` uses the tool `lathe`, which does not exist here";
    let left_out = |answers| FailedAgent {
        name: "clerk".to_owned(),
        failure: Failure::new(Kind::ToolUnknown, why),
        answers,
    };
    assert_eq!(life.runtime.left_out(), [left_out(true)]);
    // Other changes still succeed and leave it listed. A valid version of it removes it from the list.
    life.put_agent("judge", json!({ "system": "Judge well." })).await.unwrap();
    assert_eq!(life.runtime.left_out(), [left_out(true)]);
    // A process that starts now has no earlier version of it.
    let second = life_on(&memory, vec![], Arc::default(), 2).await;
    assert_eq!(second.runtime.left_out(), [left_out(false)]);
    assert_eq!(second.prompt_of("judge").await, "Judge well.");
    life.put_agent("clerk", json!({ "system": "Sell again." })).await.unwrap();
    assert_eq!((life.runtime.left_out(), life.prompt_of("clerk").await), (vec![], "Sell again.".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn turn_of_just_saved_remote_agent_runs() {
    let (memory, second) = life(vec![]).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let first = life_on(&memory, paid(), Arc::default(), 2).await;
    first.put_agent("clerk", json!({ "uses": ["pay"] })).await.unwrap();
    let turn = first.runtime.submit(input_for("clerk", "go")).await.unwrap().turn;
    let asked = question(&first).await;
    first.die(&memory).await;
    say(&second, &asked, "ann", ApprovalVerdict::Deny { reason: "no".to_owned() }).await.unwrap();
    assert!(matches!(second.end(turn).await, TurnEnd::Answered { .. }));
    assert!(!second.facts().await.iter().any(|fact| matches!(fact, Fact::Stuck { .. })));
}

#[tokio::test(start_paused = true)]
async fn agent_config_requires_own_organisation_and_operator_scope() {
    let (_, life) = life(vec![]).await;
    let acme = life.runtime.create_org("acme".parse().unwrap()).await.unwrap().id;
    let theirs = life.runtime.serving(Access::to(acme));
    let stored = theirs.put_config(ConfigKind::Agent, "clerk".to_owned(), json!({ "uses": ["lathe"] })).await;
    assert_eq!(stored.unwrap().counts, ConfigEffect::Elsewhere);
    assert_eq!(life.runtime.submit(input_for("clerk", "hi")).await.unwrap_err().kind(), Kind::AgentNotFound);
    let reader = Access { scopes: "read".parse().unwrap(), ..Access::to(OrgId::DEFAULT) };
    let reader = life.runtime.serving(reader);
    let refused = reader.put_config(ConfigKind::Agent, "clerk".to_owned(), json!({})).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::AccessDenied);
}

#[tokio::test(start_paused = true)]
async fn agent_is_invisible_to_other_organisations() {
    let (memory, life) = life(vec![]).await;
    life.put_agent("clerk", json!({ "system": "Sell." })).await.unwrap();
    assert_eq!(life.prompt_of("clerk").await, "Sell.");
    let acme = life.runtime.create_org("acme".parse().unwrap()).await.unwrap().id;
    let theirs = life.runtime.serving(Access::to(acme));
    let names =
        |runtime: &Runtime| -> Vec<String> { runtime.agents().into_iter().map(|agent| agent.name).collect() };
    assert_eq!(
        (names(&life.runtime), names(&theirs)),
        (vec!["clerk".into(), "tester".into()], vec!["tester".into()])
    );
    let target = || SessionTarget::New(SessionId::from_u128(7));
    let refused = async |agent: &str| {
        let input = Input { target: target(), ..input_for(agent, "hi") };
        theirs.submit(input).await.unwrap_err().to_string()
    };
    assert_eq!(refused("clerk").await, "agent.not_found: no agent is called `clerk` here; there are: tester");
    assert_eq!(refused("judge").await, refused("clerk").await.replace("clerk", "judge"));
    // An older version could accept an input with this package. Its turn is not driven with it.
    let package = life.runtime.agents()[0].fingerprint;
    let accept = accept(target(), package, life.runtime.now());
    let turn = Arc::new(memory).serving(Access::to(acme)).accept(accept).await.unwrap().turn;
    let stuck = loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let records = life.runtime.store().turn_records(turn).await.unwrap();
        let stuck = records.into_iter().find_map(|record| match record.fact {
            Fact::Stuck { failure } => Some(failure),
            _ => None,
        });
        if let Some(stuck) = stuck {
            break stuck;
        }
    };
    let why =
        "the turn began under another configuration: no agent is called `clerk` here; there are: tester";
    assert_eq!(stuck, Failure::new(Kind::PackageUnavailable, why));
}

/// Returns an input that names a package by its fingerprint.
fn accept(target: SessionTarget, package: Hash, now: Millis) -> AcceptRequest {
    let mut accept = AcceptRequest::text(target, TurnId::from_u128(70), "hi", now);
    accept.accepted.package = Some(package);
    accept
}

#[tokio::test(start_paused = true)]
async fn deleted_agent_refuses_inputs_and_finishes_turns() {
    let (_, life) = life(paid()).await;
    life.put_agent("clerk", json!({ "uses": ["pay"] })).await.unwrap();
    let waiting = life.runtime.submit(input_for("clerk", "go")).await.unwrap().turn;
    let asked = question(&life).await;
    let gone = life.delete(ConfigKind::Agent, "clerk").await.unwrap();
    assert_eq!((gone.version, gone.is_deleted()), (2, true));
    assert_eq!(life.runtime.submit(input_for("clerk", "hi")).await.unwrap_err().kind(), Kind::AgentNotFound);
    let names: Vec<String> = life.runtime.agents().into_iter().map(|agent| agent.name).collect();
    assert_eq!(names, ["tester"]);
    tokio::time::sleep(Duration::from_hours(1)).await;
    say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap();
    assert_eq!((life.end(waiting).await, life.witness.count("pay")), (done(), 1));
    // The agent can be created again.
    life.put_agent("clerk", json!({ "system": "Sell." })).await.unwrap();
    assert_eq!(life.prompt_of("clerk").await, "Sell.");
}

#[tokio::test(start_paused = true)]
async fn unreadable_configuration_is_not_saved() {
    let (_, life) = life(vec![]).await;
    let refused = life.put(ConfigKind::Harness, "base", json!({ "torn": true })).await.unwrap_err();
    assert_eq!(refused.to_string(), "config.invalid: it is torn");
    assert_eq!(life.versions(ConfigKind::Harness, "base").await, 0);
}

#[tokio::test(start_paused = true)]
async fn harness_in_use_cannot_be_deleted() {
    let (_, life) = life(vec![]).await;
    life.put(ConfigKind::Harness, "base", json!({ "system": "Be kind." })).await.unwrap();
    life.put_agent("clerk", json!({ "parent": "base" })).await.unwrap();
    let refused = life.delete(ConfigKind::Harness, "base").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "config.invalid: the agent `clerk` could no longer be built: there is no harness `base`"
    );
    life.delete(ConfigKind::Agent, "clerk").await.unwrap();
    life.delete(ConfigKind::Harness, "base").await.unwrap();
    assert_eq!(life.delete(ConfigKind::Harness, "base").await.unwrap_err().kind(), Kind::AgentNotFound);
}

//! Policy engines in code: an engine decides in addition to the rules, and an engine that fails denies.
use crate::common::*;
use crate::points::{deny, doing, lines, rule, rulings};
use futures_util::{StreamExt, stream};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::ResultFuture;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::policy::{EngineDecision, PolicyEngine};
use outlast_runtime::RuntimeConfig;
use outlast_runtime::policy::approvals::Approvals;
use outlast_views::{ApprovalQuestion, ResolveResult, VoteOutcome};
use outlast_vocab::effect::StopReason;
use outlast_vocab::event::{Event, LiveEvent, LiveEventKind};
use outlast_vocab::message::{ModelName, RuleId};
use outlast_vocab::policy::{
    AfterDeferral, Approval, ApprovalRequirement, ApprovalVerdict, PolicyDecision, PolicyFacts, PolicyPoint,
    Redaction, Rule,
};
use outlast_vocab::record::{Fact, Seq, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Hash, Kind};
use serde_json::json;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The behaviour of an engine at a point.
#[derive(Clone)]
enum EngineBehaviour {
    Decides(PolicyDecision),
    Nothing,
    Fails,
    Panics,
    Hangs,
}

struct Engine {
    at: PolicyPoint,
    does: EngineBehaviour,
    version: Hash,
}

impl Engine {
    fn new(at: PolicyPoint, behaviour: EngineBehaviour) -> Arc<Self> {
        Arc::new(Self { at, does: behaviour, version: Hash::of(b"engine 1") })
    }
}

impl PolicyEngine for Engine {
    fn version(&self) -> Hash {
        self.version
    }

    fn judge<'a>(&'a self, facts: PolicyFacts<'a>) -> ResultFuture<'a, Option<EngineDecision>> {
        let behaviour = if facts.at == self.at { self.does.clone() } else { EngineBehaviour::Nothing };
        Box::pin(async move {
            match behaviour {
                EngineBehaviour::Decides(decision) => {
                    Ok(Some(EngineDecision { rule: "coded".parse().unwrap(), decision }))
                }
                EngineBehaviour::Nothing => Ok(None),
                EngineBehaviour::Fails => Err(Error::new(Kind::IoFailed, "the list cannot be read")),
                EngineBehaviour::Panics => panic!("no"),
                EngineBehaviour::Hangs => std::future::pending().await,
            }
        })
    }
}

async fn under(at: PolicyPoint, behaviour: EngineBehaviour, rules: Vec<Rule>) -> (Life, TurnEnd) {
    let witness: Arc<Witness> = Arc::default();
    let change = doing(&witness, rules);
    let change = |config: &mut RuntimeConfig| {
        change(config);
        config.policy_engine = Some(Engine::new(at, behaviour));
    };
    let life = live_with(Arc::new(MemoryStore::new()), lines(at), witness.clone(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    let end = life.end(turn).await;
    (life, end)
}

/// Returns why nothing happened: the end of the turn, or the error that the model got.
fn description(life: &Life, end: &TurnEnd) -> String {
    match end {
        TurnEnd::Failed { failure } => failure.to_string(),
        _ => life.last_shown().pop().unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn failing_policy_engine_denies_at_every_point() {
    for at in PolicyPoint::ALL {
        let nonsense = match at {
            PolicyPoint::Tool => PolicyDecision::Modify {
                set: [].into(),
                redact: vec![outlast_vocab::policy::Redaction { pattern: "a".into(), with: "b".into() }],
            },
            PolicyPoint::Turn | PolicyPoint::Model => PolicyDecision::Interrupt { reason: "stop".to_owned() },
            _ => {
                PolicyDecision::Defer { pause: std::time::Duration::from_secs(1), resume: AfterDeferral::Go }
            }
        };
        for (behaviour, why) in [
            (EngineBehaviour::Fails, "the policy engine failed: the list cannot be read"),
            (EngineBehaviour::Panics, "the policy engine panicked"),
            (EngineBehaviour::Hangs, "the policy engine did not answer within 2000 ms"),
            (EngineBehaviour::Decides(nonsense), "the policy engine decided by `coded`: "),
        ] {
            let (life, end) = under(at, behaviour, Vec::new()).await;
            let description = description(&life, &end);
            assert!(
                description.contains("policy.failed: the rule `engine` forbids it: "),
                "{at}: {description}"
            );
            assert!(description.contains(why), "{at}: {description}");
            assert_eq!(life.witness.count("did"), 0, "{at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn engine_decision_is_recorded_with_its_version() {
    let (life, end) = under(PolicyPoint::Egress, EngineBehaviour::Decides(deny()), Vec::new()).await;
    assert_eq!(end, TurnEnd::Answered { text: "done".to_owned() });
    let ruled = rulings(&life).await.pop().unwrap();
    assert_eq!((ruled.ruling.rule.as_str(), ruled.ruling.policy), ("coded", Hash::of(b"engine 1")));
    assert_eq!(life.witness.count("did"), 0);
}

#[tokio::test(start_paused = true)]
async fn engine_and_rule_cannot_loosen_each_other() {
    for at in PolicyPoint::ALL {
        let (_, silent) = under(at, EngineBehaviour::Nothing, Vec::new()).await;
        assert_eq!(silent, TurnEnd::Answered { text: "done".to_owned() }, "{at}");
        let pairs = [(PolicyDecision::Allow, deny()), (deny(), PolicyDecision::Allow)];
        for (engine, rules) in pairs {
            let (life, end) = under(at, EngineBehaviour::Decides(engine), vec![rule(at, rules)]).await;
            assert!(description(&life, &end).contains("policy.denied"), "{at}: {}", description(&life, &end));
            assert_eq!(life.witness.count("did"), 0, "{at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn engine_can_ask_where_rules_can() {
    let witness: Arc<Witness> = Arc::default();
    let change = doing(&witness, Vec::new());
    let change = |config: &mut RuntimeConfig| {
        change(config);
        let behaviour = EngineBehaviour::Decides(PolicyDecision::Ask(ApprovalRequirement::default()));
        config.policy_engine = Some(Engine::new(PolicyPoint::Tool, behaviour));
    };
    let lines = lines(PolicyPoint::Tool);
    let life = live_with(Arc::new(MemoryStore::new()), lines, witness, 1, change).await.unwrap();
    life.send("go").await;
    life.until("turn.parked").await;
    let asked = life.runtime.approvals().pending(10, life.runtime.now()).await.unwrap().pop().unwrap();
    assert_eq!(asked.call.ruling.unwrap().rule.as_str(), "coded");
}

fn asks(who: &[&str]) -> PolicyDecision {
    PolicyDecision::Ask(ApprovalRequirement {
        who: who.iter().map(|name| (*name).to_owned()).collect(),
        ..ApprovalRequirement::default()
    })
}

/// Waits for a question for approval.
async fn asked(life: &Life) -> ApprovalQuestion {
    loop {
        if let Some(asked) = life.runtime.approvals().pending(10, life.runtime.now()).await.unwrap().pop() {
            return asked;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Starts a worker with rules for the tool and an engine of this version.
async fn begun(
    memory: &MemoryStore,
    number: u128,
    version: &[u8],
    at: PolicyPoint,
    decision: PolicyDecision,
    rules: Vec<Rule>,
) -> Life {
    let witness = Arc::<Witness>::default();
    let change = doing(&witness, rules);
    let engine = Engine { at, does: EngineBehaviour::Decides(decision), version: Hash::of(version) };
    let change = |config: &mut RuntimeConfig| {
        change(config);
        config.policy_engine = Some(Arc::new(engine));
    };
    live_with(Arc::new(memory.clone()), lines(at), witness, number, change).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn approval_under_old_policy_is_asked_again() {
    for at in
        [PolicyPoint::Tool, PolicyPoint::Turn, PolicyPoint::Model, PolicyPoint::Payment, PolicyPoint::Output]
    {
        let memory = MemoryStore::new();
        let life = begun(&memory, 1, b"engine 1", at, asks(&["ann"]), Vec::new()).await;
        let turn = life.send("go").await;
        let first = asked(&life).await;
        life.die(&memory).await;
        let yes = || Approval::new("ann", ApprovalVerdict::Approve);
        let inbox = Approvals::new(&memory);
        let voted = inbox.decide(first.id, yes(), first.since).await.unwrap();
        assert!(matches!(voted, VoteOutcome::Decided(ResolveResult { is_yours: true, .. })), "{at}");
        let life = begun(&memory, 2, b"engine 2", at, asks(&["ann"]), Vec::new()).await;
        let again = asked(&life).await;
        assert_ne!(again.id, first.id, "{at}");
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(life.witness.count("did"), 0, "{at}");
        let ended = |fact: &Fact| matches!(fact, Fact::Ended { .. });
        assert!(!life.facts().await.iter().any(ended), "{at}: it ended before it was approved");
        life.runtime.approve(again.id, yes()).await.unwrap();
        assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() }, "{at}");
        assert_eq!(life.witness.count("did"), usize::from(at.is_call_point()), "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn engine_request_can_be_approved_for_session() {
    let (memory, once) = (MemoryStore::new(), vec![call("do", "egress"), Line::Say("done")]);
    let witness: Arc<Witness> = Arc::default();
    let change = doing(&witness, Vec::new());
    let change = |config: &mut RuntimeConfig| {
        change(config);
        config.policy_engine = Some(Engine::new(PolicyPoint::Tool, EngineBehaviour::Decides(asks(&["ann"]))));
    };
    let lines = [once.clone(), once.clone(), once].concat();
    let life = live_with(Arc::new(memory), lines, witness, 1, change).await.unwrap();
    // The second call follows the untrusted result of the first, which the approval did not cover.
    for text in ["go", "again"] {
        let turn = life.send(text).await;
        let question = asked(&life).await;
        let yes = Approval::new("ann", ApprovalVerdict::ApproveForSession);
        life.runtime.approve(question.id, yes).await.unwrap();
        assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    }
    let turn = life.send("once more").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    assert_eq!(life.witness.count("did"), 3);
}

#[tokio::test(start_paused = true)]
async fn engine_asks_about_arguments_changed_by_rule() {
    let set = [("/text".to_owned(), json!("secret"))].into();
    let rules = vec![rule(PolicyPoint::Tool, PolicyDecision::Modify { set, redact: Vec::new() })];
    let life = begun(&MemoryStore::new(), 1, b"engine 1", PolicyPoint::Tool, asks(&["ann"]), rules).await;
    let turn = life.send("go").await;
    let question = asked(&life).await;
    assert_eq!(question.call.arguments, json!({ "text": "secret" }));
    let ruling = question.call.ruling.as_ref().unwrap();
    assert_eq!((ruling.rule.as_str(), ruling.with.as_ref().map(RuleId::as_str)), ("coded", Some("r")));
    life.runtime.approve(question.id, Approval::new("ann", ApprovalVerdict::Approve)).await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    assert_eq!(life.last_shown().pop().unwrap(), "did secret");
}

#[tokio::test(start_paused = true)]
async fn approval_shows_answer_after_rule_changes() {
    let redact = vec![Redaction { pattern: "d.*e".to_owned(), with: "well".to_owned() }];
    let rules = vec![rule(PolicyPoint::Output, PolicyDecision::Modify { set: [].into(), redact })];
    let life = begun(&MemoryStore::new(), 1, b"engine 1", PolicyPoint::Output, asks(&["ann"]), rules).await;
    let turn = life.send("go").await;
    let question = asked(&life).await;
    assert_eq!(question.call.arguments, json!({ "text": "well" }));
    life.runtime.approve(question.id, Approval::new("ann", ApprovalVerdict::Approve)).await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "well".to_owned() });
    let description =
        life.facts().await.iter().any(|fact| String::from_utf8_lossy(&fact.encode()).contains("done"));
    assert!(!description, "what was replaced is nowhere");
}

#[tokio::test(start_paused = true)]
async fn rule_and_engine_requests_need_common_approver() {
    for at in [PolicyPoint::Tool, PolicyPoint::Turn, PolicyPoint::Payment] {
        let rules = vec![rule(at, asks(&[]))];
        let life = begun(&MemoryStore::new(), 1, b"engine 1", at, asks(&["cfo"]), rules).await;
        let turn = life.send("go").await;
        let question = asked(&life).await;
        let yes = |by: &str| Approval::new(by, ApprovalVerdict::Approve);
        let refused = life.runtime.approve(question.id, yes("ann")).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::ApprovalForbidden, "{at}");
        life.runtime.approve(question.id, yes("cfo")).await.unwrap();
        assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() }, "{at}");
        // No approver satisfies both.
        let rules = vec![rule(at, asks(&["ann"]))];
        let life = begun(&MemoryStore::new(), 1, b"engine 1", at, asks(&["cfo"]), rules).await;
        let turn = life.send("go").await;
        let end = life.end(turn).await;
        assert!(description(&life, &end).contains("policy.denied"), "{at}: {}", description(&life, &end));
    }
}

#[tokio::test(start_paused = true)]
async fn unanswerable_engine_request_denies() {
    let who = vec!["ann".to_owned()];
    let two_of_one = PolicyDecision::Ask(ApprovalRequirement {
        who,
        approvals: NonZeroU32::new(2),
        ..ApprovalRequirement::default()
    });
    let (life, end) = under(PolicyPoint::Tool, EngineBehaviour::Decides(two_of_one), Vec::new()).await;
    let description = description(&life, &end);
    assert!(
        description.contains("policy.failed") && description.contains("`who` must name at least 2 people"),
        "{description}"
    );
}

/// An engine that decides at some points and records where it was asked.
#[derive(Default)]
struct Choosy {
    decides: Vec<PolicyPoint>,
    asked: Mutex<Vec<PolicyPoint>>,
}

impl Choosy {
    fn at(decides: &[PolicyPoint]) -> Arc<Self> {
        Arc::new(Self { decides: decides.to_vec(), asked: Mutex::default() })
    }
}

impl PolicyEngine for Choosy {
    fn version(&self) -> Hash {
        Hash::of(b"choosy")
    }

    fn decides_at(&self, point: PolicyPoint, agent: &str) -> bool {
        assert_eq!(agent, "tester");
        self.decides.contains(&point)
    }

    fn judge<'a>(&'a self, facts: PolicyFacts<'a>) -> ResultFuture<'a, Option<EngineDecision>> {
        self.asked.lock().unwrap().push(facts.at);
        Box::pin(async { Ok(None) })
    }
}

#[tokio::test(start_paused = true)]
async fn engine_runs_only_at_its_points() {
    for at in PolicyPoint::ALL {
        for decides in [&[][..], &[at][..], &PolicyPoint::ALL[..]] {
            let engine = Choosy::at(decides);
            let witness: Arc<Witness> = Arc::default();
            let doing = doing(&witness, Vec::new());
            let change = |config: &mut RuntimeConfig| {
                doing(config);
                config.policy_engine = Some(engine.clone());
            };
            let life =
                live_with(Arc::new(MemoryStore::new()), lines(at), witness.clone(), 1, change).await.unwrap();
            let turn = life.send("go").await;
            assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() }, "{at}");
            let asked = std::mem::take(&mut *engine.asked.lock().unwrap());
            assert!(asked.iter().all(|asked| decides.contains(asked)), "{at}: {asked:?}");
            assert_eq!(asked.contains(&at), decides.contains(&at), "{at}: {asked:?}");
        }
    }
}

/// Returns the live text of a reply with a word per second, each with the seconds since the turn began.
async fn heard_under(engine: Arc<dyn PolicyEngine>) -> Vec<(u64, String)> {
    let change = |config: &mut RuntimeConfig| {
        config.models = vec![Arc::new(Slow)];
        config.policy_engine = Some(engine);
    };
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let mut events = life.runtime.events(SESSION, Seq(0));
    let began = tokio::time::Instant::now();
    life.send("go").await;
    let mut decisions = Vec::new();
    loop {
        match events.next().await.unwrap() {
            Event::Live(LiveEvent { what: LiveEventKind::Text { text, .. }, .. }) => {
                decisions.push((began.elapsed().as_secs(), text));
            }
            Event::Durable(record) if record.fact.name() == "turn.ended" => return decisions,
            _ => {}
        }
    }
}

/// A model that says a word every second.
struct Slow;

impl ModelProvider for Slow {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then_some(ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
        let said = ["all ", "is ", "well"].map(|word| ModelEvent::Text(word.into()));
        let events = said.into_iter().chain([ModelEvent::End(StopReason::End)]);
        Box::pin(stream::iter(events).then(async |event| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(event)
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn text_streams_live_unless_engine_decides_output() {
    let others: Vec<PolicyPoint> =
        PolicyPoint::ALL.into_iter().filter(|at| *at != PolicyPoint::Output).collect();
    let word = |after: u64, text: &str| (after, text.to_owned());
    let live = heard_under(Choosy::at(&others)).await;
    assert_eq!(live, [word(1, "all "), word(2, "is "), word(3, "well")]);
    let late = heard_under(Choosy::at(&[PolicyPoint::Output])).await;
    assert_eq!(late, [word(4, "all is well")]);
    // An engine that does not say where it decides is asked everywhere.
    let silent = heard_under(Engine::new(PolicyPoint::Tool, EngineBehaviour::Nothing)).await;
    assert_eq!(silent, [word(4, "all is well")]);
}

/// An engine that panics when asked where it decides.
struct Clumsy;

impl PolicyEngine for Clumsy {
    fn version(&self) -> Hash {
        Hash::of(b"clumsy")
    }

    fn decides_at(&self, _: PolicyPoint, _: &str) -> bool {
        panic!("no")
    }

    fn judge<'a>(&'a self, _: PolicyFacts<'a>) -> ResultFuture<'a, Option<EngineDecision>> {
        Box::pin(async { Ok(Some(EngineDecision { rule: "coded".parse().unwrap(), decision: deny() })) })
    }
}

#[tokio::test(start_paused = true)]
async fn engine_with_failing_points_is_asked_everywhere() {
    let change = |config: &mut RuntimeConfig| config.policy_engine = Some(Arc::new(Clumsy));
    let lines = vec![Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    assert!(
        matches!(life.end(turn).await, TurnEnd::Failed { failure } if failure.code == Kind::PolicyDenied)
    );
}

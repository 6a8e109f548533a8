//! Policy decisions about tool calls, and the approvals of people.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::service::{Services, Timer};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox};
use outlast_runtime::policy::approvals::Approvals;
use outlast_runtime::views::timeline;
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{ApprovalQuestion, ResolveResult, VoteOutcome};
use outlast_vocab::effect::{BatchCall, Command, Outcome, RefusedCall, StepOutcome, ToolOutcome};
use outlast_vocab::label::{Labels, TrustGuard, UntrustedSource};
use outlast_vocab::message::ToolResult;
use outlast_vocab::overlay::Overlay;
use outlast_vocab::policy::{
    AfterDeferral, Approval, ApprovalRequirement, ApprovalVerdict, Comparison, Policy, PolicyDecision,
    RecordedDecision, Rule, RuleTest,
};
use outlast_vocab::record::{EffectAnswered, EffectPerformed, EffectRequested, Fact, TurnEnd};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Kind, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) fn rule(id: &str, tool: &str, then: PolicyDecision) -> Rule {
    Rule { tool: tool.to_owned(), ..Rule::new(id.parse().unwrap(), then) }
}

fn asks() -> PolicyDecision {
    let (who, expires) = (vec!["ann".to_owned()], Some(Duration::from_hours(1)));
    PolicyDecision::Ask(ApprovalRequirement { who, expires, ..ApprovalRequirement::default() })
}

pub(crate) fn ruled(rules: Vec<Rule>) -> impl FnOnce(&mut RuntimeConfig) {
    move |config| config.package.policy = Policy { rules }
}

pub(crate) async fn under(rules: Vec<Rule>, lines: Vec<Line>) -> (MemoryStore, Life) {
    let memory = MemoryStore::new();
    let life = live_with(Arc::new(memory.clone()), lines, Arc::default(), 1, ruled(rules)).await.unwrap();
    (memory, life)
}

pub(crate) fn approvals(life: &Life) -> Approvals<'_> {
    life.runtime.approvals()
}

pub(crate) async fn question(life: &Life) -> ApprovalQuestion {
    life.until("turn.parked").await;
    approvals(life).pending(10, life.runtime.now()).await.unwrap().pop().expect("somebody is asked")
}

pub(crate) async fn say(
    life: &Life,
    question: &ApprovalQuestion,
    by: &str,
    verdict: ApprovalVerdict,
) -> Result<bool, Error> {
    let approval = Approval::new(by, verdict);
    let voted = life.runtime.approve(question.id, approval).await?;
    Ok(matches!(voted, VoteOutcome::Decided(ResolveResult { is_yours: true, .. })))
}

pub(crate) fn paid() -> Vec<Line> {
    vec![call("pay", "7"), Line::Say("done")]
}

pub(crate) fn done() -> TurnEnd {
    TurnEnd::Answered { text: "done".to_owned() }
}

pub(crate) async fn claimed(life: &Life) -> Vec<PreparedCall> {
    let batches = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Asked(asked) => match asked.command {
            Command::ToolBatch(batch) => Some(batch.calls),
            _ => None,
        },
        _ => None,
    });
    let run = |call| match call {
        BatchCall::Run(call) => Some(call),
        BatchCall::Refused(_) => None,
    };
    batches.flatten().filter_map(run).collect()
}

/// A tool that requires an approval before it runs.
struct Asking(Arc<Witness>);

impl Tool for Asking {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("pay", "Pays, if somebody says so.").approval()
    }

    async fn run(&self, (): (), call: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        Pay(self.0.clone()).run((), call, args).await
    }
}

/// Starts a worker with a tool that requires an approval, under these rules of its agent.
async fn asked_about(rules: Vec<Rule>) -> Life {
    let witness: Arc<Witness> = Arc::default();
    let asking = witness.clone();
    let change = |config: &mut RuntimeConfig| {
        let mut tools = Toolbox::new(Services::default());
        tools.add(Asking(asking)).unwrap();
        config.package = package(&tools);
        config.package.policy = Policy { rules };
        config.tools = vec![Arc::new(tools)];
    };
    live_with(Arc::new(MemoryStore::new()), paid(), witness, 1, change).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn tool_requiring_approval_waits_by_default() {
    let other = RuleTest { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!("another")]) };
    for (rules, asks) in [
        (vec![], true),
        (vec![rule("small", "pay", PolicyDecision::Allow)], false),
        (vec![Rule { tests: vec![other], ..rule("small", "pay", PolicyDecision::Allow) }], true),
    ] {
        let life = asked_about(rules).await;
        let turn = life.send("go").await;
        if asks {
            let question = question(&life).await;
            let ruling = question.call.ruling.as_ref().unwrap();
            assert_eq!((ruling.rule.as_str(), life.witness.count("pay")), ("tool.approval", 0));
            assert!(say(&life, &question, "ann", ApprovalVerdict::Approve).await.unwrap());
        }
        assert_eq!(life.end(turn).await, done());
        assert_eq!(life.witness.count("pay"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn session_or_turn_rule_cannot_skip_tool_approval() {
    let defer = json!({ "defer": { "pause": { "secs": 60, "nanos": 0 } } });
    for then in [json!("allow"), defer] {
        let life = asked_about(Vec::new()).await;
        let layer = json!({ "rules": [{ "id": "mine", "tool": "pay", "then": then }] });
        let over = Input { overlays: vec![Overlay::from_json(layer).unwrap()], ..input("go") };
        let turn = life.runtime.submit(over).await.unwrap().turn;
        let question = question(&life).await;
        let ruling = question.call.ruling.as_ref().unwrap();
        assert_eq!((ruling.rule.as_str(), life.witness.count("pay")), ("tool.approval", 0));
        assert!(say(&life, &question, "ann", ApprovalVerdict::Approve).await.unwrap());
        assert_eq!((life.end(turn).await, life.witness.count("pay")), (done(), 1));
    }
    let life = asked_about(Vec::new()).await;
    let layer = json!({ "rules": [{ "id": "mine", "tool": "pay", "then": { "deny": { "reason": "no" } } }] });
    let over = Input { overlays: vec![Overlay::from_json(layer).unwrap()], ..input("go") };
    let turn = life.runtime.submit(over).await.unwrap().turn;
    assert_eq!((life.end(turn).await, life.witness.count("pay")), (done(), 0));
}

#[tokio::test(start_paused = true)]
async fn denied_call_never_runs_and_names_rule() {
    let deny = PolicyDecision::Deny { reason: "money is tight".to_owned() };
    let (_, life) = under(vec![rule("no-money", "pa*", deny)], paid()).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 0);
    let message = life.last_shown().pop().unwrap();
    assert!(message.contains("policy.denied: the rule `no-money` forbids it: money is tight"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn allowing_and_modifying_rules_are_recorded() {
    let rules = || vec![rule("fine", "*", PolicyDecision::Allow)];
    let (_, life) = under(rules(), paid()).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, done());
    let call = claimed(&life).await.pop().unwrap();
    assert_eq!(call.arguments, json!({ "text": "7" }));
    let version = Policy { rules: rules() }.version();
    assert_eq!(
        call.ruling,
        Some(RecordedDecision::new("fine".parse().unwrap(), version, PolicyDecision::Allow))
    );
    let cap = RuleTest { path: "/text".to_owned(), is: Comparison::NoneOf(vec![json!("1")]) };
    let set = [("/text".to_owned(), json!("1"))].into();
    let modify =
        Rule { tests: vec![cap], ..rule("cap", "pay", PolicyDecision::Modify { set, redact: Vec::new() }) };
    let (_, life) = under(vec![modify, rule("fine", "*", PolicyDecision::Allow)], paid()).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.last_shown().pop().unwrap(), "\"paid 1\"".trim_matches('"'));
    let call = claimed(&life).await.pop().unwrap();
    assert_eq!(call.arguments, json!({ "text": "1" }));
    let ruling = call.ruling.unwrap();
    assert_eq!(ruling.rule.as_str(), "cap");
    assert!(matches!(ruling.decision, PolicyDecision::Modify { .. }));
}

#[tokio::test(start_paused = true)]
async fn modified_call_is_checked_by_earlier_rules() {
    let is =
        |text: &str| vec![RuleTest { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!(text)]) }];
    let to = |text: &str| PolicyDecision::Modify {
        set: [("/text".to_owned(), json!(text))].into(),
        redact: Vec::new(),
    };
    let gold =
        || Rule { tests: is("gold"), ..rule("gold", "pay", PolicyDecision::Deny { reason: "no".into() }) };
    let (_, life) = under(vec![gold(), rule("turn", "pay", to("gold"))], paid()).await;
    let turn = life.send("go").await;
    assert_eq!((life.end(turn).await, life.witness.count("pay")), (done(), 0));
    let large = || Rule { tests: is("100"), ..rule("large", "pay", asks()) };
    let (_, life) = under(vec![large(), rule("turn", "pay", to("100"))], paid()).await;
    let turn = life.send("go").await;
    let asked = question(&life).await;
    assert_eq!(asked.call.arguments, json!({ "text": "100" }));
    assert_eq!(life.witness.count("pay"), 0);
    say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap();
    assert_eq!((life.end(turn).await, life.witness.count("pay")), (done(), 1));
    let ruling = claimed(&life).await.pop().unwrap().ruling.unwrap();
    assert_eq!(
        (ruling.rule.as_str(), ruling.with.map(|rule| rule.to_string())),
        ("large", Some("turn".into()))
    );
}

#[tokio::test(start_paused = true)]
async fn interrupting_rule_ends_turn_without_calls() {
    let interrupt = PolicyDecision::Interrupt { reason: "something is wrong".to_owned() };
    let lines = vec![Line::Call(vec![("put", json!({})), ("pay", json!({}))])];
    let (_, life) = under(vec![rule("alarm", "pay", interrupt)], lines).await;
    let turn = life.send("go").await;
    let TurnEnd::Failed { failure } = life.end(turn).await else { panic!("the turn failed") };
    assert_eq!(failure.code, Kind::PolicyInterrupted);
    assert_eq!((life.witness.count("pay"), life.witness.count("put")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn deferred_call_runs_after_its_pause() {
    let defer = PolicyDecision::Defer { pause: Duration::from_hours(2), resume: AfterDeferral::Go };
    let (_, life) = under(vec![rule("later", "pay", defer)], paid()).await;
    let begun = life.runtime.now();
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    assert_eq!(life.witness.count("pay"), 0);
    assert_eq!(life.end(turn).await, done());
    assert!(begun.until(life.runtime.now()) >= Duration::from_hours(2));
    assert_eq!(life.witness.count("pay"), 1);
}

#[tokio::test(start_paused = true)]
async fn call_waits_for_approval_by_authorised_approver() {
    let (_, life) = under(vec![rule("money", "pay", asks())], paid()).await;
    let turn = life.send("go").await;
    let question = question(&life).await;
    assert_eq!(question.call.tool.as_str(), "pay");
    assert_eq!(question.call.arguments, json!({ "text": "7" }));
    assert_eq!(life.witness.count("pay"), 0);
    let refused = say(&life, &question, "eve", ApprovalVerdict::Approve).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::ApprovalForbidden);
    assert!(say(&life, &question, "ann", ApprovalVerdict::Approve).await.unwrap());
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 1);
    let gone = say(&life, &question, "ann", ApprovalVerdict::Approve).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::ApprovalNotFound);
}

#[tokio::test(start_paused = true)]
async fn denied_approval_reports_approver_to_model() {
    for (word, message) in [
        (
            Some(ApprovalVerdict::Deny { reason: "too much".to_owned() }),
            "approval.denied: ann said no: too much",
        ),
        (None, "approval.denied: the approval did not arrive in time"),
    ] {
        let (_, life) = under(vec![rule("money", "pay", asks())], paid()).await;
        let turn = life.send("go").await;
        let question = question(&life).await;
        if let Some(word) = word {
            say(&life, &question, "ann", word).await.unwrap();
        }
        assert_eq!(life.end(turn).await, done());
        assert_eq!(life.witness.count("pay"), 0);
        let shown = life.last_shown().pop().unwrap();
        assert!(shown.contains(message), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn edited_arguments_are_recorded_and_checked_by_rules() {
    let never = RuleTest { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!("all")]) };
    let deny = PolicyDecision::Deny { reason: "not everything".to_owned() };
    let rules = || {
        vec![
            Rule { tests: vec![never.clone()], ..rule("never", "*", deny.clone()) },
            rule("money", "pay", asks()),
        ]
    };
    for (arguments, times, message) in
        [(json!({ "text": "3" }), 1, "paid 3"), (json!({ "text": "all" }), 0, "the rule `never` forbids it")]
    {
        let (_, life) = under(rules(), paid()).await;
        let turn = life.send("go").await;
        let question = question(&life).await;
        let bad =
            say(&life, &question, "ann", ApprovalVerdict::Edit { arguments: json!({ "text": 3 }) }).await;
        assert_eq!(bad.unwrap_err().kind(), Kind::ToolArgsInvalid);
        say(&life, &question, "ann", ApprovalVerdict::Edit { arguments }).await.unwrap();
        assert_eq!(life.end(turn).await, done());
        assert_eq!(life.witness.count("pay"), times);
        let shown = life.last_shown().pop().unwrap();
        assert!(shown.contains(message), "{shown}");
        let recorded = life.facts().await.into_iter().any(|fact| {
            matches!(fact, Fact::Resolved { resolution: Resolution::Ok(word), .. } if word["by"] == "ann")
        });
        assert!(recorded);
    }
}

/// A tool whose calls are prepared before they run.
struct Quoted(Arc<Witness>);

impl Tool for Quoted {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("quoted", "Pays a quoted price.").idempotent()
    }

    async fn prepare(&self, _: SessionId, args: &Note) -> Result<Option<Value>, Error> {
        Ok(Some(json!(format!("quote for {}", args.text))))
    }

    async fn run(&self, (): (), call: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        self.0.did.lock().unwrap().push(("quoted".to_owned(), call.id, call.attempt));
        outlast_ports::tool::done(call.payload)
    }
}

#[tokio::test(start_paused = true)]
async fn edited_call_is_prepared_again() {
    let witness: Arc<Witness> = Arc::default();
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Quoted(witness.clone())).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        ruled(vec![rule("money", "quoted", asks())])(config);
    };
    let lines = vec![call("quoted", "7"), Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, witness.clone(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    let question = question(&life).await;
    say(&life, &question, "ann", ApprovalVerdict::Edit { arguments: json!({ "text": "3" }) }).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.last_shown().pop().unwrap(), "quote for 3");
}

/// Returns a rule for payments with exactly this text, which asks one person.
fn asks_about(id: &str, text: &str, who: &str) -> Rule {
    let tests = vec![RuleTest { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!(text)]) }];
    let ask = ApprovalRequirement { who: vec![who.to_owned()], ..ApprovalRequirement::default() };
    Rule { tests, ..rule(id, "pay", PolicyDecision::Ask(ask)) }
}

#[tokio::test(start_paused = true)]
async fn edit_matching_another_approval_rule_is_denied() {
    let rules = vec![asks_about("small", "7", "ann"), asks_about("large", "7000", "cfo")];
    let (_, life) = under(rules, paid()).await;
    let turn = life.send("go").await;
    let question = question(&life).await;
    say(&life, &question, "ann", ApprovalVerdict::Edit { arguments: json!({ "text": "7000" }) })
        .await
        .unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 0);
    let message = life.last_shown().pop().unwrap();
    let why =
        "error approval.denied: with these arguments, the rule `large` applies, not the rule of the request";
    assert_eq!(message, why);
}

#[tokio::test(start_paused = true)]
async fn approval_after_deadline_does_not_count() {
    let (memory, life) = under(vec![rule("money", "pay", asks())], paid()).await;
    let turn = life.send("go").await;
    let asked = question(&life).await;
    life.die(&memory).await;
    let (inbox, late) = (Approvals::new(&memory), asked.since.after(Duration::from_hours(2)));
    assert_eq!(inbox.pending(10, asked.since).await.unwrap().len(), 1);
    assert_eq!(inbox.pending(10, late).await.unwrap().len(), 0);
    let voted = inbox.decide(asked.id, Approval::new("ann", ApprovalVerdict::Approve), late).await.unwrap();
    assert_eq!(voted, VoteOutcome::Decided(ResolveResult { first: Resolution::Timeout, is_yours: false }));
    let rules = ruled(vec![rule("money", "pay", asks())]);
    let second = live_with(Arc::new(memory), paid(), Arc::default(), 2, rules).await.unwrap();
    assert_eq!(second.end(turn).await, done());
    assert_eq!(second.witness.count("pay"), 0);
    assert_eq!(
        second.last_shown().pop().unwrap(),
        "error approval.denied: the approval did not arrive in time"
    );
}

/// Returns every call that was rejected before it could run.
async fn refused(life: &Life) -> Vec<RefusedCall> {
    let batches = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Asked(EffectRequested { command: Command::ToolBatch(batch), .. }) => Some(batch.calls),
        _ => None,
    });
    let refused = |call| match call {
        BatchCall::Refused(call) => Some(call),
        BatchCall::Run(_) => None,
    };
    batches.flatten().filter_map(refused).collect()
}

#[tokio::test(start_paused = true)]
async fn refused_call_records_rule_version_and_labels() {
    let reason = || "no".to_owned();
    for then in [PolicyDecision::Deny { reason: reason() }, PolicyDecision::Interrupt { reason: reason() }] {
        let rules = vec![Rule { untrusted: Some(true), ..rule("tainted", "pay", then.clone()) }];
        let change = |config: &mut RuntimeConfig| {
            config.package.guard = TrustGuard::Guarded;
            ruled(rules.clone())(config);
        };
        let lines = vec![call("look", "around"), call("pay", "7"), Line::Say("done")];
        let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
        let turn = life.send("go").await;
        life.end(turn).await;
        let version = Policy { rules: rules.clone() }.version();
        let ruling = RecordedDecision::new("tainted".parse().unwrap(), version, then);
        let labels = Labels::from_iter([UntrustedSource::Tool("look".parse().unwrap())]);
        let call = refused(&life).await.pop().unwrap();
        assert_eq!((call.ruling.as_deref(), &call.labels), (Some(&ruling), &labels));
        assert_eq!(call.failure.policy.as_deref(), Some(format!("tainted@{version}").as_str()));
        let records = life.runtime.store().turn_records(turn).await.unwrap();
        let mut views = timeline::of_turn(records).effects.into_iter().filter_map(|effect| effect.call);
        let view = views.rfind(|view| view.tool == "pay").unwrap();
        assert_eq!((view.ruling, view.labels), (Some(ruling), labels));
    }
}

/// A tool that prepares each call before it is claimed, and then sleeps.
struct Counted {
    prepared: Arc<AtomicUsize>,
    witness: Arc<Witness>,
}

impl Tool for Counted {
    type Args = Note;
    type Needs = (Timer,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("counted", "Pays what it quoted.").idempotent().durable()
    }

    async fn prepare(&self, _: SessionId, args: &Note) -> Result<Option<Value>, Error> {
        let number = self.prepared.fetch_add(1, Ordering::SeqCst);
        Ok(Some(json!(format!("quote {number} for {}", args.text))))
    }

    async fn run(&self, (timer,): (Timer,), call: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        timer.sleep(Duration::from_mins(1)).await?;
        self.witness.did.lock().unwrap().push(("counted".to_owned(), call.id, call.attempt));
        outlast_ports::tool::done(call.payload)
    }
}

fn counting(prepared: &Arc<AtomicUsize>, witness: &Arc<Witness>) -> impl FnOnce(&mut RuntimeConfig) + use<> {
    let counted = Counted { prepared: prepared.clone(), witness: witness.clone() };
    move |config| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(counted).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        ruled(vec![rule("money", "counted", asks())])(config);
    }
}

#[tokio::test(start_paused = true)]
async fn edited_waiting_call_is_prepared_once() {
    let (prepared, witness) = (Arc::default(), Arc::default());
    let change = counting(&prepared, &witness);
    let lines = vec![call("counted", "7"), Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, witness, 1, change).await.unwrap();
    let turn = life.send("go").await;
    let question = question(&life).await;
    say(&life, &question, "ann", ApprovalVerdict::Edit { arguments: json!({ "text": "3" }) }).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.last_shown().pop().unwrap(), "quote 1 for 3");
    assert_eq!(prepared.load(Ordering::SeqCst), 2);
}

fn outcome_of(step: StepOutcome) -> Option<Value> {
    match step {
        StepOutcome::Value(value) => Some(value),
        StepOutcome::Failed(_) => None,
    }
}

/// Edits the arguments of every question, in ann's name.
async fn edits(life: &Life) -> ! {
    loop {
        for asked in approvals(life).pending(10, life.runtime.now()).await.unwrap_or_default() {
            let edit = ApprovalVerdict::Edit { arguments: json!({ "text": "3" }) };
            // Another vote may have decided it, or the store may have crashed.
            let _ = say(life, &asked, "ann", edit).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn edited_call_survives_crashes_with_its_preparation() {
    let lines = || vec![call("counted", "7"), Line::Say("done")];
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let (prepared, witness): (Arc<AtomicUsize>, Arc<Witness>) = (Arc::default(), Arc::default());
        let change = counting(&prepared, &witness);
        let first = live_with(Arc::new(crashing_store), lines(), witness.clone(), 1, change).await.unwrap();
        let all = async {
            let turn = first.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
            first.end(turn).await
        };
        let finished = tokio::select! {
            end = all => Some(end),
            () = pulse.stopped() => None,
            never = edits(&first) => never,
        };
        if let Some(end) = finished {
            assert_eq!(end, done());
            break;
        }
        deaths += 1;
        first.die(&memory).await;
        let change = counting(&prepared, &witness);
        let second = live_with(Arc::new(memory), lines(), witness.clone(), 2, change).await.unwrap();
        let turn = second.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
        let end = tokio::select! {
            end = second.end(turn) => end,
            never = edits(&second) => never,
        };
        assert_eq!(end, done(), "{death:?}");
        let recorded = second.facts().await.into_iter().filter_map(|fact| match fact {
            Fact::Performed(EffectPerformed { outcome: Outcome::DurableStep(outcome), .. }) => {
                outcome_of(outcome)
            }
            Fact::Answered(EffectAnswered {
                outcome: Outcome::ToolCall(ToolOutcome::Done(ToolResult::Ok(value))),
                ..
            }) => Some(value),
            _ => None,
        });
        let recorded: Vec<Value> = recorded.collect();
        let [worked_out, given] = &recorded[..] else { panic!("{death:?}: {recorded:?}") };
        assert_eq!(worked_out, given, "{death:?}");
        assert!(given.as_str().is_some_and(|quote| quote.ends_with("for 3")), "{death:?}: {given}");
    }
    assert!(deaths > 6, "died {deaths} times");
}

/// A tool whose preparation behaves in the given way.
struct Odd(&'static str);

impl Tool for Odd {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("odd", "Looks at its calls oddly.").idempotent().deadline(Duration::from_secs(5))
    }

    async fn prepare(&self, _: SessionId, _: &Note) -> Result<Option<Value>, Error> {
        match self.0 {
            "prepare hangs" => std::future::pending().await,
            "prepare panics" => panic!("no"),
            _ => Ok(None),
        }
    }

    async fn preview(&self, (): (), _: Note) -> Result<Option<String>, Error> {
        match self.0 {
            "preview hangs" => std::future::pending().await,
            "preview panics" => panic!("no"),
            _ => Ok(Some("would do it".to_owned())),
        }
    }

    async fn run(&self, (): (), _: Call, _: Note) -> Result<ToolRunOutcome, Error> {
        Ok(ToolRunOutcome::Completed(json!("did it")))
    }
}

async fn odd(how: &'static str, rules: Vec<Rule>) -> Life {
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Odd(how)).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        ruled(rules)(config);
    };
    let lines = vec![call("odd", "7"), Line::Say("done")];
    live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn failing_tool_preparation_is_reported_to_model() {
    for (how, message) in [
        ("prepare hangs", "error tool.timed_out: the tool did not check the call within 5000 ms"),
        ("prepare panics", "error tool.panicked: the tool panicked while it checked the call"),
    ] {
        let life = odd(how, Vec::new()).await;
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, done(), "{how}");
        assert_eq!(life.last_shown().pop().unwrap(), message);
    }
}

#[tokio::test(start_paused = true)]
async fn failing_preview_blocks_no_approval() {
    for (how, preview) in [("", Some("would do it")), ("preview hangs", None), ("preview panics", None)] {
        let life = odd(how, vec![rule("money", "odd", asks())]).await;
        let turn = life.send("go").await;
        let asked = question(&life).await;
        assert_eq!(asked.call.ruling.as_ref().unwrap().preview.as_deref(), preview, "{how}");
        say(&life, &asked, "ann", ApprovalVerdict::Approve).await.unwrap();
        assert_eq!(life.end(turn).await, done(), "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn turn_preparing_a_call_can_be_cancelled() {
    let life = odd("prepare hangs", Vec::new()).await;
    let (turn, begun) = (life.send("go").await, life.runtime.now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() });
    assert!(begun.until(life.runtime.now()) < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn malformed_approval_answer_is_denial() {
    let (_, life) = under(vec![rule("money", "pay", asks())], paid()).await;
    let turn = life.send("go").await;
    let question = question(&life).await;
    let key = life.runtime.key_of(turn, &question.wait.key).await.unwrap();
    life.runtime.resolve(&key, Resolution::Ok(json!(true))).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 0);
}

#[tokio::test(start_paused = true)]
async fn redefined_tool_asks_again() {
    let rules = || vec![rule("money", "stepped", asks())];
    let lines = || vec![call("stepped", "7"), Line::Say("done")];
    let memory = MemoryStore::new();
    let life = live_with(Arc::new(memory.clone()), lines(), Arc::default(), 1, ruled(rules())).await.unwrap();
    let turn = life.send("go").await;
    let first = question(&life).await;
    life.die(&memory).await;
    let approval = Approval::new("ann", ApprovalVerdict::Approve);
    Approvals::new(&memory).decide(first.id, approval, first.since).await.unwrap();
    // After a deploy the tool has another description, so the approval does not match what would run.
    let witness: Arc<Witness> = Arc::default();
    let change = |config: &mut RuntimeConfig| {
        let mut tools = toolbox(Arc::default(), false).unwrap();
        tools.add(ChangedContractTool(witness.clone())).unwrap();
        config.tools = vec![Arc::new(tools)];
        ruled(rules())(config);
    };
    let second = live_with(Arc::new(memory), lines(), witness.clone(), 2, change).await.unwrap();
    let again = loop {
        let asked = approvals(&second).pending(10, second.runtime.now()).await.unwrap();
        if let Some(again) = asked.into_iter().find(|question| question.id != first.id) {
            break again;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(witness.count("step one"), 0);
    say(&second, &again, "ann", ApprovalVerdict::Approve).await.unwrap();
    assert_eq!(second.end(turn).await, done());
    assert_eq!(witness.count("step one"), 1);
}

#[tokio::test(start_paused = true)]
async fn approved_call_survives_crashes_and_runs_once() {
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let witness: Arc<Witness> = Arc::default();
        let rules = || ruled(vec![rule("money", "book", asks())]);
        let lines = || vec![call("book", "7"), Line::Say("done")];
        let first = live_with(Arc::new(crashing_store), lines(), witness.clone(), 1, rules()).await.unwrap();
        let all = async {
            let turn = first.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
            let question = question(&first).await;
            say(&first, &question, "ann", ApprovalVerdict::Approve).await.unwrap();
            first.end(turn).await
        };
        let finished = tokio::select! {
            end = all => Some(end),
            () = pulse.stopped() => None,
        };
        if let Some(end) = finished {
            assert_eq!(end, done());
            break;
        }
        deaths += 1;
        first.die(&memory).await;
        let second = live_with(Arc::new(memory), lines(), witness.clone(), 2, rules()).await.unwrap();
        let turn = second.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
        let asked = async {
            loop {
                for question in approvals(&second).pending(10, second.runtime.now()).await.unwrap() {
                    say(&second, &question, "ann", ApprovalVerdict::Approve).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let end = tokio::select! {
            end = second.end(turn) => end,
            never = asked => never,
        };
        assert_eq!(end, done(), "{death:?}");
        assert!(witness.count("book") <= 1, "{death:?}: booked {} times", witness.count("book"));
    }
    assert!(deaths > 6, "died {deaths} times");
}

#[tokio::test(start_paused = true)]
async fn rule_named_like_guard_is_refused_at_startup() {
    let named = |config: &mut RuntimeConfig| {
        let then = PolicyDecision::Deny { reason: "no".to_owned() };
        config.package.policy.rules = vec![rule("guard", "pay", then)];
    };
    let started = live_with(Arc::new(MemoryStore::new()), Vec::new(), Arc::default(), 1, named).await;
    assert_eq!(started.err().map(|error| error.kind()), Some(Kind::ConfigInvalid));
}

#[tokio::test(start_paused = true)]
async fn impossible_sink_path_is_refused_at_startup() {
    for (sinks, starts) in [
        (["/text"], true),
        (["text"], false),
        (["/to"], false),
        // A text has no members.
        (["/text/deep"], false),
        (["/items/*/to"], true),
        (["/items/0/to"], true),
        (["/items/to"], false),
        (["/items/*/cc"], false),
        (["/*"], true),
        (["/more/*/any"], true),
    ] {
        let with = |config: &mut RuntimeConfig| {
            let mut toolbox = Toolbox::new(Services::default());
            toolbox.add(SendTool(sinks.map(ToOwned::to_owned).to_vec())).unwrap();
            config.package.tools = vec!["send".parse().unwrap()];
            config.tools = vec![Arc::new(toolbox)];
        };
        let started = live_with(Arc::new(MemoryStore::new()), Vec::new(), Arc::default(), 1, with).await;
        assert_eq!(
            started.err().map(|error| error.kind()),
            (!starts).then_some(Kind::ConfigInvalid),
            "{sinks:?}"
        );
    }
}

struct SendTool(Vec<String>);

/// What it takes: a text, letters, and what nobody says more of.
#[derive(Deserialize, JsonSchema)]
struct Letters {
    #[serde(rename = "text")]
    _text: String,
    #[serde(rename = "items")]
    _items: Vec<Letter>,
    #[serde(rename = "more")]
    _more: Value,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct Letter {
    #[serde(rename = "to")]
    _to: String,
}

impl Tool for SendTool {
    type Args = Letters;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("send", "Sends.").sinks(self.0.clone())
    }

    async fn run(&self, (): (), _: Call, _: Letters) -> Result<ToolRunOutcome, Error> {
        Ok(ToolRunOutcome::Completed(json!("sent")))
    }
}

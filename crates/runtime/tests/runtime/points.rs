//! Policy decisions other than those about tool calls: turns, model calls, requests, secrets, programs, payments and
//! answers.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::payment::{InMemoryPaymentAuthority, Payments, PaymentsEnabled};
use outlast_ports::service::{Agent, Models, Services, Tools};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::RuntimeConfig;
use outlast_views::ApprovalQuestion;
use outlast_vocab::label::{Labels, TrustGuard, UntrustedSource};
use outlast_vocab::payment::PaymentOrder;
use outlast_vocab::policy::{
    AfterDeferral, Approval, ApprovalRequirement, ApprovalVerdict, Comparison, Day, Policy, PolicyAction,
    PolicyDecision, PolicyPoint, RecordedDecision, Redaction, Rule, RuleTest, RuleTimes,
};
use outlast_vocab::record::{Fact, PolicyDecided, TurnEnd};
use outlast_vocab::{Error, Kind};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn rule(at: PolicyPoint, then: PolicyDecision) -> Rule {
    Rule { at, ..Rule::new("r".parse().unwrap(), then) }
}

pub(crate) fn deny() -> PolicyDecision {
    PolicyDecision::Deny { reason: "not now".to_owned() }
}

fn interrupt() -> PolicyDecision {
    PolicyDecision::Interrupt { reason: "something is wrong".to_owned() }
}

fn asks() -> PolicyDecision {
    let (who, expires) = (vec!["ann".to_owned()], Some(Duration::from_hours(1)));
    PolicyDecision::Ask(ApprovalRequirement { who, expires, ..ApprovalRequirement::default() })
}

fn defer() -> PolicyDecision {
    PolicyDecision::Defer { pause: Duration::from_hours(2), resume: AfterDeferral::Go }
}

fn set(path: &str, value: Value) -> PolicyDecision {
    PolicyDecision::Modify { set: [(path.to_owned(), value)].into(), redact: Vec::new() }
}

/// A tool that tries the action that its text names, and reports if it was allowed.
struct Doer(Arc<Witness>);

impl Tool for Doer {
    type Args = Note;
    type Needs = (Agent, Payments, Models);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("do", "Does.").idempotent().durable()
    }

    async fn run(
        &self,
        (agent, payments, models): Self::Needs,
        call: Call,
        args: Note,
    ) -> Result<ToolRunOutcome, Error> {
        match args.text.trim_end_matches(" anyway") {
            "payment" => {
                let amount = "3.10 EUR".parse().unwrap();
                let order = PaymentOrder { payee: "baker".to_owned(), amount, purpose: "cake".to_owned() };
                payments.reserve("cake", order).await?.settle().await?;
            }
            "model" => drop(models.ask("how?").await?),
            action => {
                let permitted = agent.permit(action_of(action)).await;
                // A tool that ignores the refusal continues.
                if !args.text.ends_with(" anyway") {
                    permitted?;
                }
            }
        }
        self.0.did.lock().unwrap().push(("did".to_owned(), call.id, call.attempt));
        done(format!("did {}", args.text))
    }
}

fn action_of(name: &str) -> PolicyAction {
    match name {
        "egress" => PolicyAction::Egress {
            scheme: "https".to_owned(),
            host: "api.example.com".to_owned(),
            port: 443,
            method: "GET".to_owned(),
            path: "/v1".to_owned(),
        },
        "secret" => PolicyAction::Secret { name: "TOKEN".to_owned() },
        _ => PolicyAction::Process {
            program: "git".to_owned(),
            args: vec!["push".to_owned()],
            sandboxed: false,
        },
    }
}

/// A tool that does it through another tool.
struct NestedCall;

impl Tool for NestedCall {
    type Args = Note;
    type Needs = (Tools,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("let", "Lets another do.").idempotent().durable()
    }

    async fn run(&self, (tools,): (Tools,), _: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        let tried = tools.call("do", json!({ "text": args.text })).await;
        done(tried.unwrap_or_else(|error| json!(error.to_string())))
    }
}

pub(crate) fn doing(witness: &Arc<Witness>, rules: Vec<Rule>) -> impl FnOnce(&mut RuntimeConfig) + use<> {
    let witness = witness.clone();
    move |config| {
        let mut toolbox = Toolbox::new(Services::default().grant(PaymentsEnabled));
        toolbox.add(Doer(witness)).unwrap();
        toolbox.add(NestedCall).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        config.payments = Some(Arc::new(InMemoryPaymentAuthority::with_money(["10 EUR".parse().unwrap()])));
        config.package.policy = Policy { rules };
    }
}

pub(crate) async fn under(rules: Vec<Rule>, lines: Vec<Line>) -> Life {
    let witness: Arc<Witness> = Arc::default();
    live_with(Arc::new(MemoryStore::new()), lines, witness.clone(), 1, doing(&witness, rules)).await.unwrap()
}

/// Returns the lines of a turn in which a policy decides at this point.
pub(crate) fn lines(at: PolicyPoint) -> Vec<Line> {
    match at {
        PolicyPoint::Turn | PolicyPoint::Model | PolicyPoint::Output => {
            vec![Line::Say("done"), Line::Say("fine")]
        }
        PolicyPoint::Tool => vec![call("do", "egress"), Line::Say("done")],
        _ => vec![Line::Call(vec![("do", json!({ "text": at.name() }))]), Line::Say("done")],
    }
}

fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.to_owned() }
}

pub(crate) async fn rulings(life: &Life) -> Vec<PolicyDecided> {
    let ruled = |fact| match fact {
        Fact::Ruled(ruled) => Some(ruled),
        _ => None,
    };
    life.facts().await.into_iter().filter_map(ruled).collect()
}

async fn question(life: &Life) -> ApprovalQuestion {
    life.until("turn.parked").await;
    life.runtime.approvals().pending(10, life.runtime.now()).await.unwrap().pop().expect("somebody is asked")
}

async fn say(life: &Life, question: &ApprovalQuestion, verdict: ApprovalVerdict) {
    let approval = Approval::new("ann", verdict);
    life.runtime.approve(question.id, approval).await.unwrap();
}

fn code(end: &TurnEnd) -> Option<Kind> {
    match end {
        TurnEnd::Failed { failure } => Some(failure.code),
        _ => None,
    }
}

const OF_CALLS: [PolicyPoint; 4] =
    [PolicyPoint::Egress, PolicyPoint::Secret, PolicyPoint::Process, PolicyPoint::Payment];

#[tokio::test(start_paused = true)]
async fn allowed_action_is_recorded_at_every_point() {
    for at in PolicyPoint::ALL.into_iter().filter(|at| *at != PolicyPoint::Tool) {
        let life = under(vec![rule(at, PolicyDecision::Allow)], lines(at)).await;
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, answered("done"), "{at}");
        let ruled = rulings(&life).await.remove(0);
        assert_eq!((ruled.at, ruled.ruling.rule.as_str(), ruled.facts), (at, "r", None));
        assert_eq!(life.witness.count("did"), usize::from(at.is_call_point()), "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn denied_turn_or_model_call_ends_turn() {
    for at in [PolicyPoint::Turn, PolicyPoint::Model] {
        let life = under(vec![rule(at, deny())], lines(at)).await;
        let turn = life.send("go").await;
        let TurnEnd::Failed { failure } = life.end(turn).await else { panic!("it failed") };
        assert_eq!(failure.to_string(), "policy.denied: the rule `r` forbids it: not now", "{at}");
        assert_eq!(life.script.shown.lock().unwrap().len(), 0, "{at}");
        assert_eq!(rulings(&life).await.len(), 1, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn denied_call_action_is_reported_to_model() {
    for at in OF_CALLS {
        let life = under(vec![rule(at, deny())], lines(at)).await;
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, answered("done"), "{at}");
        assert_eq!(life.witness.count("did"), 0, "{at}");
        let message = life.last_shown().pop().unwrap();
        assert!(message.contains("policy.denied: the rule `r` forbids it: not now"), "{at}: {message}");
        assert!(rulings(&life).await.iter().any(|ruled| ruled.at == at), "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_action_ends_turn() {
    for at in OF_CALLS {
        for tool in ["do", "let"] {
            for more in ["", " anyway"] {
                let text = format!("{}{more}", at.name());
                let life =
                    under(vec![rule(at, interrupt())], vec![call(tool, &text), Line::Say("done")]).await;
                let turn = life.send("go").await;
                assert_eq!(code(&life.end(turn).await), Some(Kind::PolicyInterrupted), "{at} {tool}{more}");
                assert_eq!(life.script.shown.lock().unwrap().len(), 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn turn_model_payment_and_answer_wait_for_approval() {
    for (at, facts) in [
        (PolicyPoint::Turn, json!({ "input": "go", "attachments": 0 })),
        (PolicyPoint::Model, json!({ "model": "test/script", "call": 0, "options": {} })),
        (PolicyPoint::Payment, json!({ "amount": 3.1, "currency": "EUR", "payee": "baker" })),
        (PolicyPoint::Output, json!({ "text": "done" })),
    ] {
        let life = under(vec![rule(at, asks())], lines(at)).await;
        let turn = life.send("go").await;
        let question = question(&life).await;
        assert_eq!((question.call.tool.as_str(), &question.call.arguments), (at.name(), &facts));
        assert_eq!(life.witness.count("did"), 0);
        say(&life, &question, ApprovalVerdict::Approve).await;
        // A payment or an answer is asked about once. Each model call is a separate question.
        assert_eq!(life.end(turn).await, answered("done"), "{at}");
        assert_eq!(life.witness.count("did"), usize::from(at == PolicyPoint::Payment));
        let asked: Vec<PolicyPoint> = rulings(&life).await.into_iter().map(|ruled| ruled.at).collect();
        assert_eq!(asked, [at]);
    }
}

#[tokio::test(start_paused = true)]
async fn unapproved_action_does_not_happen() {
    let no = || Some(ApprovalVerdict::Deny { reason: "too much".to_owned() });
    for (at, word) in [
        (PolicyPoint::Turn, no()),
        (PolicyPoint::Turn, None),
        (PolicyPoint::Model, no()),
        (PolicyPoint::Model, None),
    ] {
        let life = under(vec![rule(at, asks())], lines(at)).await;
        let turn = life.send("go").await;
        let question = question(&life).await;
        if let Some(word) = word {
            say(&life, &question, word).await;
        }
        assert_eq!(code(&life.end(turn).await), Some(Kind::ApprovalDenied), "{at}");
        assert_eq!(life.script.shown.lock().unwrap().len(), 0, "{at}");
    }
    let life = under(vec![rule(PolicyPoint::Payment, asks())], lines(PolicyPoint::Payment)).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(life.witness.count("did"), 0);
    // An answer without an approval goes back to the model, with the reason.
    let done = RuleTest { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!("done")]) };
    let rules = vec![Rule { tests: vec![done], ..rule(PolicyPoint::Output, asks()) }];
    let life = under(rules, lines(PolicyPoint::Output)).await;
    let turn = life.send("go").await;
    say(&life, &question(&life).await, no().unwrap()).await;
    assert_eq!(life.end(turn).await, answered("fine"));
    let message = life.last_shown().pop().unwrap();
    assert!(message.contains("approval.denied: ann said no: too much"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn deferred_turn_and_model_call_resume_after_pause() {
    for at in [PolicyPoint::Turn, PolicyPoint::Model] {
        let life = under(vec![rule(at, defer())], lines(at)).await;
        let begun = life.runtime.now();
        let turn = life.send("go").await;
        life.until("turn.parked").await;
        assert_eq!(life.script.shown.lock().unwrap().len(), 0, "{at}");
        assert_eq!(life.end(turn).await, answered("done"), "{at}");
        assert!(begun.until(life.runtime.now()) >= Duration::from_hours(2), "{at}");
    }
}

/// Defers by a minute until 00:18, then decides again. The test clock starts shortly before 00:17.
fn not_early(at: PolicyPoint) -> Rule {
    let hours = Some("00:00-00:18".parse().unwrap());
    let times = RuleTimes { zone: "UTC".to_owned(), days: Vec::new(), hours };
    let then = PolicyDecision::Defer { pause: Duration::from_mins(1), resume: AfterDeferral::Judge };
    Rule { times: Some(times), ..rule(at, then) }
}

#[tokio::test(start_paused = true)]
async fn reevaluated_action_waits_until_allowed() {
    for at in [PolicyPoint::Turn, PolicyPoint::Model] {
        let life = under(vec![not_early(at)], lines(at)).await;
        let begun = life.runtime.now();
        let turn = life.send("go").await;
        life.until("turn.parked").await;
        assert_eq!(life.end(turn).await, answered("done"), "{at}");
        let waited = begun.until(life.runtime.now());
        assert!(waited >= Duration::from_mins(2) && waited < Duration::from_mins(3), "{at} {waited:?}");
        let rulings = rulings(&life).await;
        let decided: Vec<_> =
            rulings.iter().map(|ruled| (ruled.key.as_str(), ruled.ruling.decision.name())).collect();
        let place = if at == PolicyPoint::Turn { "turn/0" } else { "turn/0/model/0" };
        let again = |number: u32| format!("{place}/again:{number}");
        let (first, second) = (again(1), again(2));
        assert_eq!(decided, [(place, "defer"), (&first, "defer"), (&second, "allow")]);
    }
}

#[tokio::test(start_paused = true)]
async fn reevaluation_may_modify_or_ask() {
    let put_off = not_early(PolicyPoint::Model);
    let otherwise = |then| Rule { id: "else".parse().unwrap(), ..rule(PolicyPoint::Model, then) };
    let rules = vec![put_off.clone(), otherwise(set("/options/tokens_most", json!(64)))];
    let life = under(rules, lines(PolicyPoint::Model)).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let asked = life.script.asked.lock().unwrap().clone();
    assert_eq!(asked.iter().map(|(_, options)| options.tokens_most).collect::<Vec<_>>(), [Some(64)]);
    let life = under(vec![put_off, otherwise(asks())], lines(PolicyPoint::Model)).await;
    let turn = life.send("go").await;
    let end = tokio::select! {
        end = life.end(turn) => end,
        never = approves(&life) => never,
    };
    assert_eq!(end, answered("done"));
}

#[tokio::test(start_paused = true)]
async fn repeatedly_deferred_action_is_denied() {
    for at in [PolicyPoint::Turn, PolicyPoint::Model] {
        let witness: Arc<Witness> = Arc::default();
        let put_off = PolicyDecision::Defer { pause: Duration::from_mins(1), resume: AfterDeferral::Judge };
        let policy = doing(&witness, vec![rule(at, put_off)]);
        let change = |config: &mut RuntimeConfig| {
            policy(config);
            config.limits.judged_again = 2;
        };
        let life =
            live_with(Arc::new(MemoryStore::new()), lines(at), witness.clone(), 1, change).await.unwrap();
        let turn = life.send("go").await;
        let error = life.end(turn).await.answer().unwrap_err();
        assert_eq!(error.kind(), Kind::PolicyDenied, "{at}");
        assert!(
            error.detail().contains("the rule `r` put it off 3 times, and its time did not come"),
            "{error}"
        );
        assert_eq!(life.script.shown.lock().unwrap().len(), 0, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn rule_can_change_model_options_of_any_request() {
    let rules = vec![rule(PolicyPoint::Model, set("/options/tokens_most", json!(64)))];
    let life = under(rules, vec![call("do", "model"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let asked = life.script.asked.lock().unwrap().clone();
    let tokens: Vec<_> = asked.iter().map(|(_, options)| options.tokens_most).collect();
    assert_eq!(tokens, [Some(64), Some(64), Some(64)]);
}

#[tokio::test(start_paused = true)]
async fn tool_model_request_can_be_denied_not_deferred() {
    let second = RuleTest { path: "/call".to_owned(), is: Comparison::Over(0.into()) };
    for then in [deny(), asks(), defer()] {
        let rules = vec![Rule { tests: vec![second.clone()], ..rule(PolicyPoint::Model, then) }];
        let life = under(rules, vec![call("do", "model")]).await;
        let turn = life.send("go").await;
        // The rule also matches the next model call of the turn.
        life.until("effect.answered").await;
        assert_eq!(life.witness.count("did"), 0);
        assert_eq!(life.script.shown.lock().unwrap().len(), 1);
        life.runtime.cancel(turn, "seen").await.unwrap();
        life.end(turn).await;
    }
}

#[tokio::test(start_paused = true)]
async fn denied_answer_goes_back_up_to_limit() {
    let done = RuleTest { path: "/text".to_owned(), is: Comparison::Like("do*".to_owned()) };
    let rules = || vec![Rule { tests: vec![done.clone()], ..rule(PolicyPoint::Output, deny()) }];
    let life = under(rules(), lines(PolicyPoint::Output)).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("fine"));
    let message = life.last_shown().pop().unwrap();
    assert!(message.contains("policy.denied: the rule `r` forbids it: not now"), "{message}");
    let stubborn = under(rules(), vec![Line::Say("done"); 9]).await;
    let turn = stubborn.send("go").await;
    assert_eq!(code(&stubborn.end(turn).await), Some(Kind::PolicyDenied));
}

#[tokio::test(start_paused = true)]
async fn rule_on_answer_can_end_turn() {
    let life = under(vec![rule(PolicyPoint::Output, interrupt())], lines(PolicyPoint::Output)).await;
    let turn = life.send("go").await;
    assert_eq!(code(&life.end(turn).await), Some(Kind::PolicyInterrupted));
}

#[tokio::test(start_paused = true)]
async fn changed_answer_replaces_original_in_every_record() {
    let redact = vec![Redaction { pattern: r"\d{3,}".to_owned(), with: "$0".to_owned() }];
    let masked = PolicyDecision::Modify { set: [].into(), redact };
    for (then, text) in [(masked, "call $0, or $0"), (set("/text", json!("no")), "no")] {
        let life = under(vec![rule(PolicyPoint::Output, then)], vec![Line::Say("call 5551, or 555")]).await;
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, answered(text));
        let message =
            life.facts().await.iter().any(|fact| String::from_utf8_lossy(&fact.encode()).contains("5551"));
        assert!(!message, "what was taken out is nowhere");
        let second = life.send("again").await;
        life.end(second).await;
        assert!(life.last_shown().contains(&text.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn rules_see_the_facts_of_their_point() {
    for (at, path, value) in [
        (PolicyPoint::Turn, "/input", json!("go")),
        (PolicyPoint::Model, "/model", json!("test/script")),
        (PolicyPoint::Egress, "/host", json!("api.example.com")),
        (PolicyPoint::Egress, "/port", json!(443)),
        (PolicyPoint::Secret, "/name", json!("TOKEN")),
        (PolicyPoint::Process, "/args/0", json!("push")),
        (PolicyPoint::Process, "/sandboxed", json!(false)),
        (PolicyPoint::Payment, "/payee", json!("baker")),
        (PolicyPoint::Output, "/text", json!("done")),
    ] {
        for (value, is_for) in [(value, true), (json!("another"), false)] {
            let tests = vec![RuleTest { path: path.to_owned(), is: Comparison::OneOf(vec![value]) }];
            let life = under(vec![Rule { tests, ..rule(at, PolicyDecision::Allow) }], lines(at)).await;
            let turn = life.send("go").await;
            assert_eq!(life.end(turn).await, answered("done"));
            assert_eq!(rulings(&life).await.iter().any(|ruled| ruled.at == at), is_for, "{at} {path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rules_match_agents_tools_and_times() {
    // The test clock shows Thursday, 1 January 1970, a quarter past midnight UTC. London was one hour ahead then.
    let times = |days: &[Day], hours: &str| {
        Some(RuleTimes {
            zone: "Europe/London".to_owned(),
            days: days.to_vec(),
            hours: Some(hours.parse().unwrap()),
        })
    };
    let base = || rule(PolicyPoint::Egress, deny());
    for (rule, is_for) in [
        (Rule { times: times(&[Day::Thu], "01:00-02:00"), ..base() }, true),
        (Rule { times: times(&[Day::Thu], "00:00-01:00"), ..base() }, false),
        (Rule { times: times(&[Day::Fri], "01:00-02:00"), ..base() }, false),
        (Rule { agent: Some("test*".to_owned()), ..base() }, true),
        (Rule { agent: Some("clerk".to_owned()), ..base() }, false),
        (Rule { tool: "do".to_owned(), ..base() }, true),
        (Rule { tool: "other".to_owned(), ..base() }, false),
        // The price of the model is unknown, so the cost may exceed the limit.
        (Rule { cost_over: Some("5".parse().unwrap()), ..base() }, true),
    ] {
        let life = under(vec![rule.clone()], lines(PolicyPoint::Egress)).await;
        let turn = life.send("go").await;
        life.end(turn).await;
        assert_eq!(life.witness.count("did") == 0, is_for, "{rule:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_rule_is_refused_at_startup() {
    let witness: Arc<Witness> = Arc::default();
    let times = RuleTimes { zone: "Europe/Atlantis".to_owned(), days: vec![Day::Mon], hours: None };
    let redact = vec![Redaction { pattern: "(".to_owned(), with: String::new() }];
    for (rule, message) in [
        (rule(PolicyPoint::Process, asks()), "rule `r`: `ask` is not supported at `process`"),
        (
            Rule { times: Some(times), ..rule(PolicyPoint::Turn, deny()) },
            "expected a time zone like `Europe/Berlin`",
        ),
        (
            rule(PolicyPoint::Output, PolicyDecision::Modify { set: [].into(), redact }),
            "expected a regular expression, got `(`",
        ),
    ] {
        let change = doing(&witness, vec![rule]);
        let refused = live_with(Arc::new(MemoryStore::new()), Vec::new(), witness.clone(), 1, change).await;
        let error = refused.err().expect("it is refused");
        assert_eq!(error.kind(), Kind::ConfigInvalid);
        assert!(error.detail().contains(message), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn nested_call_that_must_wait_is_denied() {
    for then in [asks(), defer()] {
        let rules = vec![Rule { tool: "do".to_owned(), ..rule(PolicyPoint::Tool, then) }];
        let life = under(rules, vec![call("let", "egress"), Line::Say("done")]).await;
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, answered("done"));
        assert_eq!(life.witness.count("did"), 0);
        let message = life.last_shown().pop().unwrap();
        assert!(message.contains("policy.denied: the rule `r` pauses `do`"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn nested_call_decision_is_recorded_with_arguments() {
    for (then, text, times) in [
        (PolicyDecision::Allow, "egress", 1),
        (set("/text", json!("secret")), "secret", 1),
        (deny(), "egress", 0),
        (interrupt(), "egress", 0),
        (asks(), "egress", 0),
    ] {
        let witness: Arc<Witness> = Arc::default();
        let tainted =
            Rule { tool: "do".to_owned(), untrusted: Some(true), ..rule(PolicyPoint::Tool, then.clone()) };
        let rules =
            vec![tainted, Rule { tool: "let".to_owned(), ..rule(PolicyPoint::Tool, PolicyDecision::Allow) }];
        let change = doing(&witness, rules.clone());
        let change = |config: &mut RuntimeConfig| {
            change(config);
            config.package.guard = TrustGuard::Guarded;
            config.package.policy.rules[1].untrusted = Some(true);
        };
        // The result of the first call is untrusted, so the second call is labelled.
        let lines = vec![call("do", "process"), call("let", "egress"), Line::Say("done")];
        let life = live_with(Arc::new(MemoryStore::new()), lines, witness, 1, change).await.unwrap();
        let turn = life.send("go").await;
        let end = life.end(turn).await;
        assert_eq!(code(&end), (then.name() == "interrupt").then_some(Kind::PolicyInterrupted));
        assert_eq!(life.witness.count("did"), 1 + times, "{}", then.name());
        let version = {
            let mut rules = rules;
            rules[1].untrusted = Some(true);
            Policy { rules }.version()
        };
        let (labels, tool) =
            (Labels::from_iter([UntrustedSource::Tool("do".parse().unwrap())]), "do".parse().unwrap());
        let ruling = RecordedDecision::new("r".parse().unwrap(), version, then.clone());
        let mut noted = rulings(&life).await;
        let key = noted[0].key.clone();
        let preview = noted[0].ruling.preview.take();
        assert_eq!(preview, None);
        let want = PolicyDecided::of_call(
            key.clone(),
            tool,
            ruling.clone(),
            json!({ "text": text }),
            labels.clone(),
        );
        assert_eq!(noted, [want]);
        let records = life.runtime.store().turn_records(turn).await.unwrap();
        let mut effects = outlast_runtime::views::timeline::of_turn(records).effects.into_iter();
        let Some(effect) = effects.find(|effect| effect.key == key) else {
            // A call that would have to wait leaves only its decision.
            assert_eq!(then.name(), "ask");
            continue;
        };
        assert_eq!(effect.request["input"], json!({ "text": text }));
        let view = effect.call.unwrap();
        assert_eq!((view.tool.as_str(), view.ruling, view.labels), ("do", Some(ruling), labels));
    }
}

#[tokio::test(start_paused = true)]
async fn denied_turn_error_names_rule_and_policy_version() {
    for at in [PolicyPoint::Turn, PolicyPoint::Model] {
        let rules = vec![rule(at, deny())];
        let life = under(rules.clone(), lines(at)).await;
        let turn = life.send("go").await;
        let error = life.end(turn).await.answer().unwrap_err();
        let policy = format!("r@{}", Policy { rules }.version());
        assert_eq!((error.kind(), error.policy()), (Kind::PolicyDenied, Some(policy.as_str())), "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn turn_waiting_at_start_or_end_is_cancellable() {
    for at in [PolicyPoint::Turn, PolicyPoint::Model, PolicyPoint::Output] {
        let life = under(vec![rule(at, asks())], lines(at)).await;
        let turn = life.send("go").await;
        life.until("turn.parked").await;
        life.runtime.cancel(turn, "enough").await.unwrap();
        assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() }, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_action_survives_crashes_and_happens_once() {
    let defer = || PolicyDecision::Defer { pause: Duration::from_secs(5), resume: AfterDeferral::Go };
    let cases = [
        (PolicyPoint::Turn, asks()),
        (PolicyPoint::Turn, defer()),
        (PolicyPoint::Model, asks()),
        (PolicyPoint::Model, defer()),
        (PolicyPoint::Output, asks()),
        (PolicyPoint::Payment, asks()),
        (PolicyPoint::Output, deny()),
    ];
    for (at, then) in cases {
        let done = RuleTest { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!("done")]) };
        // A denied answer goes back to the model once.
        let tests = if then.name() == "deny" { vec![done] } else { Vec::new() };
        let deaths = killed_at_every_write(&Rule { tests, ..rule(at, then.clone()) }).await;
        assert!(deaths > 4, "{at} {}: died {deaths} times", then.name());
    }
}

#[tokio::test(start_paused = true)]
async fn reevaluated_action_survives_crashes_and_happens_once() {
    for at in [PolicyPoint::Turn, PolicyPoint::Model] {
        let deaths = killed_at_every_write(&not_early(at)).await;
        assert!(deaths > 8, "{at}: died {deaths} times");
    }
}

async fn killed_at_every_write(decides: &Rule) -> u32 {
    let (at, then) = (decides.at, &decides.then);
    let rules = || vec![decides.clone()];
    let want = answered(if then.name() == "deny" { "fine" } else { "done" });
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [CrashPoint::Before(write), CrashPoint::AfterWrite(write)]) {
        let memory = MemoryStore::new();
        let crashing_store = CrashingStore::new(memory.clone(), death);
        let pulse = crashing_store.pulse();
        let witness: Arc<Witness> = Arc::default();
        let change = doing(&witness, rules());
        let first = live_with(Arc::new(crashing_store), lines(at), witness.clone(), 1, change).await.unwrap();
        let all = async {
            let turn = first.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
            tokio::select! {
                end = first.end(turn) => end,
                never = approves(&first) => never,
            }
        };
        let finished = tokio::select! {
            end = all => Some(end),
            () = pulse.stopped() => None,
        };
        if let Some(end) = finished {
            assert_eq!(end, want);
            break;
        }
        deaths += 1;
        first.die(&memory).await;
        let change = doing(&witness, rules());
        let second = live_with(Arc::new(memory), lines(at), witness.clone(), 2, change).await.unwrap();
        let turn = second.runtime.submit(keyed_input("k", "go")).await.unwrap().turn;
        let end = tokio::select! {
            end = second.end(turn) => end,
            never = approves(&second) => never,
        };
        assert_eq!(end, want, "{at} {death:?}");
        let asked = rulings(&second).await.iter().filter(|ruled| ruled.facts.is_some()).count();
        assert_eq!(asked, usize::from(then.name() == "ask"), "{at} {death:?}: it is asked once");
    }
    deaths
}

/// Approves every question.
async fn approves(life: &Life) -> TurnEnd {
    loop {
        // A crashed store no longer answers.
        for question in life.runtime.approvals().pending(10, life.runtime.now()).await.unwrap_or_default() {
            let approval = Approval::new("ann", ApprovalVerdict::Approve);
            let _answered = life.runtime.approve(question.id, approval).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

//! What a policy decides of calls, and what people decide when it asks them (R11.1, R11.2).
use crate::common::*;
use outlast_ports::memory::Memory;
use outlast_ports::service::Services;
use outlast_ports::store::Resolved;
use outlast_ports::tool::{About, Call, Ran, Tool, Toolbox};
use outlast_ports::votes::Voted;
use outlast_runtime::approvals::{Approvals, Question};
use outlast_runtime::{Config, Input};
use outlast_vocab::effect::{BatchCall, Command};
use outlast_vocab::policy::{Approval, Ask, Comparison, Decision, Policy, Rule, Test, Verdict};
use outlast_vocab::record::{End, Fact};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Kind, SessionId};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn rule(id: &str, tool: &str, then: Decision) -> Rule {
    Rule { tool: tool.to_owned(), ..Rule::new(id.parse().unwrap(), then) }
}

fn asks() -> Decision {
    let (who, expires) = (vec!["ann".to_owned()], Some(Duration::from_hours(1)));
    Decision::Ask(Ask { who, expires, ..Ask::default() })
}

pub(crate) fn ruled(rules: Vec<Rule>) -> impl FnOnce(&mut Config) {
    move |config| config.package.policy = Policy { rules }
}

pub(crate) async fn under(rules: Vec<Rule>, lines: Vec<Line>) -> (Memory, Life) {
    let memory = Memory::new();
    let life = live_with(Arc::new(memory.clone()), lines, Arc::default(), 1, ruled(rules)).await.unwrap();
    (memory, life)
}

pub(crate) fn approvals(life: &Life) -> Approvals {
    life.runtime.approvals()
}

pub(crate) async fn question(life: &Life) -> Question {
    life.until("turn.parked").await;
    approvals(life).pending(10).await.unwrap().pop().expect("somebody is asked")
}

pub(crate) async fn say(life: &Life, question: &Question, by: &str, verdict: Verdict) -> Result<bool, Error> {
    let approval = Approval::new(by, verdict);
    let voted = life.runtime.approve(question.id, approval).await?;
    Ok(matches!(voted, Voted::Decided(Resolved { yours: true, .. })))
}

pub(crate) fn paid() -> Vec<Line> {
    vec![call("pay", "7"), Line::Say("done")]
}

pub(crate) fn done() -> End {
    End::Answered { text: "done".to_owned() }
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

#[tokio::test(start_paused = true)]
async fn a_call_that_a_rule_denies_never_runs_and_the_model_is_told_the_rule() {
    let deny = Decision::Deny { reason: "money is tight".to_owned() };
    let (_, life) = under(vec![rule("no-money", "pa*", deny)], paid()).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 0);
    let told = life.last_shown().pop().unwrap();
    assert!(told.contains("policy.denied: the rule `no-money` forbids it: money is tight"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_allows_is_in_the_record_and_so_is_what_a_rule_changed() {
    let cap = Test { path: "/text".to_owned(), is: Comparison::NoneOf(vec![json!("1")]) };
    let set = [("/text".to_owned(), json!("1"))].into();
    let modify =
        Rule { tests: vec![cap], ..rule("cap", "pay", Decision::Modify { set, redact: Vec::new() }) };
    let (_, life) = under(vec![modify, rule("fine", "*", Decision::Allow)], paid()).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.last_shown().pop().unwrap(), "\"paid 1\"".trim_matches('"'));
    let call = claimed(&life).await.pop().unwrap();
    assert_eq!(call.arguments, json!({ "text": "1" }));
    let ruling = call.ruling.unwrap();
    assert_eq!(ruling.rule.as_str(), "cap");
    assert!(matches!(ruling.decision, Decision::Modify { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_interrupts_ends_the_turn_and_no_call_of_the_reply_runs() {
    let interrupt = Decision::Interrupt { reason: "something is wrong".to_owned() };
    let lines = vec![Line::Call(vec![("put", json!({})), ("pay", json!({}))])];
    let (_, life) = under(vec![rule("alarm", "pay", interrupt)], lines).await;
    let turn = life.send("go").await;
    let End::Failed { failure } = life.end(turn).await else { panic!("the turn failed") };
    assert_eq!(failure.code, Kind::PolicyInterrupted);
    assert_eq!((life.witness.count("pay"), life.witness.count("put")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_deferred_runs_after_its_pause() {
    let defer = Decision::Defer { pause: Duration::from_hours(2) };
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
async fn a_call_waits_until_somebody_who_may_approves_exactly_it() {
    let (_, life) = under(vec![rule("money", "pay", asks())], paid()).await;
    let turn = life.send("go").await;
    let question = question(&life).await;
    assert_eq!(question.call.tool.as_str(), "pay");
    assert_eq!(question.call.arguments, json!({ "text": "7" }));
    assert_eq!(life.witness.count("pay"), 0);
    let refused = say(&life, &question, "eve", Verdict::Approve).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::ApprovalForbidden);
    assert!(say(&life, &question, "ann", Verdict::Approve).await.unwrap());
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 1);
    let gone = say(&life, &question, "ann", Verdict::Approve).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::ApprovalNotFound);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_approved_does_not_run_and_the_model_is_told_who_said_no() {
    for (word, told) in [
        (Some(Verdict::Deny { reason: "too much".to_owned() }), "approval.denied: ann said no: too much"),
        (None, "approval.denied: nobody approved it in time"),
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
        assert!(shown.contains(told), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_may_change_the_arguments_and_the_change_is_recorded_and_held_to_the_rules() {
    let never = Test { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!("all")]) };
    let deny = Decision::Deny { reason: "not everything".to_owned() };
    let rules = || {
        vec![
            Rule { tests: vec![never.clone()], ..rule("never", "*", deny.clone()) },
            rule("money", "pay", asks()),
        ]
    };
    for (arguments, times, told) in
        [(json!({ "text": "3" }), 1, "paid 3"), (json!({ "text": "all" }), 0, "the rule `never` forbids it")]
    {
        let (_, life) = under(rules(), paid()).await;
        let turn = life.send("go").await;
        let question = question(&life).await;
        let bad = say(&life, &question, "ann", Verdict::Edit { arguments: json!({ "text": 3 }) }).await;
        assert_eq!(bad.unwrap_err().kind(), Kind::ToolArgsInvalid);
        say(&life, &question, "ann", Verdict::Edit { arguments }).await.unwrap();
        assert_eq!(life.end(turn).await, done());
        assert_eq!(life.witness.count("pay"), times);
        let shown = life.last_shown().pop().unwrap();
        assert!(shown.contains(told), "{shown}");
        let recorded = life.facts().await.into_iter().any(|fact| {
            matches!(fact, Fact::Resolved { resolution: Resolution::Ok(word), .. } if word["by"] == "ann")
        });
        assert!(recorded);
    }
}

/// A tool whose calls are worked out beforehand.
struct Quoted(Arc<Witness>);

impl Tool for Quoted {
    type Args = Note;
    type Needs = ();

    fn about(&self) -> About {
        About::new("quoted", "Pays a quoted price.").idempotent()
    }

    async fn prepare(&self, _: SessionId, args: &Note) -> Result<Option<Value>, Error> {
        Ok(Some(json!(format!("quote for {}", args.text))))
    }

    async fn run(&self, (): (), call: Call, _: Note) -> Result<Ran, Error> {
        self.0.did.lock().unwrap().push(("quoted".to_owned(), call.id, call.attempt));
        outlast_ports::tool::done(call.payload)
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_worked_out_for_a_call_is_worked_out_anew_when_it_is_edited() {
    let witness: Arc<Witness> = Arc::default();
    let change = |config: &mut Config| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Quoted(witness.clone())).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        ruled(vec![rule("money", "quoted", asks())])(config);
    };
    let lines = vec![call("quoted", "7"), Line::Say("done")];
    let life = live_with(Arc::new(Memory::new()), lines, witness.clone(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    let question = question(&life).await;
    say(&life, &question, "ann", Verdict::Edit { arguments: json!({ "text": "3" }) }).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.last_shown().pop().unwrap(), "quote for 3");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_approval_is_a_no() {
    let (_, life) = under(vec![rule("money", "pay", asks())], paid()).await;
    let turn = life.send("go").await;
    let question = question(&life).await;
    let key = life.runtime.key_of(turn, &question.wait.key).await.unwrap();
    life.runtime.resolve(&key, Resolution::Ok(json!(true))).await.unwrap();
    assert_eq!(life.end(turn).await, done());
    assert_eq!(life.witness.count("pay"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_defined_otherwise_by_now_asks_again() {
    let rules = || vec![rule("money", "stepped", asks())];
    let lines = || vec![call("stepped", "7"), Line::Say("done")];
    let memory = Memory::new();
    let life = live_with(Arc::new(memory.clone()), lines(), Arc::default(), 1, ruled(rules())).await.unwrap();
    let turn = life.send("go").await;
    let first = question(&life).await;
    life.die(&memory).await;
    let approval = Approval::new("ann", Verdict::Approve);
    Approvals::new(Arc::new(memory.clone())).decide(first.id, approval, first.since).await.unwrap();
    // Deployed anew, the tool says something else of itself: what was approved is not what would run.
    let witness: Arc<Witness> = Arc::default();
    let change = |config: &mut Config| {
        let mut tools = toolbox(Arc::default(), false).unwrap();
        tools.add(Reworded(witness.clone())).unwrap();
        config.tools = vec![Arc::new(tools)];
        ruled(rules())(config);
    };
    let second = live_with(Arc::new(memory), lines(), witness.clone(), 2, change).await.unwrap();
    let again = loop {
        let asked = approvals(&second).pending(10).await.unwrap();
        if let Some(again) = asked.into_iter().find(|question| question.id != first.id) {
            break again;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(witness.count("step one"), 0);
    say(&second, &again, "ann", Verdict::Approve).await.unwrap();
    assert_eq!(second.end(turn).await, done());
    assert_eq!(witness.count("step one"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_an_approval_survives_a_death_at_every_write_and_runs_once() {
    let keyed = || Input { key: Some("k".into()), ..input("go") };
    let mut deaths = 0;
    for death in (0..).flat_map(|write| [Death::Before(write), Death::After(write)]) {
        let memory = Memory::new();
        let mortal = Mortal::new(memory.clone(), death);
        let pulse = mortal.pulse();
        let witness: Arc<Witness> = Arc::default();
        let rules = || ruled(vec![rule("money", "book", asks())]);
        let lines = || vec![call("book", "7"), Line::Say("done")];
        let first = live_with(Arc::new(mortal), lines(), witness.clone(), 1, rules()).await.unwrap();
        let all = async {
            let turn = first.runtime.submit(keyed()).await.unwrap().turn;
            let question = question(&first).await;
            say(&first, &question, "ann", Verdict::Approve).await.unwrap();
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
        let turn = second.runtime.submit(keyed()).await.unwrap().turn;
        let asked = async {
            loop {
                for question in approvals(&second).pending(10).await.unwrap() {
                    say(&second, &question, "ann", Verdict::Approve).await.unwrap();
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
async fn a_rule_with_the_name_of_the_guard_is_refused_at_start_up() {
    let named = |config: &mut Config| {
        let then = Decision::Deny { reason: "no".to_owned() };
        config.package.policy.rules = vec![rule("guard", "pay", then)];
    };
    let started = live_with(Arc::new(Memory::new()), Vec::new(), Arc::default(), 1, named).await;
    assert_eq!(started.err().map(|error| error.kind()), Some(Kind::ConfigInvalid));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_no_argument_can_be_is_refused_at_start_up() {
    for (sinks, starts) in [(["/text"], true), (["text"], false), (["/to"], false), (["/text/deep"], true)] {
        let with = |config: &mut Config| {
            let mut toolbox = Toolbox::new(Services::default());
            toolbox.add(Sends(sinks.map(ToOwned::to_owned).to_vec())).unwrap();
            config.package.tools = vec!["send".parse().unwrap()];
            config.tools = vec![Arc::new(toolbox)];
        };
        let started = live_with(Arc::new(Memory::new()), Vec::new(), Arc::default(), 1, with).await;
        assert_eq!(
            started.err().map(|error| error.kind()),
            (!starts).then_some(Kind::ConfigInvalid),
            "{sinks:?}"
        );
    }
}

struct Sends(Vec<String>);

impl Tool for Sends {
    type Args = Note;
    type Needs = ();

    fn about(&self) -> About {
        About::new("send", "Sends.").sinks(self.0.clone())
    }

    async fn run(&self, (): (), _: Call, _: Note) -> Result<Ran, Error> {
        Ok(Ran::Done(json!("sent")))
    }
}

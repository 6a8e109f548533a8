//! Hooks: where they run, what they change, and how their changes are recorded.
use crate::common::*;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::hook::{
    AfterEnd, AfterModel, AfterTool, AtCheckpoint, BeforeCompletion, BeforeContext, BeforeModel, BeforeTool,
    HookAt, HookStage, OnError,
};
use outlast_ports::service::Tools;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done};
use outlast_runtime::RuntimeConfig;
use outlast_vocab::effect::{BatchCall, Boundary, Command, Generation, InjectedMessage, Outcome};
use outlast_vocab::hook::{
    AnswerPatch, CallPatch, CheckpointPatch, ContextPatch, HookCall, HookPatch, ModelPatch, OnFailure,
    ReplyPatch, ResultPatch,
};
use outlast_vocab::message::ToolResult;
use outlast_vocab::policy::{Comparison, Policy, PolicyDecision, Rule, RuleTest};
use outlast_vocab::record::{Fact, HookApplied, TurnEnd};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, Kind, Limits};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Creates a hook from a closure.
pub(crate) fn hook<P: HookStage>(
    name: &str,
    run: impl Fn(P::Seen) -> Result<Option<P::Patch>, Error> + Send + Sync + 'static,
) -> HookAt {
    HookAt::new::<P>(name, move |_: HookCall, seen: P::Seen| std::future::ready(run(seen))).unwrap()
}

/// Creates a hook that never answers.
fn hanging<P: HookStage>(name: &str) -> HookAt {
    HookAt::new::<P>(name, |_: HookCall, _: P::Seen| std::future::pending()).unwrap()
}

fn failing<P: HookStage>(name: &str) -> HookAt {
    hook::<P>(name, |_| Err(Error::new(Kind::ToolFailed, "the moon is full")))
}

/// Adds these hooks to the agent of a test.
pub(crate) fn hooked(hooks: Vec<HookAt>) -> impl FnOnce(&mut RuntimeConfig) {
    move |config| {
        config.package.hooks = hooks.iter().map(|hook| hook.usage.clone()).collect();
        config.hooks = hooks;
    }
}

async fn with(hooks: Vec<HookAt>, lines: Vec<Line>) -> Life {
    live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, hooked(hooks)).await.unwrap()
}

async fn end_of(hooks: Vec<HookAt>, lines: Vec<Line>) -> (Life, TurnEnd) {
    let life = with(hooks, lines).await;
    let turn = life.send("go").await;
    let end = life.end(turn).await;
    (life, end)
}

fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.to_owned() }
}

async fn changes(life: &Life) -> Vec<HookApplied> {
    let hooked = |fact| match fact {
        Fact::Hooked(hooked) => Some(hooked),
        _ => None,
    };
    life.facts().await.into_iter().filter_map(hooked).collect()
}

fn failure(end: TurnEnd) -> String {
    let TurnEnd::Failed { failure } = end else { panic!("expected a failure, got {end:?}") };
    failure.to_string()
}

/// Returns a hook for every point that can change something.
pub(crate) fn all() -> Vec<HookAt> {
    vec![
        hook::<BeforeContext>("facts", |_| {
            let patch =
                ContextPatch { system: Some("Be short.".into()), messages: vec!["It is Monday.".into()] };
            Ok(Some(patch))
        }),
        hook::<BeforeModel>("cool", |seen| {
            let options = Generation { temperature_milli: Some(0), ..seen.options };
            Ok(Some(ModelPatch { system: None, options: Some(options) }))
        }),
        hook::<AfterModel>("sign", |seen| {
            let text = format!("{} -- signed", seen.text);
            Ok((!seen.text.is_empty()).then_some(ReplyPatch { text }))
        }),
        hook::<BeforeTool>("cap", |seen| {
            let capped = seen.arguments["text"] == "1000";
            Ok(capped.then(|| CallPatch::Arguments(json!({ "text": "100" }))))
        }),
        hook::<AfterTool>("mask", |seen| {
            let ToolResult::Ok(value) = seen.result else { return Ok(None) };
            Ok(Some(ResultPatch::Ok(json!(format!("<{}>", value.as_str().unwrap_or_default())))))
        }),
        hook::<BeforeCompletion>("review", |seen| {
            let unsure = seen.answer.contains("perhaps");
            Ok(unsure.then(|| AnswerPatch { send_back: "Be sure.".into() }))
        }),
    ]
}

/// Returns a hook that tells the model something after its tools have run.
pub(crate) fn note() -> HookAt {
    hook::<AtCheckpoint>("note", |seen| {
        let messages = vec!["Mind the gap.".to_owned()];
        Ok((seen.boundary == Boundary::AfterWork).then_some(CheckpointPatch { messages }))
    })
}

#[tokio::test(start_paused = true)]
async fn checkpoint_hook_messages_join_turn_and_are_recorded() {
    let (life, end) = end_of(vec![note()], vec![call("pay", "ann"), Line::Say("done")]).await;
    assert_eq!(end, answered("done"));
    assert_eq!(life.last_shown(), ["go", "", "paid ann", "Mind the gap."]);
    let joined = life.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Performed(performed) => match performed.outcome {
            Outcome::Checkpoint(joined) => Some(joined.messages),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(
        joined,
        Some(vec![InjectedMessage { by: "note".to_owned(), text: "Mind the gap.".to_owned() }])
    );
}

/// A tool that pays through another tool.
struct Relay;

impl Tool for Relay {
    type Args = Note;
    type Needs = (Tools,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("relay", "Lets another tool pay.").durable()
    }

    async fn run(&self, (tools,): Self::Needs, _: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        done(tools.call("pay", json!({ "text": args.text })).await?)
    }
}

#[tokio::test(start_paused = true)]
async fn nested_calls_run_the_same_hooks() {
    let witness: Arc<Witness> = Arc::default();
    let mut toolbox = toolbox(witness.clone(), true).unwrap();
    toolbox.add(Relay).unwrap();
    let relayed = |config: &mut RuntimeConfig| {
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        hooked(all())(config);
    };
    let lines = vec![call("relay", "1000"), Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, witness, 1, relayed).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done -- signed"));
    // Capped for the call of the model, and masked for both calls.
    assert!(life.last_shown().contains(&"<<paid 100>>".to_owned()), "{:?}", life.last_shown());
    let changed = changes(&life).await.into_iter().filter(|changed| changed.hook.as_str() == "mask");
    let keys: Vec<String> = changed.map(|changed| changed.key.to_string()).collect();
    assert_eq!(keys, ["turn/0/tools/0/child:0:c0_0/tool:0:pay", "turn/0/tools/0/child:0:c0_0"]);
}

#[tokio::test(start_paused = true)]
async fn before_context_adds_to_one_model_call_only() {
    let facts = hook::<BeforeContext>("facts", |seen| {
        assert_eq!((seen.system.as_str(), seen.messages.len()), ("Test.", 1));
        let patch = ContextPatch { system: Some("Be short.".into()), messages: vec!["It is Monday.".into()] };
        Ok(Some(patch))
    });
    let (life, end) = end_of(vec![facts], vec![Line::Say("done")]).await;
    assert_eq!(end, answered("done"));
    assert_eq!(life.last_shown(), ["go", "It is Monday."]);
    assert_eq!(life.script.asked.lock().unwrap()[0].0, "Test.\n\nBe short.");
    let turn = life.send("again").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    let shown = life.script.shown.lock().unwrap().clone();
    assert!(shown.iter().skip(1).all(|shown| !shown[..2].contains(&"It is Monday.".to_owned())), "{shown:?}");
}

#[tokio::test(start_paused = true)]
async fn before_model_changes_system_prompt_and_options() {
    let kind = hook::<BeforeModel>("kind", |seen| {
        let options = Generation { temperature_milli: Some(0), ..seen.options };
        Ok(Some(ModelPatch { system: Some(format!("{} Be kind.", seen.system)), options: Some(options) }))
    });
    let (life, end) = end_of(vec![kind], vec![Line::Say("done")]).await;
    assert_eq!(end, answered("done"));
    let asked = life.script.asked.lock().unwrap()[0].clone();
    let options =
        Generation { temperature_milli: Some(0), tokens_most: Some(8_192), ..Generation::default() };
    assert_eq!(asked, ("Test. Be kind.".to_owned(), options));
}

#[tokio::test(start_paused = true)]
async fn after_model_changes_reply_and_records_original() {
    let mask = hook::<AfterModel>("mask", |_| Ok(Some(ReplyPatch { text: "call ***".into() })));
    let (life, end) = end_of(vec![mask], vec![Line::Say("call 555")]).await;
    assert_eq!(end, answered("call ***"));
    let changed = changes(&life).await.pop().unwrap();
    assert_eq!(changed.patch, HookPatch::AfterModel(ReplyPatch { text: "call ***".into() }));
    assert_eq!((changed.hook.as_str(), changed.was), ("mask", Some(json!("call 555"))));
    assert_eq!(changed.key.as_str(), "turn/0/model/0");
}

#[tokio::test(start_paused = true)]
async fn before_tool_changes_arguments_before_rules_judge() {
    let to = |text: &'static str| {
        hook::<BeforeTool>("to", move |_| Ok(Some(CallPatch::Arguments(json!({ "text": text })))))
    };
    let never = Rule {
        tool: "pay".to_owned(),
        tests: vec![RuleTest { path: "/text".to_owned(), is: Comparison::OneOf(vec![json!("eve")]) }],
        ..Rule::new(
            "never-eve".parse().unwrap(),
            PolicyDecision::Deny { reason: "she is on the list".to_owned() },
        )
    };
    let ruled = |hooks| {
        let policy = Policy { rules: vec![never.clone()] };
        move |config: &mut RuntimeConfig| {
            config.package.policy = policy;
            hooked(hooks)(config);
        }
    };
    for (asked, hook, paid, message) in [
        ("ann", to("joe"), 1, "paid joe"),
        ("ann", to("eve"), 0, "error policy.denied: the rule `never-eve` forbids it: she is on the list"),
        // The rule applies to the changed call, which is a different one.
        ("eve", to("joe"), 1, "paid joe"),
    ] {
        let lines = vec![call("pay", asked), Line::Say("done")];
        let store = Arc::new(MemoryStore::new());
        let life = live_with(store, lines, Arc::default(), 1, ruled(vec![hook])).await.unwrap();
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, answered("done"));
        assert_eq!(life.witness.count("pay"), paid);
        assert_eq!(life.last_shown().pop().unwrap(), message);
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_changed_by_hook_must_match_schema() {
    let broken = hook::<BeforeTool>("broken", |_| Ok(Some(CallPatch::Arguments(json!({ "text": 7 })))));
    let (life, _) = end_of(vec![broken], vec![call("pay", "ann"), Line::Say("done")]).await;
    assert_eq!(life.witness.count("pay"), 0);
    let message = life.last_shown().pop().unwrap();
    assert!(
        message.starts_with("error tool.args_invalid: the arguments do not fit the schema; at /text"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn before_tool_refusal_reaches_model_with_reason() {
    let refuse = hook::<BeforeTool>("guard", |_| Ok(Some(CallPatch::Refuse("not today".into()))));
    let unseen = hook::<BeforeTool>("behind", |_| panic!("nothing is left to look at"));
    let (life, end) = end_of(vec![refuse, unseen], vec![call("pay", "ann"), Line::Say("done")]).await;
    assert_eq!(end, answered("done"));
    assert_eq!(life.witness.count("pay"), 0);
    let message = life.last_shown().pop().unwrap();
    assert_eq!(message, "error hook.refused: the hook `guard` refuses the call: not today");
}

#[tokio::test(start_paused = true)]
async fn hook_change_is_written_with_call_claim() {
    let crashing_store = CrashingStore::new(MemoryStore::new(), CrashPoint::Never);
    let pulse = crashing_store.pulse();
    let lines = vec![call("pay", "1000"), Line::Say("done")];
    let life = live_with(Arc::new(crashing_store), lines, Arc::default(), 1, hooked(all())).await.unwrap();
    let turn = life.send("go").await;
    life.end(turn).await;
    let facts = life.facts().await;
    let changed =
        facts.iter().position(|fact| matches!(fact, Fact::Hooked(hooked) if hooked.hook.as_str() == "cap"));
    let Fact::Asked(asked) = &facts[changed.unwrap() + 1] else { panic!("the claim comes next") };
    let Command::ToolBatch(batch) = &asked.command else { panic!("a batch is claimed") };
    let BatchCall::Run(prepared) = &batch.calls[0] else { panic!("the call runs") };
    assert_eq!(prepared.arguments, json!({ "text": "100" }));
    // Hooks add no writes. There are four: input; reply and claims; answers; reply and end.
    assert_eq!(pulse.writes(), 4);
}

#[tokio::test(start_paused = true)]
async fn after_tool_changes_result_and_records_original() {
    let (life, _) = end_of(all(), vec![call("pay", "ann"), Line::Say("done")]).await;
    assert!(life.last_shown().contains(&"<paid ann>".to_owned()));
    let changed = changes(&life).await.into_iter().find(|changed| changed.hook.as_str() == "mask").unwrap();
    assert_eq!(changed.was, Some(json!({ "ok": "paid ann" })));
}

#[tokio::test(start_paused = true)]
async fn after_tool_changes_externally_completed_call() {
    let life = with(all(), vec![call("wait", "k"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    let key = life.witness.keys.lock().unwrap()["k"].clone();
    life.runtime.resolve(&key, Resolution::Ok(json!("here"))).await.unwrap();
    assert_eq!(life.end(turn).await, answered("done -- signed"));
    assert!(life.last_shown().contains(&"<here>".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn before_completion_sends_back_up_to_limit() {
    let (life, end) = end_of(all(), vec![Line::Say("perhaps"), Line::Say("yes")]).await;
    assert_eq!(end, answered("yes -- signed"));
    assert!(life.last_shown().contains(&"Be sure.".to_owned()));

    let never = hook::<BeforeCompletion>("never", |_| Ok(Some(AnswerPatch { send_back: "More.".into() })));
    let (life, end) = end_of(vec![never], vec![Line::Say("a"); 9]).await;
    assert_eq!(failure(end), "hook.refused: `never` sends every answer back; it said last: More.");
    assert_eq!(life.script.shown.lock().unwrap().len(), 1 + Limits::default().output_repairs as usize);
}

#[tokio::test(start_paused = true)]
async fn after_end_and_on_error_observe() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let (ends, errors) = (seen.clone(), seen.clone());
    let ended = hook::<AfterEnd>("ended", move |seen| {
        ends.lock().unwrap().push(seen.end.name().to_owned());
        Ok(None)
    });
    let failed = hook::<OnError>("failed", move |seen| {
        errors.lock().unwrap().push(seen.failure.code.code().to_owned());
        Ok(None)
    });
    let lines = vec![call("nothing", ""), call("panics", ""), Line::Fail(Kind::ModelRejected)];
    let (life, end) = end_of(vec![ended, failed], lines).await;
    assert!(matches!(end, TurnEnd::Failed { .. }));
    life.runtime.shut_down(Duration::from_secs(1)).await;
    // A call that was rejected before it ran is an answer to the model and not an error.
    assert_eq!(*seen.lock().unwrap(), ["tool.panicked", "model.rejected", "failed"]);
}

#[tokio::test(start_paused = true)]
async fn hooks_run_in_the_order_agent_names_them() {
    let add = |name: &'static str| {
        hook::<AfterModel>(name, move |seen| Ok(Some(ReplyPatch { text: format!("{}{name}", seen.text) })))
    };
    let (life, end) = end_of(vec![add("b"), add("a"), add("c")], vec![Line::Say("-")]).await;
    assert_eq!(end, answered("-bac"));
    let order: Vec<String> =
        changes(&life).await.into_iter().map(|changed| changed.hook.to_string()).collect();
    assert_eq!(order, ["b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn hook_over_deadline_fails_its_operation() {
    let slow = hanging::<BeforeModel>("slow").within(Duration::from_secs(3));
    let life = with(vec![slow], vec![Line::Say("done")]).await;
    let begun = life.runtime.now();
    let turn = life.send("go").await;
    let message = failure(life.end(turn).await);
    assert_eq!(message, "hook.failed: the hook `slow` at before_model did not answer within 3000 ms");
    assert!(begun.until(life.runtime.now()) < Duration::from_secs(5));

    let (_, end) = end_of(vec![hanging::<AfterModel>("slow")], vec![Line::Say("done")]).await;
    let message = failure(end);
    assert_eq!(message, "hook.failed: the hook `slow` at after_model did not answer within 10000 ms");
}

#[tokio::test(start_paused = true)]
async fn failing_hook_fails_its_operation() {
    let said = "failed: the moon is full";
    let lines = || vec![call("pay", "ann"), Line::Say("done")];
    for hook in [failing::<BeforeContext>("h"), failing::<BeforeModel>("h"), failing::<AfterModel>("h")] {
        let point = hook.usage.point;
        let (life, end) = end_of(vec![hook], lines()).await;
        assert_eq!(failure(end), format!("hook.failed: the hook `h` at {point} {said}"));
        assert_eq!(life.witness.count("pay"), 0);
    }
    let (life, end) = end_of(vec![failing::<BeforeTool>("h")], lines()).await;
    assert_eq!((end, life.witness.count("pay")), (answered("done"), 0));
    let message = life.last_shown().pop().unwrap();
    assert_eq!(message, format!("error hook.failed: the hook `h` at before_tool {said}"));

    let (life, end) = end_of(vec![failing::<AfterTool>("h")], lines()).await;
    assert_eq!((end, life.witness.count("pay")), (answered("done"), 1));
    let message = life.last_shown().pop().unwrap();
    let made = "the call was made, but its result cannot be shown";
    assert_eq!(message, format!("error hook.failed: {made}: the hook `h` at after_tool {said}"));

    let (life, end) = end_of(vec![failing::<BeforeCompletion>("h")], lines()).await;
    assert_eq!(failure(end), format!("hook.failed: the hook `h` at before_completion {said}"));
    let replied = life.facts().await.iter().filter(|fact| fact.is_node()).count();
    assert_eq!(replied, 5, "the answer is in the transcript all the same");
}

#[tokio::test(start_paused = true)]
async fn hook_panic_or_oversized_change_is_failure() {
    let panics = hook::<AfterModel>("h", |_| panic!("boom"));
    let (_, end) = end_of(vec![panics], vec![Line::Say("done")]).await;
    assert_eq!(failure(end), "hook.failed: the hook `h` at after_model panicked");
    let large = hook::<AfterModel>("h", |_| Ok(Some(ReplyPatch { text: "x".repeat(2 << 20) })));
    let (_, end) = end_of(vec![large], vec![Line::Say("done")]).await;
    assert_eq!(
        failure(end),
        "hook.failed: the hook `h` at after_model returned a change that is too large: hook_patch_bytes is limited to 1048576, but this \
         needs 2097164"
    );
}

#[tokio::test(start_paused = true)]
async fn observing_hook_failure_can_be_ignored() {
    let hooks = vec![
        failing::<BeforeModel>("a").observing().on_failure(OnFailure::Ignore),
        hanging::<BeforeTool>("b").observing().on_failure(OnFailure::Ignore),
        // An observing hook changes nothing, whatever it returns.
        hook::<AfterModel>("c", |_| Ok(Some(ReplyPatch { text: "mine".into() })))
            .observing()
            .on_failure(OnFailure::Ignore),
    ];
    let (life, end) = end_of(hooks, vec![call("pay", "ann"), Line::Say("done")]).await;
    assert_eq!((end, life.witness.count("pay")), (answered("done"), 1));
    assert_eq!(changes(&life).await, []);
    let (_, end) = end_of(vec![failing::<BeforeModel>("a").observing()], vec![Line::Say("done")]).await;
    assert_eq!(failure(end), "hook.failed: the hook `a` at before_model failed: the moon is full");
}

async fn refused(hooks: Vec<HookAt>, change: impl FnOnce(&mut RuntimeConfig)) -> Error {
    let memory = Arc::new(MemoryStore::new());
    let change = |config: &mut RuntimeConfig| {
        hooked(hooks)(config);
        change(config);
    };
    match live_with(memory, Vec::new(), Arc::default(), 1, change).await {
        Ok(_) => panic!("the agent is refused"),
        Err(error) => error,
    }
}

#[tokio::test(start_paused = true)]
async fn agent_with_unknown_hook_is_refused_at_startup() {
    let error = refused(vec![failing::<AfterModel>("mask")], |config| config.hooks.clear()).await;
    assert_eq!(
        error.to_string(),
        "hook.missing: the agent `tester` uses the hook `mask` at after_model, which is not registered"
    );
    let error = refused(vec![failing::<AfterModel>("mask")], |config| {
        config.hooks = vec![failing::<BeforeModel>("mask")];
    });
    assert_eq!(error.await.kind(), Kind::HookMissing);
    let ignored = failing::<AfterModel>("mask").on_failure(OnFailure::Ignore);
    assert_eq!(refused(vec![ignored], |_| ()).await.kind(), Kind::ConfigInvalid);
    let twice = vec![failing::<AfterModel>("mask"), failing::<AfterModel>("mask")];
    assert_eq!(refused(twice, |_| ()).await.kind(), Kind::ConfigInvalid);
    let many = (0..33).map(|number| failing::<AfterModel>(&format!("h{number}"))).collect();
    assert_eq!(refused(many, |_| ()).await.kind(), Kind::LimitExceeded);
}

#[tokio::test(start_paused = true)]
async fn parked_turn_is_stuck_until_hook_returns() {
    let memory = MemoryStore::new();
    let lines = vec![call("wait", "k"), Line::Say("done")];
    let first =
        live_with(Arc::new(memory.clone()), lines.clone(), Arc::default(), 1, hooked(all())).await.unwrap();
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let key = first.witness.keys.lock().unwrap()["k"].clone();
    let witness = first.die(&memory).await;

    let second = live(Arc::new(memory.clone()), lines.clone(), witness.clone(), 2).await;
    second.runtime.resolve(&key, Resolution::Ok(json!("here"))).await.unwrap();
    second.until("turn.stuck").await;
    let stuck = second.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Stuck { failure } => Some(failure.to_string()),
        _ => None,
    });
    assert_eq!(
        stuck.unwrap(),
        "package.unavailable: the turn began under another configuration: the agent `tester` uses the hook `facts` at \
         before_context, which is not registered"
    );
    second.die(&memory).await;

    let third = live_with(Arc::new(memory.clone()), lines, witness, 3, hooked(all())).await.unwrap();
    assert_eq!(third.end(turn).await, answered("done -- signed"));
}

#[tokio::test(start_paused = true)]
async fn hook_does_not_rerun_for_recorded_effect() {
    let runs: Arc<Mutex<Vec<String>>> = Arc::default();
    let counted = || {
        let runs = runs.clone();
        let run = move |call: HookCall, seen: outlast_vocab::hook::ModelHookInput| {
            let mut runs = runs.lock().unwrap();
            runs.push(call.key.to_string());
            let number = u32::try_from(runs.len()).unwrap();
            let options = Generation { temperature_milli: Some(number), ..seen.options };
            std::future::ready(Ok(Some(ModelPatch { system: None, options: Some(options) })))
        };
        hooked(vec![HookAt::new::<BeforeModel>("counted", run).unwrap()])
    };
    let memory = MemoryStore::new();
    let lines = vec![call("wait", "k"), Line::Say("done")];
    let first =
        live_with(Arc::new(memory.clone()), lines.clone(), Arc::default(), 1, counted()).await.unwrap();
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let key = first.witness.keys.lock().unwrap()["k"].clone();
    let witness = first.die(&memory).await;
    let second = live_with(Arc::new(memory.clone()), lines, witness, 2, counted()).await.unwrap();
    second.runtime.resolve(&key, Resolution::Ok(json!("here"))).await.unwrap();
    // The request of the first call matches its record, with the change that was recorded then.
    assert_eq!(second.end(turn).await, answered("done"));
    assert_eq!(*runs.lock().unwrap(), ["turn/0/model/0", "turn/0/model/1"]);
}

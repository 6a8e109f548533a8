//! Calls that a tool makes of other tools: they pass the same checks as the calls of a model.
use crate::budgets::Priced;
use crate::common::*;
use crate::hooks::hook;
use crate::points::rule;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::hook::AfterTool;
use outlast_ports::payment::{InMemoryPaymentAuthority, Payments, PaymentsEnabled};
use outlast_ports::service::{Agent, Needs, Services, Steps, Timer, Tools, Values};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::RuntimeConfig;
use outlast_vocab::budget::{Budget, Budgets};
use outlast_vocab::hook::ResultPatch;
use outlast_vocab::label::TrustGuard;
use outlast_vocab::payment::{AuthorityPaymentState, PaymentOrder};
use outlast_vocab::policy::{Policy, PolicyAction, PolicyDecision, PolicyPoint};
use outlast_vocab::rate::{RateLimit, RatePeriod, WhenFull};
use outlast_vocab::record::{Fact, TurnEnd};
use outlast_vocab::{Error, Kind};
use serde_json::json;
use std::future::pending;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A tool whose behaviour is a function of its services.
struct Scripted<N, F> {
    spec: ToolSpec,
    run: F,
    needs: PhantomData<fn(N)>,
}

impl<N, F, W> Tool for Scripted<N, F>
where
    N: Needs + 'static,
    F: Fn(N) -> W + Send + Sync + 'static,
    W: Future<Output = Result<ToolRunOutcome, Error>> + Send,
{
    type Args = Note;
    type Needs = N;

    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run(&self, needs: N, _: Call, _: Note) -> impl Future<Output = Result<ToolRunOutcome, Error>> + Send {
        (self.run)(needs)
    }
}

fn tool<N, F, W>(spec: ToolSpec, run: F) -> Scripted<N, F>
where
    N: Needs + 'static,
    F: Fn(N) -> W + Send + Sync + 'static,
    W: Future<Output = Result<ToolRunOutcome, Error>> + Send,
{
    Scripted { spec, run, needs: PhantomData }
}

/// The tool that the model calls. It may run again.
fn outer() -> ToolSpec {
    ToolSpec::new("outer", "Calls other tools.").idempotent().durable()
}

fn inner() -> ToolSpec {
    ToolSpec::new("inner", "Is called by another tool.").idempotent().durable()
}

/// Calls a tool and returns what the calling tool is told.
async fn result_of(tools: &Tools, tool: &str) -> String {
    match tools.call(tool, json!({ "text": "x" })).await {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Starts a worker whose model calls `outer` once, with these tools beside those of all tests.
async fn worker(add: impl FnOnce(&mut Toolbox), change: impl FnOnce(&mut RuntimeConfig)) -> Life {
    playing(vec![call("outer", "x"), Line::Say("done")], add, change).await
}

/// Starts a worker whose model plays these lines.
async fn playing(
    lines: Vec<Line>,
    add: impl FnOnce(&mut Toolbox),
    change: impl FnOnce(&mut RuntimeConfig),
) -> Life {
    let witness: Arc<Witness> = Arc::default();
    let all = |config: &mut RuntimeConfig| {
        let mut tools = Toolbox::new(Services::default().grant(PaymentsEnabled));
        tools.add(Look(witness.clone())).unwrap();
        tools.add(Put(witness.clone())).unwrap();
        tools.add(Pay(witness.clone())).unwrap();
        tools.add(Panics(witness.clone())).unwrap();
        add(&mut tools);
        config.package = package(&tools);
        config.tools = vec![Arc::new(tools)];
        change(config);
    };
    live_with(Arc::new(MemoryStore::new()), lines, witness.clone(), 1, all).await.unwrap()
}

/// Runs the turn and returns what the model is told about the call of `outer`.
async fn last_result(life: &Life) -> String {
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    life.last_shown().pop().unwrap()
}

fn strict(config: &mut RuntimeConfig) {
    config.package.guard = TrustGuard::Strict;
}

#[tokio::test(start_paused = true)]
async fn untrusted_nested_result_taints_calls_after_parking() {
    let delegate = |(tools, timer): (Tools, Timer)| async move {
        result_of(&tools, "look").await;
        timer.sleep(Duration::from_mins(10)).await?;
        done(result_of(&tools, "pay").await)
    };
    let spec = ToolSpec::new("outer", "Calls other tools.").durable();
    let life = worker(|tools| tools.add(tool(spec, delegate)).unwrap(), strict).await;
    let last_result = last_result(&life).await;
    assert!(last_result.contains("it comes from tool:look"), "{last_result}");
    assert_eq!(life.witness.count("pay"), 0);
}

#[tokio::test(start_paused = true)]
async fn untrusted_nested_result_taints_calls_of_next_attempt() {
    let attempts = AtomicU32::new(0);
    let delegate = move |tools: Tools| {
        let is_first = attempts.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            result_of(&tools, "look").await;
            if is_first {
                return Err(Error::new(Kind::ToolUnavailable, "not yet"));
            }
            done(result_of(&tools, "put").await)
        }
    };
    let spec = outer().attempts(2, Duration::from_millis(10));
    let life = worker(|tools| tools.add(tool(spec, delegate)).unwrap(), strict).await;
    let last_result = last_result(&life).await;
    assert!(last_result.contains("it comes from tool:look"), "{last_result}");
    assert_eq!((life.witness.count("look"), life.witness.count("put")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn untrusted_hook_on_nested_result_taints_later_calls() {
    for (trusted, put) in [(false, 0), (true, 1)] {
        let delegate = |(tools, timer): (Tools, Timer)| async move {
            result_of(&tools, "inner").await;
            timer.sleep(Duration::from_mins(10)).await?;
            done(result_of(&tools, "put").await)
        };
        let changes = hook::<AfterTool>("change", |seen| {
            Ok((seen.tool.as_str() == "inner").then(|| ResultPatch::Ok(json!("put x"))))
        });
        let life = worker(
            |tools| {
                tools.add(tool(inner().trusted(), |(): ()| async { done("fine") })).unwrap();
                tools.add(tool(outer(), delegate)).unwrap();
            },
            |config| {
                strict(config);
                let changes = if trusted { changes.trusted() } else { changes };
                config.package.hooks = vec![changes.usage.clone()];
                config.hooks = vec![changes];
            },
        )
        .await;
        let last_result = last_result(&life).await;
        assert_eq!(last_result.contains("it comes from hook:change"), !trusted, "{last_result}");
        assert_eq!(life.witness.count("put"), put);
    }
}

#[tokio::test(start_paused = true)]
async fn nested_call_has_its_own_deadline() {
    let delegate = |tools: Tools| async move { done(result_of(&tools, "inner").await) };
    let life = worker(
        |tools| {
            let hangs = |(): ()| async { pending().await };
            tools.add(tool(inner().deadline(Duration::from_secs(5)), hangs)).unwrap();
            tools.add(tool(outer(), delegate)).unwrap();
        },
        |_| {},
    )
    .await;
    assert_eq!(last_result(&life).await, "tool.timed_out: the tool did not finish within 5000 ms");
}

#[tokio::test(start_paused = true)]
async fn failed_unrepeatable_nested_call_is_not_repeated() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let fails = move |(): ()| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(Error::new(Kind::ToolTimedOut, "too slow")) }
    };
    let delegate = |(tools, timer): (Tools, Timer)| async move {
        let last_result = result_of(&tools, "inner").await;
        timer.sleep(Duration::from_mins(10)).await?;
        done(last_result)
    };
    let life = worker(
        |tools| {
            tools.add(tool(ToolSpec::new("inner", "Fails."), fails)).unwrap();
            tools.add(tool(ToolSpec::new("outer", "Calls it.").durable(), delegate)).unwrap();
        },
        |_| {},
    )
    .await;
    assert_eq!(last_result(&life).await, "tool.timed_out: too slow");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn panic_of_nested_call_fails_only_that_call() {
    let delegate = |tools: Tools| async move { done(result_of(&tools, "panics").await) };
    let life = worker(|tools| tools.add(tool(outer(), delegate)).unwrap(), |_| {}).await;
    assert_eq!(last_result(&life).await, "tool.panicked: the tool panicked: boom x");
}

#[tokio::test(start_paused = true)]
async fn oversized_nested_result_is_refused() {
    let delegate = |tools: Tools| async move { done(result_of(&tools, "inner").await) };
    let life = worker(
        |tools| {
            tools.add(tool(inner(), |(): ()| async { done("word ".repeat(1_000)) })).unwrap();
            tools.add(tool(outer(), delegate)).unwrap();
        },
        |config| config.limits.result_bytes = 1_000,
    )
    .await;
    let last_result = last_result(&life).await;
    assert!(last_result.starts_with("limit.exceeded: result_bytes is limited to 1000"), "{last_result}");
}

#[tokio::test(start_paused = true)]
async fn nested_call_cannot_claim_it_did_not_happen() {
    for claim in [Kind::ToolInterrupted, Kind::BudgetExceeded] {
        let delegate = |tools: Tools| async move { done(result_of(&tools, "inner").await) };
        let refuses = move |(): ()| async move { Err(Error::new(claim, "it did not happen")) };
        let life = worker(
            |tools| {
                tools.add(tool(inner(), refuses)).unwrap();
                tools.add(tool(outer(), delegate)).unwrap();
            },
            |_| {},
        )
        .await;
        assert_eq!(last_result(&life).await, "tool.failed: it did not happen");
    }
}

fn push() -> PolicyAction {
    PolicyAction::Process { program: "git".to_owned(), args: vec!["push".to_owned()], sandboxed: false }
}

/// Adds a rule that ends the turn if a program is started.
fn interrupting(config: &mut RuntimeConfig) {
    let then = PolicyDecision::Interrupt { reason: "something is wrong".to_owned() };
    config.package.policy = Policy { rules: vec![rule(PolicyPoint::Process, then)] };
}

async fn interrupted(life: &Life) {
    let turn = life.send("go").await;
    let TurnEnd::Failed { failure } = life.end(turn).await else { panic!("a rule ends the turn") };
    assert_eq!(failure.code, Kind::PolicyInterrupted);
}

#[tokio::test(start_paused = true)]
async fn interrupted_nested_call_writes_and_answers_nothing() {
    let ignores = |(agent, values): (Agent, Values)| async move {
        drop(agent.permit(push()).await);
        values.set("left", json!(1))?;
        done("fine")
    };
    let delegate = |tools: Tools| async move { done(result_of(&tools, "inner").await) };
    let life = worker(
        |tools| {
            tools.add(tool(inner(), ignores)).unwrap();
            tools.add(tool(outer(), delegate)).unwrap();
        },
        interrupting,
    )
    .await;
    interrupted(&life).await;
    assert_eq!(life.runtime.store().value(SESSION, "left".into()).await.unwrap(), None);
    // A recorded answer would let the call go on after a crash.
    let is_nested =
        |fact: &Fact| matches!(fact, Fact::Performed(performed) if performed.key.nested_tool().is_some());
    assert!(!life.facts().await.iter().any(is_nested));
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_makes_no_further_nested_calls() {
    let ignores = |(agent, tools): (Agent, Tools)| async move {
        drop(agent.permit(push()).await);
        done(result_of(&tools, "put").await)
    };
    let life = worker(|tools| tools.add(tool(outer(), ignores)).unwrap(), interrupting).await;
    interrupted(&life).await;
    assert_eq!(life.witness.count("put"), 0);
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_still_undoes_nested_calls() {
    let saga = |(agent, tools): (Agent, Tools)| async move {
        tools.call("inner", json!({ "text": "x" })).await?;
        drop(agent.permit(push()).await);
        tools.undo().await?;
        done("undone")
    };
    let life = worker(
        |tools| {
            tools
                .add(tool(inner().undone_by("put"), |(): ()| async { done(json!({ "text": "x" })) }))
                .unwrap();
            tools.add(tool(outer(), saga)).unwrap();
        },
        interrupting,
    )
    .await;
    interrupted(&life).await;
    assert_eq!(life.witness.count("put"), 1);
}

#[tokio::test(start_paused = true)]
async fn parked_nested_call_suspends_deadline_of_its_caller() {
    let delegate = |tools: Tools| async move { done(result_of(&tools, "inner").await) };
    let sleeps = |timer: Timer| async move {
        timer.sleep(Duration::from_mins(10)).await?;
        done("rested")
    };
    let busy = |(): ()| async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        done("worked")
    };
    let both = vec![("outer", json!({ "text": "x" })), ("busy", json!({ "text": "x" }))];
    let life = playing(
        vec![Line::Call(both), Line::Say("done")],
        |tools| {
            tools.add(tool(inner(), sleeps)).unwrap();
            tools.add(tool(ToolSpec::new("busy", "Works for a minute.").idempotent(), busy)).unwrap();
            tools.add(tool(outer().deadline(Duration::from_secs(5)), delegate)).unwrap();
        },
        |_| {},
    )
    .await;
    last_result(&life).await;
    assert_eq!(life.last_shown()[2..], ["\"rested\"".to_owned(), "worked".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn nested_call_payment_is_released_on_caller_timeout() {
    let authority = Arc::new(InMemoryPaymentAuthority::with_money(["10 EUR".parse().unwrap()]));
    let reserves = |payments: Payments| async move {
        let amount = "3.10 EUR".parse().unwrap();
        let order = PaymentOrder { payee: "baker".to_owned(), amount, purpose: "cake".to_owned() };
        let _held = payments.reserve("cake", order).await?;
        pending().await
    };
    let delegate = |tools: Tools| async move { done(result_of(&tools, "inner").await) };
    let life = worker(
        |tools| {
            tools.add(tool(inner(), reserves)).unwrap();
            tools.add(tool(outer().deadline(Duration::from_secs(5)), delegate)).unwrap();
        },
        |config| config.payments = Some(authority.clone()),
    )
    .await;
    assert_eq!(last_result(&life).await, "error tool.timed_out: the tool did not finish within 5000 ms");
    let states: Vec<AuthorityPaymentState> =
        authority.payments().into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [AuthorityPaymentState::Released]);
}

#[tokio::test(start_paused = true)]
async fn nested_step_runs_once_when_caller_retries() {
    let (steps_run, attempts) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
    let counted = steps_run.clone();
    let fails_once = move |steps: Steps| {
        let (counted, is_first) = (counted.clone(), attempts.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            let run = async { Ok(counted.fetch_add(1, Ordering::SeqCst)) };
            let value: u32 = steps.run("one", &(), run).await?;
            if is_first {
                return Err(Error::new(Kind::ToolUnavailable, "not yet"));
            }
            done(value)
        }
    };
    let delegate = |tools: Tools| async move { done(tools.call("inner", json!({ "text": "x" })).await?) };
    let life = worker(
        |tools| {
            tools.add(tool(inner(), fails_once)).unwrap();
            tools.add(tool(outer().attempts(2, Duration::from_millis(10)), delegate)).unwrap();
        },
        |_| {},
    )
    .await;
    assert_eq!(last_result(&life).await, "0");
    assert_eq!(steps_run.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn diverged_nested_call_leaves_no_answer() {
    let diverges = |(): ()| async { Err(Error::new(Kind::JournalDiverged, "another request")) };
    let delegate = |tools: Tools| async move { done(tools.call("inner", json!({ "text": "x" })).await?) };
    let life = worker(
        |tools| {
            tools.add(tool(inner(), diverges)).unwrap();
            tools.add(tool(outer(), delegate)).unwrap();
        },
        |_| {},
    )
    .await;
    life.send("go").await;
    life.until("turn.stuck").await;
    let is_nested =
        |fact: &Fact| matches!(fact, Fact::Performed(performed) if performed.key.nested_tool().is_some());
    assert!(!life.facts().await.iter().any(is_nested));
}

#[tokio::test(start_paused = true)]
async fn nested_call_refused_by_rate_costs_nothing() {
    let delegate = |tools: Tools| async move {
        result_of(&tools, "inner").await;
        done(result_of(&tools, "inner").await)
    };
    let price = "0.02".parse().unwrap();
    let script = Script::new(vec![call("outer", "x"), Line::Say("done")]);
    let once = RateLimit {
        when_full: WhenFull::Deny,
        ..RateLimit::new("out".parse().unwrap(), "inner", NonZeroU32::MIN, RatePeriod::Day)
    };
    let life = worker(
        |tools| {
            tools.add(tool(inner().price(price), |(): ()| async { done("fine") })).unwrap();
            tools.add(tool(outer(), delegate)).unwrap();
        },
        |config| {
            config.package.rates = vec![once];
            let money = Budget { money: Some("100".parse().unwrap()), ..Budget::default() };
            let budgets = Budgets { agent: Some(money), reply_tokens: Some(100), ..Budgets::default() };
            config.package.budgets = budgets;
            config.models = vec![Arc::new(Priced(ScriptedModel(script.clone())))];
        },
    )
    .await;
    let turn = life.send("go").await;
    life.end(turn).await;
    let last_result = script.shown.lock().unwrap().last().and_then(|shown| shown.last().cloned()).unwrap();
    assert!(last_result.starts_with("rate."), "{last_result}");
    let store = life.runtime.store();
    let accounts = store.budgets(100).await.unwrap();
    let agent = accounts.into_iter().find(|account| account.name.starts_with("agent:")).unwrap();
    let cost = outlast_runtime::views::costs::of_turn(&store.turn_records(turn).await.unwrap()).1;
    assert_eq!(agent.spent.money, cost);
}

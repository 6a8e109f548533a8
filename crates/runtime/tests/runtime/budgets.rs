//! Budgets: reserved before an effect, settled after it, and never overspent, even after crashes.
use crate::common::*;
use crate::policy::rule;
use futures_util::{StreamExt, stream};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::budget::BudgetStore;
use outlast_ports::inbox::SessionTarget;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::queries::Queries;
use outlast_ports::service::{Services, Tools};
use outlast_ports::store::Store;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done, failed};
use outlast_runtime::views::costs::spent;
use outlast_runtime::{Input, RuntimeConfig};
use outlast_views::{BudgetAccountView, CostDimension};
use outlast_vocab::access::Access;
use outlast_vocab::budget::{Budget, BudgetAccount, Budgets, Percent, Period, UsageAmount};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{EffectKind, StopReason, Usage};
use outlast_vocab::event::{Event, LiveEvent, LiveEventKind};
use outlast_vocab::limits::{SEALED_DEATHS, SUSPECT_DEATHS};
use outlast_vocab::message::ModelName;
use outlast_vocab::policy::{ApprovalRequirement, Policy, PolicyDecision};
use outlast_vocab::record::{Fact, Seq, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind, Limits, Millis, OrgId, SessionId};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tokens reserved for a reply.
const REPLY: u32 = 100;

fn tokens(most: u64) -> Budget {
    Budget { tokens: Some(most), ..Budget::default() }
}

fn of_turn(budget: Budget) -> Budgets {
    Budgets { turn: Some(budget), reply_tokens: Some(REPLY), ..Budgets::default() }
}

fn of_agent(budget: Budget) -> Budgets {
    Budgets { agent: Some(budget), reply_tokens: Some(REPLY), ..Budgets::default() }
}

fn with(budgets: Budgets) -> impl FnOnce(&mut RuntimeConfig) {
    move |config| config.package.budgets = budgets
}

async fn under(budgets: Budgets, lines: Vec<Line>) -> (MemoryStore, Life) {
    let memory = MemoryStore::new();
    let life = live_with(Arc::new(memory.clone()), lines, Arc::default(), 1, with(budgets)).await.unwrap();
    (memory, life)
}

async fn accounts(store: &dyn Store) -> Vec<BudgetAccountView> {
    store.budgets(100).await.unwrap()
}

async fn agents(store: &dyn Store) -> BudgetAccountView {
    accounts(store)
        .await
        .into_iter()
        .find(|account| account.name.starts_with("agent:tester"))
        .expect("it was counted")
}

/// Returns the budget that a turn ran out of.
fn short(end: TurnEnd) -> String {
    match end {
        TurnEnd::OutOfBudget { budget, .. } => budget,
        end => panic!("it ended as {end:?}"),
    }
}

fn answered(text: &str) -> TurnEnd {
    TurnEnd::Answered { text: text.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn turn_reserves_budget_and_books_actual_usage() {
    let (_, life) = under(of_agent(tokens(1_000_000)), vec![Line::Hang]).await;
    life.send("go").await;
    life.until("turn.accepted").await;
    let BudgetAccountView { spent, reserved, .. } = agents(life.runtime.store().as_ref()).await;
    assert_eq!((spent, reserved.calls), (UsageAmount::ZERO, 1));
    assert!(reserved.tokens > u64::from(REPLY), "{reserved:?}");

    let lines = vec![call("look", "a"), Line::Say("done")];
    let (_, life) = under(of_agent(tokens(1_000_000)), lines).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let BudgetAccountView { spent, reserved, lost, .. } = agents(life.runtime.store().as_ref()).await;
    // Two replies of five tokens and one tool call.
    assert_eq!(spent, UsageAmount { tokens: 10, calls: 3, ..UsageAmount::ZERO });
    assert_eq!((reserved, lost), (UsageAmount::ZERO, UsageAmount::ZERO));
}

#[tokio::test(start_paused = true)]
async fn turn_exceeding_budget_ends_before_spending() {
    let (_, life) = under(of_turn(tokens(50)), vec![Line::Say("hello")]).await;
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), format!("tokens of {turn}"));
    assert_eq!(life.script.calls.load(Ordering::SeqCst), 0);
    // No reservation of an ended turn is left.
    assert!(
        accounts(life.runtime.store().as_ref())
            .await
            .iter()
            .all(|account| account.reserved == UsageAmount::ZERO)
    );

    let calls = Budget { calls: Some(2), ..Budget::default() };
    let lines = vec![call("put", "a"), Line::Say("done")];
    let (_, life) = under(of_turn(calls), lines).await;
    let turn = life.send("go").await;
    let why = Some("it needs up to 1 calls, and of 2 calls 0 calls are left".to_owned());
    assert_eq!(life.end(turn).await, TurnEnd::OutOfBudget { budget: format!("calls of {turn}"), why });
    assert_eq!((life.script.calls.load(Ordering::SeqCst), life.witness.count("put")), (1, 1));

    let two = Line::Call(vec![("put", json!({ "text": "a" })), ("pay", json!({ "text": "b" }))]);
    let calls = Budget { calls: Some(2), ..Budget::default() };
    let (_, life) = under(of_turn(calls), vec![two, Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), format!("calls of {turn}"));
    assert_eq!((life.witness.count("put"), life.witness.count("pay")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn paused_turn_resumes_when_budget_is_raised() {
    let soft = Budget { pause_at: Percent::try_from(1).ok(), ..tokens(20_000) };
    let (memory, life) = under(of_agent(soft), vec![call("put", "a"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    assert_eq!(life.script.calls.load(Ordering::SeqCst), 0);
    // Another process resumes it.
    life.die(&memory).await;
    let lines = vec![call("put", "a"), Line::Say("done")];
    let life = live_with(Arc::new(memory.clone()), lines, Arc::default(), 2, with(of_agent(tokens(100))))
        .await
        .unwrap();
    let agent = BudgetAccount::Agent("tester".to_owned());
    life.runtime.set_budget(agent.clone(), Some(tokens(60))).await.unwrap();
    life.runtime.set_budget(agent, Some(tokens(1_000_000))).await.unwrap();
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(agents(life.runtime.store().as_ref()).await.spent.tokens, 10);
}

#[tokio::test(start_paused = true)]
async fn turn_exceeding_whole_budget_ends_without_waiting() {
    let soft = Budget { pause_at: Percent::try_from(50).ok(), ..tokens(50) };
    let (_, life) = under(of_agent(soft), vec![Line::Say("hello")]).await;
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), "tokens of agent:tester");
    let soft = Budget { calls: Some(1), pause_at: Percent::try_from(100).ok(), ..Budget::default() };
    let two = Line::Call(vec![("put", json!({ "text": "a" })), ("pay", json!({ "text": "b" }))]);
    let (_, life) = under(of_agent(soft), vec![two, Line::Say("done")]).await;
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), "calls of agent:tester");
    assert_eq!((life.witness.count("put"), life.witness.count("pay")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn batch_waits_for_budget_before_any_call() {
    let soft = Budget { calls: Some(4), pause_at: Percent::try_from(50).ok(), ..Budget::default() };
    let two = Line::Call(vec![("put", json!({ "text": "a" })), ("pay", json!({ "text": "b" }))]);
    let (_, life) = under(of_agent(soft), vec![two, Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    assert_eq!((life.witness.count("put"), life.witness.count("pay")), (0, 0));
    let more = Budget { calls: Some(100), ..Budget::default() };
    life.runtime.set_budget(BudgetAccount::Agent("tester".to_owned()), Some(more)).await.unwrap();
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!((life.witness.count("put"), life.witness.count("pay")), (1, 1));
    assert_eq!(agents(life.runtime.store().as_ref()).await.spent.calls, 4);
}

/// Returns the budget warnings that subscribers of a turn get.
async fn warned(lines: Vec<Line>) -> Vec<String> {
    let low = Budget { warn_at: Percent::try_from(1).ok(), ..tokens(100_000) };
    let (_, life) = under(of_agent(low), lines).await;
    let (accepted, mut events) = life.runtime.submit_watched(input("go")).await.unwrap();
    let mut messages = Vec::new();
    while let Ok(event) = events.next().await {
        match event {
            Event::Live(LiveEvent { what: LiveEventKind::BudgetLow { budget }, .. }) => messages.push(budget),
            Event::Durable(record) if record.fact.name() == "turn.ended" => break,
            _ => {}
        }
    }
    assert_eq!(life.end(accepted.turn).await, answered("done"));
    messages
}

#[tokio::test(start_paused = true)]
async fn low_budget_emits_warning() {
    assert_eq!(warned(vec![Line::Say("done")]).await, ["tokens of agent:tester"]);
    let messages = warned(vec![call("put", "a"), Line::Say("done")]).await;
    assert_eq!(messages, ["tokens of agent:tester", "tokens of agent:tester"]);
}

#[tokio::test(start_paused = true)]
async fn nested_budgets_apply_the_smallest() {
    let budgets = Budgets { session: Some(tokens(10)), ..of_agent(tokens(1_000_000)) };
    let (_, life) = under(budgets, vec![Line::Say("hello")]).await;
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), format!("tokens of {SESSION}"));
    assert!(
        accounts(life.runtime.store().as_ref())
            .await
            .iter()
            .all(|account| account.spent == UsageAmount::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn operator_budget_applies_to_agents_without_one() {
    let (_, life) = under(Budgets::default(), vec![Line::Say("hello"), Line::Say("again")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("hello"));
    life.runtime.set_budget(BudgetAccount::Agent("tester".to_owned()), Some(tokens(10))).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), "tokens of agent:tester");
    life.runtime.set_budget(BudgetAccount::Agent("tester".to_owned()), None).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("again"));
}

#[tokio::test(start_paused = true)]
async fn daily_budget_resets_next_day() {
    let budget = Budget { calls: Some(1), per: Some(Period::Day), ..Budget::default() };
    let (_, life) = under(of_agent(budget), vec![Line::Say("one"), Line::Say("two")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("one"));
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), "calls of agent:tester");
    tokio::time::sleep(Duration::from_hours(24)).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("two"));
    let names: Vec<String> =
        accounts(life.runtime.store().as_ref()).await.into_iter().map(|account| account.name).collect();
    assert!(names.contains(&"agent:tester@1970-01-01".to_owned()), "{names:?}");
    assert!(names.contains(&"agent:tester@1970-01-02".to_owned()), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn wall_time_budget_ends_turn_excluding_waits() {
    let minute = Budget { time: Some(Duration::from_mins(1)), ..Budget::default() };
    let (_, life) = under(of_turn(minute), vec![call("stepped", "a"), Line::Say("done")]).await;
    let turn = life.send("go").await;
    // It slept for a minute, parked.
    assert_eq!(life.end(turn).await, answered("done"));

    let flaky = vec![call("hangs", ""), call("hangs", ""), Line::Say("done")];
    let seconds = Budget { time: Some(Duration::from_secs(7)), ..Budget::default() };
    let (_, life) = under(of_turn(seconds), flaky).await;
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), format!("time of {turn}"));
}

#[tokio::test(start_paused = true)]
async fn a_budget_adds_no_commit() {
    for lines in [vec![Line::Say("done")], vec![call("pay", "a"), Line::Say("done")]] {
        let mut writes = Vec::new();
        for budgets in
            [Budgets::default(), Budgets { session: Some(tokens(1 << 40)), ..of_agent(tokens(1 << 40)) }]
        {
            let crashing_store = CrashingStore::new(MemoryStore::new(), CrashPoint::Never);
            let pulse = crashing_store.pulse();
            let life = live_with(
                Arc::new(crashing_store),
                [lines.clone(), lines.clone()].concat(),
                Arc::default(),
                1,
                with(budgets),
            )
            .await
            .unwrap();
            for _ in 0..2 {
                let turn = life.send("go").await;
                assert_eq!(life.end(turn).await, answered("done"));
            }
            writes.push(pulse.writes());
        }
        assert_eq!(writes[0], writes[1], "{lines:?}");
    }
}

/// A tool that costs a cent, and fails on request.
struct PricedTool;

impl Tool for PricedTool {
    type Args = Note;
    type Needs = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("fax", "Sends a fax.").price("0.01".parse().unwrap())
    }

    async fn run(&self, (): (), _: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        match args.text.as_str() {
            "nobody" => Err(failed("no answer")),
            "busy" => std::future::pending().await,
            _ => done("sent"),
        }
    }
}

/// A tool that sends a fax through another tool.
struct Clerk;

impl Tool for Clerk {
    type Args = Note;
    type Needs = (Tools,);

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("clerk", "Has a fax sent.").durable()
    }

    async fn run(&self, (tools,): Self::Needs, _: Call, args: Note) -> Result<ToolRunOutcome, Error> {
        done(tools.call("fax", json!({ "text": args.text })).await?)
    }
}

fn own_tools(config: &mut RuntimeConfig) {
    let mut toolbox = Toolbox::new(Services::default());
    toolbox.add(PricedTool).unwrap();
    toolbox.add(Clerk).unwrap();
    toolbox.add(ModelCallingTool).unwrap();
    config.package = package(&toolbox);
    config.tools = vec![Arc::new(toolbox)];
}

#[tokio::test(start_paused = true)]
async fn priced_call_is_charged_unless_it_fails() {
    let fax = |text: &str| ("fax", json!({ "text": text }));
    let lines = vec![Line::Call(vec![fax("ann"), fax("nobody")]), Line::Say("done")];
    let change = |config: &mut RuntimeConfig| {
        own_tools(config);
        let money = Budget { money: Some("100".parse().unwrap()), ..Budget::default() };
        config.package.budgets = of_agent(money);
    };
    let script = Script::new(lines);
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, |config| {
        change(config);
        config.models = vec![Arc::new(Priced(ScriptedModel(script.clone())))];
    })
    .await
    .unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let spent = agents(life.runtime.store().as_ref()).await.spent;
    // One cent for the call that worked, and two replies of three input and two output tokens, at one and two dollars
    // per million.
    assert_eq!((spent.money.to_string().as_str(), spent.calls), ("0.010014", 4));
}

#[tokio::test(start_paused = true)]
async fn possibly_executed_call_is_charged_after_sealing() {
    let memory = MemoryStore::new();
    let life = async |store: Arc<dyn Store>, number| {
        live_with(store, vec![call("fax", "busy")], Arc::default(), number, own_tools).await.unwrap()
    };
    let first = life(Arc::new(memory.clone()), 1).await;
    let turn = first.send("go").await;
    first.until("effect.asked").await;
    first.die(&memory).await;
    // Each later process crashes at its first write about the turn. Before that come the claim and, from the fourth
    // process, the claim of the suspect and the start of its trial.
    for number in 2..=u128::from(SUSPECT_DEATHS + SEALED_DEATHS) {
        let before = if number <= u128::from(SUSPECT_DEATHS) { 1 } else { 3 };
        let crashing_store = CrashingStore::new(memory.clone(), CrashPoint::Before(before));
        let pulse = crashing_store.pulse();
        let dying = life(Arc::new(crashing_store), number).await;
        pulse.stopped().await;
        dying.die(&memory).await;
    }
    let last = life(Arc::new(memory), 99).await;
    assert!(matches!(last.end(turn).await, TurnEnd::Sealed { .. }));
    let cost = last.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Answered(answered) => Some(answered.cost),
        _ => None,
    });
    assert_eq!(cost, Some(Some("0.01".parse().unwrap())));
}

#[tokio::test(start_paused = true)]
async fn spent_amount_equals_cost_for_nested_calls() {
    let lines = vec![call("fax", "ann"), call("clerk", "bob"), call("clerk", "nobody"), Line::Say("done")];
    let script = Script::new(lines);
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, |config| {
        own_tools(config);
        let money = Budget { money: Some("100".parse().unwrap()), ..Budget::default() };
        config.package.budgets = of_agent(money);
        config.models = vec![Arc::new(Priced(ScriptedModel(script.clone())))];
    })
    .await
    .unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    let store = life.runtime.store().as_ref();
    let cost = async |by| {
        let spent = spent(store, None, by).await.unwrap();
        spent.into_iter().map(|(name, spent)| format!("{name}: ${}", spent.cost)).collect::<Vec<_>>()
    };
    assert_eq!(cost(CostDimension::Tool).await, ["tool fax: $0.02"]);
    let booked = agents(store).await.spent.money;
    assert_eq!(cost(CostDimension::Agent).await, [format!("tester: ${booked}")]);
    // All views show the same sum.
    let records = store.turn_records(turn).await.unwrap();
    assert_eq!(outlast_runtime::views::costs::of_turn(&records).1, booked);
    assert_eq!(store.session(SESSION).await.unwrap().cost, Some(booked));
    let effects = outlast_runtime::views::timeline::of_turn(records).effects;
    assert_eq!(effects.iter().filter_map(|effect| effect.cost).sum::<Cost>(), booked);
    let used = effects.iter().filter(|effect| effect.usage.is_some());
    assert!(used.map(|effect| effect.kind).all(|kind| kind == EffectKind::ModelCall));
}

#[tokio::test(start_paused = true)]
async fn tool_model_requests_charge_the_same_budget() {
    let lines = vec![call("wonder", ""), Line::Say("done")];
    let change = |budgets| {
        move |config: &mut RuntimeConfig| {
            own_tools(config);
            config.package.budgets = budgets;
        }
    };
    let life = live_with(
        Arc::new(MemoryStore::new()),
        lines.clone(),
        Arc::default(),
        1,
        change(of_agent(tokens(1 << 40))),
    )
    .await
    .unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(
        agents(life.runtime.store().as_ref()).await.spent,
        UsageAmount { tokens: 15, calls: 4, ..UsageAmount::ZERO }
    );

    let calls = Budget { calls: Some(2), ..Budget::default() };
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change(of_agent(calls)))
        .await
        .unwrap();
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), "calls of agent:tester");
    assert_eq!(life.script.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn money_budget_requires_a_priced_model() {
    let money = Budget { money: Some("1".parse().unwrap()), ..Budget::default() };
    let error =
        live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, with(of_agent(money))).await.err();
    assert_eq!(error.unwrap().kind(), Kind::ConfigInvalid);
}

/// A script whose model has a price.
pub(crate) struct Priced(pub(crate) ScriptedModel);

impl ModelProvider for Priced {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        priced(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        self.0.stream(request)
    }
}

/// Plays its script after a second.
struct Slow(ScriptedModel);

impl ModelProvider for Slow {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        self.0.info(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let second = stream::once(tokio::time::sleep(Duration::from_secs(1)));
        Box::pin(second.flat_map(move |()| self.0.stream(request)))
    }
}

fn slowly(lines: Vec<Line>, budgets: Budgets) -> impl FnOnce(&mut RuntimeConfig) {
    move |config| {
        config.models = vec![Arc::new(Slow(ScriptedModel(Script::new(lines))))];
        config.package.budgets = budgets;
    }
}

fn tester() -> BudgetAccount {
    BudgetAccount::Agent("tester".to_owned())
}

#[tokio::test(start_paused = true)]
async fn turn_resumes_when_other_reservations_are_released() {
    let soft = Budget { pause_at: Percent::try_from(100).ok(), ..tokens(2_000) };
    let change = |config: &mut RuntimeConfig| {
        slowly(vec![Line::Say("done")], of_agent(soft))(config);
        config.package.tools.clear();
    };
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let other = SessionTarget::Key { key: "other".into(), fresh: SessionId::from_u128(78) };
    life.runtime.submit(Input::text(other, "go")).await.unwrap();
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    assert_eq!(life.end(turn).await, answered("done"));
    assert_eq!(agents(life.runtime.store().as_ref()).await.spent.tokens, 10);
}

#[tokio::test(start_paused = true)]
async fn turn_waiting_for_daily_budget_resumes_next_day() {
    let daily = Budget {
        calls: Some(1),
        per: Some(Period::Day),
        pause_at: Percent::try_from(100).ok(),
        ..Budget::default()
    };
    let (_, life) = under(of_agent(daily), vec![Line::Say("one"), Line::Say("two")]).await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, answered("one"));
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    tokio::time::advance(Duration::from_hours(24)).await;
    assert_eq!(life.end(turn).await, answered("two"));
}

#[tokio::test(start_paused = true)]
async fn new_budget_counts_running_turn() {
    let change = slowly(vec![call("put", "a"), Line::Say("done")], Budgets::default());
    let life = live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let none = Budget { calls: Some(0), ..Budget::default() };
    life.runtime.set_budget(tester(), Some(none)).await.unwrap();
    assert_eq!(short(life.end(turn).await), "calls of agent:tester");
    assert_eq!(life.witness.count("put"), 0);
}

#[tokio::test(start_paused = true)]
async fn operator_money_budget_requires_priced_model() {
    let (_, life) = under(Budgets::default(), vec![Line::Say("hello")]).await;
    let money = Budget { money: Some("1".parse().unwrap()), ..Budget::default() };
    life.runtime.set_budget(tester(), Some(money)).await.unwrap();
    let turn = life.send("go").await;
    let why = Some("the price of the model is unknown; give it a price, or limit tokens".to_owned());
    let budget = "money of agent:tester".to_owned();
    assert_eq!(life.end(turn).await, TurnEnd::OutOfBudget { budget, why });
    assert_eq!(life.script.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn organisation_budget_stops_its_turns() {
    let (_, life) = under(Budgets::default(), vec![Line::Say("hello")]).await;
    let none = Budget { calls: Some(0), ..Budget::default() };
    life.runtime.set_budget(BudgetAccount::Org(OrgId::DEFAULT), Some(none)).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(short(life.end(turn).await), format!("calls of {}", OrgId::DEFAULT));
}

#[tokio::test(start_paused = true)]
async fn only_operator_sets_organisation_budget() {
    let (_, life) = under(Budgets::default(), vec![]).await;
    let acme = life.runtime.create_org("acme".parse().unwrap()).await.unwrap().id;
    life.runtime.set_budget(BudgetAccount::Org(acme), Some(tokens(1))).await.unwrap();
    let handle = life.runtime.serving(Access::to(acme));
    for budget in [Some(tokens(1 << 40)), None] {
        let refused = handle.set_budget(BudgetAccount::Org(acme), budget).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::AccessDenied);
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_model_call_releases_its_reservation() {
    for (line, until) in [(Line::Fail(Kind::ModelRejected), "turn.ended"), (Line::Busy, "turn.parked")] {
        let quick = |config: &mut RuntimeConfig| {
            config.package.budgets = of_agent(tokens(1 << 40));
            config.limits = Limits { wait_in_memory: Duration::from_secs(1), ..Limits::default() };
        };
        let life =
            live_with(Arc::new(MemoryStore::new()), vec![line], Arc::default(), 1, quick).await.unwrap();
        life.send("go").await;
        life.until(until).await;
        let used = accounts(life.runtime.store().as_ref()).await;
        assert!(
            used.iter()
                .all(|account| account.reserved == UsageAmount::ZERO && account.spent == UsageAmount::ZERO),
            "{used:?}"
        );
    }
}

/// Replies in the conversation, of tools and for summaries are all limited to what is reserved.
#[tokio::test(start_paused = true)]
async fn operator_budget_bounds_every_reply() {
    let change = |config: &mut RuntimeConfig| {
        own_tools(config);
        config.limits = Limits { view_bytes: 4_000, ..Limits::default() };
    };
    let lines = vec![call("wonder", ""), Line::Say("done")];
    let life = live_with(Arc::new(MemoryStore::new()), lines, Arc::default(), 1, change).await.unwrap();
    life.runtime.set_budget(tester(), Some(tokens(1 << 40))).await.unwrap();
    for _ in 0..4 {
        let turn = life.send(&"word ".repeat(300)).await;
        life.end(turn).await;
    }
    let asked = life.script.asked.lock().unwrap().clone();
    assert!(asked.iter().any(|(system, _)| system.starts_with("You write the summary")), "{asked:?}");
    let bounds: Vec<Option<u32>> = asked.iter().map(|(_, options)| options.tokens_most).collect();
    assert_eq!(bounds, vec![Some(8_192); asked.len()]);
}

/// A turn replays its recorded requests, whether a budget is set by then or not.
#[tokio::test(start_paused = true)]
async fn sleeping_turn_resumes_after_budget_change() {
    for (before, after) in [(Some(tokens(1 << 40)), None), (None, Some(tokens(1 << 40)))] {
        let (memory, life) = under(Budgets::default(), vec![call("stepped", "a"), Line::Say("done")]).await;
        life.runtime.set_budget(tester(), before).await.unwrap();
        let turn = life.send("go").await;
        life.until("turn.parked").await;
        life.runtime.set_budget(tester(), after).await.unwrap();
        let witness = life.die(&memory).await;
        let lines = vec![call("stepped", "a"), Line::Say("done")];
        let life = live(Arc::new(memory), lines, witness, 2).await;
        assert_eq!(life.end(turn).await, answered("done"));
    }
}

/// A model that sometimes uses all that is reserved, and counts its real usage, including that of lost replies. Its
/// replies take a while, so that crashes interrupt them.
#[derive(Clone)]
struct MeteredModel {
    used: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    /// Whether it reports its usage.
    reports: bool,
}

impl Default for MeteredModel {
    fn default() -> Self {
        Self { used: Arc::default(), asked: Arc::default(), reports: true }
    }
}

impl ModelProvider for MeteredModel {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (model.as_str() == "test/script").then(|| ModelCapabilities::of_window(1 << 20))
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let most = u64::from(request.call.options.tokens_most.expect("what is counted is bounded"));
        // Counts like a provider with one token per byte, plus some overhead.
        let messages = request.messages().map(|message| serde_json::to_vec(message).unwrap().len() + 8);
        let read = request.system.len() + messages.sum::<usize>();
        let reports = self.reports;
        let usage = Usage { input: read as u64, output: (number * 37) % (most + 1), ..Usage::default() };
        self.used.fetch_add(usage.input + usage.output, Ordering::SeqCst);
        let pause = Duration::from_millis(number % 50);
        let cut = number % 7 == 3;
        // Without a report, only the size of the reply shows how many tokens it has.
        let size = if reports { 4 } else { usize::try_from(usage.output).unwrap() };
        Box::pin(stream::unfold((0, "x".repeat(size)), move |(step, text)| async move {
            let event = match step {
                0 => {
                    tokio::time::sleep(pause).await;
                    ModelEvent::Text(text.clone())
                }
                1 if cut => return None,
                1 if reports => ModelEvent::Usage(usage),
                1 | 2 => ModelEvent::End(StopReason::End),
                _ => return None,
            };
            let next = if matches!(event, ModelEvent::End(_)) { 3 } else { step + 1 };
            Some((Ok(event), (next, text)))
        }))
    }
}

/// The parameters of a crash test.
struct Storm {
    greedy: MeteredModel,
    /// Where the budget is set.
    by: BudgetOwner,
    /// The number of concurrent workers.
    workers: u64,
    seeds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BudgetOwner {
    Agent,
    Operator,
}

/// Sixty-four sessions share a budget while workers crash repeatedly. The real usage of the model never exceeds it.
async fn never_overspends(storm: &Storm) {
    const MOST: u64 = 1_000_000;
    const REPLY: u32 = 4_000;
    for seed in 0..storm.seeds {
        let memory = MemoryStore::new();
        let greedy = MeteredModel { reports: storm.greedy.reports, ..MeteredModel::default() };
        let budgets = match storm.by {
            BudgetOwner::Agent => Budgets { reply_tokens: Some(REPLY), ..of_agent(tokens(MOST)) },
            BudgetOwner::Operator => Budgets::default(),
        };
        if storm.by == BudgetOwner::Operator {
            memory.set_budget(tester(), Some(tokens(MOST)), Millis(0)).await.unwrap();
        }
        let change = |config: &mut RuntimeConfig| {
            config.models = vec![Arc::new(greedy.clone())];
            config.package.tools.clear();
            config.package.budgets = budgets;
        };
        let target = |n: u64| SessionTarget::Key {
            key: n.to_string(),
            fresh: SessionId::from_u128(u128::from(n) + 1),
        };
        for life in 1..=6 {
            let drive = async |one: u64| {
                let number = u128::from(life * 10 + one);
                let dies = CrashPoint::Before(20 + (seed * 31 + life * 17 + one * 41) % 90);
                let crashing_store = CrashingStore::new(memory.clone(), dies);
                let pulse = crashing_store.pulse();
                let worker =
                    live_with(Arc::new(crashing_store), vec![], Arc::default(), number, change).await;
                let Ok(worker) = worker else { return };
                let send = async {
                    for n in (0..64).filter(|n| n % storm.workers == one) {
                        let input = Input { key: Some(format!("{life}")), ..Input::text(target(n), "go") };
                        if worker.runtime.submit(input).await.is_err() {
                            break;
                        }
                    }
                    worker.runtime.idle().await.ok();
                };
                tokio::select! {
                    () = send => {}
                    () = pulse.stopped() => {}
                }
                worker.die(&memory).await;
            };
            futures_util::future::join_all((0..storm.workers).map(drive)).await;
            assert!(greedy.used.load(Ordering::SeqCst) <= MOST, "seed {seed}, life {life}");
        }
        let last = live_with(Arc::new(memory.clone()), vec![], Arc::default(), 99, change).await.unwrap();
        last.runtime.idle().await.unwrap();
        // Turns whose workers died repeatedly run alone, one at a time.
        while memory.load().await.unwrap().held > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            last.runtime.idle().await.unwrap();
        }
        let BudgetAccountView { spent, reserved: held, lost, .. } = agents(&memory).await;
        let used = greedy.used.load(Ordering::SeqCst);
        assert!(
            used <= spent.tokens && spent.tokens <= MOST,
            "{used} of {spent:?}, {lost:?} lost, seed {seed}"
        );
        assert_eq!(held, UsageAmount::ZERO, "seed {seed}");
        assert!(lost.tokens > 0 && used > MOST / 50, "the storm was none: {used}, {lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_turns_never_overspend_despite_crashes() {
    never_overspends(&Storm {
        greedy: MeteredModel::default(),
        by: BudgetOwner::Agent,
        workers: 1,
        seeds: 8,
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sixty_four_turns_never_overspend_operator_budget() {
    never_overspends(&Storm {
        greedy: MeteredModel::default(),
        by: BudgetOwner::Operator,
        workers: 1,
        seeds: 4,
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sixty_four_turns_never_overspend_without_usage_reports() {
    let greedy = MeteredModel { reports: false, ..MeteredModel::default() };
    never_overspends(&Storm { greedy, by: BudgetOwner::Agent, workers: 1, seeds: 4 }).await;
}

#[tokio::test(start_paused = true)]
async fn sixty_four_turns_never_overspend_with_two_workers() {
    never_overspends(&Storm {
        greedy: MeteredModel::default(),
        by: BudgetOwner::Agent,
        workers: 2,
        seeds: 4,
    })
    .await;
}

/// A turn with two model calls and a tool call crashes at every write. The booked amount is never less than the usage.
#[tokio::test(start_paused = true)]
async fn crashed_turn_books_at_least_its_usage() {
    let lines = || vec![call("put", "a"), Line::Say("done")];
    let mut at = 0;
    loop {
        let memory = MemoryStore::new();
        let mut dead = false;
        let mut asked = 0;
        for (number, death) in [(1, CrashPoint::AfterWrite(at)), (2, CrashPoint::Never)] {
            let crashing_store = CrashingStore::new(memory.clone(), death);
            let pulse = crashing_store.pulse();
            let budgets = of_agent(tokens(1 << 30));
            let life =
                live_with(Arc::new(crashing_store), lines(), Arc::default(), number, with(budgets)).await;
            let Ok(life) = life else {
                dead = true;
                continue;
            };
            let turn = async {
                let input = keyed_input("k", "go");
                let Ok(accepted) = life.runtime.submit(input).await else { return };
                life.end(accepted.turn).await;
            };
            tokio::select! {
                () = turn => {}
                () = pulse.stopped() => dead = true,
            }
            asked += life.script.calls.load(Ordering::SeqCst);
            life.die(&memory).await;
        }
        let BudgetAccountView { spent, reserved, .. } = agents(&memory).await;
        assert!(spent.tokens >= asked * 5, "died after write {at}: {spent:?} for {asked} replies");
        assert_eq!(reserved, UsageAmount::ZERO, "died after write {at}");
        if !dead {
            assert_eq!(at, 4, "a turn with a tool is four writes");
            return;
        }
        at += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_releases_unstarted_reservations() {
    let soft = Budget { pause_at: Percent::try_from(1).ok(), ..tokens(20_000) };
    let (_, life) = under(of_agent(soft), vec![Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.until("turn.parked").await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() });
    let events = life.runtime.store().records(SESSION, Seq(0), 100).await.unwrap();
    assert!(events.iter().any(|record| record.fact.name() == "turn.parked"));
    let used = accounts(life.runtime.store().as_ref()).await;
    assert!(
        used.iter()
            .all(|account| account.reserved == UsageAmount::ZERO && account.spent == UsageAmount::ZERO),
        "{used:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_another_organisation_cannot_be_set() {
    let (_, life) = under(of_turn(tokens(10_000)), vec![Line::Say("done")]).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    let name = |name: &str| name.parse().unwrap();
    let (acme, bolt) =
        (life.runtime.create_org(name("acme")).await, life.runtime.create_org(name("bolt")).await);
    let (acme, bolt) = (acme.unwrap().id, bolt.unwrap().id);
    let handle = life.runtime.serving(Access::to(acme));
    for (account, expected) in [
        (BudgetAccount::Session(SESSION), Kind::SessionNotFound),
        (BudgetAccount::Turn(turn), Kind::TurnNotFound),
        (BudgetAccount::Org(bolt), Kind::OrgNotFound),
    ] {
        let refused = handle.set_budget(account, Some(tokens(1))).await.unwrap_err();
        assert_eq!(refused.kind(), expected);
    }
    // Agent names are local to an organisation.
    handle.set_budget(BudgetAccount::Agent("tester".to_owned()), Some(tokens(1))).await.unwrap();
    let next = life.send("more").await;
    assert_eq!(life.end(next).await, answered("nothing more to say"));
}

/// Reservations do not outlive their turn, even if a worker without budgets ends it.
#[tokio::test(start_paused = true)]
async fn worker_without_budgets_releases_ended_turn_reservation() {
    let (memory, first) =
        under(of_agent(tokens(100_000)), vec![call("stepped", "x"), Line::Say("done")]).await;
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    // This worker has neither the agent's package nor its budget.
    let other = |config: &mut RuntimeConfig| {
        config.package.tools.retain(|tool| tool.as_str() != "stepped");
        config.tools = vec![Arc::new(toolbox(Arc::default(), false).unwrap())];
    };
    let second = live_with(Arc::new(memory.clone()), Vec::new(), witness, 2, other).await.unwrap();
    second.until("turn.stuck").await;
    second.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(second.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() });
    let BudgetAccountView { reserved, .. } = agents(&memory).await;
    assert_eq!(reserved, UsageAmount::ZERO);
}

#[tokio::test(start_paused = true)]
async fn cancelled_unapproved_call_uses_nothing() {
    let asks = || rule("money", "pay", PolicyDecision::Ask(ApprovalRequirement::default()));
    let governed = |config: &mut RuntimeConfig| {
        config.package.budgets = of_agent(tokens(1 << 40));
        config.package.policy = Policy { rules: vec![asks()] };
    };
    let cancelled = async |line, hangs| {
        let life =
            live_with(Arc::new(MemoryStore::new()), vec![line], Arc::default(), 1, governed).await.unwrap();
        let turn = life.send("go").await;
        if hangs {
            while life.witness.count("hangs") == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } else {
            life.until("turn.parked").await;
        }
        life.runtime.cancel(turn, "enough").await.unwrap();
        assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".to_owned() });
        let BudgetAccountView { spent, reserved, lost, .. } = agents(life.runtime.store().as_ref()).await;
        assert_eq!(reserved, UsageAmount::ZERO);
        (spent.calls, lost.calls)
    };
    // Only the reply is a call. The tool was not called.
    assert_eq!(cancelled(call("pay", "7"), false).await, (1, 0));
    // One of its neighbours may have been called, with any outcome. The other was.
    let line = Line::Call(vec![
        ("put", json!({ "text": "a" })),
        ("hangs", json!({ "text": "b" })),
        ("pay", json!({ "text": "7" })),
    ]);
    assert_eq!(cancelled(line, true).await, (3, 1));
}

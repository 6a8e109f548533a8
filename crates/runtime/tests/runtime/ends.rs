//! How the last turn of a session ended, and the partial reply that a cancellation leaves.
use crate::common::*;
use futures_util::{StreamExt, stream};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::inbox::Inbox;
use outlast_ports::journal::Journal;
use outlast_ports::metrics::MetricValues;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::store::Store;
use outlast_runtime::RuntimeConfig;
use outlast_runtime::views::costs;
use outlast_runtime::views::messages::{self, MessagePageEnd};
use outlast_runtime::views::session_list;
use outlast_views::{CostDimension, LastEnd, LastTurn, SessionFilter, SessionState};
use outlast_vocab::budget::{Budget, BudgetAccount, Budgets};
use outlast_vocab::cost::Cost;
use outlast_vocab::event::{Event, LiveEventKind};
use outlast_vocab::message::{Message, ModelName};
use outlast_vocab::record::{Fact, InterruptedReply, Seq, TurnEnd, TurnEndKind};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Kind, Millis, TurnId};
use std::sync::Arc;

async fn last_turn(life: &Life) -> Option<LastTurn> {
    life.runtime.store().session(SESSION).await.unwrap().last_turn
}

fn ended(id: TurnId, end: TurnEndKind) -> LastTurn {
    LastTurn { id, end: LastEnd::Ended(end) }
}

async fn listed(life: &Life, last_end: &str) -> usize {
    let filter = SessionFilter { last_end: Some(last_end.parse().unwrap()), ..SessionFilter::default() };
    let page = session_list::page(life.runtime.store().as_ref(), &filter, None, 10, 100).await.unwrap();
    page.sessions.len()
}

/// Returns the metric of sessions whose last turn ended this way.
async fn measured(life: &Life, end: &str) -> f64 {
    let snapshot = life.runtime.metrics().await.unwrap();
    let family = snapshot.families.into_iter().find(|family| family.name == "outlast.sessions.last_end");
    let Some(MetricValues::Gauge(readings)) = family.map(|family| family.values) else { panic!("no gauge") };
    let reading = readings.iter().find(|reading| reading.labels[0].1 == end);
    reading.unwrap_or_else(|| panic!("no reading of {end}")).value
}

#[tokio::test(start_paused = true)]
async fn session_shows_how_its_last_turn_ended() {
    let (_memory, life) = fresh(vec![Line::Say("hello"), Line::Fail(Kind::ModelRejected)]).await;
    let first = life.send("hi").await;
    life.end(first).await;
    assert_eq!(last_turn(&life).await, Some(ended(first, TurnEndKind::Answered)));
    assert_eq!((listed(&life, "answered").await, listed(&life, "failed").await), (1, 0));
    let second = life.send("again").await;
    assert!(matches!(life.end(second).await, TurnEnd::Failed { .. }));
    assert_eq!(last_turn(&life).await, Some(ended(second, TurnEndKind::Failed)));
    assert_eq!(life.runtime.store().session(SESSION).await.unwrap().state, SessionState::Idle);
    assert_eq!((listed(&life, "answered").await, listed(&life, "failed").await), (0, 1));
    assert_eq!((measured(&life, "failed").await, measured(&life, "sealed").await), (1.0, 0.0));
    let why = life.runtime.why(SESSION).await.unwrap();
    assert_eq!(why.progress.name(), "rests");
    let (turn, end) = why.last.unwrap();
    assert_eq!((turn, end.kind()), (second, TurnEndKind::Failed));
}

#[tokio::test(start_paused = true)]
async fn cancelled_queued_turn_is_last_turn() {
    let (_memory, life) = fresh(vec![call("wait", "k"), Line::Say("thanks")]).await;
    let first = life.send("go").await;
    life.until("turn.parked").await;
    let second = life.send("more").await;
    life.runtime.cancel(second, "enough").await.unwrap();
    assert_eq!(last_turn(&life).await, Some(ended(second, TurnEndKind::Cancelled)));
    life.runtime.cancel(first, "enough").await.unwrap();
    life.end(first).await;
    assert_eq!(last_turn(&life).await, Some(ended(first, TurnEndKind::Cancelled)));
}

#[tokio::test(start_paused = true)]
async fn stuck_turn_counts_as_last_turn() {
    let memory = MemoryStore::new();
    let lines = || vec![call("stepped", "x"), Line::Say("done")];
    let first = live(Arc::new(memory.clone()), lines(), Arc::default(), 1).await;
    let turn = first.send("go").await;
    first.until("turn.parked").await;
    let witness = first.die(&memory).await;
    let without_tools = |config: &mut RuntimeConfig| config.tools.clear();
    let without_tools = live_with(Arc::new(memory), lines(), witness, 2, |config| {
        config.package.tools.clear();
        without_tools(config);
    });
    let second = without_tools.await.unwrap();
    second.until("turn.stuck").await;
    assert_eq!(last_turn(&second).await, Some(LastTurn { id: turn, end: LastEnd::Stuck }));
    assert_eq!((listed(&second, "stuck").await, measured(&second, "stuck").await), (1, 1.0));
}

#[test]
fn unknown_end_error_lists_known_ends() {
    let error = "lost".parse::<LastEnd>().unwrap_err();
    assert_eq!(error.kind(), Kind::InputInvalid);
    assert_eq!(
        error.detail(),
        "expected an outcome of a turn (answered, refused, out_of_model_calls, out_of_budget, cancelled, aborted, \
         abandoned, failed, sealed, stuck), got `lost`"
    );
}

/// A model with a price that says three words and then hangs.
struct Slow;

impl ModelProvider for Slow {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        priced(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let last = request.messages().last().map(|message| message.text().into_owned());
        let words = ["The ", "capital ", "of"].map(|word| Ok(ModelEvent::Text(word.to_owned())));
        match last.as_deref() {
            Some("and now?") => {
                let shown = request.messages().map(|message| message.text().into_owned()).collect::<Vec<_>>();
                let said = ModelEvent::Text(shown.join(" | "));
                let end = ModelEvent::End(outlast_vocab::effect::StopReason::End);
                Box::pin(stream::iter([Ok(said), Ok(end)]))
            }
            _ => Box::pin(stream::iter(words).chain(stream::pending())),
        }
    }
}

fn slow(config: &mut RuntimeConfig) {
    config.models = vec![Arc::new(Slow)];
}

async fn slow_life(change: impl FnOnce(&mut RuntimeConfig)) -> Life {
    let memory = MemoryStore::new();
    let change = |config: &mut RuntimeConfig| {
        slow(config);
        change(config);
    };
    live_with(Arc::new(memory), Vec::new(), Arc::default(), 1, change).await.unwrap()
}

/// Waits until the model has said three words.
async fn three_words(life: &Life) {
    let mut events = life.runtime.events(SESSION, Seq(0));
    loop {
        if let Event::Live(live) = events.next().await.unwrap()
            && let LiveEventKind::Text { text, .. } = live.what
            && text.ends_with("of")
        {
            break;
        }
    }
}

/// Sends an input and cancels its turn after the model has said three words.
async fn cancel_in_the_middle(life: &Life) -> TurnId {
    let turn = life.send("what is it?").await;
    three_words(life).await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".into() });
    turn
}

async fn interrupted(life: &Life) -> Option<InterruptedReply> {
    life.facts().await.into_iter().find_map(|fact| match fact {
        Fact::Interrupted(interrupted) => Some(interrupted),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn cancel_keeps_the_streamed_text() {
    let life = slow_life(|_| {}).await;
    let turn = cancel_in_the_middle(&life).await;
    let partial = interrupted(&life).await.unwrap();
    assert_eq!((partial.text.as_str(), partial.model.as_str()), ("The capital of", "test/script"));
    let marked = "The capital of\n\n[interrupted: the turn was cancelled before this reply was complete]";
    let store = life.runtime.store();
    let session = store.session(SESSION).await.unwrap();
    let page = messages::page(store.as_ref(), &session, "main", MessagePageEnd::Newest).await.unwrap();
    let texts: Vec<String> = page.turns[0].1.iter().map(|said| said.message.text().into_owned()).collect();
    assert_eq!((page.turns[0].0.id, texts), (turn, vec!["what is it?".to_owned(), marked.to_owned()]));
    assert!(matches!(page.turns[0].1[1].message, Message::Assistant { .. }));
    // The next model call includes it, marked as interrupted.
    let next = life.send("and now?").await;
    assert_eq!(
        life.end(next).await,
        TurnEnd::Answered { text: format!("what is it? | {marked} | and now?") }
    );
    store.verify(SESSION).await.unwrap();
}

fn five_dollars() -> Budgets {
    let budget = Budget { money: Some("5".parse().unwrap()), ..Budget::default() };
    Budgets { session: Some(budget), ..Budgets::default() }
}

/// Checks that budgets and costs count the same. All of it is estimated, because no reply came.
async fn assert_costs_agree(store: &dyn Store) {
    let mut spent = costs::spent(store, None, CostDimension::Session).await.unwrap();
    let spent = spent.remove(&SESSION.to_string()).unwrap();
    let accounts = store.budgets(10).await.unwrap();
    let name = BudgetAccount::Session(SESSION).to_string();
    let account = accounts.iter().find(|account| account.name == name).unwrap();
    assert!(spent.cost > Cost::ZERO);
    assert_eq!((account.spent.money, account.lost.money), (spent.cost, spent.cost));
    assert_eq!((spent.estimated, spent.replies), (spent.cost, 0));
    assert_eq!(account.spent.tokens, spent.usage.input + spent.usage.output);
    assert_eq!((account.reserved.tokens, store.session(SESSION).await.unwrap().cost), (0, Some(spent.cost)));
}

#[tokio::test(start_paused = true)]
async fn costs_and_budgets_agree_on_a_cancelled_turn() {
    let life = slow_life(|config| config.package.budgets = five_dollars()).await;
    cancel_in_the_middle(&life).await;
    assert_costs_agree(life.runtime.store().as_ref()).await;
}

/// Starts a worker with a budget. `number` is that of the process.
async fn budgeted_life(memory: &MemoryStore, number: u128) -> Life {
    let change = |config: &mut RuntimeConfig| {
        slow(config);
        config.package.budgets = five_dollars();
    };
    live_with(Arc::new(memory.clone()), Vec::new(), Arc::default(), number, change).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn costs_and_budgets_agree_on_dead_workers() {
    // How many workers die in the model call, and whether a worker is alive to hear the cancel.
    for (deaths, hears) in [(1, false), (1, true), (2, false), (2, true)] {
        let memory = MemoryStore::new();
        let mut life = budgeted_life(&memory, 1).await;
        let turn = life.send("what is it?").await;
        for number in 2..=deaths {
            three_words(&life).await;
            life.die(&memory).await;
            life = budgeted_life(&memory, number).await;
        }
        three_words(&life).await;
        life.die(&memory).await;
        if !hears {
            memory.cancel(turn, "enough".to_owned(), Millis(2_000_000)).await.unwrap();
        }
        let life = budgeted_life(&memory, deaths + 1).await;
        if hears {
            three_words(&life).await;
            life.runtime.cancel(turn, "enough").await.unwrap();
        }
        assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".into() });
        assert_costs_agree(&memory).await;
        memory.verify(SESSION).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_has_a_cost_without_budgets() {
    let life = slow_life(|_| {}).await;
    let turn = cancel_in_the_middle(&life).await;
    let spent =
        costs::spent_by_turn(life.runtime.store().as_ref(), SESSION).await.unwrap().remove(&turn).unwrap();
    assert!(spent.cost > Cost::ZERO);
    assert_eq!(spent.estimated, spent.cost);
}

#[tokio::test(start_paused = true)]
async fn unsent_call_costs_nothing() {
    let budget = Budget { tokens: Some(1 << 40), ..Budget::default() };
    let budgets = Budgets { session: Some(budget), ..Budgets::default() };
    let memory = MemoryStore::new();
    let rejected = |config: &mut RuntimeConfig| config.package.budgets = budgets;
    let life = live_with(Arc::new(memory), vec![Line::Busy], Arc::default(), 1, rejected).await.unwrap();
    let turn = life.send("hi").await;
    // The provider has rejected the call, and the turn waits for the next attempt.
    while life.script.calls.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    life.runtime.cancel(turn, "enough").await.unwrap();
    life.end(turn).await;
    assert_eq!(interrupted(&life).await, None);
    let accounts = life.runtime.store().budgets(10).await.unwrap();
    assert_eq!(accounts.iter().map(|account| account.spent.tokens).sum::<u64>(), 0);
}

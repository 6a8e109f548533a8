//! Costs and budgets count the same for model calls that bring no reply.
use crate::common::*;
use futures_util::{StreamExt, stream};
use outlast_ledger::memory::MemoryStore;
use outlast_ports::budget::BudgetStore;
use outlast_ports::journal::Journal;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::queries::Queries;
use outlast_ports::service::{Models, Services};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, Toolbox, done};
use outlast_runtime::RuntimeConfig;
use outlast_runtime::views::{costs, timeline};
use outlast_views::{BudgetAccountView, CostDimension};
use outlast_vocab::budget::{Budget, BudgetAccount, Budgets};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{ModelCharge, ModelOutcome, Outcome, StopReason, Usage};
use outlast_vocab::message::{CallArguments, ModelName, ToolUse};
use outlast_vocab::record::{EffectPerformed, Fact, TurnEnd};
use outlast_vocab::stream::ModelEvent;
use outlast_vocab::{Error, Kind, TurnId};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The behaviour of the model in one call.
#[derive(Clone, Copy)]
enum Attempt {
    /// Says half a sentence, then the connection breaks.
    Cut,
    /// Says half a sentence, then nothing more.
    Stall,
    /// Is rejected.
    Reject,
    Answer,
    /// Answers, and does not report the usage.
    AnswerUnreported,
}

use Attempt::{Answer, AnswerUnreported, Cut, Reject, Stall};

/// A model with prices. The n-th call makes the n-th attempt, and later calls repeat the last one.
struct Unsteady {
    attempts: &'static [Attempt],
    calls: Arc<AtomicUsize>,
}

impl ModelProvider for Unsteady {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        priced(model)
    }

    fn stream<'a>(&'a self, _: ModelRequest<'a>) -> EventStream<'a> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst).min(self.attempts.len() - 1);
        let unavailable = || Err(Error::new(Kind::ModelUnavailable, "503"));
        let half = || Ok(ModelEvent::Text("half a ".to_owned()));
        match self.attempts[number] {
            Cut => Box::pin(stream::iter([half(), unavailable()])),
            Stall => Box::pin(stream::iter([half()]).chain(stream::pending())),
            Reject => Box::pin(stream::iter([unavailable()])),
            Answer => {
                let usage = ModelEvent::Usage(Usage { input: 100, output: 10, ..Usage::default() });
                let text = ModelEvent::Text("whole".to_owned());
                Box::pin(stream::iter([text, usage, ModelEvent::End(StopReason::End)].map(Ok)))
            }
            AnswerUnreported => {
                let text = ModelEvent::Text("whole".to_owned());
                Box::pin(stream::iter([text, ModelEvent::End(StopReason::End)].map(Ok)))
            }
        }
    }
}

/// A process that calls the unsteady model.
struct Unsteadily {
    memory: MemoryStore,
    life: Life,
    calls: Arc<AtomicUsize>,
}

impl Unsteadily {
    async fn start(attempts: &'static [Attempt]) -> Self {
        Self::on(MemoryStore::new(), 1, attempts, |_| {}).await
    }

    async fn on(
        memory: MemoryStore,
        number: u128,
        attempts: &'static [Attempt],
        change: impl FnOnce(&mut RuntimeConfig),
    ) -> Self {
        let calls = Arc::<AtomicUsize>::default();
        let model = Unsteady { attempts, calls: calls.clone() };
        let both = |config: &mut RuntimeConfig| {
            config.models = vec![Arc::new(model)];
            config.package.budgets = dollars("500");
            change(config);
        };
        let store = Arc::new(memory.clone());
        let life = live_with(store, Vec::new(), Arc::default(), number, both).await.unwrap();
        Self { memory, life, calls }
    }

    /// Waits until the model was called this often.
    async fn called(&self, times: usize) {
        while self.calls.load(Ordering::SeqCst) < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::task::yield_now().await;
    }

    async fn cancel(&self, turn: TurnId) {
        self.life.runtime.cancel(turn, "enough").await.unwrap();
        assert_eq!(self.life.end(turn).await, TurnEnd::Cancelled { reason: "enough".into() });
    }

    /// Returns how often a request of this size is charged, after checking that costs and budgets agree.
    async fn charged(&self) -> u64 {
        self.memory.verify(SESSION).await.unwrap();
        let spent = agreed(&self.memory).await;
        let requests = self.life.facts().await.into_iter().filter_map(|fact| match fact {
            Fact::Interrupted(interrupted) => interrupted.cost,
            _ => None,
        });
        let requests: Vec<Cost> = requests.collect();
        assert_eq!(spent.estimated, requests.iter().copied().sum());
        u64::try_from(requests.len()).unwrap()
    }
}

fn dollars(most: &str) -> Budgets {
    let budget = Budget { money: Some(most.parse().unwrap()), ..Budget::default() };
    Budgets { session: Some(budget), ..Budgets::default() }
}

/// Returns what the session has spent, which costs, budgets and the session agree on.
async fn agreed(store: &MemoryStore) -> outlast_views::CostTotals {
    let spent = costs::spent(store, None, CostDimension::Session).await.unwrap();
    let spent = spent.get(&SESSION.to_string()).cloned().unwrap_or_default();
    let name = BudgetAccount::Session(SESSION).to_string();
    // Accounts that were never charged are not listed.
    let account = store.budgets(10).await.unwrap().into_iter().find(|account| account.name == name);
    let in_budgets = account.map(|BudgetAccountView { spent, lost, reserved, .. }| {
        (spent.money, lost.money, spent.tokens, reserved.money)
    });
    let tokens = spent.usage.input + spent.usage.output;
    assert_eq!(in_budgets.unwrap_or_default(), (spent.cost, spent.estimated, tokens, Cost::ZERO));
    assert_eq!(store.session(SESSION).await.unwrap().cost, Some(spent.cost));
    spent
}

#[tokio::test(start_paused = true)]
async fn broken_streams_cost_the_same_when_cancelled_while_parked() {
    for attempts in [&[Cut][..], &[Stall], &[Cut, Reject, Stall, Reject]] {
        let unsteadily = Unsteadily::start(attempts).await;
        let turn = unsteadily.life.send("go").await;
        unsteadily.life.until("turn.parked").await;
        unsteadily.cancel(turn).await;
        let calls = unsteadily.calls.load(Ordering::SeqCst);
        let rejected =
            (1..=calls).filter(|number| matches!(attempts[(number - 1).min(attempts.len() - 1)], Reject));
        assert_eq!(unsteadily.charged().await, u64::try_from(calls - rejected.count()).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_attempt_after_broken_one_costs_nothing() {
    // The cancel arrives in the pause after the last of these attempts.
    for (attempts, charged) in
        [(&[Cut][..], 1), (&[Reject], 0), (&[Cut, Reject], 1), (&[Reject, Cut, Reject, Cut], 2)]
    {
        let unsteadily = Unsteadily::start(attempts).await;
        let turn = unsteadily.life.send("go").await;
        unsteadily.called(attempts.len()).await;
        unsteadily.cancel(turn).await;
        assert_eq!(unsteadily.charged().await, charged);
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_during_second_attempt_charges_both() {
    let unsteadily = Unsteadily::start(&[Cut, Stall]).await;
    let turn = unsteadily.life.send("go").await;
    unsteadily.called(2).await;
    unsteadily.cancel(turn).await;
    assert_eq!(unsteadily.charged().await, 2);
    let texts = unsteadily.life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Interrupted(interrupted) => Some(interrupted.text),
        _ => None,
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["", "half a "]);
}

#[tokio::test(start_paused = true)]
async fn answer_after_broken_streams_costs_all_attempts() {
    let unsteadily = Unsteadily::start(&[Cut, Reject, Stall, Answer]).await;
    let turn = unsteadily.life.send("go").await;
    assert_eq!(unsteadily.life.end(turn).await, TurnEnd::Answered { text: "whole".to_owned() });
    assert_eq!(unsteadily.charged().await, 2);
    let spent = agreed(&unsteadily.memory).await;
    assert!(spent.replies == 1 && spent.cost > spent.estimated);
    // The timeline shows one model call, which costs all of it.
    let records = unsteadily.memory.turn_records(turn).await.unwrap();
    let effects = timeline::of_turn(records).effects;
    assert_eq!(effects.iter().map(|effect| effect.cost).collect::<Vec<_>>(), [Some(spent.cost)]);
}

#[tokio::test(start_paused = true)]
async fn provider_wait_that_expires_costs_broken_streams() {
    let memory = MemoryStore::new();
    let no_wait = |config: &mut RuntimeConfig| config.limits.provider_wait = Duration::ZERO;
    let unsteadily = Unsteadily::on(memory, 1, &[Cut, Reject], no_wait).await;
    let turn = unsteadily.life.send("go").await;
    assert!(matches!(unsteadily.life.end(turn).await, TurnEnd::Failed { .. }));
    assert_eq!(unsteadily.charged().await, 1);
}

#[tokio::test(start_paused = true)]
async fn exhausted_budget_counts_broken_streams() {
    let enough_for_two = cost_of_two_requests().await;
    let little = move |config: &mut RuntimeConfig| config.package.budgets = dollars(&enough_for_two);
    let unsteadily = Unsteadily::on(MemoryStore::new(), 1, &[Cut], little).await;
    let turn = unsteadily.life.send("go").await;
    assert!(matches!(unsteadily.life.end(turn).await, TurnEnd::OutOfBudget { .. }));
    assert_eq!(unsteadily.charged().await, 2);
}

async fn cost_of_two_requests() -> String {
    let unsteadily = Unsteadily::start(&[Cut, Cut, Reject]).await;
    let turn = unsteadily.life.send("go").await;
    unsteadily.called(3).await;
    unsteadily.cancel(turn).await;
    agreed(&unsteadily.memory).await.cost.to_string()
}

#[tokio::test(start_paused = true)]
async fn dead_worker_costs_each_attempt_once() {
    // The worker dies in the pause after the first attempt, in the second one, and while the turn is parked.
    for (attempts, calls, charged) in
        [(&[Cut][..], 1, 1), (&[Reject], 1, 1), (&[Cut, Stall], 2, 2), (&[Cut], 5, 5)]
    {
        let unsteadily = Unsteadily::start(attempts).await;
        let turn = unsteadily.life.send("go").await;
        unsteadily.called(calls).await;
        if calls == 5 {
            unsteadily.life.until("turn.parked").await;
        }
        let Unsteadily { memory, life, .. } = unsteadily;
        life.die(&memory).await;
        let next = Unsteadily::on(memory, 2, &[Answer], |_| {}).await;
        assert_eq!(next.life.end(turn).await, TurnEnd::Answered { text: "whole".to_owned() });
        assert_eq!(next.charged().await, charged);
    }
}

/// Returns the estimates of complete replies.
async fn estimates(life: &Life) -> Vec<ModelCharge> {
    let replies = life.facts().await.into_iter().filter_map(|fact| match fact {
        Fact::Performed(EffectPerformed {
            outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)), ..
        }) => reply.estimate.map(|estimate| *estimate),
        _ => None,
    });
    replies.collect()
}

#[tokio::test(start_paused = true)]
async fn reply_without_usage_costs_an_estimate() {
    let unsteadily = Unsteadily::start(&[AnswerUnreported]).await;
    let turn = unsteadily.life.send("go").await;
    unsteadily.life.end(turn).await;
    let [estimate] = estimates(&unsteadily.life).await[..] else { panic!("there is one reply") };
    // A token per byte of the answer.
    assert_eq!(estimate.usage.output, 5);
    let spent = agreed(&unsteadily.memory).await;
    assert_eq!((spent.replies, spent.unpriced, spent.usage), (1, 0, estimate.usage));
    assert_eq!((Some(spent.cost), spent.estimated), (estimate.cost, spent.cost));
    assert_eq!(spent.estimated_usage, spent.usage);
    // A token per byte of the prompt and the tools.
    assert!(spent.cost > Cost::ZERO && (100..8_000).contains(&spent.usage.input), "{spent:?}");
}

#[tokio::test(start_paused = true)]
async fn estimate_is_the_same_without_budgets() {
    let memory = MemoryStore::new();
    let free = |config: &mut RuntimeConfig| config.package.budgets = Budgets::default();
    let unsteadily = Unsteadily::on(memory, 1, &[AnswerUnreported], free).await;
    let turn = unsteadily.life.send("go").await;
    unsteadily.life.end(turn).await;
    let spent = costs::spent(&unsteadily.memory, None, CostDimension::Session).await.unwrap();
    let spent = &spent[&SESSION.to_string()];
    assert!(spent.cost > Cost::ZERO && spent.usage.output == 5);
    assert_eq!((spent.estimated, spent.estimated_usage), (spent.cost, spent.usage));
}

#[tokio::test(start_paused = true)]
async fn cut_and_estimated_replies_add_up() {
    let unsteadily = Unsteadily::start(&[Cut, AnswerUnreported]).await;
    let turn = unsteadily.life.send("go").await;
    unsteadily.life.end(turn).await;
    let spent = agreed(&unsteadily.memory).await;
    assert_eq!((spent.replies, spent.estimated, spent.estimated_usage), (1, spent.cost, spent.usage));
}

#[tokio::test(start_paused = true)]
async fn reply_to_tool_without_usage_costs_an_estimate() {
    let memory = MemoryStore::new();
    let life = silent_life(&memory, "terse", 1).await;
    let turn = life.send("go").await;
    life.end(turn).await;
    let by_source = costs::spent(&memory, None, CostDimension::Source).await.unwrap();
    let spent = &by_source["tool impatient"];
    assert!(spent.replies == 1 && spent.cost > Cost::ZERO);
    assert_eq!((spent.estimated, spent.estimated_usage), (spent.cost, spent.usage));
    assert!(agreed(&memory).await.cost > spent.cost);
}

/// Asks a model, and gives up after a minute if the text says so.
struct Impatient;

impl Tool for Impatient {
    type Args = Note;
    type Needs = Models;

    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::new("impatient", "Asks a model.").idempotent();
        spec.deadline(Duration::from_mins(2)).attempts(2, Duration::from_secs(1))
    }

    async fn run(&self, models: Models, _: Call, note: Note) -> Result<ToolRunOutcome, Error> {
        let asked = models.ask("why?");
        match note.text.as_str() {
            "select" => match tokio::time::timeout(Duration::from_mins(1), asked).await {
                Ok(reply) => done(reply?),
                Err(_) => done("it took too long"),
            },
            "panic" => {
                let late = async {
                    tokio::time::sleep(Duration::from_mins(1)).await;
                    panic!("it took too long")
                };
                tokio::select! {
                    reply = asked => done(reply?),
                    () = late => unreachable!("it panicked"),
                }
            }
            _ => done(asked.await?),
        }
    }
}

/// Calls the tool, then answers. The model calls of the tool do not come back, or do not report their usage.
struct Silent(&'static str);

impl ModelProvider for Silent {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        priced(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        if request.messages().any(|message| message.text() == "why?") {
            let terse = [ModelEvent::Text("so".to_owned()), ModelEvent::End(StopReason::End)];
            return match self.0 {
                "terse" => Box::pin(stream::iter(terse.map(Ok))),
                _ => Box::pin(stream::pending()),
            };
        }
        let is_first = request.messages().count() == 1;
        let arguments = CallArguments::Json(json!({ "text": self.0 }));
        let tool = ToolUse::new("c".parse().unwrap(), "impatient".parse().unwrap(), arguments);
        let said = if is_first { ModelEvent::Call(tool) } else { ModelEvent::Text("whole".to_owned()) };
        let usage = ModelEvent::Usage(Usage { input: 100, output: 10, ..Usage::default() });
        let stop = if is_first { StopReason::ToolUse } else { StopReason::End };
        Box::pin(stream::iter([said, usage, ModelEvent::End(stop)].map(Ok)))
    }
}

async fn silent_life(memory: &MemoryStore, mode: &'static str, number: u128) -> Life {
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Impatient).unwrap();
        config.package = package(&toolbox);
        config.package.budgets = dollars("500");
        config.tools = vec![Arc::new(toolbox)];
        config.models = vec![Arc::new(Silent(mode))];
        config.limits.model_stall = Duration::from_hours(1);
    };
    live_with(Arc::new(memory.clone()), vec![], Arc::default(), number, change).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn abandoned_model_request_of_tool_has_cost() {
    // Both attempts of a call whose deadline passes or that panics are charged.
    for (mode, charged) in [("select", 1), ("deadline", 2), ("panic", 2)] {
        let memory = MemoryStore::new();
        let life = silent_life(&memory, mode, 1).await;
        let turn = life.send("go").await;
        assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "whole".to_owned() });
        let lost = life.names().await.iter().filter(|name| **name == "effect.interrupted").count();
        assert_eq!(lost, charged, "{mode}");
        assert_eq!(agreed(&memory).await.replies, 2);
        let by_source = costs::spent(&memory, None, CostDimension::Source).await.unwrap();
        assert_eq!(by_source["tool impatient"].cost, by_source["tool impatient"].estimated);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_model_request_of_tool_has_cost() {
    let memory = MemoryStore::new();
    let life = silent_life(&memory, "deadline", 1).await;
    let turn = life.send("go").await;
    life.until("effect.asked").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    life.runtime.cancel(turn, "enough").await.unwrap();
    assert_eq!(life.end(turn).await, TurnEnd::Cancelled { reason: "enough".into() });
    let spent = agreed(&memory).await;
    assert!(spent.replies == 1 && spent.estimated > Cost::ZERO);
}

#[tokio::test(start_paused = true)]
async fn dead_worker_costs_model_request_of_tool() {
    let memory = MemoryStore::new();
    let life = silent_life(&memory, "select", 1).await;
    let turn = life.send("go").await;
    life.until("effect.asked").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    life.die(&memory).await;
    let life = silent_life(&memory, "select", 2).await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "whole".to_owned() });
    let lost = life.names().await.iter().filter(|name| **name == "effect.interrupted").count();
    assert_eq!((lost, agreed(&memory).await.replies), (2, 2));
}

//! Model costs, summed from the records.
use crate::common::*;
use futures_util::stream;
use outlast_ledger::memory::MemoryStore;
use outlast_ports::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast_ports::service::Services;
use outlast_ports::tool::Toolbox;
use outlast_runtime::RuntimeConfig;
use outlast_runtime::views::costs::{OrgCostCache, daily, spent};
use outlast_views::CostDimension;
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::message::{CallArguments, ModelName, ToolUse};
use outlast_vocab::record::TurnEnd;
use outlast_vocab::stream::ModelEvent;
use serde_json::json;
use std::sync::Arc;

/// Calls the tool, then answers. Each reply uses 100 input and 10 output tokens, at one and two dollars per million.
struct Priced;

impl ModelProvider for Priced {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        priced(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let calls = !request.tools.is_empty() && request.messages().count() == 1;
        let ask = || {
            let (id, tool) = ("c".parse().unwrap(), "wonder".parse().unwrap());
            ModelEvent::Call(ToolUse::new(id, tool, CallArguments::Json(json!({}))))
        };
        let said = if calls { ask() } else { ModelEvent::Text("done".to_owned()) };
        let usage = ModelEvent::Usage(Usage { input: 100, output: 10, ..Usage::default() });
        let stop = if calls { StopReason::ToolUse } else { StopReason::End };
        Box::pin(stream::iter([Ok(said), Ok(usage), Ok(ModelEvent::End(stop))]))
    }
}

/// Starts a worker whose model has prices.
async fn priced_life() -> Life {
    let change = |config: &mut RuntimeConfig| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(ModelCallingTool).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        config.models = vec![Arc::new(Priced)];
    };
    live_with(Arc::new(MemoryStore::new()), vec![], Arc::default(), 1, change).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn model_costs_sum_by_every_dimension() {
    let life = priced_life().await;
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, TurnEnd::Answered { text: "done".to_owned() });
    let store = life.runtime.store();
    let costs = async |by| {
        let spent = spent(store.as_ref(), None, by).await.unwrap();
        let shown = |(name, spent): (&String, &outlast_views::CostTotals)| {
            format!("{name}: {} replies, {} read, ${}", spent.replies, spent.usage.input, spent.cost)
        };
        spent.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(costs(CostDimension::Model).await, ["test/script: 3 replies, 300 read, $0.00036"]);
    assert_eq!(costs(CostDimension::Agent).await, ["tester: 3 replies, 300 read, $0.00036"]);
    assert_eq!(
        costs(CostDimension::Source).await,
        ["conversation: 2 replies, 200 read, $0.00024", "tool wonder: 1 replies, 100 read, $0.00012"]
    );
    assert_eq!(costs(CostDimension::Day).await, ["1970-01-01: 3 replies, 300 read, $0.00036"]);
    assert_eq!(costs(CostDimension::Session).await.len(), 1);
    let other = outlast_vocab::SessionId::from_u128(99);
    let unknown = spent(store.as_ref(), Some(other), CostDimension::Model).await.unwrap_err();
    assert_eq!(unknown.kind(), outlast_vocab::Kind::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn cached_costs_match_journal_without_rereading() {
    let life = priced_life().await;
    let (store, sums) = (life.runtime.store(), OrgCostCache::new(100));
    for text in ["one", "two", "three"] {
        let turn = life.send(text).await;
        life.end(turn).await;
        sums.read_on(store.as_ref()).await.unwrap();
        for by in [
            CostDimension::Session,
            CostDimension::Agent,
            CostDimension::Model,
            CostDimension::Source,
            CostDimension::Tool,
            CostDimension::Day,
        ] {
            assert_eq!(sums.daily(by), daily(store.as_ref(), None, by).await.unwrap(), "{by:?}");
        }
    }
    let before = sums.daily(CostDimension::Model);
    // Reading an empty store keeps the sums so far.
    sums.read_on(&MemoryStore::new()).await.unwrap();
    assert_eq!(sums.daily(CostDimension::Model), before);
    assert_eq!(sums.sessions_from(SESSION).into_iter().collect::<Vec<_>>(), [SESSION]);
}

#[tokio::test(start_paused = true)]
async fn deleted_session_removes_its_costs() {
    let life = priced_life().await;
    let (store, sums) = (life.runtime.store(), OrgCostCache::new(100));
    let turn = life.send("go").await;
    life.end(turn).await;
    sums.read_on(store.as_ref()).await.unwrap();
    assert_eq!(sums.daily(CostDimension::Model).len(), 1);
    store.delete(SESSION, life.runtime.now()).await.unwrap();
    sums.read_on(store.as_ref()).await.unwrap();
    assert_eq!(
        sums.daily(CostDimension::Model),
        daily(store.as_ref(), None, CostDimension::Model).await.unwrap()
    );
    assert_eq!(sums.daily(CostDimension::Model).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn cost_cache_over_limit_fails_until_deletion() {
    let life = priced_life().await;
    let (store, sums) = (life.runtime.store(), OrgCostCache::new(1));
    let turn = life.send("go").await;
    life.end(turn).await;
    let refused = sums.read_on(store.as_ref()).await.unwrap_err();
    assert_eq!(refused.to_string(), "limit.exceeded: cost_entries is limited to 1, but this needs 2");
    store.delete(SESSION, life.runtime.now()).await.unwrap();
    sums.read_on(store.as_ref()).await.unwrap();
}

//! What models cost, added up from the records.
use crate::common::*;
use futures_util::stream;
use outlast_ports::memory::Memory;
use outlast_ports::model::{EventStream, ModelInfo, ModelProvider, ModelRequest};
use outlast_ports::service::Services;
use outlast_ports::tool::Toolbox;
use outlast_runtime::Config;
use outlast_runtime::costs::{By, spent};
use outlast_vocab::effect::{StopReason, Usage};
use outlast_vocab::message::{Arguments, ModelName, ToolUse};
use outlast_vocab::record::End;
use outlast_vocab::stream::ModelEvent;
use serde_json::json;
use std::sync::Arc;

/// Asks the tool, then answers; each reply reads 100 tokens and says 10. A dollar for a million read, two for a million said.
struct Priced;

impl ModelProvider for Priced {
    fn info(&self, model: &ModelName) -> Option<ModelInfo> {
        priced(model)
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        let calls = !request.tools.is_empty() && request.messages().count() == 1;
        let ask = || {
            let (id, tool) = ("c".parse().unwrap(), "wonder".parse().unwrap());
            ModelEvent::Call(ToolUse::new(id, tool, Arguments::Json(json!({}))))
        };
        let said = if calls { ask() } else { ModelEvent::Text("done".to_owned()) };
        let usage = ModelEvent::Usage(Usage { input: 100, output: 10, ..Usage::default() });
        let stop = if calls { StopReason::ToolUse } else { StopReason::End };
        Box::pin(stream::iter([Ok(said), Ok(usage), Ok(ModelEvent::End(stop))]))
    }
}

#[tokio::test(start_paused = true)]
async fn what_models_cost_is_added_up_by_session_agent_model_source_and_day() {
    let change = |config: &mut Config| {
        let mut toolbox = Toolbox::new(Services::default());
        toolbox.add(Wonder).unwrap();
        config.package = package(&toolbox);
        config.tools = vec![Arc::new(toolbox)];
        config.models = vec![Arc::new(Priced)];
    };
    let life = live_with(Arc::new(Memory::new()), vec![], Arc::default(), 1, change).await.unwrap();
    let turn = life.send("go").await;
    assert_eq!(life.end(turn).await, End::Answered { text: "done".to_owned() });
    let store = life.runtime.store();
    let told = async |by| {
        let spent = spent(store.as_ref(), None, by).await.unwrap();
        let shown = |(name, spent): (&String, &outlast_runtime::costs::Spent)| {
            format!("{name}: {} replies, {} read, ${}", spent.replies, spent.usage.input, spent.cost)
        };
        spent.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(told(By::Model).await, ["test/script: 3 replies, 300 read, $0.00036"]);
    assert_eq!(told(By::Agent).await, ["tester: 3 replies, 300 read, $0.00036"]);
    assert_eq!(
        told(By::Source).await,
        ["conversation: 2 replies, 200 read, $0.00024", "tool wonder: 1 replies, 100 read, $0.00012"]
    );
    assert_eq!(told(By::Day).await, ["1970-01-01: 3 replies, 300 read, $0.00036"]);
    assert_eq!(told(By::Session).await.len(), 1);
    let other = outlast_vocab::SessionId::from_u128(99);
    let unknown = spent(store.as_ref(), Some(other), By::Model).await.unwrap_err();
    assert_eq!(unknown.kind(), outlast_vocab::Kind::SessionNotFound);
}

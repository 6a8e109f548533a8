//! Tools that the sender of an input runs. A call only notifies the sender, so it is pending at once.
use outlast_ports::Answer;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, Probe, Ran, ToolProvider};
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::{ClientTool, Contract, Manifest, PreparedCall, Undo};
use outlast_vocab::{Error, SessionId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

/// The tools of one client.
pub(crate) struct ClientSide(BTreeMap<ToolName, Contract>);

impl ClientSide {
    pub(crate) fn new(tools: &[ClientTool]) -> Self {
        Self(tools.iter().map(|tool| (tool.name.clone(), tool.contract())).collect())
    }
}

fn now<'a, T: Send + 'a>(value: T) -> Answer<'a, T> {
    Box::pin(ready(Ok::<T, Error>(value)))
}

impl ToolProvider for ClientSide {
    fn manifests(&self) -> Vec<Manifest> {
        self.0.values().map(Contract::manifest).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&Contract> {
        self.0.get(tool)
    }

    fn prepare<'a>(&'a self, _: SessionId, _: &'a ToolName, _: &'a Value) -> Answer<'a, Option<Value>> {
        now(None)
    }

    fn execute<'a>(&'a self, _: &'a PreparedCall, _: Call, _: Arc<dyn CallScope>) -> Answer<'a, Ran> {
        now(Ran::Pending)
    }

    fn probe<'a>(&'a self, _: &'a PreparedCall) -> Answer<'a, Probe> {
        now(Probe::CannotTell)
    }

    fn undo(&self, _: &PreparedCall, _: &Value) -> Option<Undo> {
        None
    }

    fn preview<'a>(&'a self, _: &'a ToolName, _: &'a Value) -> Answer<'a, Option<String>> {
        now(None)
    }
}

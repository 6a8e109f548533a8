//! Tools that the sender of an input runs. A call only notifies the sender, so it is pending at once.
use outlast_ports::ResultFuture;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, ProbeResult, ToolProvider, ToolRunOutcome};
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::{ClientTool, PreparedCall, ToolContract, ToolManifest, UndoCall};
use outlast_vocab::{Error, SessionId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

/// The tools of one client.
pub(crate) struct ClientToolProvider(BTreeMap<ToolName, ToolContract>);

impl ClientToolProvider {
    pub(crate) fn new(tools: &[ClientTool]) -> Self {
        Self(tools.iter().map(|tool| (tool.name.clone(), tool.contract())).collect())
    }
}

fn now<'a, T: Send + 'a>(value: T) -> ResultFuture<'a, T> {
    Box::pin(ready(Ok::<T, Error>(value)))
}

impl ToolProvider for ClientToolProvider {
    fn manifests(&self) -> Vec<ToolManifest> {
        self.0.values().map(ToolContract::manifest).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.0.get(tool)
    }

    fn prepare<'a>(&'a self, _: SessionId, _: &'a ToolName, _: &'a Value) -> ResultFuture<'a, Option<Value>> {
        now(None)
    }

    fn execute<'a>(
        &'a self,
        _: &'a PreparedCall,
        _: Call,
        _: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        now(ToolRunOutcome::Pending)
    }

    fn probe<'a>(&'a self, _: &'a PreparedCall) -> ResultFuture<'a, ProbeResult> {
        now(ProbeResult::CannotTell)
    }

    fn undo(&self, _: &PreparedCall, _: &Value) -> Option<UndoCall> {
        None
    }

    fn preview<'a>(&'a self, _: &'a ToolName, _: &'a Value) -> ResultFuture<'a, Option<String>> {
        now(None)
    }
}

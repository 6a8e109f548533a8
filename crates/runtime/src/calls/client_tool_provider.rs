//! Tools that the sender of an input runs. A call only notifies the sender, so it is pending at once.
use outlast_ports::ResultFuture;
use outlast_ports::service::CallScope;
use outlast_ports::tool::{Call, ToolProvider, ToolRunOutcome};
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::{ClientTool, PreparedCall, ToolContract, ToolManifest};
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

impl ToolProvider for ClientToolProvider {
    fn manifests(&self) -> Vec<ToolManifest> {
        self.0.values().map(ToolContract::manifest).collect()
    }

    fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.0.get(tool)
    }

    fn execute<'a>(
        &'a self,
        _: &'a PreparedCall,
        _: Call,
        _: Arc<dyn CallScope>,
    ) -> ResultFuture<'a, ToolRunOutcome> {
        Box::pin(ready(Ok(ToolRunOutcome::Pending)))
    }
}

//! Runs the hooks of a call and applies their changes to its result.
use super::ToolCallScope;
use crate::calls::call_journal::WaitState;
use crate::policy::hooks::{EffectHooks, after_tool, completed_as_recorded};
use outlast_kernel::transcript::result_of_resolution;
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{EffectPerformed, Fact};
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, ReplayKey};

impl ToolCallScope {
    /// Returns the hooks of an effect of this call.
    pub(crate) fn hooks<'a>(&'a self, key: &'a ReplayKey) -> EffectHooks<'a> {
        EffectHooks {
            resolved_agent: &self.resolved_agent,
            caller: self.call.caller,
            org: self.call.org,
            history: &self.journal.history,
            key,
            store: self.storage.store(),
            hook_labels: &self.circumstances.hook_labels,
        }
    }

    /// Runs the hooks on the result of the call. Their changes are added to `changes`.
    pub(crate) async fn shown(
        &self,
        call: &PreparedCall,
        result: ToolResult,
        changes: &mut Vec<Fact>,
    ) -> ToolResult {
        after_tool(self.hooks(&self.call.key), call, result, changes).await
    }

    /// Waits until the call is completed externally. Returns the resolution, and the result after hooks.
    pub(crate) async fn completed(&self, call: &PreparedCall) -> Result<(Resolution, ToolResult), Error> {
        let key = self.call.key.completion();
        let client = self.resolved_agent.is_client_tool(&call.tool);
        let kind = if client { WaitKind::ClientTool } else { WaitKind::Completion };
        let (effect, resolution) = match self.journal.awaited(&key, kind, None)? {
            WaitState::Answered(resolution) => {
                let result = result_of_resolution(resolution.clone());
                return Ok((resolution, completed_as_recorded(self.hooks(&self.call.key), result)));
            }
            WaitState::Open(wait) => return self.journal.park(wait).await,
            WaitState::Resolved(effect, resolution) => (effect, resolution),
        };
        let mut changes = Vec::new();
        let shown = self.shown(call, result_of_resolution(resolution.clone()), &mut changes).await;
        self.journal.note_all(changes).await;
        let worked = matches!(resolution, Resolution::Ok(_));
        let cost = if worked { self.resolved_agent.price(&call.tool) } else { None };
        let performed = EffectPerformed { cost, ..EffectPerformed::new(key, effect, resolution.clone()) };
        self.journal.note(self.journal.keep(performed)).await;
        Ok((resolution, shown))
    }
}

//! Runs the hooks of a call and applies their changes to its result.
use super::ToolCallScope;
use super::approval_wait::WaitState;
use crate::calls::catalogue::Caller;
use crate::policy::hooks::{EffectHooks, after_tool, completed_as_recorded};
use outlast_kernel::transcript::result_of_resolution;
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::EffectPerformed;
use outlast_vocab::tool::PreparedCall;
use outlast_vocab::wait::{Resolution, WaitKind};
use outlast_vocab::{Error, ReplayKey};

impl ToolCallScope {
    /// Returns the hooks of an effect of this call.
    pub(crate) fn hooks<'a>(&'a self, key: &'a ReplayKey) -> EffectHooks<'a> {
        let caller = Caller { session: self.session, turn: self.turn };
        let (history, store) = (&*self.history, self.store.as_ref());
        let hook_labels = &self.hook_labels;
        EffectHooks {
            services: &self.services,
            resolved_agent: &self.resolved_agent,
            caller,
            history,
            key,
            store,
            hook_labels,
        }
    }

    /// Runs the hooks on the result of the call. Their changes are written with the answer.
    pub(crate) async fn shown(&self, call: &PreparedCall, result: ToolResult) -> ToolResult {
        let mut changes = Vec::new();
        let result = after_tool(self.hooks(&self.key), call, result, &mut changes).await;
        for change in changes {
            self.note(change).await;
        }
        result
    }

    /// Waits until the call is completed externally. Returns the resolution, and the result after hooks.
    pub(crate) async fn completed(&self, call: &PreparedCall) -> Result<(Resolution, ToolResult), Error> {
        let key = self.key.completion();
        let client = self.resolved_agent.is_client_tool(&call.tool);
        let kind = if client { WaitKind::ClientTool } else { WaitKind::Completion };
        let (effect, resolution) = match self.awaited(key.clone(), kind, None)? {
            WaitState::Answered(resolution) => {
                let result = result_of_resolution(resolution.clone());
                return Ok((resolution, completed_as_recorded(self.hooks(&self.key), result)));
            }
            WaitState::Open(wait) => return self.park_call(wait).await,
            WaitState::Resolved(effect, resolution) => (effect, resolution),
        };
        let shown = self.shown(call, result_of_resolution(resolution.clone())).await;
        let worked = matches!(resolution, Resolution::Ok(_));
        let cost = if worked { self.resolved_agent.price(&call.tool) } else { None };
        let performed = EffectPerformed { cost, ..EffectPerformed::new(key, effect, resolution.clone()) };
        self.note(self.keep(performed)).await;
        Ok((resolution, shown))
    }
}

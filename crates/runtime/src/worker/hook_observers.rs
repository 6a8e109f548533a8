//! Runs the hooks that observe the ends and errors of turns. Each runs in a separate task, so that it delays nothing.
use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::catalogue::CallingTurn;
use crate::policy::hooks::{EffectHooks, HookLabels};
use crate::worker::tasks::Tasks;
use outlast_kernel::replay::TurnHistory;
use outlast_ports::store::Store;
use outlast_vocab::record::TurnEnd;
use outlast_vocab::{Failure, ReplayKey};
use std::sync::Arc;

/// Runs observer hooks.
pub(super) struct HookObservers {
    pub(super) tasks: Arc<Tasks>,
    pub(super) store: Arc<dyn Store>,
}

/// The event that observer hooks are shown.
pub(super) enum ObserverEvent {
    /// The turn failed with an error that cannot be retried.
    Error(Failure),
    /// The turn ended.
    End(TurnEnd),
}

impl HookObservers {
    /// Shows the hooks of an agent an event of the turn with this index.
    pub(super) fn notify(
        &self,
        resolved_agent: &Arc<ResolvedAgent>,
        caller: CallingTurn,
        index: u32,
        event: ObserverEvent,
    ) {
        if resolved_agent.package.hooks.is_empty() {
            return;
        }
        let (resolved_agent, store) = (resolved_agent.clone(), self.store.clone());
        self.tasks.spawn(async move {
            let (key, history) = (ReplayKey::turn(index), TurnHistory::default());
            let (history, key, store, hook_labels) = (&history, &key, Some(&store), &HookLabels::default());
            let hooks = EffectHooks {
                resolved_agent: &resolved_agent,
                caller,
                org: None,
                history,
                key,
                store,
                hook_labels,
            };
            match event {
                ObserverEvent::Error(failure) => hooks.on_error(&failure).await,
                ObserverEvent::End(end) => hooks.after_end(&end).await,
            }
        });
    }
}

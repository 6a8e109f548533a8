//! What a running tool call may use: steps and sleeps (`call_steps`), values and attachments (`storage`), model calls
//! (`direct_model_calls`), other tools (`nested_calls`), payments (`call_payments`), and what the policy permits
//! (`call_policy`).
//!
//! Before a call begins, it waits for approvals (`approval_wait`) and rate limits (`rate_limit_wait`). Its facts reach
//! the driver through the [`CallJournal`].
mod approval_wait;
mod call_payments;
mod call_policy;
mod call_steps;
mod direct_model_calls;
mod hook_calls;
mod nested_calls;
mod rate_limit_wait;
mod storage;

pub(crate) use storage::CallStorage;

use crate::agents::resolved_agent::ResolvedAgent;
use crate::calls::call_journal::CallJournal;
use crate::calls::catalogue::CallingTurn;
use crate::calls::tool_runner::ToolServices;
use crate::policy::hooks::HookLabels;
use crate::turn::cancel::CancelSignal;
use crate::turn::inline_host::not_durable;
use outlast_kernel::turn_cost::TurnCost;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::plugin::state_name;
use outlast_ports::service::{
    CallAttachments, CallCancellation, CallEvents, CallModels, CallPayments, CallPermissions, CallProgress,
    CallSteps, CallTools, CallValues,
};
use outlast_ports::tool::Call;
use outlast_ports::{BoxFuture, ResultFuture};
use outlast_views::AttachmentView;
use outlast_vocab::effect::{DirectCall, Reply};
use outlast_vocab::envelope::effect_id;
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::id::AttachmentId;
use outlast_vocab::label::Labels;
use outlast_vocab::message::{ModelName, PluginName, ToolName, shown};
use outlast_vocab::overlay::NetworkAllowList;
use outlast_vocab::payment::{AuthorityPaymentState, PaymentOrder};
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::record::{CallReclaimed, ClaimRef, Fact, UndoableCall};
use outlast_vocab::tool::{EffectClass, PreparedCall, ToolContract};
use outlast_vocab::wait::{CompletionKey, Resolution, WaitKind};
use outlast_vocab::{Error, ErrorPlace, Kind, OrgId, ReplayKey};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use storage::not_reserved;

/// Which call this is.
#[derive(Clone)]
pub(crate) struct CallIdentity {
    /// The turn that makes it.
    pub(crate) caller: CallingTurn,
    /// The organisation of the session.
    pub(crate) org: Option<OrgId>,
    /// The number of the lease under which it runs.
    pub(crate) lease: u64,
    pub(crate) key: ReplayKey,
    pub(crate) tool: ToolName,
    pub(crate) class: EffectClass,
    /// Whether its results are trusted.
    pub(crate) trusted: bool,
    /// The untrusted sources that may have caused it.
    pub(crate) labels: Labels,
}

/// What the policy looks at besides the call.
#[derive(Clone)]
pub(crate) struct CallCircumstances {
    /// The labels of what hooks have told the model during this drive.
    pub(crate) hook_labels: HookLabels,
    /// What the turn had spent when the call began.
    pub(crate) spending: TurnCost,
}

/// One running call.
pub(crate) struct ToolCallScope {
    pub(crate) services: Arc<ToolServices>,
    pub(crate) resolved_agent: Arc<ResolvedAgent>,
    pub(crate) call: CallIdentity,
    pub(crate) circumstances: CallCircumstances,
    pub(crate) journal: Arc<CallJournal>,
    pub(crate) storage: CallStorage,
    pub(crate) cancel: CancelSignal,
    /// The secret that signs completion keys.
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) used: Mutex<CallUsage>,
}

/// What one attempt of a call has used so far.
#[derive(Default)]
pub(crate) struct CallUsage {
    steps: BTreeSet<String>,
    sleeps: u32,
    nested: u32,
    /// Undoable calls of other tools, in order.
    made: Vec<UndoableCall>,
    /// The untrusted tools that it ran.
    read: Labels,
    /// The number of actions that the policy was asked about.
    policy_actions: u32,
}

impl ToolCallScope {
    fn used(&self) -> MutexGuard<'_, CallUsage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the contract of the tool, as the turn knows it.
    pub(crate) fn contract(&self) -> Option<&ToolContract> {
        self.resolved_agent.contract_of(&self.call.tool)
    }

    /// Returns the context for errors of this call.
    pub(crate) fn place(&self, prepared: &PreparedCall) -> ErrorPlace {
        let CallIdentity { caller: CallingTurn { session, turn }, org, key, .. } = &self.call;
        ErrorPlace {
            org: *org,
            session: Some(*session),
            turn: Some(*turn),
            effect: Some(effect_id(*turn, key)),
            call: Some(prepared.id),
            ..ErrorPlace::default()
        }
    }

    /// Returns the call in the form that its tool receives.
    pub(crate) fn facts(&self, prepared: &PreparedCall, attempt: u32, attempts: u32) -> Call {
        let CallingTurn { session, turn } = self.call.caller;
        Call { id: prepared.id, session, turn, attempt, attempts, payload: prepared.payload.clone() }
    }

    /// Makes a further attempt of the call durable before it begins.
    pub(crate) async fn begin_attempt(&self, claim: ClaimRef, attempt: u32) {
        *self.used() = CallUsage::default();
        self.storage.discard();
        self.journal.begin_attempt();
        self.journal.record(Fact::Reclaimed(CallReclaimed { claim, attempt })).await;
    }

    fn count_nested(&self) -> Result<u32, Error> {
        let mut used = self.used();
        used.nested += 1;
        let (made, most) = (used.nested as usize, self.services.models.limits.nested_per_call as usize);
        outlast_vocab::limits::check("nested_per_call", made, most)?;
        Ok(used.nested - 1)
    }

    fn sign(&self, key: ReplayKey) -> Result<CompletionKey, Error> {
        let secret = self.secret.as_ref().ok_or_else(|| not_durable("a completion key"))?;
        Ok(CompletionKey::sign(secret, self.call.caller.turn, key))
    }

    /// Sends a live event to everyone who watches the session.
    pub(crate) fn tell(&self, key: &ReplayKey, what: impl FnOnce(ReplayKey) -> LiveEventKind) {
        self.services.models.hub.publish_effect(self.call.caller, key, what);
    }
}

impl CallSteps for ToolCallScope {
    fn step<'a>(
        &'a self,
        name: &'a str,
        input: Value,
        run: ResultFuture<'a, Value>,
    ) -> ResultFuture<'a, Value> {
        Box::pin(self.run_step(name, input, run))
    }

    fn sleep(&self, pause: Duration) -> ResultFuture<'_, ()> {
        Box::pin(self.run_sleep(pause))
    }
}

impl CallEvents for ToolCallScope {
    fn event<'a>(&'a self, custom: &'a str, within: Option<Duration>) -> ResultFuture<'a, Resolution> {
        Box::pin(async move {
            self.journal.durable("waiting for an event")?;
            self.journal.wait_for(self.event_replay_key(custom)?, WaitKind::Event, within).await
        })
    }

    fn event_key(&self, custom: &str) -> Result<CompletionKey, Error> {
        self.sign(self.event_replay_key(custom)?)
    }

    fn completion_key(&self) -> Result<CompletionKey, Error> {
        self.sign(self.call.key.completion())
    }
}

impl CallProgress for ToolCallScope {
    fn progress(&self, note: String) {
        self.tell(&self.call.key, |key| LiveEventKind::Progress { key, note });
    }

    fn output(&self, text: String) {
        self.tell(&self.call.key, |key| LiveEventKind::Output { key, text });
    }
}

impl CallValues for ToolCallScope {
    fn value<'a>(&'a self, name: &'a str) -> ResultFuture<'a, Option<Value>> {
        Box::pin(async move {
            not_reserved(name)?;
            self.storage.value(name).await
        })
    }

    fn value_names<'a>(&'a self, prefix: &'a str) -> ResultFuture<'a, Vec<String>> {
        Box::pin(self.storage.value_names(prefix))
    }

    fn set_value(&self, name: &str, value: Option<Value>) -> Result<(), Error> {
        not_reserved(name)?;
        self.storage.write_value(name, value)
    }

    fn plugin_state<'a>(&'a self, plugin: &'a PluginName) -> ResultFuture<'a, Option<Value>> {
        Box::pin(async move { self.storage.value(&state_name(plugin)).await })
    }

    fn set_plugin_state(&self, plugin: &PluginName, state: Value) -> Result<(), Error> {
        self.storage.write_value(&state_name(plugin), Some(state))
    }

    fn plugin_input(&self, plugin: &PluginName) -> Option<Value> {
        self.journal.history.accepted()?.plugins.get(plugin).cloned()
    }
}

impl CallAttachments for ToolCallScope {
    fn attach(&self, file: Upload) -> Result<(), Error> {
        self.storage.attach(file)
    }

    fn attachment(&self, id: AttachmentId) -> ResultFuture<'_, Upload> {
        Box::pin(self.storage.attachment(id))
    }

    fn attachment_info(&self, id: AttachmentId) -> ResultFuture<'_, AttachmentView> {
        Box::pin(self.storage.attachment_info(id))
    }

    fn attachment_range(&self, id: AttachmentId, range: Range<u64>) -> ResultFuture<'_, Vec<u8>> {
        Box::pin(self.storage.attachment_range(id, range))
    }
}

impl CallModels for ToolCallScope {
    fn model(&self) -> Result<ModelName, Error> {
        Ok(self.resolved_agent.package.model.clone())
    }

    fn direct(&self, call: DirectCall) -> ResultFuture<'_, Reply> {
        Box::pin(self.ask_until_it_fits(call))
    }
}

impl CallTools for ToolCallScope {
    fn tool<'a>(&'a self, tool: &'a ToolName, arguments: Value) -> ResultFuture<'a, Value> {
        Box::pin(self.run_nested(tool, arguments))
    }

    fn undo_tools(&self) -> ResultFuture<'_, ()> {
        Box::pin(self.undo_nested())
    }
}

impl CallPermissions for ToolCallScope {
    fn check_action(&self, action: PolicyAction) -> ResultFuture<'_, ()> {
        Box::pin(self.may_do(action))
    }

    fn network(&self) -> Result<NetworkAllowList, Error> {
        Ok(self.resolved_agent.package.network.clone())
    }

    fn document(&self, path: &str) -> Result<String, Error> {
        let documents = &self.resolved_agent.package.documents;
        documents.get(path).cloned().ok_or_else(|| {
            let paths: Vec<&str> = documents.keys().map(String::as_str).collect();
            let paths = if paths.is_empty() { "none".to_owned() } else { paths.join(", ") };
            let detail = format!("the agent has no document `{}`; there are: {paths}", shown(path));
            Error::new(Kind::ToolFailed, detail)
        })
    }
}

impl CallPayments for ToolCallScope {
    fn reserve_payment<'a>(
        &'a self,
        name: &'a str,
        order: PaymentOrder,
    ) -> ResultFuture<'a, AuthorityPaymentState> {
        Box::pin(self.reserve_or_resume(name, order))
    }

    fn settle_payment<'a>(&'a self, name: &'a str) -> ResultFuture<'a, String> {
        Box::pin(self.pay(name))
    }

    fn release_payment<'a>(&'a self, name: &'a str, reason: &'a str) -> ResultFuture<'a, ()> {
        Box::pin(self.give_back(name, reason))
    }
}

impl CallCancellation for ToolCallScope {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { drop(self.cancel.requested().await) })
    }
}

//! The services that a running tool call can use: steps, sleeps, waits, values, attachments, progress, model calls
//! (`direct_model_calls`), other tools (`nested_calls`) and payments (`call_payments`).
//!
//! Before a call begins, it waits for approvals (`approval_wait`) and rate limits (`rate_limit_wait`). A policy decides about its
//! requests, secrets and programs (`permit`).
//!
//! A call never writes to the journal. It sends facts to the driver, which owns the journal, and waits until they are
//! durable where necessary.
mod approval_wait;
mod call_payments;
mod call_policy;
mod direct_model_calls;
mod hook_calls;
mod nested_calls;
mod rate_limit_wait;

use crate::agents::resolved_agent::{ResolvedAgent, RuntimeServices};
use crate::attachments::attachment_references::AttachmentResolver;
use crate::limits::budget_meter::{short_of, wait_for};
use crate::limits::tool_limits::CallPermit;
use crate::policy::hooks::HookLabels;
use crate::turn::cancel::CancelSignal;
use crate::turn::host::HostTier;
use crate::turn::inline_host::not_durable;
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::turn_cost::TurnCost;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::budget::{BudgetReservation, BudgetSettlement, BudgetShortfall};
use outlast_ports::contents::byte_range;
use outlast_ports::plugin::{is_reserved, state_name};
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest};
use outlast_ports::service::{
    CallAttachments, CallCancellation, CallEvents, CallModels, CallPayments, CallPermissions, CallProgress,
    CallSteps, CallTools, CallValues,
};
use outlast_ports::store::Store;
use outlast_ports::turns::ValueWrite;
use outlast_ports::{BoxFuture, ResultFuture};
use outlast_views::{AttachmentView, BlobLocation};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{
    AwaitEvent, DirectCall, DurableStep, Effect, Reply, Sleep, SleepOutcome, StepOutcome,
};
use outlast_vocab::event::{LiveEvent, LiveEventKind};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::label::Labels;
use outlast_vocab::limits;
use outlast_vocab::message::{ModelName, PluginName, ToolName, shown};
use outlast_vocab::overlay::NetworkAllowList;
use outlast_vocab::payment::{AuthorityPaymentState, PaymentOrder};
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::record::{CallReclaimed, ClaimRef, EffectPerformed, Fact, UndoableCall};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::wait::{CompletionKey, Resolution, Wait, WaitKind};
use outlast_vocab::{Class, Error, Failure, Kind, OrgId, ReplayKey, SessionId, TurnId};
use serde_json::Value;
use std::collections::BTreeSet;
use std::future::pending;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

use approval_wait::WaitState;

/// A message from a call to the driver.
pub(crate) enum CallMessage {
    /// A fact to include in the next write.
    Note(Fact),
    /// A fact that must be durable before the call continues, with what is written together with it.
    Record(Fact, CallWrites, oneshot::Sender<()>),
    /// A budget reservation for what the call is about to use. The sender gets the budget that is short, if any.
    Reserve(BudgetReservation, oneshot::Sender<Option<BudgetShortfall>>),
    /// A request to go out under the rate limits of the call. The sender gets the decision.
    GoesOut(AdmissionRequest, oneshot::Sender<AdmissionDecision>),
    /// The actual usage of earlier reservations.
    Settle(Vec<BudgetSettlement>),
    /// Time spent waiting for a provider that did not answer.
    WaitedForProvider(Duration),
    /// The call at this index of the batch is parked.
    Waits(usize, Wait),
}

/// The scope of one running call.
pub(crate) struct ToolCallScope {
    pub(crate) services: Arc<RuntimeServices>,
    pub(crate) tier: HostTier,
    pub(crate) history: Arc<TurnHistory>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) cancel: CancelSignal,
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) resolved_agent: Arc<ResolvedAgent>,
    pub(crate) lease: u64,
    /// Whether its usage is metered.
    pub(crate) metered: bool,
    pub(crate) class: EffectClass,
    /// Whether its results are trusted.
    pub(crate) trusted: bool,
    /// The untrusted sources that may have caused the call.
    pub(crate) labels: Labels,
    /// The labels of what hooks have told the model during this drive.
    pub(crate) hook_labels: HookLabels,
    /// The tool.
    pub(crate) tool: Option<ToolName>,
    /// The organisation of the session.
    pub(crate) org: Option<OrgId>,
    /// What the turn had spent when the call began.
    pub(crate) spending: TurnCost,
    pub(crate) child: usize,
    pub(crate) key: ReplayKey,
    /// When its rate limits let it begin.
    pub(crate) begins: CallPermit,
    pub(crate) to_driver: mpsc::Sender<CallMessage>,
    pub(crate) used: Mutex<CallUsage>,
}

/// What a call wrote in addition to its answer.
#[derive(Default)]
pub(crate) struct CallWrites {
    pub(crate) values: Vec<ValueWrite>,
    pub(crate) files: Vec<Upload>,
    /// How to undo the call.
    pub(crate) undo: Option<UndoableCall>,
}

/// The resources that a call has used so far.
#[derive(Default)]
pub(crate) struct CallUsage {
    steps: BTreeSet<String>,
    sleeps: u32,
    nested: u32,
    /// Undoable calls of other tools, in order.
    made: Vec<UndoableCall>,
    values: Vec<ValueWrite>,
    files: Vec<Upload>,
    /// The actual usage of reservations that the driver has not been sent yet.
    settled: Vec<BudgetSettlement>,
    waited_for_provider: Duration,
    /// The untrusted tools that it ran.
    read: Labels,
    holds_still: bool,
    /// The number of actions that the policy was asked about.
    policy_actions: u32,
    /// Why a rule ends the turn, because of something that the call wanted to do.
    interrupted: Option<Failure>,
    /// Effects answered in this drive. They stay answered when the call is retried.
    answered: TurnHistory,
}

impl ToolCallScope {
    fn used(&self) -> MutexGuard<'_, CallUsage> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the call wrote, to be committed with its answer.
    pub(crate) async fn take_written(&self) -> Result<CallWrites, Error> {
        let (values, files) = {
            let mut used = self.used();
            (std::mem::take(&mut used.values), std::mem::take(&mut used.files))
        };
        let added = values.iter().filter(|write| write.value.is_some()).count();
        if let (Some(store), 1..) = (&self.store, added) {
            let most = self.services.limits.values_per_session;
            let there = store.value_names(self.session, String::new(), most + 1).await?;
            let new =
                values.iter().filter(|write| write.value.is_some() && !there.contains(&write.name)).count();
            limits::check("values_per_session", there.len() + new, most)?;
        }
        Ok(CallWrites { values, files, undo: None })
    }

    /// Returns the attachments that arguments may refer to.
    pub(crate) fn held(&self) -> AttachmentResolver {
        let bytes = self.services.limits.projected_bytes;
        let attachments = self.store.as_ref().map(|store| self.services.attachments(store));
        AttachmentResolver { attachments, session: self.session, bytes }
    }

    /// Returns whether the call is parked. Its deadline is suspended then.
    pub(crate) fn is_parked(&self) -> bool {
        self.used().holds_still
    }

    /// Makes a further attempt of the call durable before it begins.
    pub(crate) async fn begin_attempt(&self, claim: ClaimRef, attempt: u32) {
        {
            let mut used = self.used();
            let answered = std::mem::take(&mut used.answered);
            *used = CallUsage { answered, ..CallUsage::default() };
        }
        self.record(Fact::Reclaimed(CallReclaimed { claim, attempt })).await;
    }

    fn durable(&self, what: &str) -> Result<(), Error> {
        match self.tier {
            HostTier::Durable => Ok(()),
            HostTier::Ephemeral => Err(not_durable(what)),
        }
    }

    /// Returns the recorded outcome of an effect of this call, from an earlier drive or from this one.
    fn answered<E: Effect>(&self, key: &ReplayKey, effect: &E) -> Result<Option<E::Outcome>, Error> {
        match self.history.answer(key, effect)? {
            Some(outcome) => Ok(Some(outcome)),
            None => self.used().answered.answer(key, effect),
        }
    }

    fn performed<E: Effect>(&self, key: ReplayKey, effect: E, outcome: E::Outcome) -> Fact {
        self.keep(EffectPerformed::new(key, effect, outcome))
    }

    /// Marks an effect as answered in this drive and returns the fact to record.
    fn keep(&self, performed: EffectPerformed) -> Fact {
        self.used().answered.add_performed(performed.clone());
        Fact::Performed(performed)
    }

    async fn note(&self, fact: Fact) {
        // The driver outlives its calls. If it is gone, so is the turn, and the answer is not read.
        let _ = self.to_driver.send(CallMessage::Note(fact)).await;
    }

    async fn record(&self, fact: Fact) {
        self.record_with(fact, CallWrites::default()).await;
    }

    /// Makes a fact durable together with what was written. Both are committed or neither.
    async fn record_with(&self, fact: Fact, written: CallWrites) {
        self.send_settlements().await;
        let (done, durable) = oneshot::channel();
        let _ = self.to_driver.send(CallMessage::Record(fact, written, done)).await;
        if durable.await.is_err() {
            // The write failed and the turn with it. The driver drops this call.
            pending::<()>().await;
        }
    }

    /// Parks the call. The driver drops it here and runs it again when the wait is over.
    async fn park_call<T>(&self, wait: Wait) -> T {
        self.send_settlements().await;
        self.used().holds_still = true;
        let _ = self.to_driver.send(CallMessage::Waits(self.child, wait)).await;
        pending().await
    }

    /// Reserves budget for what the call is about to do. If a budget is short, parks the call until the budget is
    /// raised, or returns an error.
    pub(crate) async fn reserve(&self, reservation: BudgetReservation) -> Result<(), Error> {
        let key = reservation.key.clone();
        match self.try_to_reserve(reservation).await {
            None => Ok(()),
            Some(short) if short.pauses_turns => {
                let key = key.budget(self.history.budget_wait_count(&key));
                self.park_call(wait_for(key, &short)).await
            }
            Some(short) => Err(short_of(&short)),
        }
    }

    /// Returns whether the usage of the call is metered. An operator may set a budget while it runs.
    fn is_metered(&self) -> bool {
        self.metered || (self.tier == HostTier::Durable && self.services.budgets_are_set())
    }

    /// Reserves budget, or returns the budget that is short.
    async fn try_to_reserve(&self, reservation: BudgetReservation) -> Option<BudgetShortfall> {
        if !self.is_metered() {
            return None;
        }
        self.send_settlements().await;
        let (reply_to, short) = oneshot::channel();
        let _ = self.to_driver.send(CallMessage::Reserve(reservation, reply_to)).await;
        match short.await {
            Ok(short) => short,
            // The write failed and the turn with it. The driver drops this call.
            Err(_) => pending().await,
        }
    }

    /// Queues the actual usage of a reservation. It is sent before the next fact or request of this call.
    fn settle(&self, key: ReplayKey, used: Option<UsageAmount>) {
        if self.is_metered() {
            self.used().settled.push(BudgetSettlement::new(key, used));
        }
    }

    /// Queues the time spent waiting for a provider. It is sent before the next fact or request of this call.
    fn waited_for_provider(&self, time: Duration) {
        if self.is_metered() {
            self.used().waited_for_provider += time;
        }
    }

    async fn send_settlements(&self) {
        let waited = std::mem::take(&mut self.used().waited_for_provider);
        if !waited.is_zero() {
            let _ = self.to_driver.send(CallMessage::WaitedForProvider(waited)).await;
        }
        let settled = std::mem::take(&mut self.used().settled);
        if !settled.is_empty() {
            let _ = self.to_driver.send(CallMessage::Settle(settled)).await;
        }
    }

    async fn run_step(&self, name: &str, input: Value, run: ResultFuture<'_, Value>) -> Result<Value, Error> {
        self.durable(&format!("the durable step `{name}`"))?;
        self.name_step(name)?;
        let key = self.key.step(name);
        let effect = DurableStep { name: name.to_owned(), input };
        if let Some(outcome) = self.answered(&key, &effect)? {
            self.tell(LiveEventKind::Replayed { key });
            return outcome.into();
        }
        let answer = run.await;
        let outcome = match &answer {
            Ok(value) => StepOutcome::Value(value.clone()),
            // A transient error is not an outcome. The step runs again when the tool is retried.
            Err(error) if error.class() == Class::Retry => return answer,
            Err(error) => StepOutcome::Failed(Failure::from(error)),
        };
        self.record(self.performed(key, effect, outcome)).await;
        answer
    }

    fn name_step(&self, name: &str) -> Result<(), Error> {
        let limits = &self.services.limits;
        if name.trim().is_empty() || name.len() > limits.key_bytes {
            let most = limits.key_bytes;
            let found = if name.len() > most { format!("{} bytes", name.len()) } else { format!("{name:?}") };
            let detail = format!(
                "a step's name must have 1 to {most} bytes and a character that is not white space, found {found}"
            );
            return Err(Error::new(Kind::StepNameInvalid, detail));
        }
        let mut used = self.used();
        limits::check("steps_per_call", used.steps.len() + 1, limits.steps_per_call)?;
        if !used.steps.insert(name.to_owned()) {
            let detail = format!("the call has a step `{name}` already; names must be unique in a call");
            return Err(Error::new(Kind::StepNameInvalid, detail));
        }
        Ok(())
    }

    async fn run_sleep(&self, pause: Duration) -> Result<(), Error> {
        let number = {
            let mut used = self.used();
            used.sleeps += 1;
            used.sleeps - 1
        };
        let key = self.key.sleep(number);
        let now = self.services.clock.now();
        let pinned = self.history.wait(&key).and_then(|wait| wait.deadline);
        let effect = Sleep { until: pinned.unwrap_or_else(|| now.after(pause)) };
        if self.answered(&key, &effect)?.is_some() {
            return Ok(());
        }
        if self.tier == HostTier::Durable && now.until(effect.until) > self.services.limits.wait_in_memory {
            return self.park_call(Wait { key, kind: WaitKind::Sleep, deadline: Some(effect.until) }).await;
        }
        self.services.clock.sleep_until(effect.until).await;
        self.note(self.performed(key, effect, SleepOutcome {})).await;
        Ok(())
    }

    /// Waits until `key` is resolved or the deadline passes. Returns immediately if either has happened.
    pub(crate) async fn wait_for(
        &self,
        key: ReplayKey,
        kind: WaitKind,
        within: Option<Duration>,
    ) -> Result<Resolution, Error> {
        match self.awaited(key.clone(), kind, within)? {
            WaitState::Answered(resolution) => Ok(resolution),
            WaitState::Resolved(effect, resolution) => {
                self.note(self.performed(key, effect, resolution.clone())).await;
                Ok(resolution)
            }
            WaitState::Open(wait) => self.park_call(wait).await,
        }
    }

    /// Returns the state of a wait. Its deadline is fixed when the turn first parks on it.
    fn awaited(&self, key: ReplayKey, kind: WaitKind, within: Option<Duration>) -> Result<WaitState, Error> {
        let now = self.services.clock.now();
        let deadline = match self.history.wait(&key) {
            Some(wait) => wait.deadline,
            None => within.map(|within| now.after(within)),
        };
        let effect = AwaitEvent { key: key.clone(), deadline };
        if let Some(resolution) = self.answered(&key, &effect)? {
            return Ok(WaitState::Answered(resolution));
        }
        Ok(match self.history.resolution(&key) {
            Some(resolution) => WaitState::Resolved(effect, resolution.clone()),
            None if deadline.is_some_and(|deadline| deadline <= now) => {
                WaitState::Resolved(effect, Resolution::Timeout)
            }
            None => WaitState::Open(Wait { key, kind, deadline }),
        })
    }

    fn count_nested(&self) -> Result<u32, Error> {
        let mut used = self.used();
        used.nested += 1;
        let (made, most) = (used.nested as usize, self.services.limits.nested_per_call as usize);
        limits::check("nested_per_call", made, most)?;
        Ok(used.nested - 1)
    }

    /// Returns the replay key of the wait for this event. Refuses an empty key, which is most likely a missing value.
    fn event_replay_key(&self, custom: &str) -> Result<ReplayKey, Error> {
        let most = self.services.limits.key_bytes;
        if custom.is_empty() {
            let detail = format!("expected an event key of 1 to {most} bytes, found an empty one");
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        limits::check("key_bytes", custom.len(), most)?;
        Ok(self.key.event(custom))
    }

    fn sign(&self, key: ReplayKey) -> Result<CompletionKey, Error> {
        let secret = self.secret.as_ref().ok_or_else(|| not_durable("a completion key"))?;
        Ok(CompletionKey::sign(secret, self.turn, key))
    }

    fn tell(&self, what: LiveEventKind) {
        let turn = self.turn;
        self.services.hub.tell(self.session, || LiveEvent { turn, what });
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
            self.durable("waiting for an event")?;
            self.wait_for(self.event_replay_key(custom)?, WaitKind::Event, within).await
        })
    }

    fn event_key(&self, custom: &str) -> Result<CompletionKey, Error> {
        self.sign(self.event_replay_key(custom)?)
    }

    fn completion_key(&self) -> Result<CompletionKey, Error> {
        self.sign(self.key.completion())
    }
}

impl CallProgress for ToolCallScope {
    fn progress(&self, note: String) {
        self.tell(LiveEventKind::Progress { key: self.key.clone(), note });
    }

    fn output(&self, text: String) {
        self.tell(LiveEventKind::Output { key: self.key.clone(), text });
    }
}

impl CallValues for ToolCallScope {
    fn value<'a>(&'a self, name: &'a str) -> ResultFuture<'a, Option<Value>> {
        Box::pin(async move {
            not_reserved(name)?;
            self.value_at(name).await
        })
    }

    fn value_names<'a>(&'a self, prefix: &'a str) -> ResultFuture<'a, Vec<String>> {
        let written = self.used().values.clone();
        Box::pin(async move {
            let store = self.store.as_ref().ok_or_else(|| not_durable("listing values"))?;
            let most = self.services.limits.values_per_session;
            let stored = store.value_names(self.session, prefix.to_owned(), most).await?;
            let mut names: BTreeSet<String> = stored.into_iter().collect();
            for write in written.into_iter().filter(|write| write.name.starts_with(prefix)) {
                match write.value {
                    Some(_) => names.insert(write.name),
                    None => names.remove(&write.name),
                };
            }
            Ok(names.into_iter().filter(|name| !is_reserved(name)).collect())
        })
    }

    fn set_value(&self, name: &str, value: Option<Value>) -> Result<(), Error> {
        not_reserved(name)?;
        self.write_value(name, value)
    }

    fn plugin_state<'a>(&'a self, plugin: &'a PluginName) -> ResultFuture<'a, Option<Value>> {
        Box::pin(async move { self.value_at(&state_name(plugin)).await })
    }

    fn set_plugin_state(&self, plugin: &PluginName, state: Value) -> Result<(), Error> {
        self.write_value(&state_name(plugin), Some(state))
    }

    fn plugin_input(&self, plugin: &PluginName) -> Option<Value> {
        self.history.accepted()?.plugins.get(plugin).cloned()
    }
}

impl CallAttachments for ToolCallScope {
    fn attach(&self, file: Upload) -> Result<(), Error> {
        self.durable("keeping an attachment")?;
        limits::check("attachment_bytes", file.bytes.len(), self.services.limits.attachment_bytes)?;
        self.used().files.push(file);
        Ok(())
    }

    fn attachment(&self, id: AttachmentId) -> ResultFuture<'_, Upload> {
        let own = self.used().files.iter().find(|file| file.attachment.id == id).cloned();
        Box::pin(async move {
            if let Some(own) = own {
                return Ok(own);
            }
            let store = self.store.as_ref().ok_or_else(|| not_durable("reading an attachment"))?;
            self.services.attachments(store).load(self.session, id).await
        })
    }

    fn attachment_info(&self, id: AttachmentId) -> ResultFuture<'_, AttachmentView> {
        let own = self.used().files.iter().find(|file| file.attachment.id == id).cloned();
        Box::pin(async move {
            if let Some(Upload { attachment, bytes }) = own {
                return Ok(AttachmentView {
                    attachment,
                    bytes: bytes.len() as u64,
                    location: BlobLocation::Database,
                });
            }
            let store = self.store.as_ref().ok_or_else(|| not_durable("looking at an attachment"))?;
            self.services.attachments(store).info(self.session, id).await
        })
    }

    fn attachment_range(&self, id: AttachmentId, range: Range<u64>) -> ResultFuture<'_, Vec<u8>> {
        let own = self.used().files.iter().find(|file| file.attachment.id == id).cloned();
        Box::pin(async move {
            if let Some(Upload { bytes, .. }) = own {
                return Ok(byte_range(&bytes, range).to_vec());
            }
            let store = self.store.as_ref().ok_or_else(|| not_durable("reading an attachment"))?;
            self.services.attachments(store).read(self.session, id, range).await
        })
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

impl ToolCallScope {
    async fn value_at(&self, name: &str) -> Result<Option<Value>, Error> {
        let written = self.used().values.iter().rev().find(|write| write.name == name).cloned();
        let store = self.store.as_ref().ok_or_else(|| not_durable("reading a value"))?;
        match written {
            Some(write) => Ok(write.value),
            None => store.value(self.session, name.to_owned()).await,
        }
    }

    fn write_value(&self, name: &str, value: Option<Value>) -> Result<(), Error> {
        self.durable("writing a value")?;
        let limits = &self.services.limits;
        if name.is_empty() {
            return Err(Error::new(Kind::InputInvalid, "a value needs a name"));
        }
        limits::check("key_bytes", name.len(), limits.key_bytes)?;
        let size = value.as_ref().map_or(0, outlast_vocab::message::json_size);
        limits::check("value_bytes", size, limits.value_bytes)?;
        self.used().values.push(ValueWrite { name: name.to_owned(), value });
        Ok(())
    }
}

/// Rejects names that are reserved for plug-in state.
fn not_reserved(name: &str) -> Result<(), Error> {
    if !is_reserved(name) {
        return Ok(());
    }
    Err(Error::new(Kind::InputInvalid, "a value's name does not begin with a control character"))
}

/// Returns the call in the form that its tool receives.
pub(crate) fn call(
    scope: &ToolCallScope,
    prepared: &PreparedCall,
    attempt: u32,
    attempts: u32,
) -> outlast_ports::tool::Call {
    outlast_ports::tool::Call {
        id: prepared.id,
        session: scope.session,
        turn: scope.turn,
        attempt,
        attempts,
        payload: prepared.payload.clone(),
    }
}

//! Replays a turn's journal: answers an effect from its record, or reports where the history and the code
//! diverge.
//!
//! Pure: `runtime::journaled_host` reads and writes the records.
use crate::retry::ReusableEffects;
use crate::turn_cost::TurnCost;
use outlast_vocab::effect::{
    BatchCall, BatchOutcome, Command, Effect, JournalPosition, Outcome, StepOutcome, ToolBatch, ToolCall,
    ToolOutcome,
};
use outlast_vocab::hook::{HookPatch, HookPoint};
use outlast_vocab::message::{CallArguments, HookName, ModelCallId, ModelName, ToolResult, ToolUse};
use outlast_vocab::payment::Payment;
use outlast_vocab::rate::{RateLimitOutcome, RateLimited};
use outlast_vocab::record::{
    AttemptsFailed, ClaimRef, CompactionRecord, EffectPerformed, EffectRequested, Fact, FailedAttempt,
    HookApplied, PolicyDecided, Record, Seq, TurnAccepted, TurnEnd, TurnStarted, UndoableCall,
};
use outlast_vocab::tool::{PreparedCall, UndoCall};
use outlast_vocab::wait::{Resolution, Wait, WaitKind};
use outlast_vocab::{Class, Error, Kind, Millis, ReplayKey};
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything the journal records about one turn, by the replay key of the effect.
#[derive(Debug, Default)]
pub struct TurnHistory {
    accepted: Option<TurnAccepted>,
    started: Option<TurnStarted>,
    performed: BTreeMap<ReplayKey, (Command, Outcome)>,
    batches: BTreeMap<ReplayKey, RecordedBatch>,
    waits: BTreeMap<ReplayKey, Wait>,
    resolutions: BTreeMap<ReplayKey, Resolution>,
    cancelled: Option<String>,
    aborted: bool,
    abandoned: bool,
    undoable: Vec<UndoableCall>,
    hooked: Vec<HookApplied>,
    payments: BTreeMap<ReplayKey, Payment>,
    decisions: BTreeMap<ReplayKey, PolicyDecided>,
    spending: TurnCost,
    rate_limited: BTreeMap<ReplayKey, RateLimited>,
    ended: Option<TurnEnd>,
    last_node: Option<JournalPosition>,
    stuck: u32,
    /// Failed attempts of model calls before the turn parked.
    failed_attempts: BTreeMap<ReplayKey, u32>,
    provider_down_since: BTreeMap<ReplayKey, Millis>,
    /// The waits for providers when the turn last parked on any.
    last_provider_waits: Vec<ReplayKey>,
    /// The numbers of the leases that resumed the turn.
    leases: Vec<u64>,
    repaired: bool,
    compactions: Vec<CompactionRecord>,
    /// The results that a retry reuses from the original turn.
    reusable: ReusableEffects,
}

/// A batch of tool calls in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBatch {
    /// The record that claims its calls.
    pub asked: Seq,
    /// The calls, in the order the model asked for them.
    pub calls: Vec<RecordedCall>,
}

/// A tool call in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// The call as it was claimed.
    pub call: BatchCall,
    /// How many times it was started.
    pub attempts: u32,
    /// Whether it was idle when its batch parked. Such a call was not interrupted and continues.
    pub parked: bool,
    /// Its outcome, or `None` while it is open.
    pub outcome: Option<ToolOutcome>,
}

impl TurnHistory {
    /// Reads the history of a turn from its records, in order.
    pub fn of(records: Vec<Record>) -> Result<Self, Error> {
        let mut history = Self::default();
        let mut batch_keys: BTreeMap<Seq, ReplayKey> = BTreeMap::new();
        for record in records {
            if record.fact.is_node() {
                history.last_node = Some(record.place());
            }
            history.spending.add_fact(&record.fact);
            match record.fact {
                Fact::Accepted(accepted) => history.accepted = Some(accepted),
                Fact::Started(started) => history.started = Some(started),
                Fact::Performed(performed) => history.add_performed(performed),
                Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => {
                    batch_keys.insert(record.seq, key.clone());
                    let recorded = |call| RecordedCall { call, attempts: 1, parked: false, outcome: None };
                    let calls = batch.calls.into_iter().map(recorded).collect();
                    history.batches.insert(key, RecordedBatch { asked: record.seq, calls });
                }
                Fact::Answered(answered) => {
                    let key =
                        batch_keys.get(&answered.claim.asked).cloned().unwrap_or_else(|| ReplayKey::turn(0));
                    let outcome = answered.outcome.of::<ToolCall>(&key)?;
                    history.call(&batch_keys, answered.claim)?.outcome = Some(outcome);
                }
                Fact::Reclaimed(reclaimed) => {
                    let call = history.call(&batch_keys, reclaimed.claim)?;
                    (call.attempts, call.parked) = (reclaimed.attempt, false);
                }
                Fact::Parked { waits } => history.park(waits, record.at),
                // The first resolution wins; the store refuses a second one.
                Fact::Resolved { key, resolution } => {
                    history.resolutions.entry(key).or_insert(resolution);
                }
                Fact::CancelRequested { reason, undo, abandon } => {
                    (history.cancelled, history.aborted) = (Some(reason), undo);
                    history.abandoned = abandon;
                }
                Fact::Undoable(undoable) => history.add_undoable(undoable),
                Fact::Hooked(hooked) => history.hooked.push(hooked),
                Fact::Payment(payment) => history.add_payment(payment),
                Fact::Ruled(decision) => history.add_decision(decision),
                Fact::Paced(rate_limited) => {
                    history.rate_limited.insert(rate_limited.key.clone(), rate_limited);
                }
                Fact::Ended { end } => history.ended = Some(end),
                Fact::Resumed(resumed) => history.leases.push(resumed.lease),
                Fact::Stuck { .. } => history.stuck += 1,
                Fact::Repaired { .. } => history.repaired = true,
                Fact::Compacted(compacted) => history.compactions.push(compacted),
                Fact::Tried(tried) => history.add_attempts(tried),
                // Includes reminders and escalations, which decide nothing.
                Fact::Asked(_)
                | Fact::Interrupted(_)
                | Fact::Settled(_)
                | Fact::Opened { .. }
                | Fact::HeadMoved { .. }
                | Fact::EnvironmentRequested(_)
                | Fact::Reminded { .. }
                | Fact::Escalated { .. } => {}
            }
        }
        Ok(history)
    }

    fn add_attempts(&mut self, tried: AttemptsFailed) {
        let AttemptsFailed { key, attempts } = tried;
        let is_outage = |attempt: &&FailedAttempt| attempt.failure.code.class() == Class::Retry;
        if let Some(first) = attempts.iter().find(is_outage) {
            self.mark_provider_down(&key, first.until);
        }
        let more = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        let tried = self.failed_attempts.entry(key).or_default();
        *tried = tried.saturating_add(more);
    }

    /// Records when the provider of a model call was first found to be down.
    fn mark_provider_down(&mut self, model_call: &ReplayKey, at: Millis) {
        let since = self.provider_down_since.entry(model_call.clone()).or_insert(at);
        *since = (*since).min(at);
    }

    /// Adds the results that this turn reuses from the one it retries.
    #[must_use]
    pub fn with_reusable(self, reusable: ReusableEffects) -> Self {
        Self { reusable, ..self }
    }

    /// Returns the results that this turn reuses from the one it retries. Empty if the turn is not a retry.
    pub fn reusable(&self) -> &ReusableEffects {
        &self.reusable
    }

    /// Adds an effect that has just been performed.
    pub fn add_performed(&mut self, performed: EffectPerformed) {
        let EffectPerformed { key, command, outcome, .. } = performed;
        self.performed.insert(key, (command, outcome));
    }

    /// Adds a call that can be undone.
    pub fn add_undoable(&mut self, undoable: UndoableCall) {
        self.undoable.push(undoable);
    }

    /// Adds or updates the state of a payment.
    pub fn add_payment(&mut self, payment: Payment) {
        self.payments.insert(payment.key.clone(), payment);
    }

    /// Adds a policy decision. The first decision under a key stands.
    pub fn add_decision(&mut self, decision: PolicyDecided) {
        self.decisions.entry(decision.key.clone()).or_insert(decision);
    }

    /// Returns the recorded policy decision under this key. If there is one, the policy is not asked again.
    pub fn decision(&self, key: &ReplayKey) -> Option<&PolicyDecided> {
        self.decisions.get(key)
    }

    /// Returns what the turn has spent so far.
    pub fn spending(&self) -> TurnCost {
        self.spending
    }

    /// Returns all payments in their latest state.
    pub fn payments(&self) -> impl Iterator<Item = &Payment> {
        self.payments.values()
    }

    /// Returns the payment under this key in its latest state.
    pub fn payment(&self, key: &ReplayKey) -> Option<&Payment> {
        self.payments.get(key)
    }

    /// Returns the payments of a call that may still be paid.
    pub fn open_payments(&self, call: &ReplayKey) -> impl Iterator<Item = &Payment> {
        self.payments.values().filter(move |payment| payment.state.is_open() && payment.key.is_under(call))
    }

    /// Returns the calls of the turn with their keys.
    pub fn calls(&self) -> impl Iterator<Item = (ReplayKey, &RecordedCall)> {
        self.batches.iter().flat_map(|(key, batch)| {
            let place =
                |(child, call): (usize, &RecordedCall)| key.child(child, call.call.model_id().as_str());
            batch.calls.iter().enumerate().map(move |(child, call)| (place((child, call)), call))
        })
    }

    /// Returns the compactions of the turn, in order.
    pub fn compactions(&self) -> &[CompactionRecord] {
        &self.compactions
    }

    /// Returns the number of recorded failed attempts of a model call, either from the attempts or from the
    /// wait for the next one.
    pub fn failed_attempt_count(&self, model_call: &ReplayKey) -> u32 {
        let waits = self.waits.keys().filter(|wait| wait.is_under(model_call));
        let waited = waits.filter_map(ReplayKey::backoff_attempt).max().unwrap_or(0);
        waited.max(self.failed_attempts.get(model_call).copied().unwrap_or(0))
    }

    /// Returns how often the turn parked because a budget was too low for this effect.
    pub fn budget_wait_count(&self, effect: &ReplayKey) -> u32 {
        let waits = self.waits.keys().filter(|wait| wait.is_under(effect) && wait.is_budget());
        u32::try_from(waits.count()).unwrap_or(u32::MAX)
    }

    /// Returns how often the turn parked in the queue of the model call's provider.
    pub fn queue_wait_count(&self, model_call: &ReplayKey) -> u32 {
        let waits = self.waits.keys().filter(|wait| wait.is_under(model_call) && wait.is_provider_queue());
        u32::try_from(waits.count()).unwrap_or(u32::MAX)
    }

    /// Returns how often the turn waited because the providers of this model call were down.
    pub fn provider_wait_count(&self, model_call: &ReplayKey) -> u32 {
        let waits = self.waits.keys().filter(|wait| wait.is_under(model_call));
        let last = waits.filter_map(ReplayKey::provider_wait_number).max();
        last.map_or(0, |last| last.saturating_add(1))
    }

    /// Returns how often this model call of a tool got stuck and waited for a person.
    pub fn stuck_wait_count(&self, model_call: &ReplayKey) -> u32 {
        let waits = self.waits.keys().filter(|wait| wait.is_under(model_call) && wait.is_stuck());
        u32::try_from(waits.count()).unwrap_or(u32::MAX)
    }

    /// Returns the recorded time since which the provider of this model call has been down.
    pub fn provider_down_since(&self, model_call: &ReplayKey) -> Option<Millis> {
        self.provider_down_since.get(model_call).copied()
    }

    /// Returns whether a person ended the last wait of this model call for its providers, so that the call is
    /// made at once.
    pub fn provider_wait_was_ended(&self, model_call: &ReplayKey) -> bool {
        let mut waits = self.last_provider_waits.iter().filter(|wait| wait.is_under(model_call));
        waits.any(|wait| matches!(self.resolutions.get(wait), Some(Resolution::Ok(_))))
    }

    /// Returns whether the last wait of this model call ended before its deadline because this provider answered
    /// other calls.
    pub fn provider_has_recovered(&self, model_call: &ReplayKey, provider: &str) -> bool {
        let waits = self.last_provider_waits.iter().filter(|wait| wait.is_under(model_call));
        let mut waits = waits.filter(|wait| wait.awaits_provider(provider));
        waits.any(|wait| self.resolutions.get(wait) == Some(&Resolution::Timeout))
    }

    /// Returns the recorded outcome of the effect under this key, or `None` if it has none yet.
    ///
    /// Returns an error if another request is recorded under the key: the code has diverged from its history.
    pub fn answer<E: Effect>(&self, key: &ReplayKey, effect: &E) -> Result<Option<E::Outcome>, Error> {
        let recorded = self.performed.get(key).or_else(|| self.reusable.step(key));
        let Some((recorded, outcome)) = recorded else {
            return match self.batches.get(key) {
                Some(batch) => Err(diverged(key, &batch.command(), &effect.clone().into())),
                None => Ok(None),
            };
        };
        let requested: Command = effect.clone().into();
        if recorded.kind() != E::KIND || recorded.without_times() != requested.without_times() {
            return Err(diverged(key, recorded, &requested));
        }
        outcome.clone().of::<E>(key).map(Some)
    }

    /// Returns the batch under this key, or `None` if it was not claimed yet.
    ///
    /// Returns an error if the turn now asks for other calls than those that were claimed. The same call with
    /// another argument is a determinism violation.
    pub fn batch<'a>(
        &self,
        key: &ReplayKey,
        asks: impl Iterator<Item = &'a outlast_vocab::message::ToolUse>,
    ) -> Result<Option<&RecordedBatch>, Error> {
        let Some(batch) = self.batches.get(key) else {
            return Ok(None);
        };
        let mut asks = asks.enumerate();
        for (index, recorded) in batch.calls.iter().enumerate() {
            let same = asks.next().is_some_and(|(_, ask)| {
                ask.id == *recorded.call.model_id() && ask.tool == *recorded.call.tool()
            });
            if !same {
                let (id, tool) = (recorded.call.model_id(), recorded.call.tool());
                let detail = format!(
                    "call {index} of {key} was claimed as `{tool}` ({id}), but this run asks for another"
                );
                return Err(Error::new(Kind::CallChanged, detail));
            }
        }
        match asks.next() {
            None => Ok(Some(batch)),
            Some((index, ask)) => {
                let detail =
                    format!("call {index} of {key} (`{}`) was never claimed, but its batch was", ask.tool);
                Err(Error::new(Kind::CallChanged, detail))
            }
        }
    }

    /// Returns whether the effect under this key is recorded.
    pub fn has(&self, key: &ReplayKey) -> bool {
        self.performed.contains_key(key) || self.batches.contains_key(key)
    }

    /// Returns whether the model call under this key is recorded. A checkpoint that nothing joined leaves no
    /// record. If the model call after it is recorded, the checkpoint was empty and stays empty.
    pub fn was_reached(&self, model_call: &ReplayKey) -> bool {
        self.performed.contains_key(model_call)
    }

    /// Returns whether a call has not started because it waits for a rate limit, an approval or a deferral.
    pub fn awaits_start(&self, key: &ReplayKey, call: &PreparedCall) -> bool {
        let in_line = matches!(
            self.rate_limited.get(key),
            Some(RateLimited { pace: RateLimitOutcome::Waits { .. }, .. })
        );
        in_line || call.is_held() && !self.performed.keys().any(|performed| performed.blocks_start_of(key))
    }

    /// Returns the latest rate limit decision for the call, or `None` if it never had to wait.
    pub fn paced(&self, call: &ReplayKey) -> Option<&RateLimited> {
        self.rate_limited.get(call)
    }

    /// Returns whether the call parked after it had started, and not only before it could start.
    pub fn parked_after_start(&self, call: &ReplayKey) -> bool {
        self.waits.keys().any(|wait| wait.is_under(call) && !wait.blocks_start_of(call))
    }

    /// Returns whether missing results were added to the transcript earlier.
    pub fn was_repaired(&self) -> bool {
        self.repaired
    }

    /// Returns the calls that were claimed and have no outcome, with their claims and keys.
    pub fn open_calls(&self) -> impl Iterator<Item = (ClaimRef, ReplayKey, &RecordedCall)> {
        self.batches.iter().flat_map(|(key, batch)| {
            (0..).zip(&batch.calls).filter_map(move |(child, call)| {
                let open = call.outcome.is_none() && matches!(call.call, BatchCall::Run(_));
                let claim = ClaimRef { asked: batch.asked, child };
                open.then(|| (claim, key.child(child as usize, call.call.model_id().as_str()), call))
            })
        })
    }

    /// Returns the input of the turn.
    pub fn accepted(&self) -> Option<&TurnAccepted> {
        self.accepted.as_ref()
    }

    /// Returns what was pinned when the turn's work began.
    pub fn started(&self) -> Option<&TurnStarted> {
        self.started.as_ref()
    }

    /// Returns the wait under this key, if the turn parked on it earlier. Its deadline was fixed then.
    pub fn wait(&self, key: &ReplayKey) -> Option<&Wait> {
        self.waits.get(key)
    }

    /// Returns the resolution of the wait under this key.
    pub fn resolution(&self, key: &ReplayKey) -> Option<&Resolution> {
        self.resolutions.get(key)
    }

    /// Returns the reason for cancelling the turn, if it was cancelled.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.as_deref()
    }

    /// Returns whether the effects of the turn are to be undone.
    pub fn aborted(&self) -> bool {
        self.aborted
    }

    /// Returns how to undo the call under this key, if that is known.
    pub fn undo_of(&self, call: &ReplayKey) -> Option<&UndoableCall> {
        self.undoable.iter().find(|undoable| undoable.key == *call)
    }

    /// Returns the calls that undo the effects of the turn, newest first: those that were claimed, or those
    /// still to be claimed. A call that is part of another undoable call is undone with it.
    pub fn undo_calls(&self, index: u32) -> Vec<ToolUse> {
        if let Some(batch) = self.batches.get(&ReplayKey::turn(index).undo()) {
            return batch.calls.iter().map(|recorded| recorded.call.to_use()).collect();
        }
        let part_of_another =
            |call: &UndoableCall| self.undoable.iter().any(|other| call.key.is_under(&other.key));
        let taken_back = |call: &UndoableCall| {
            let undone = self.performed.get(&call.key.undo()).map(|(_, outcome)| outcome);
            matches!(undone, Some(Outcome::DurableStep(StepOutcome::Value(_))))
        };
        let left = self.undoable.iter().filter(|call| !part_of_another(call) && !taken_back(call));
        let ask = |(number, call): (u32, &UndoableCall)| {
            let UndoCall { tool, arguments } = call.undo.clone();
            ToolUse::new(ModelCallId::undo(index, number), tool, CallArguments::Json(arguments))
        };
        (0..).zip(left.rev()).map(ask).collect()
    }

    /// Returns the recorded change of this hook to the effect under this key. If there is one, the hook does
    /// not run again.
    pub fn hook_patch(&self, key: &ReplayKey, hook: &HookName, point: HookPoint) -> Option<&HookPatch> {
        let recorded = |hooked: &&HookApplied| {
            hooked.key == *key && hooked.hook == *hook && hooked.patch.point() == point
        };
        self.hooked.iter().find(recorded).map(|hooked| &hooked.patch)
    }

    /// Returns the hooks that have told the model something.
    pub fn hooks_with_messages(&self) -> impl Iterator<Item = &str> {
        let changes = self.hooked.iter().filter(|hooked| hooked.patch.reaches_model());
        let joined = self.performed.values().filter_map(|(_, outcome)| match outcome {
            Outcome::Checkpoint(joined) => Some(joined.messages.iter().map(|message| message.by.as_str())),
            _ => None,
        });
        changes.map(|hooked| hooked.hook.as_str()).chain(joined.flatten())
    }

    /// Returns the end of a turn that was told to stop, once nothing more is undone.
    pub fn end_stopped(&self, index: u32, reason: String) -> TurnEnd {
        match (self.aborted, self.abandoned) {
            (true, _) => self.end_aborted(index, reason),
            (false, true) => TurnEnd::Abandoned { reason },
            (false, false) => TurnEnd::Cancelled { reason },
        }
    }

    fn end_aborted(&self, index: u32, reason: String) -> TurnEnd {
        let all = self.undo_calls(index).len();
        let taken = self.batches.get(&ReplayKey::turn(index).undo()).map_or(0, |batch| {
            let done =
                |call: &&RecordedCall| matches!(call.outcome, Some(ToolOutcome::Done(ToolResult::Ok(_))));
            batch.calls.iter().filter(done).count()
        });
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        TurnEnd::Aborted { reason, undone: count(taken), left: count(all - taken) }
    }

    /// Returns how the turn ended, if it has.
    pub fn ended(&self) -> Option<&TurnEnd> {
        self.ended.as_ref()
    }

    /// Returns whether the lease with this number is recorded as having resumed the turn.
    pub fn was_resumed_by(&self, lease: u64) -> bool {
        self.leases.contains(&lease)
    }

    /// Returns how often the turn got stuck and waited for a person.
    pub fn stuck_count(&self) -> u32 {
        self.stuck
    }

    /// Returns the end of the conversation at the time of the model call under this key, if it was made.
    pub fn conversation_end_at(&self, key: &ReplayKey) -> Option<JournalPosition> {
        match self.performed.get(key) {
            Some((Command::ModelCall(call), _)) => call.at,
            _ => None,
        }
    }

    /// Returns the model that the call under this key used.
    pub fn model_of(&self, key: &ReplayKey) -> Option<&ModelName> {
        match self.performed.get(key) {
            Some((Command::ModelCall(call), _)) => Some(&call.model),
            _ => None,
        }
    }

    /// Returns the token limit of the reply to the model call under this key.
    pub fn reply_token_limit(&self, key: &ReplayKey) -> Option<u32> {
        match self.performed.get(key) {
            Some((Command::ModelCall(call), _)) => call.options.tokens_most,
            _ => None,
        }
    }

    /// Returns the last message of the turn so far.
    pub fn last_node(&self) -> Option<JournalPosition> {
        self.last_node
    }

    /// Parks the turn. A batch parks only when none of its calls runs: each has its outcome, waits, or was
    /// not started.
    fn park(&mut self, waits: Vec<Wait>, at: Millis) {
        for stuck in waits.iter().filter_map(|wait| wait.key.stuck_at()) {
            // A call that was stuck starts with its full provider wait when it is resumed.
            self.provider_down_since.retain(|call, _| *call != stuck && !call.is_under(&stuck));
        }
        for wait in &waits {
            if let Some(model_call) = wait.key.waiting_model_call() {
                self.mark_provider_down(&model_call, at);
            }
        }
        let for_providers = waits.iter().filter(|wait| wait.kind == WaitKind::Provider);
        let for_providers: Vec<ReplayKey> = for_providers.map(|wait| wait.key.clone()).collect();
        if !for_providers.is_empty() {
            self.last_provider_waits = for_providers;
        }
        for (key, batch) in &mut self.batches {
            if waits.iter().any(|wait| wait.key.is_under(key)) {
                for call in &mut batch.calls {
                    call.parked = call.outcome.is_none();
                }
            }
        }
        self.waits.extend(waits.into_iter().map(|wait| (wait.key.clone(), wait)));
    }

    fn call(
        &mut self,
        batch_keys: &BTreeMap<Seq, ReplayKey>,
        claim: ClaimRef,
    ) -> Result<&mut RecordedCall, Error> {
        let batch = batch_keys.get(&claim.asked).and_then(|key| self.batches.get_mut(key));
        let call = batch.and_then(|batch| batch.calls.get_mut(usize::try_from(claim.child).ok()?));
        call.ok_or_else(|| {
            let ClaimRef { asked, child } = claim;
            Error::new(
                Kind::RecordCorrupt,
                format!("a record answers call {child} of record {asked}, which claims none"),
            )
        })
    }
}

impl RecordedBatch {
    /// Returns the outcomes in the order of the calls, once every call has one.
    pub fn outcome(&self) -> Option<BatchOutcome> {
        self.calls.iter().map(|call| call.outcome.clone()).collect::<Option<Vec<_>>>().map(BatchOutcome)
    }

    fn command(&self) -> Command {
        ToolBatch { calls: self.calls.iter().map(|recorded| recorded.call.clone()).collect() }.into()
    }
}

/// The treatment of a call that was started, did not park and has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptedCallAction {
    /// Perform it again under the same key, as this attempt.
    Repeat {
        /// Counted from 1.
        attempt: u32,
    },
    /// Ask the tool whether the call happened. Without an answer, its outcome is unknown. Never perform it
    /// again.
    Probe,
}

/// Decides what to do with a call that was started and not answered.
pub fn interrupted_call_action(call: &PreparedCall, attempts: u32) -> InterruptedCallAction {
    if call.class.may_repeat() {
        InterruptedCallAction::Repeat { attempt: attempts + 1 }
    } else {
        InterruptedCallAction::Probe
    }
}

fn diverged(key: &ReplayKey, recorded: &Command, requested: &Command) -> Error {
    let (then, now) = (recorded.without_times(), requested.without_times());
    let difference = match difference(&then, &now) {
        Some((path, then, now)) => format!("first difference at {path}: recorded {then}, asked {now}"),
        None => "the requests read the same".to_owned(),
    };
    let (was, is) = (recorded.kind(), requested.kind());
    let kinds = if was == is { format!("another {is}") } else { format!("{is}") };
    Error::new(
        Kind::JournalDiverged,
        format!("effect {key} was recorded as {was}, but this run asks for {kinds}; {difference}"),
    )
}

/// Returns the path of the first difference between two values, and what each has there.
pub fn difference(then: &Value, now: &Value) -> Option<(String, String, String)> {
    first_difference(then, now, String::new())
}

fn first_difference(then: &Value, now: &Value, path: String) -> Option<(String, String, String)> {
    match (then, now) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().find_map(|name| {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                first_difference(a, b, format!("{path}/{name}"))
            })
        }
        (Value::Array(a), Value::Array(b)) => (0..a.len().max(b.len())).find_map(|i| {
            let (a, b) = (a.get(i).unwrap_or(&Value::Null), b.get(i).unwrap_or(&Value::Null));
            first_difference(a, b, format!("{path}/{i}"))
        }),
        _ if then == now => None,
        _ => Some((path, excerpt(then), excerpt(now))),
    }
}

fn excerpt(value: &Value) -> String {
    outlast_vocab::message::shown(&value.to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::effect::{DurableStep, Sleep, SleepOutcome, StepOutcome};
    use outlast_vocab::label::{Labels, Provenance};
    use outlast_vocab::message::{CallArguments, ToolResult, ToolUse};
    use outlast_vocab::record::{CallReclaimed, EffectAnswered};
    use outlast_vocab::tool::EffectClass;
    use outlast_vocab::{CallId, Failure, Hash};
    use serde_json::json;

    fn history(facts: Vec<Fact>) -> Result<TurnHistory, Error> {
        let record = |(i, fact)| Record { seq: Seq(i), turn: None, at: Millis(i), hash: Hash::ZERO, fact };
        TurnHistory::of((1..).zip(facts).map(record).collect())
    }

    fn step(input: Value) -> DurableStep {
        DurableStep { name: "charge".into(), input }
    }

    fn performed(effect: impl Into<Command>, outcome: impl Into<Outcome>) -> Fact {
        let key = ReplayKey::turn(0).step("charge");
        Fact::Performed(EffectPerformed::new(key, effect, outcome))
    }

    fn call(class: EffectClass) -> PreparedCall {
        PreparedCall {
            id: CallId::from_u128(1),
            model_id: "a".parse().unwrap(),
            tool: "pay".parse().unwrap(),
            class,
            arguments: json!({}),
            payload: None,
            ruling: None,
            labels: Labels::default(),
            provenance: Provenance::default(),
        }
    }

    #[test]
    fn stop_request_decides_how_a_turn_ends() {
        let end = |undo, abandon| {
            let request = Fact::CancelRequested { reason: "enough".to_owned(), undo, abandon };
            history(vec![request]).unwrap().end_stopped(0, "enough".to_owned()).name()
        };
        assert_eq!(
            [end(false, false), end(true, false), end(false, true)],
            ["cancelled", "aborted", "abandoned"]
        );
    }

    #[test]
    fn recorded_failed_attempts_count_across_parks() {
        let key = ReplayKey::turn(0).model(0);
        let failure = Failure::new(Kind::ModelUnavailable, "503");
        let failed = |attempt| FailedAttempt {
            attempt,
            from: Millis(1),
            until: Millis(2),
            failure: failure.clone(),
            model: None,
        };
        let tried = |attempts: &[u32]| {
            Fact::Tried(AttemptsFailed {
                key: key.clone(),
                attempts: attempts.iter().copied().map(failed).collect(),
            })
        };
        let history = history(vec![tried(&[1, 2]), tried(&[6])]).unwrap();
        assert_eq!(
            (history.failed_attempt_count(&key), history.failed_attempt_count(&ReplayKey::turn(0).model(1))),
            (3, 0)
        );
    }

    #[test]
    fn stuck_call_keeps_outages_of_other_calls() {
        let call = |index| ReplayKey::turn(0).tools(0).child(index, "a").direct(0);
        let wait = |key: ReplayKey, kind| Wait { key, kind, deadline: None };
        let down = |number, index| wait(call(index).provider(number, "one"), WaitKind::Provider);
        let stuck = |key: ReplayKey| wait(key.stuck(0), WaitKind::Event);
        let failure = || Failure::new(Kind::ModelUnauthorized, "no");
        let since = |last: Wait| {
            let facts = vec![
                Fact::Parked { waits: vec![down(0, 0), down(0, 1)] },
                Fact::Stuck { failure: failure() },
                Fact::Parked { waits: vec![down(1, 0), last] },
            ];
            let history = history(facts).unwrap();
            [call(0), call(1)].map(|call| history.provider_down_since(&call))
        };
        assert_eq!(since(stuck(call(1))), [Some(Millis(1)), None]);
        // A turn that is stuck as a whole has recovered from all outages.
        assert_eq!(since(stuck(ReplayKey::turn(0))), [Some(Millis(3)), None]);
    }

    #[test]
    fn answered_effect_keeps_its_recorded_outcome() {
        let outcome = StepOutcome::Value(json!(7));
        let history = history(vec![performed(step(json!(1)), outcome.clone())]).unwrap();
        let key = ReplayKey::turn(0).step("charge");
        assert_eq!(history.answer(&key, &step(json!(1))).unwrap(), Some(outcome));
        assert_eq!(history.answer(&ReplayKey::turn(1).step("charge"), &step(json!(1))).unwrap(), None);
    }

    #[test]
    fn divergence_reports_effect_requests_and_first_difference() {
        let recorded = performed(step(json!({"amount": 5, "to": "ann"})), StepOutcome::Value(Value::Null));
        let history = history(vec![recorded]).unwrap();
        let key = ReplayKey::turn(0).step("charge");
        assert_eq!(
            history.answer(&key, &step(json!({"amount": 6, "to": "ann"}))).unwrap_err().to_string(),
            "journal.diverged: effect turn/0/step:charge was recorded as durable_step, but this run asks for \
             another durable_step; first difference at /durable_step/input/amount: recorded 5, asked 6"
        );
        assert_eq!(
            history.answer(&key, &Sleep { until: Millis(1) }).unwrap_err().to_string(),
            "journal.diverged: effect turn/0/step:charge was recorded as durable_step, but this run asks for sleep; \
             first difference at /durable_step: recorded {\"input\":{\"amount\":5,\"to\":\"ann\"},\"name\":\"charge\"}, \
             asked null"
        );
    }

    #[test]
    fn changed_sleep_deadline_is_no_divergence() {
        let key = ReplayKey::turn(0).step("charge");
        let history = history(vec![performed(Sleep { until: Millis(5) }, SleepOutcome {})]).unwrap();
        assert_eq!(history.answer(&key, &Sleep { until: Millis(99) }).unwrap(), Some(SleepOutcome {}));
    }

    #[test]
    fn partial_batch_lists_missing_calls() {
        let key = ReplayKey::turn(0).tools(0);
        let calls =
            vec![BatchCall::Run(call(EffectClass::Pure)), BatchCall::Run(call(EffectClass::AtMostOnce))];
        let outcome = ToolOutcome::Done(ToolResult::Ok(json!(1)));
        let facts = vec![
            Fact::Asked(EffectRequested { key: key.clone(), command: ToolBatch { calls }.into() }),
            Fact::Answered(EffectAnswered {
                claim: ClaimRef { asked: Seq(1), child: 1 },
                outcome: outcome.clone().into(),
                cost: None,
            }),
            Fact::Reclaimed(CallReclaimed { claim: ClaimRef { asked: Seq(1), child: 0 }, attempt: 2 }),
        ];
        let history = history(facts).unwrap();
        let ask = ToolUse::new("a".parse().unwrap(), "pay".parse().unwrap(), CallArguments::Json(json!({})));
        let batch = history.batch(&key, [&ask, &ask].into_iter()).unwrap().unwrap();
        assert_eq!(batch.calls.iter().map(|c| c.attempts).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(batch.calls.iter().map(|c| c.outcome.clone()).collect::<Vec<_>>(), [None, Some(outcome)]);
        assert_eq!(batch.outcome(), None);
        assert_eq!(history.batch(&key, [&ask].into_iter()).unwrap_err().kind(), Kind::CallChanged);
        assert_eq!(history.answer(&key, &step(json!(1))).unwrap_err().kind(), Kind::JournalDiverged);
    }

    #[test]
    fn answer_to_unclaimed_call_is_corrupt() {
        let claim = ClaimRef { asked: Seq(9), child: 0 };
        let answered = EffectAnswered { claim, outcome: ToolOutcome::Unknown.into(), cost: None };
        assert_eq!(history(vec![Fact::Answered(answered)]).unwrap_err().kind(), Kind::RecordCorrupt);
    }

    #[test]
    fn interrupted_call_repeats_only_if_class_allows() {
        for class in [EffectClass::Pure, EffectClass::Idempotent, EffectClass::Transactional] {
            assert_eq!(
                interrupted_call_action(&call(class), 1),
                InterruptedCallAction::Repeat { attempt: 2 }
            );
        }
        assert_eq!(interrupted_call_action(&call(EffectClass::AtMostOnce), 1), InterruptedCallAction::Probe);
    }
}

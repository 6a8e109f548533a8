//! Runs the tool calls of a reply. Answered calls are not run again, interrupted calls are resolved, and the rest run
//! in parallel where allowed.
//!
//! The driver stays in this module and owns all writes. One call runs in [`crate::calls::tool_call_scope`]; `call` performs its
//! attempts.
use crate::attachments::attachment_references::AttachmentResolver;
use crate::calls::call::perform;
use crate::calls::catalogue::CallPreparation;
use crate::calls::tool_call_scope::{CallMessage, CallUsage, CallWrites, ToolCallScope};
use crate::limits::budget_meter::{calls, hold_calls, most, named, price_of, short_of, wait_for};
use crate::limits::tool_limits::{CallPermit, admission_requests_of, taken_over, was_refused};
use crate::policy::grants::note_grants;
use crate::policy::hooks::{EffectHooks, after_tool, before_tool};
use crate::turn::drive::ActiveTurn;
use crate::turn::host::{Host, ReservationOutcome};
use crate::turn::undo::undoable;
use crate::views::metrics::TurnPhase;
use futures_util::FutureExt;
use futures_util::future::poll_immediate;
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_kernel::call_batch::CallBatch;
use outlast_kernel::replay::{InterruptedCallAction, RecordedBatch, TurnHistory, interrupted_call_action};
use outlast_kernel::retry::ReusableCall;
use outlast_kernel::step::{RunToolsStep, Step};
use outlast_kernel::transcript::result_of;
use outlast_ports::budget::{BudgetReservation, BudgetSettlement, BudgetShortfall};
use outlast_ports::rate::AdmissionDecision;
use outlast_ports::tool::ProbeResult;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{BatchCall, EffectKind, RefusedCall, ToolBatch, ToolOutcome};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::message::{Message, ToolName, ToolResult, ToolUse};
use outlast_vocab::payment::Payment;
use outlast_vocab::record::{CallReclaimed, ClaimRef, EffectAnswered, EffectRequested, Fact, UndoableCall};
use outlast_vocab::tool::{CallScheduling, EffectClass, PreparedCall, ToolContract};
use outlast_vocab::wait::{Resolution, Wait};
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// The overhead of a tool message, with the names of its call and tool.
const RESULT_BYTES: usize = 256;

/// The capacity of the channel from the calls of a batch to the driver.
const MESSAGES: usize = 64;

/// One call of the batch in progress.
struct BatchCallSlot {
    key: ReplayKey,
    claim: ClaimRef,
    class: EffectClass,
    /// Its tool. `None` if the call was rejected or its outcome is reused.
    tool: Option<ToolName>,
    /// When its rate limits let it begin.
    begins: CallPermit,
    state: BatchCallState,
}

/// A batch whose calls are claimed.
struct ClaimedBatch {
    slots: Vec<BatchCallSlot>,
    /// The most that they may use.
    most: UsageAmount,
    /// The budget that is too low for them, if there is one.
    short: Option<BudgetShortfall>,
}

enum BatchCallState {
    /// It has to run, as this attempt.
    Run(PreparedCall, u32),
    /// It ran and waits to be completed externally.
    Pending(PreparedCall),
    /// It has a result.
    Settled(ToolResult),
}

/// The completion of a call.
pub(crate) enum CallCompletion {
    /// The tool ran.
    Ran(usize, ToolOutcome, CallWrites),
    /// It was completed externally. The result is what the model is shown.
    Completed(usize, Resolution, ToolResult),
}

/// Runs the batch until every call has a result or the turn parks.
pub(crate) async fn run<H: Host>(
    turn: &ActiveTurn<'_>,
    batch: RunToolsStep,
    host: &mut H,
) -> Result<Step, Error> {
    let ClaimedBatch { mut slots, most, short } = claim(turn, &batch, host).await?;
    if let Some(failure) = interrupts(&slots) {
        return Ok(batch.fail(failure));
    }
    match short {
        Some(short) if short.pauses_turns => {
            let key = batch.key().budget(host.history().budget_wait_count(batch.key()));
            return Ok(batch.wait(vec![wait_for(key, &short)]));
        }
        Some(short) => {
            refuse(&slots, &short, host);
            return Ok(batch.exhaust_budget(named(&short), short.reason.to_string()));
        }
        None => {}
    }
    let runs = slots.iter().any(|slot| !matches!(slot.state, BatchCallState::Settled(_)));
    let began = turn.services.clock.elapsed();
    let waits = loop {
        match work(turn, &mut slots, batch.is_undo(), host).await? {
            BatchProgress::Settled => break Vec::new(),
            BatchProgress::Waits(waits) if batch.is_undo() => refuse_to_wait(&mut slots, &waits, host),
            BatchProgress::Waits(waits) => break waits,
            BatchProgress::Cancelled(reason, began) => {
                let (used, lost) = used_when_cut(turn, &slots, &began);
                host.settle_cancelled(batch.key(), used, lost);
                host.flush().await?;
                return Ok(batch.cancel(reason));
            }
        }
    };
    // A batch that was settled before took no time now.
    if runs {
        turn.services.metrics.passed(TurnPhase::Tools, turn.services.clock.elapsed().saturating_sub(began));
    }
    if !waits.is_empty() {
        host.flush().await?;
        return Ok(batch.wait(waits));
    }
    host.settle(batch.key(), Some(used_of(turn, &slots, most)));
    if let Some(failure) = interrupts(&slots) {
        return Ok(batch.fail(failure));
    }
    let results = slots.iter().filter_map(|slot| match &slot.state {
        BatchCallState::Settled(result) => Some(result),
        BatchCallState::Run(..) | BatchCallState::Pending(_) => None,
    });
    let next =
        batch.next_model().map(|(key, messages)| NextModelCall { key, messages, results: results.collect() });
    next_call(turn, next, host).await?;
    let mut step = Step::RunTools(batch);
    for (index, slot) in slots.into_iter().enumerate() {
        step = match (step, slot.state) {
            (Step::RunTools(batch), BatchCallState::Settled(result)) => batch.settle(index, result),
            (step, _) => step,
        };
    }
    Ok(step)
}

/// The model call that follows a batch.
struct NextModelCall<'b> {
    key: ReplayKey,
    /// The messages of the turn before the results.
    messages: &'b [Message],
    results: Vec<&'b ToolResult>,
}

/// Writes the last answers of a batch, together with the budget reservation for the following model call.
async fn next_call<H: Host>(
    turn: &ActiveTurn<'_>,
    next: Option<NextModelCall<'_>>,
    host: &mut H,
) -> Result<(), Error> {
    let known = turn.services.model(&turn.resolved_agent.package.model).map(|(_, info)| info);
    let (Some(NextModelCall { key, messages, results }), Ok(info), true) = (next, known, host.is_metered())
    else {
        return host.flush().await.map(drop);
    };
    let before = host.conversation().messages().clone();
    let message_bytes: usize = before.iter().chain(messages).map(Message::request_bytes_max).sum();
    let result_bytes: usize = results.iter().map(|result| result.request_bytes_max() + RESULT_BYTES).sum();
    let bytes = turn.resolved_agent.prompt_bytes_most() + message_bytes + result_bytes;
    let most = most(info, bytes, turn.resolved_agent.reply_tokens(turn.services));
    host.reserve_ahead(BudgetReservation::new(key, most, price_of(info))).await
}

/// Rejects all calls of a batch if a rule ends the turn because of one of them.
fn refuse_all_if_interrupted(calls: &mut [BatchCall]) {
    let interrupts = |call: &BatchCall| match call {
        BatchCall::Refused(refused) if refused.failure.code == Kind::PolicyInterrupted => {
            Some(refused.failure.clone())
        }
        _ => None,
    };
    let Some(failure) = calls.iter().find_map(interrupts) else { return };
    for call in calls {
        if let BatchCall::Run(PreparedCall { model_id, tool, ruling, labels, provenance, .. }) = call {
            let refused = RefusedCall::new(model_id.clone(), tool.clone(), failure.clone());
            let (ruling, labels) = (ruling.take().map(Box::new), std::mem::take(labels));
            let provenance = std::mem::take(provenance);
            *call = BatchCall::Refused(RefusedCall { ruling, labels, provenance, ..refused });
        }
    }
}

/// Returns why a rule ends the turn, if one of these calls caused that.
fn interrupts(slots: &[BatchCallSlot]) -> Option<Failure> {
    slots.iter().find_map(|slot| match &slot.state {
        BatchCallState::Settled(ToolResult::Err(failure)) if failure.code == Kind::PolicyInterrupted => {
            Some(failure.clone())
        }
        _ => None,
    })
}

fn refused_call(ask: &ToolUse, failure: Failure) -> BatchCall {
    BatchCall::Refused(RefusedCall::new(ask.id.clone(), ask.tool.clone(), failure))
}

/// Claims the calls: prepares and records them before any of them runs, or takes them over from the journal.
async fn claim<H: Host>(
    turn: &ActiveTurn<'_>,
    batch: &RunToolsStep,
    host: &mut H,
) -> Result<ClaimedBatch, Error> {
    host.begin_effect(batch.key(), EffectKind::ToolBatch)?;
    let history = host.history().clone();
    if let Some(recorded) = history.batch(batch.key(), batch.calls().map(|(ask, _)| ask))? {
        return take_over(turn, batch.key(), recorded, host).await;
    }
    let labels = turn.labels_after(batch.read());
    let trusted = turn.trusted_text(batch, &labels, host).await?;
    let around = turn.resolved_agent.circumstances(turn.org, host.spending());
    let (mut calls, mut changes) = (Vec::new(), Vec::new());
    let reusable = history.reusable();
    for (index, (ask, refused)) in batch.calls().enumerate() {
        let key = batch.key().child(index, ask.id.as_str());
        if let Some(reused) = reusable.call(&key) {
            calls.push(reused.call.clone());
            continue;
        }
        let (tools, limits) = (&turn.resolved_agent.catalogue, &turn.services.limits);
        let held = &turn.held(host);
        let mut call = match refused.cloned() {
            Some(failure) => refused_call(ask, failure),
            None => {
                match before_tool(EffectHooks::of(turn, &history, host.store(), &key), ask, &mut changes)
                    .await
                {
                    Ok(ask) => {
                        let (caller, labels, trusted) = (turn.caller, &labels, &trusted);
                        let (around, cancel) = (&around, &turn.cancel);
                        let asked =
                            CallPreparation { caller, key: &key, ask: &ask, labels, trusted, around, cancel };
                        tools.prepare(asked, held, turn.resolved_agent, limits).await
                    }
                    Err(error) => refused_call(ask, Failure::from(&error)),
                }
            }
        };
        if let (BatchCall::Run(call), Some(id)) = (&mut call, reusable.call_id(&key)) {
            call.id = id;
        }
        calls.push(call);
    }
    refuse_all_if_interrupted(&mut calls);
    note_grants(turn, host.store(), &mut calls).await?;
    host.buffer_facts(changes);
    let known = |index: usize, call: &BatchCall| {
        let key = batch.key().child(index, call.model_id().as_str());
        reusable.outcome(&key).filter(|_| matches!(call, BatchCall::Run(_))).cloned()
    };
    let mut admission_requests = admission_requests_of(turn, batch.key(), &calls);
    admission_requests.retain(|request| reusable.outcome(&request.key).is_none());
    let wanted: Vec<ReplayKey> = admission_requests.iter().map(|request| request.key.clone()).collect();
    host.request_permits(admission_requests).await?;
    let command = ToolBatch { calls: calls.clone() }.into();
    host.buffer_fact(Fact::Asked(EffectRequested { key: batch.key().clone(), command }));
    let is_reused: Vec<bool> =
        calls.iter().enumerate().map(|(index, call)| known(index, call).is_some()).collect();
    let performed = calls.iter().zip(&is_reused).filter(|(_, is_reused)| !**is_reused);
    let most = most_of(turn, performed.map(|(call, _)| call));
    let ReservationOutcome { last: asked, short } = reserve(batch.key(), most, host).await?;
    let admissions: BTreeMap<ReplayKey, AdmissionDecision> =
        wanted.into_iter().zip(host.take_permit_decisions()).collect();
    let unasked = if batch.key().is_part_of_undo() { CallPermit::Now } else { CallPermit::Unasked };
    let slots = calls.into_iter().enumerate().map(|(index, call)| {
        let child = u32::try_from(index).unwrap_or(u32::MAX);
        let key = batch.key().child(index, call.model_id().as_str());
        let outcome = known(index, &call);
        let tool = call.running_tool().filter(|_| outcome.is_none()).cloned();
        let begins = admissions.get(&key).cloned().map_or(Ok(unasked), CallPermit::of);
        let refused = begins.as_ref().err().cloned();
        let (class, state) = match call {
            BatchCall::Run(call) => {
                let runs = |call| refused.map_or_else(|| BatchCallState::Run(call, 1), rate_refused);
                let class = call.class;
                let result = outcome.as_ref().and_then(result_of);
                (class, result.map_or_else(|| runs(call), BatchCallState::Settled))
            }
            BatchCall::Refused(refused) => {
                (EffectClass::Pure, BatchCallState::Settled(ToolResult::Err(refused.failure)))
            }
        };
        let begins = begins.unwrap_or(CallPermit::Now);
        BatchCallSlot { key, claim: ClaimRef { asked, child }, class, tool, begins, state }
    });
    let slots: Vec<BatchCallSlot> = slots.collect();
    for slot in
        slots.iter().filter(|slot| matches!(admissions.get(&slot.key), Some(AdmissionDecision::Rejected(_))))
    {
        note_result(slot, host);
    }
    for (slot, _) in slots.iter().zip(&is_reused).filter(|(_, is_reused)| **is_reused) {
        note_reused(slot, &history, host);
    }
    Ok(ClaimedBatch { slots, most, short })
}

/// Records the outcome of a call that is reused from the turn that this one retries. It costs nothing here.
fn note_reused<H: Host>(slot: &BatchCallSlot, history: &TurnHistory, host: &mut H) {
    let Some(ReusableCall { outcome: Some(outcome), undo, .. }) = history.reusable().call(&slot.key) else {
        return;
    };
    let undo = undo.clone().map(|undo| UndoableCall { key: slot.key.clone(), undo });
    note_undo(undo, host);
    host.buffer_fact(Fact::Answered(EffectAnswered {
        claim: slot.claim,
        outcome: outcome.clone().into(),
        cost: None,
    }));
}

fn rate_refused(failure: Failure) -> BatchCallState {
    BatchCallState::Settled(ToolResult::Err(failure))
}

/// Records the result of a call that did not run.
fn note_result<H: Host>(slot: &BatchCallSlot, host: &mut H) {
    if let BatchCallState::Settled(result) = &slot.state {
        let outcome = ToolOutcome::Done(result.clone()).into();
        host.buffer_fact(Fact::Answered(EffectAnswered { claim: slot.claim, outcome, cost: None }));
    }
}

/// Writes the claims and reserves budget for the calls. Undo calls need no budget.
async fn reserve<H: Host>(
    batch: &ReplayKey,
    most: UsageAmount,
    host: &mut H,
) -> Result<ReservationOutcome, Error> {
    if most == UsageAmount::ZERO || batch.is_undo() {
        return Ok(ReservationOutcome { last: host.flush().await?, short: None });
    }
    host.reserve(hold_calls(batch.clone(), most)).await
}

/// Returns the most that the calls of a batch may use.
fn most_of<'c>(turn: &ActiveTurn<'_>, batch: impl Iterator<Item = &'c BatchCall>) -> UsageAmount {
    calls(batch.filter_map(|call| match call {
        BatchCall::Run(call) => Some(contract(turn, call)),
        BatchCall::Refused(_) => None,
    }))
}

/// Returns what the calls used. A failed call costs nothing.
fn used_of(turn: &ActiveTurn<'_>, slots: &[BatchCallSlot], most: UsageAmount) -> UsageAmount {
    let failed = slots.iter().filter_map(|slot| match &slot.state {
        BatchCallState::Settled(ToolResult::Err(failure)) if failure.code != Kind::ToolOutcomeUnknown => {
            slot.tool.as_ref()
        }
        _ => None,
    });
    let failed = calls(
        failed.map(|tool| turn.resolved_agent.contracts.iter().find(|contract| contract.name == *tool)),
    );
    UsageAmount { calls: most.calls, ..most.saturating_sub(failed) }
}

/// Returns the usage of a cancelled batch, and the part of it whose outcome is unknown. Calls that never began used
/// nothing.
fn used_when_cut(
    turn: &ActiveTurn<'_>,
    slots: &[BatchCallSlot],
    began: &[bool],
) -> (UsageAmount, UsageAmount) {
    let price = |slot: &BatchCallSlot| {
        let of =
            |tool: &ToolName| turn.resolved_agent.contracts.iter().find(|contract| contract.name == *tool);
        calls(slot.tool.iter().map(of))
    };
    let (mut used, mut lost) = (UsageAmount::ZERO, UsageAmount::ZERO);
    for (slot, began) in slots.iter().zip(began) {
        match &slot.state {
            BatchCallState::Settled(ToolResult::Err(failure)) if failure.code != Kind::ToolOutcomeUnknown => {
                used = used + UsageAmount { money: Cost::ZERO, ..price(slot) };
            }
            BatchCallState::Settled(_) => used = used + price(slot),
            BatchCallState::Run(..) | BatchCallState::Pending(_) if *began => {
                (used, lost) = (used + price(slot), lost + price(slot));
            }
            BatchCallState::Run(..) | BatchCallState::Pending(_) => {}
        }
    }
    (used, lost)
}

/// Answers the calls that a budget is too low for. None of them ran.
fn refuse<H: Host>(slots: &[BatchCallSlot], short: &BudgetShortfall, host: &mut H) {
    for slot in slots.iter().filter(|slot| matches!(slot.state, BatchCallState::Run(..))) {
        let result = ToolResult::Err(Failure::from(&short_of(short)));
        let outcome = ToolOutcome::Done(result).into();
        host.buffer_fact(Fact::Answered(EffectAnswered { claim: slot.claim, outcome, cost: None }));
    }
}

/// Takes over a batch from the journal. Interrupted calls are resolved, and the decision is durable before anything
/// runs again.
async fn take_over<H: Host>(
    turn: &ActiveTurn<'_>,
    batch: &ReplayKey,
    recorded: &RecordedBatch,
    host: &mut H,
) -> Result<ClaimedBatch, Error> {
    let history = host.history().clone();
    let mut slots = Vec::new();
    for (index, call) in recorded.calls.iter().enumerate() {
        let child = u32::try_from(index).unwrap_or(u32::MAX);
        let claim = ClaimRef { asked: recorded.asked, child };
        let key = batch.child(index, call.call.model_id().as_str());
        let begins = taken_over(&history, &key);
        if let (BatchCall::Run(prepared), None, Some(result)) =
            (&call.call, &call.outcome, history.reusable().outcome(&key).and_then(result_of))
        {
            host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt: call.attempts }));
            let class = prepared.class;
            let slot = BatchCallSlot {
                key,
                claim,
                class,
                tool: None,
                begins,
                state: BatchCallState::Settled(result),
            };
            note_reused(&slot, &history, host);
            slots.push(slot);
            continue;
        }
        if let (BatchCall::Run(prepared), None, Some(failure)) =
            (&call.call, &call.outcome, was_refused(&history, &key))
        {
            host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt: call.attempts }));
            let (class, tool) = (prepared.class, Some(prepared.tool.clone()));
            let slot =
                BatchCallSlot { key, claim, class, tool, begins, state: rate_refused(failure.clone()) };
            note_result(&slot, host);
            slots.push(slot);
            continue;
        }
        let (class, state) = match (&call.call, &call.outcome) {
            (BatchCall::Refused(refused), _) => {
                (EffectClass::Pure, BatchCallState::Settled(ToolResult::Err(refused.failure.clone())))
            }
            (BatchCall::Run(prepared), Some(outcome)) => {
                turn.tell(|| LiveEventKind::Replayed { key: key.clone() });
                let pending = || BatchCallState::Pending(prepared.clone());
                (prepared.class, result_of(outcome).map_or_else(pending, BatchCallState::Settled))
            }
            (BatchCall::Run(prepared), None) if call.parked || history.awaits_start(&key, prepared) => {
                host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt: call.attempts }));
                (prepared.class, BatchCallState::Run(prepared.clone(), call.attempts))
            }
            (BatchCall::Run(prepared), None) => {
                turn.tell(|| LiveEventKind::Interrupted { key: key.clone() });
                (prepared.class, rule(turn, (&key, claim), prepared, call.attempts, host).await?)
            }
        };
        let tool = call.call.running_tool().filter(|_| history.reusable().outcome(&key).is_none()).cloned();
        slots.push(BatchCallSlot { key, claim, class, tool, begins, state });
    }
    let performed = recorded.calls.iter().zip(&slots);
    let performed = performed.filter(|(_, slot)| history.reusable().outcome(&slot.key).is_none());
    let most = most_of(turn, performed.map(|(recorded, _)| &recorded.call));
    let runs = slots.iter().any(|slot| matches!(slot.state, BatchCallState::Run(..)));
    let ReservationOutcome { short, .. } =
        reserve(batch, if runs { most } else { UsageAmount::ZERO }, host).await?;
    Ok(ClaimedBatch { slots, most, short })
}

/// Decides what happens to a call that began and has no outcome: run it again, or ask the tool whether it happened.
async fn rule<H: Host>(
    turn: &ActiveTurn<'_>,
    (key, claim): (&ReplayKey, ClaimRef),
    call: &PreparedCall,
    attempts: u32,
    host: &mut H,
) -> Result<BatchCallState, Error> {
    let outcome = match interrupted_call_action(call, attempts) {
        InterruptedCallAction::Repeat { attempt } => {
            host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt }));
            return Ok(BatchCallState::Run(call.clone(), attempt));
        }
        InterruptedCallAction::Probe => probe(turn, call, &turn.held(host)).await,
    };
    conclude(turn, key, &outcome, host).await;
    let actual = outcome.clone();
    let outcome = shown(turn, key, call, outcome, host).await;
    host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt: attempts }));
    if let ToolOutcome::Done(ToolResult::Ok(value)) = &actual {
        note_undo(undoable(turn.resolved_agent, key, call, value), host);
    }
    let cost = turn.resolved_agent.charged(&call.tool, &outcome);
    host.buffer_fact(Fact::Answered(EffectAnswered { claim, outcome: outcome.clone().into(), cost }));
    Ok(result_of(&outcome).map_or_else(|| BatchCallState::Pending(call.clone()), BatchCallState::Settled))
}

/// Settles or releases the payments of an interrupted call, once its outcome is known. If it is unknown, they stay
/// reserved.
async fn conclude<H: Host>(turn: &ActiveTurn<'_>, key: &ReplayKey, outcome: &ToolOutcome, host: &mut H) {
    let open: Vec<Payment> = host.history().open_payments(key).cloned().collect();
    let facts = match outcome {
        ToolOutcome::Done(ToolResult::Ok(_)) => turn.services.settle_all(open).await,
        ToolOutcome::Done(ToolResult::Err(_)) => {
            turn.services.free_all(open, "the call did not happen").await
        }
        ToolOutcome::Pending | ToolOutcome::Unknown => Vec::new(),
    };
    host.buffer_facts(facts);
}

/// Runs the hooks on the outcome that a tool reported for an interrupted call.
async fn shown<H: Host>(
    turn: &ActiveTurn<'_>,
    key: &ReplayKey,
    call: &PreparedCall,
    outcome: ToolOutcome,
    host: &mut H,
) -> ToolOutcome {
    let ToolOutcome::Done(result) = outcome else { return outcome };
    let (history, mut changes) = (host.history().clone(), Vec::new());
    let hooks = EffectHooks::of(turn, &history, host.store(), key);
    let result = after_tool(hooks, call, result, &mut changes).await;
    host.buffer_facts(changes);
    ToolOutcome::Done(result)
}

/// Asks the tool whether an interrupted call happened. If the probe fails, the outcome is unknown.
async fn probe(turn: &ActiveTurn<'_>, call: &PreparedCall, held: &AttachmentResolver) -> ToolOutcome {
    let asked = match (turn.resolved_agent.catalogue.provider(&call.tool), whole(turn, call, held).await) {
        (Ok(provider), Ok(call)) => AssertUnwindSafe(provider.probe(&call)).catch_unwind().await,
        (Err(error), _) | (_, Err(error)) => Ok(Err(error)),
    };
    match asked {
        Ok(Ok(ProbeResult::Happened(result))) => ToolOutcome::Done(result),
        Ok(Ok(ProbeResult::DidNotHappen)) => {
            let detail = "the call was interrupted before it happened; it may be asked for again";
            ToolOutcome::Done(ToolResult::Err(Failure::new(Kind::ToolInterrupted, detail)))
        }
        Ok(Ok(ProbeResult::CannotTell) | Err(_)) | Err(_) => ToolOutcome::Unknown,
    }
}

enum BatchProgress {
    Settled,
    Waits(Vec<Wait>),
    /// The reason, and for each call whether it may have begun.
    Cancelled(String, Vec<bool>),
}

/// Runs the calls that have to run. The driver stays here, so every write of the batch goes through one place.
async fn work<H: Host>(
    turn: &ActiveTurn<'_>,
    slots: &mut [BatchCallSlot],
    one_by_one: bool,
    host: &mut H,
) -> Result<BatchProgress, Error> {
    let (to_driver, mut from_calls) = mpsc::channel(MESSAGES);
    let schedule =
        |slot: &BatchCallSlot| if one_by_one { CallScheduling::Serial } else { scheduling(turn, slot) };
    let schedule: Vec<CallScheduling> = slots.iter().map(schedule).collect();
    let mut order = CallBatch::new(&schedule, turn.services.limits.parallel_tools);
    let mut running = FuturesUnordered::new();
    let mut waiting: BTreeMap<usize, Vec<Wait>> = BTreeMap::new();
    for (index, slot) in slots.iter().enumerate() {
        if let BatchCallState::Settled(_) = slot.state {
            order.finish(index);
        }
    }
    loop {
        while let Some(index) = order.start() {
            running.push(start(turn, index, &slots[index], host, &to_driver));
        }
        if running.is_empty() {
            return Ok(BatchProgress::Settled);
        }
        if waiting.len() == running.len() {
            return Ok(BatchProgress::Waits(waiting.into_values().flatten().collect()));
        }
        let completion = tokio::select! {
            biased;
            message = from_calls.recv() => {
                if let Some(message) = message {
                    take(message, &mut waiting, host).await?;
                }
                continue;
            }
            completion = running.next() => completion,
            reason = turn.cancel.requested() => {
                let mut patience = turn.services.clock.sleep(turn.services.limits.cancel_grace);
                while running.len() > waiting.len() {
                    tokio::select! {
                        biased;
                        Some(message) = from_calls.recv() => take(message, &mut waiting, host).await?,
                        Some(completion) = running.next() => {
                            let completion = completion?;
                            let (CallCompletion::Ran(index, ..) | CallCompletion::Completed(index, ..)) = completion;
                            settle(turn, &mut slots[index], completion, host);
                        }
                        () = &mut patience => break,
                    }
                }
                drop(running);
                let history = host.history().clone();
                let began = slots.iter().enumerate().map(|(index, slot)| {
                    let waits = waiting.get(&index).map_or(&[][..], Vec::as_slice);
                    may_have_begun(slot, order.is_running(index), waits, &history)
                });
                let began = began.collect();
                give_up(turn, slots, &waiting, &order, host);
                return Ok(BatchProgress::Cancelled(reason, began));
            }
        };
        // Calls that finish at the same time share one write.
        let mut completion = completion;
        let mut keep = false;
        while let Some(now) = completion {
            let now = now?;
            // Facts that the call sent earlier come before its answer.
            while let Ok(message) = from_calls.try_recv() {
                take(message, &mut waiting, host).await?;
            }
            let (CallCompletion::Ran(index, ..) | CallCompletion::Completed(index, ..)) = now;
            keep |= slots[index].class != EffectClass::Pure;
            if settle(turn, &mut slots[index], now, host) {
                order.finish(index);
            } else {
                keep = true;
                running.push(start(turn, index, &slots[index], host, &to_driver));
            }
            completion = poll_immediate(running.next()).await.flatten();
        }
        // The answer of a call that must not run again is written now. Pure answers wait for the next write. The caller
        // writes the last ones.
        if keep && slots.iter().any(|slot| !matches!(slot.state, BatchCallState::Settled(_))) {
            host.flush().await?;
        }
    }
}

fn scheduling(turn: &ActiveTurn<'_>, slot: &BatchCallSlot) -> CallScheduling {
    match &slot.state {
        BatchCallState::Run(call, _) => {
            contract(turn, call).map(|contract| contract.scheduling.clone()).unwrap_or_default()
        }
        BatchCallState::Pending(_) | BatchCallState::Settled(_) => CallScheduling::Parallel,
    }
}

pub(crate) fn contract<'a>(turn: &'a ActiveTurn<'_>, call: &PreparedCall) -> Option<&'a ToolContract> {
    turn.resolved_agent.contracts.iter().find(|contract| contract.name == call.tool)
}

/// Returns a call with the references in its arguments replaced by the content.
pub(crate) async fn whole<'c>(
    turn: &ActiveTurn<'_>,
    call: &'c PreparedCall,
    held: &AttachmentResolver,
) -> Result<Cow<'c, PreparedCall>, Error> {
    let schema = contract(turn, call).map_or(&Value::Null, |contract| &contract.input);
    held.call(call, schema).await
}

async fn take<H: Host>(
    message: CallMessage,
    waiting: &mut BTreeMap<usize, Vec<Wait>>,
    host: &mut H,
) -> Result<(), Error> {
    match message {
        CallMessage::Note(fact) => host.buffer_fact(fact),
        CallMessage::Record(fact, CallWrites { values, files, undo }, done) => {
            note_undo(undo, host);
            host.buffer_fact(fact);
            host.buffer_values(values);
            host.buffer_files(files);
            host.flush().await?;
            // The call may have been dropped meanwhile. The fact stays recorded.
            let _ = done.send(());
        }
        CallMessage::Reserve(reservation, reply_to) => {
            let short = host.reserve(reservation).await?.short;
            // The call may have been dropped meanwhile. The reservation then counts as used.
            let _ = reply_to.send(short);
        }
        CallMessage::GoesOut(request, reply_to) => {
            host.request_permits(vec![request]).await?;
            host.flush().await?;
            if let Some(decision) = host.take_permit_decisions().pop() {
                // The call may have been dropped meanwhile. Its permit is then used up.
                let _ = reply_to.send(decision);
            }
        }
        CallMessage::Settle(settled) => {
            for BudgetSettlement { key, used, .. } in settled {
                host.settle(&key, used);
            }
        }
        CallMessage::WaitedForProvider(time) => host.exclude_provider_wait(time),
        CallMessage::Waits(child, wait) => waiting.entry(child).or_default().push(wait),
    }
    Ok(())
}

/// Records the answer of a call. Returns whether the call has its result now.
fn settle<H: Host>(
    turn: &ActiveTurn<'_>,
    slot: &mut BatchCallSlot,
    completion: CallCompletion,
    host: &mut H,
) -> bool {
    let (BatchCallState::Run(call, _) | BatchCallState::Pending(call)) = &slot.state else { return true };
    let result = match completion {
        CallCompletion::Ran(_, outcome, CallWrites { values, files, undo }) => {
            let result = result_of(&outcome);
            note_undo(undo, host);
            let cost = turn.resolved_agent.charged(&call.tool, &outcome);
            host.buffer_fact(Fact::Answered(EffectAnswered {
                claim: slot.claim,
                outcome: outcome.into(),
                cost,
            }));
            host.buffer_values(values);
            host.buffer_files(files);
            result
        }
        CallCompletion::Completed(_, resolution, result) => {
            if let (Resolution::Ok(value), None) = (&resolution, host.history().undo_of(&slot.key)) {
                note_undo(undoable(turn.resolved_agent, &slot.key, call, value), host);
            }
            Some(result)
        }
    };
    slot.state = result.map_or_else(|| BatchCallState::Pending(call.clone()), BatchCallState::Settled);
    matches!(slot.state, BatchCallState::Settled(_))
}

/// Fails undo calls that would wait, because an aborted turn does not wait.
fn refuse_to_wait<H: Host>(slots: &mut [BatchCallSlot], waits: &[Wait], host: &mut H) {
    for slot in slots.iter_mut().filter(|slot| waits.iter().any(|wait| wait.key.is_under(&slot.key))) {
        let detail = "a call that takes another one back cannot wait";
        let result = ToolResult::Err(Failure::new(Kind::ToolFailed, detail));
        if let BatchCallState::Run(..) = &slot.state {
            let outcome = ToolOutcome::Done(result.clone()).into();
            host.buffer_fact(Fact::Answered(EffectAnswered { claim: slot.claim, outcome, cost: None }));
        }
        slot.state = BatchCallState::Settled(result);
    }
}

fn note_undo<H: Host>(undo: Option<UndoableCall>, host: &mut H) {
    if let Some(undo) = undo {
        host.buffer_fact(Fact::Undoable(undo));
    }
}

/// Returns whether a call of a cancelled turn may have begun, in this process or an earlier one. A call that waits for
/// an approval, a deferral, its rate limit or other calls has not begun.
fn may_have_begun(slot: &BatchCallSlot, runs: bool, waits: &[Wait], history: &TurnHistory) -> bool {
    let BatchCallState::Run(call, attempt) = &slot.state else { return true };
    if *attempt > 1 || history.parked_after_start(&slot.key) {
        return true;
    }
    // A retried call queues for its rate limit again. Only the journal says whether it has been queued since the first
    // attempt.
    let in_line = || history.awaits_start(&slot.key, call);
    let to_begin =
        |wait: &Wait| wait.key.blocks_start_of(&slot.key) && (wait.key != slot.key.rate() || in_line());
    runs && !waits.iter().any(to_begin)
}

/// Records an outcome for every call that did not finish, because the turn is cancelled.
fn give_up<H: Host>(
    turn: &ActiveTurn<'_>,
    slots: &mut [BatchCallSlot],
    waiting: &BTreeMap<usize, Vec<Wait>>,
    order: &CallBatch<'_>,
    host: &mut H,
) {
    for (index, slot) in slots.iter_mut().enumerate() {
        let BatchCallState::Run(call, _) = &slot.state else { continue };
        let runs = order.is_running(index) && !waiting.contains_key(&index);
        let failure = match (call.class.may_repeat(), host.history().parked_after_start(&slot.key)) {
            (false, _) if runs => None,
            // Only such a call may be performed by a retry of the turn.
            (false, false) => Some((Kind::ToolInterrupted, "the turn was cancelled before the call began")),
            _ => Some((Kind::ToolCancelled, "the turn was cancelled before the call was done")),
        };
        let outcome = failure.map_or(ToolOutcome::Unknown, |(kind, detail)| {
            ToolOutcome::Done(ToolResult::Err(Failure::new(kind, detail)))
        });
        let cost = turn.resolved_agent.charged(&call.tool, &outcome);
        host.buffer_fact(Fact::Answered(EffectAnswered { claim: slot.claim, outcome: outcome.into(), cost }));
    }
}

/// Returns the future that runs one slot.
fn start<'a, H: Host>(
    turn: &'a ActiveTurn<'_>,
    index: usize,
    slot: &BatchCallSlot,
    host: &H,
    to_driver: &mpsc::Sender<CallMessage>,
) -> std::pin::Pin<Box<dyn Future<Output = Result<CallCompletion, Error>> + Send + 'a>> {
    let call = match &slot.state {
        BatchCallState::Run(call, _) | BatchCallState::Pending(call) => Some(call),
        BatchCallState::Settled(_) => None,
    };
    let scope = Arc::new(ToolCallScope {
        services: turn.services.clone(),
        tier: host.tier(),
        history: host.history().clone(),
        store: host.store().cloned(),
        secret: host.secret(),
        cancel: turn.cancel.clone(),
        session: turn.caller.session,
        turn: turn.caller.turn,
        resolved_agent: turn.resolved_agent.clone(),
        lease: turn.lease,
        metered: host.is_metered(),
        class: slot.class,
        trusted: call.and_then(|call| contract(turn, call)).is_some_and(|contract| contract.trusted),
        labels: call.map(|call| call.labels.clone()).unwrap_or_default(),
        tool: call.map(|call| call.tool.clone()),
        org: turn.org,
        spending: host.spending(),
        hook_labels: turn.hook_labels.clone(),
        child: index,
        key: slot.key.clone(),
        begins: slot.begins,
        to_driver: to_driver.clone(),
        used: Mutex::new(CallUsage::default()),
    });
    match &slot.state {
        BatchCallState::Run(prepared, attempt) => {
            Box::pin(perform(turn, index, slot.claim, prepared.clone(), *attempt, scope))
        }
        BatchCallState::Pending(call) => {
            let call = call.clone();
            Box::pin(async move {
                let (resolution, result) = scope.completed(&call).await?;
                Ok(CallCompletion::Completed(index, resolution, result))
            })
        }
        BatchCallState::Settled(_) => unreachable!("a call that has its result is not started"),
    }
}

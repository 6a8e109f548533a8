//! Runs the tool calls of a reply. Answered calls are not run again, interrupted calls are resolved, and the rest run
//! in parallel where allowed.
//!
//! The driver stays in this module and owns all writes. `claim` and `take_over` decide which calls run, and
//! [`crate::calls::call`] runs one.
mod batch_budget;
mod claim;
mod take_over;

use crate::calls::call::{ClaimedCall, perform};
use crate::calls::call_journal::{CallJournal, CallMessage, CallState, CallWrites};
use crate::calls::tool_call_scope::{CallCircumstances, CallIdentity, CallStorage, CallUsage, ToolCallScope};
use crate::calls::tool_runner::ToolRunner;
use crate::limits::budget_meter::{named, wait_for};
use crate::limits::tool_limits::CallPermit;
use crate::turn::host::Host;
use crate::turn::metered_model_call::ModelCallHost;
use crate::turn::undo::undoable;
use crate::views::metrics::TurnPhase;
use futures_util::future::poll_immediate;
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_kernel::call_batch::CallBatch;
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::step::{RunToolsStep, Step};
use outlast_kernel::transcript::result_of;
use outlast_ports::budget::{BudgetSettlement, BudgetShortfall};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::ToolOutcome;
use outlast_vocab::message::{ToolName, ToolResult};
use outlast_vocab::record::{ClaimRef, EffectAnswered, Fact, UndoableCall};
use outlast_vocab::tool::{CallScheduling, EffectClass, PreparedCall};
use outlast_vocab::wait::{Resolution, Wait};
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

use batch_budget::{NextModelCall, next_call, refuse, used_of, used_when_cut};

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

/// The calls of a batch that wait.
#[derive(Default)]
struct WaitingCalls {
    waits: BTreeMap<usize, Vec<Wait>>,
    /// Why the first stuck call is stuck.
    stuck: Option<Failure>,
}

impl WaitingCalls {
    fn add(&mut self, child: usize, wait: Wait) {
        self.waits.entry(child).or_default().push(wait);
    }
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
    turn: &ToolRunner<'_>,
    batch: RunToolsStep,
    host: &mut H,
) -> Result<Step, Error> {
    let ClaimedBatch { mut slots, most, short } = claim::claim(turn, &batch, host).await?;
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
    let began = turn.services.models.clock.elapsed();
    let waiting = loop {
        match work(turn, &mut slots, batch.is_undo(), host).await? {
            BatchProgress::Settled => break WaitingCalls::default(),
            BatchProgress::Waits(waiting) if batch.is_undo() => refuse_to_wait(&mut slots, &waiting, host),
            BatchProgress::Waits(waiting) => break waiting,
            BatchProgress::Cancelled(reason, began) => {
                let (used, lost) = used_when_cut(turn, &slots, &began);
                host.settle_assumed(batch.key(), used, lost);
                host.flush().await?;
                return Ok(batch.cancel(reason));
            }
        }
    };
    // A batch that was settled before took no time now.
    if runs {
        turn.services
            .models
            .metrics
            .passed(TurnPhase::Tools, turn.services.models.clock.elapsed().saturating_sub(began));
    }
    if !waiting.waits.is_empty() {
        host.flush().await?;
        if let Some(failure) = waiting.stuck {
            host.buffer_fact(Fact::Stuck { failure });
        }
        return Ok(batch.wait(waiting.waits.into_values().flatten().collect()));
    }
    host.settle(batch.key(), used_of(turn, &slots, most));
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

/// Returns why a rule ends the turn, if one of these calls caused that.
fn interrupts(slots: &[BatchCallSlot]) -> Option<Failure> {
    slots.iter().find_map(|slot| match &slot.state {
        BatchCallState::Settled(ToolResult::Err(failure)) if failure.code == Kind::PolicyInterrupted => {
            Some(failure.clone())
        }
        _ => None,
    })
}

enum BatchProgress {
    Settled,
    Waits(WaitingCalls),
    /// The reason, and for each call whether it may have begun.
    Cancelled(String, Vec<bool>),
}

/// Runs the calls that have to run. The driver stays here, so every write of the batch goes through one place.
async fn work<H: Host>(
    turn: &ToolRunner<'_>,
    slots: &mut [BatchCallSlot],
    one_by_one: bool,
    host: &mut H,
) -> Result<BatchProgress, Error> {
    let (to_driver, mut from_calls) = mpsc::channel(MESSAGES);
    let schedule =
        |slot: &BatchCallSlot| if one_by_one { CallScheduling::Serial } else { scheduling(turn, slot) };
    let schedule: Vec<CallScheduling> = slots.iter().map(schedule).collect();
    let mut order = CallBatch::new(&schedule, turn.services.models.limits.parallel_tools);
    let mut running = FuturesUnordered::new();
    let mut waiting = WaitingCalls::default();
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
        if waiting.waits.len() == running.len() {
            return Ok(BatchProgress::Waits(waiting));
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
                let mut patience = turn.services.models.clock.sleep(turn.services.models.limits.cancel_grace);
                while running.len() > waiting.waits.len() {
                    tokio::select! {
                        biased;
                        Some(message) = from_calls.recv() => take(message, &mut waiting, host).await?,
                        Some(completion) = running.next() => {
                            let completion = completion?;
                            take_sent(&mut from_calls, &mut waiting, host).await?;
                            let (CallCompletion::Ran(index, ..) | CallCompletion::Completed(index, ..)) = completion;
                            settle(turn, &mut slots[index], completion, host);
                        }
                        () = &mut patience => break,
                    }
                }
                drop(running);
                take_sent(&mut from_calls, &mut waiting, host).await?;
                let history = host.history();
                let began = slots.iter().enumerate().map(|(index, slot)| {
                    let waits = waiting.waits.get(&index).map_or(&[][..], Vec::as_slice);
                    may_have_begun(slot, order.is_running(index), waits, history)
                });
                let began: Vec<bool> = began.collect();
                let runs = |index| order.is_running(index) && !waiting.waits.contains_key(&index);
                give_up(turn, slots, (&began, runs), host);
                return Ok(BatchProgress::Cancelled(reason, began));
            }
        };
        // Calls that finish at the same time share one write.
        let mut completion = completion;
        let mut keep = false;
        while let Some(now) = completion {
            let now = now?;
            // Facts that the call sent earlier come before its answer.
            take_sent(&mut from_calls, &mut waiting, host).await?;
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

fn scheduling(turn: &ToolRunner<'_>, slot: &BatchCallSlot) -> CallScheduling {
    match &slot.state {
        BatchCallState::Run(call, _) => {
            let contract = turn.run.agent.contract_of(&call.tool);
            contract.map(|contract| contract.scheduling.clone()).unwrap_or_default()
        }
        BatchCallState::Pending(_) | BatchCallState::Settled(_) => CallScheduling::Parallel,
    }
}

/// Takes the messages that calls have sent so far.
async fn take_sent<H: Host>(
    from_calls: &mut mpsc::Receiver<CallMessage>,
    waiting: &mut WaitingCalls,
    host: &mut H,
) -> Result<(), Error> {
    while let Ok(message) = from_calls.try_recv() {
        take(message, waiting, host).await?;
    }
    Ok(())
}

async fn take<H: Host>(message: CallMessage, waiting: &mut WaitingCalls, host: &mut H) -> Result<(), Error> {
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
        CallMessage::Charge(interrupted, most) => host.charge(interrupted, most).await,
        CallMessage::Settle(settled) => {
            for BudgetSettlement { key, used, lost } in settled {
                host.settle_assumed(&key, used, lost);
            }
        }
        CallMessage::WaitedForProvider(time) => host.exclude_provider_wait(time),
        CallMessage::Waits(child, wait) => waiting.add(child, wait),
        CallMessage::Stuck(child, failure, wait) => {
            waiting.add(child, wait);
            waiting.stuck.get_or_insert(failure);
        }
    }
    Ok(())
}

/// Records the answer of a call. Returns whether the call has its result now.
fn settle<H: Host>(
    turn: &ToolRunner<'_>,
    slot: &mut BatchCallSlot,
    completion: CallCompletion,
    host: &mut H,
) -> bool {
    let (BatchCallState::Run(call, _) | BatchCallState::Pending(call)) = &slot.state else { return true };
    let result = match completion {
        CallCompletion::Ran(_, outcome, CallWrites { values, files, undo }) => {
            let result = result_of(&outcome);
            note_undo(undo, host);
            let cost = turn.run.agent.charged(&call.tool, &outcome);
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
                note_undo(undoable(turn.run.agent, &slot.key, call, value), host);
            }
            Some(result)
        }
    };
    slot.state = result.map_or_else(|| BatchCallState::Pending(call.clone()), BatchCallState::Settled);
    matches!(slot.state, BatchCallState::Settled(_))
}

/// Fails undo calls that would wait, because an aborted turn does not wait.
fn refuse_to_wait<H: Host>(slots: &mut [BatchCallSlot], waiting: &WaitingCalls, host: &mut H) {
    for index in waiting.waits.keys() {
        let slot = &mut slots[*index];
        let detail = "a call that undoes another call cannot wait";
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

/// Records an outcome for every call that did not finish, because the turn is cancelled. `began` says which calls may
/// have begun, and `runs` which of them run now.
fn give_up<H: Host>(
    turn: &ToolRunner<'_>,
    slots: &mut [BatchCallSlot],
    (began, runs): (&[bool], impl Fn(usize) -> bool),
    host: &mut H,
) {
    for (index, slot) in slots.iter_mut().enumerate() {
        let BatchCallState::Run(call, _) = &slot.state else { continue };
        let failure = match (call.class.may_repeat(), began[index]) {
            (false, _) if runs(index) => None,
            // Only such a call may be performed by a retry of the turn.
            (false, false) => Some((Kind::ToolInterrupted, "the turn was cancelled before the call began")),
            _ => Some((Kind::ToolCancelled, "the turn was cancelled before the call was done")),
        };
        let outcome = failure.map_or(ToolOutcome::Unknown, |(kind, detail)| {
            ToolOutcome::Done(ToolResult::Err(Failure::new(kind, detail)))
        });
        let cost = turn.run.agent.charged(&call.tool, &outcome);
        host.buffer_fact(Fact::Answered(EffectAnswered { claim: slot.claim, outcome: outcome.into(), cost }));
    }
}

/// Returns the future that runs one slot.
fn start<'a, H: Host>(
    turn: &ToolRunner<'_>,
    index: usize,
    slot: &BatchCallSlot,
    host: &H,
    to_driver: &mpsc::Sender<CallMessage>,
) -> Pin<Box<dyn Future<Output = Result<CallCompletion, Error>> + Send + 'a>> {
    let BatchCallSlot { claim, begins, .. } = *slot;
    match &slot.state {
        BatchCallState::Run(prepared, attempt) => {
            let scope = scope_of(turn, index, slot, prepared, host, to_driver);
            let call = ClaimedCall { claim, prepared: prepared.clone(), attempt: *attempt, begins };
            Box::pin(perform(Arc::new(scope), call))
        }
        BatchCallState::Pending(prepared) => {
            let scope = scope_of(turn, index, slot, prepared, host, to_driver);
            let prepared = prepared.clone();
            Box::pin(async move {
                let (resolution, result) = scope.completed(&prepared).await?;
                Ok(CallCompletion::Completed(index, resolution, result))
            })
        }
        BatchCallState::Settled(_) => unreachable!("a call that has its result is not started"),
    }
}

/// Creates the scope of a call of the batch.
fn scope_of<H: Host>(
    turn: &ToolRunner<'_>,
    index: usize,
    slot: &BatchCallSlot,
    prepared: &PreparedCall,
    host: &H,
    to_driver: &mpsc::Sender<CallMessage>,
) -> ToolCallScope {
    let (services, caller) = (turn.services, turn.run.caller);
    let call = CallIdentity {
        caller,
        org: turn.run.org,
        lease: turn.run.lease,
        key: slot.key.clone(),
        tool: prepared.tool.clone(),
        class: slot.class,
        trusted: turn.run.agent.trusts(&prepared.tool),
        labels: prepared.labels.clone(),
    };
    let journal = CallJournal {
        services: services.clone(),
        tier: host.tier(),
        history: host.history().clone(),
        metered: host.is_metered(),
        child: index,
        to_driver: to_driver.clone(),
        state: Mutex::new(CallState::default()),
    };
    ToolCallScope {
        services: services.clone(),
        resolved_agent: turn.run.agent.clone(),
        call,
        circumstances: CallCircumstances {
            hook_labels: turn.sources.hooks.clone(),
            spending: host.spending(),
        },
        journal: Arc::new(journal),
        storage: CallStorage::new(services.clone(), caller.session, host.store().cloned()),
        cancel: turn.cancel.clone(),
        secret: host.secret(),
        used: Mutex::new(CallUsage::default()),
    }
}

//! Runs the tool calls of a reply. Answered calls are not run again, interrupted calls are resolved, and the rest run
//! in parallel where allowed.
//!
//! The driver stays in this module and owns all writes. One call runs in [`crate::scope`]; `call` performs its
//! attempts.
use crate::call::perform;
use crate::catalogue::AskedFor;
use crate::drive::Turn;
use crate::grants::note_grants;
use crate::hooks::{Hooking, after_tool, before_tool};
use crate::host::{Host, Reserved};
use crate::meter::{calls, hold_calls, most, named, price_of, short_of, wait_for};
use crate::metrics::Phase;
use crate::pace::{Begins, taken_over, wants, was_refused};
use crate::projection::Held;
use crate::scope::{FromCall, Scope, Used, Written};
use crate::undo::undoable;
use futures_util::FutureExt;
use futures_util::future::poll_immediate;
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast_kernel::batch::Batch;
use outlast_kernel::replay::{History, Interrupted, RecordedBatch, interrupted};
use outlast_kernel::retry::ReusableCall;
use outlast_kernel::step::{RunTools, Step};
use outlast_kernel::transcript::result_of;
use outlast_ports::budget::{Hold, Settlement, Short};
use outlast_ports::rate::Pacing;
use outlast_ports::tool::Probe;
use outlast_vocab::budget::Amount;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{BatchCall, EffectKind, RefusedCall, ToolBatch, ToolOutcome};
use outlast_vocab::event::LiveKind;
use outlast_vocab::message::{Message, ToolName, ToolResult, ToolUse};
use outlast_vocab::payment::Payment;
use outlast_vocab::record::{Answered, Asked, ClaimRef, Fact, Reclaimed, Undoable};
use outlast_vocab::tool::{Contract, EffectClass, PreparedCall, Scheduling};
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
struct Slot {
    key: ReplayKey,
    claim: ClaimRef,
    class: EffectClass,
    /// Its tool. `None` if the call was rejected or its outcome is reused.
    tool: Option<ToolName>,
    /// When its rate limits let it begin.
    begins: Begins,
    state: State,
}

/// A batch whose calls are claimed.
struct Claimed {
    slots: Vec<Slot>,
    /// The most that they may use.
    most: Amount,
    /// The budget that is too low for them, if there is one.
    short: Option<Short>,
}

enum State {
    /// It has to run, as this attempt.
    Run(PreparedCall, u32),
    /// It ran and waits to be completed externally.
    Pending(PreparedCall),
    /// It has a result.
    Settled(ToolResult),
}

/// The completion of a call.
pub(crate) enum Came {
    /// The tool ran.
    Ran(usize, ToolOutcome, Written),
    /// It was completed externally. The result is what the model is shown.
    Completed(usize, Resolution, ToolResult),
}

/// Runs the batch until every call has a result or the turn parks.
pub(crate) async fn run<H: Host>(turn: &Turn<'_>, batch: RunTools, host: &mut H) -> Result<Step, Error> {
    let Claimed { mut slots, most, short } = claim(turn, &batch, host).await?;
    if let Some(failure) = interrupts(&slots) {
        return Ok(batch.fail(failure));
    }
    match short {
        Some(short) if short.pauses => {
            let key = batch.key().budget(host.history().times_short(batch.key()));
            return Ok(batch.wait(vec![wait_for(key, &short)]));
        }
        Some(short) => {
            refuse(&slots, &short, host);
            return Ok(batch.out_of(named(&short), short.lacks.to_string()));
        }
        None => {}
    }
    let runs = slots.iter().any(|slot| !matches!(slot.state, State::Settled(_)));
    let began = turn.world.clock.elapsed();
    let waits = loop {
        match work(turn, &mut slots, batch.takes_back(), host).await? {
            Worked::Settled => break Vec::new(),
            Worked::Waits(waits) if batch.takes_back() => refuse_to_wait(&mut slots, &waits, host),
            Worked::Waits(waits) => break waits,
            Worked::Cancelled(reason, began) => {
                let (used, lost) = used_when_cut(turn, &slots, &began);
                host.cut_short(batch.key(), used, lost);
                host.flush().await?;
                return Ok(batch.cancel(reason));
            }
        }
    };
    // A batch that was settled before took no time now.
    if runs {
        turn.world.metrics.passed(Phase::Tools, turn.world.clock.elapsed().saturating_sub(began));
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
        State::Settled(result) => Some(result),
        State::Run(..) | State::Pending(_) => None,
    });
    let next = batch.next_model().map(|(key, messages)| Next { key, messages, results: results.collect() });
    next_call(turn, next, host).await?;
    let mut step = Step::RunTools(batch);
    for (index, slot) in slots.into_iter().enumerate() {
        step = match (step, slot.state) {
            (Step::RunTools(batch), State::Settled(result)) => batch.settle(index, result),
            (step, _) => step,
        };
    }
    Ok(step)
}

/// The model call that follows a batch.
struct Next<'b> {
    key: ReplayKey,
    /// The messages of the turn before the results.
    messages: &'b [Message],
    results: Vec<&'b ToolResult>,
}

/// Writes the last answers of a batch, together with the budget reservation for the following model call.
async fn next_call<H: Host>(turn: &Turn<'_>, next: Option<Next<'_>>, host: &mut H) -> Result<(), Error> {
    let known = turn.world.model(&turn.outfit.package.model).map(|(_, info)| info);
    let (Some(Next { key, messages, results }), Ok(info), true) = (next, known, host.is_metered()) else {
        return host.flush().await.map(drop);
    };
    let before = host.conversation().messages().clone();
    let said: usize = before.iter().chain(messages).map(Message::sent_most).sum();
    let told: usize = results.iter().map(|result| result.sent_most() + RESULT_BYTES).sum();
    let bytes = turn.outfit.told_bytes() + said + told;
    let most = most(info, bytes, turn.outfit.reply_tokens(turn.world));
    host.reserve_ahead(Hold::new(key, most, price_of(info))).await
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
fn interrupts(slots: &[Slot]) -> Option<Failure> {
    slots.iter().find_map(|slot| match &slot.state {
        State::Settled(ToolResult::Err(failure)) if failure.code == Kind::PolicyInterrupted => {
            Some(failure.clone())
        }
        _ => None,
    })
}

fn refused_call(ask: &ToolUse, failure: Failure) -> BatchCall {
    BatchCall::Refused(RefusedCall::new(ask.id.clone(), ask.tool.clone(), failure))
}

/// Claims the calls: prepares and records them before any of them runs, or takes them over from the journal.
async fn claim<H: Host>(turn: &Turn<'_>, batch: &RunTools, host: &mut H) -> Result<Claimed, Error> {
    host.reach(batch.key(), EffectKind::ToolBatch)?;
    let history = host.history().clone();
    if let Some(recorded) = history.batch(batch.key(), batch.calls().map(|(ask, _)| ask))? {
        return take_over(turn, batch.key(), recorded, host).await;
    }
    let labels = turn.labels_after(batch.read());
    let trusted = turn.trusted_text(batch, &labels, host).await?;
    let around = turn.outfit.circumstances(turn.org, host.spending());
    let (mut calls, mut changes) = (Vec::new(), Vec::new());
    let reusable = history.reusable();
    for (index, (ask, refused)) in batch.calls().enumerate() {
        let key = batch.key().child(index, ask.id.as_str());
        if let Some(reused) = reusable.call(&key) {
            calls.push(reused.call.clone());
            continue;
        }
        let (tools, limits) = (&turn.outfit.catalogue, &turn.world.limits);
        let held = &turn.held(host);
        let mut call = match refused.cloned() {
            Some(failure) => refused_call(ask, failure),
            None => {
                match before_tool(Hooking::of(turn, &history, host.store(), &key), ask, &mut changes).await {
                    Ok(ask) => {
                        let (caller, labels, trusted) = (turn.caller, &labels, &trusted);
                        let (around, cancel) = (&around, &turn.cancel);
                        let asked =
                            AskedFor { caller, key: &key, ask: &ask, labels, trusted, around, cancel };
                        tools.prepare(asked, held, turn.outfit, limits).await
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
    host.note_all(changes);
    let known = |index: usize, call: &BatchCall| {
        let key = batch.key().child(index, call.model_id().as_str());
        reusable.outcome(&key).filter(|_| matches!(call, BatchCall::Run(_))).cloned()
    };
    let mut wants = wants(turn, batch.key(), &calls);
    wants.retain(|want| reusable.outcome(&want.key).is_none());
    let wanted: Vec<ReplayKey> = wants.iter().map(|want| want.key.clone()).collect();
    host.want(wants).await?;
    let command = ToolBatch { calls: calls.clone() }.into();
    host.note(Fact::Asked(Asked { key: batch.key().clone(), command }));
    let is_reused: Vec<bool> =
        calls.iter().enumerate().map(|(index, call)| known(index, call).is_some()).collect();
    let performed = calls.iter().zip(&is_reused).filter(|(_, is_reused)| !**is_reused);
    let most = most_of(turn, performed.map(|(call, _)| call));
    let Reserved { last: asked, short } = reserve(batch.key(), most, host).await?;
    let paced: BTreeMap<ReplayKey, Pacing> = wanted.into_iter().zip(host.paced()).collect();
    let unasked = if batch.key().takes_back() { Begins::Now } else { Begins::Unasked };
    let slots = calls.into_iter().enumerate().map(|(index, call)| {
        let child = u32::try_from(index).unwrap_or(u32::MAX);
        let key = batch.key().child(index, call.model_id().as_str());
        let outcome = known(index, &call);
        let tool = call.runs().filter(|_| outcome.is_none()).cloned();
        let begins = paced.get(&key).cloned().map_or(Ok(unasked), Begins::of);
        let refused = begins.as_ref().err().cloned();
        let (class, state) = match call {
            BatchCall::Run(call) => {
                let runs = |call| refused.map_or_else(|| State::Run(call, 1), rate_refused);
                let class = call.class;
                let result = outcome.as_ref().and_then(result_of);
                (class, result.map_or_else(|| runs(call), State::Settled))
            }
            BatchCall::Refused(refused) => {
                (EffectClass::Pure, State::Settled(ToolResult::Err(refused.failure)))
            }
        };
        let begins = begins.unwrap_or(Begins::Now);
        Slot { key, claim: ClaimRef { asked, child }, class, tool, begins, state }
    });
    let slots: Vec<Slot> = slots.collect();
    for slot in slots.iter().filter(|slot| matches!(paced.get(&slot.key), Some(Pacing::Refused(_)))) {
        note_result(slot, host);
    }
    for (slot, _) in slots.iter().zip(&is_reused).filter(|(_, is_reused)| **is_reused) {
        note_reused(slot, &history, host);
    }
    Ok(Claimed { slots, most, short })
}

/// Records the outcome of a call that is reused from the turn that this one retries. It costs nothing here.
fn note_reused<H: Host>(slot: &Slot, history: &History, host: &mut H) {
    let Some(ReusableCall { outcome: Some(outcome), undo, .. }) = history.reusable().call(&slot.key) else {
        return;
    };
    let undo = undo.clone().map(|undo| Undoable { key: slot.key.clone(), undo });
    note_undo(undo, host);
    host.note(Fact::Answered(Answered { claim: slot.claim, outcome: outcome.clone().into(), cost: None }));
}

fn rate_refused(failure: Failure) -> State {
    State::Settled(ToolResult::Err(failure))
}

/// Records the result of a call that did not run.
fn note_result<H: Host>(slot: &Slot, host: &mut H) {
    if let State::Settled(result) = &slot.state {
        let outcome = ToolOutcome::Done(result.clone()).into();
        host.note(Fact::Answered(Answered { claim: slot.claim, outcome, cost: None }));
    }
}

/// Writes the claims and reserves budget for the calls. Undo calls need no budget.
async fn reserve<H: Host>(batch: &ReplayKey, most: Amount, host: &mut H) -> Result<Reserved, Error> {
    if most == Amount::ZERO || batch.is_undo() {
        return Ok(Reserved { last: host.flush().await?, short: None });
    }
    host.reserve(hold_calls(batch.clone(), most)).await
}

/// Returns the most that the calls of a batch may use.
fn most_of<'c>(turn: &Turn<'_>, batch: impl Iterator<Item = &'c BatchCall>) -> Amount {
    calls(batch.filter_map(|call| match call {
        BatchCall::Run(call) => Some(contract(turn, call)),
        BatchCall::Refused(_) => None,
    }))
}

/// Returns what the calls used. A failed call costs nothing.
fn used_of(turn: &Turn<'_>, slots: &[Slot], most: Amount) -> Amount {
    let failed = slots.iter().filter_map(|slot| match &slot.state {
        State::Settled(ToolResult::Err(failure)) if failure.code != Kind::ToolOutcomeUnknown => {
            slot.tool.as_ref()
        }
        _ => None,
    });
    let failed =
        calls(failed.map(|tool| turn.outfit.contracts.iter().find(|contract| contract.name == *tool)));
    Amount { calls: most.calls, ..most.without(failed) }
}

/// Returns the usage of a cancelled batch, and the part of it whose outcome is unknown. Calls that never began used
/// nothing.
fn used_when_cut(turn: &Turn<'_>, slots: &[Slot], began: &[bool]) -> (Amount, Amount) {
    let price = |slot: &Slot| {
        let of = |tool: &ToolName| turn.outfit.contracts.iter().find(|contract| contract.name == *tool);
        calls(slot.tool.iter().map(of))
    };
    let (mut used, mut lost) = (Amount::ZERO, Amount::ZERO);
    for (slot, began) in slots.iter().zip(began) {
        match &slot.state {
            State::Settled(ToolResult::Err(failure)) if failure.code != Kind::ToolOutcomeUnknown => {
                used = used + Amount { money: Cost::ZERO, ..price(slot) };
            }
            State::Settled(_) => used = used + price(slot),
            State::Run(..) | State::Pending(_) if *began => {
                (used, lost) = (used + price(slot), lost + price(slot));
            }
            State::Run(..) | State::Pending(_) => {}
        }
    }
    (used, lost)
}

/// Answers the calls that a budget is too low for. None of them ran.
fn refuse<H: Host>(slots: &[Slot], short: &Short, host: &mut H) {
    for slot in slots.iter().filter(|slot| matches!(slot.state, State::Run(..))) {
        let result = ToolResult::Err(Failure::from(&short_of(short)));
        let outcome = ToolOutcome::Done(result).into();
        host.note(Fact::Answered(Answered { claim: slot.claim, outcome, cost: None }));
    }
}

/// Takes over a batch from the journal. Interrupted calls are resolved, and the decision is durable before anything
/// runs again.
async fn take_over<H: Host>(
    turn: &Turn<'_>,
    batch: &ReplayKey,
    recorded: &RecordedBatch,
    host: &mut H,
) -> Result<Claimed, Error> {
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
            host.note(Fact::Reclaimed(Reclaimed { claim, attempt: call.attempts }));
            let class = prepared.class;
            let slot = Slot { key, claim, class, tool: None, begins, state: State::Settled(result) };
            note_reused(&slot, &history, host);
            slots.push(slot);
            continue;
        }
        if let (BatchCall::Run(prepared), None, Some(failure)) =
            (&call.call, &call.outcome, was_refused(&history, &key))
        {
            host.note(Fact::Reclaimed(Reclaimed { claim, attempt: call.attempts }));
            let (class, tool) = (prepared.class, Some(prepared.tool.clone()));
            let slot = Slot { key, claim, class, tool, begins, state: rate_refused(failure.clone()) };
            note_result(&slot, host);
            slots.push(slot);
            continue;
        }
        let (class, state) = match (&call.call, &call.outcome) {
            (BatchCall::Refused(refused), _) => {
                (EffectClass::Pure, State::Settled(ToolResult::Err(refused.failure.clone())))
            }
            (BatchCall::Run(prepared), Some(outcome)) => {
                turn.tell(|| LiveKind::Replayed { key: key.clone() });
                let pending = || State::Pending(prepared.clone());
                (prepared.class, result_of(outcome).map_or_else(pending, State::Settled))
            }
            (BatchCall::Run(prepared), None) if call.parked || history.is_held(&key, prepared) => {
                host.note(Fact::Reclaimed(Reclaimed { claim, attempt: call.attempts }));
                (prepared.class, State::Run(prepared.clone(), call.attempts))
            }
            (BatchCall::Run(prepared), None) => {
                turn.tell(|| LiveKind::Interrupted { key: key.clone() });
                (prepared.class, rule(turn, (&key, claim), prepared, call.attempts, host).await?)
            }
        };
        let tool = call.call.runs().filter(|_| history.reusable().outcome(&key).is_none()).cloned();
        slots.push(Slot { key, claim, class, tool, begins, state });
    }
    let performed = recorded.calls.iter().zip(&slots);
    let performed = performed.filter(|(_, slot)| history.reusable().outcome(&slot.key).is_none());
    let most = most_of(turn, performed.map(|(recorded, _)| &recorded.call));
    let runs = slots.iter().any(|slot| matches!(slot.state, State::Run(..)));
    let Reserved { short, .. } = reserve(batch, if runs { most } else { Amount::ZERO }, host).await?;
    Ok(Claimed { slots, most, short })
}

/// Decides what happens to a call that began and has no outcome: run it again, or ask the tool whether it happened.
async fn rule<H: Host>(
    turn: &Turn<'_>,
    (key, claim): (&ReplayKey, ClaimRef),
    call: &PreparedCall,
    attempts: u32,
    host: &mut H,
) -> Result<State, Error> {
    let outcome = match interrupted(call, attempts) {
        Interrupted::Again { attempt } => {
            host.note(Fact::Reclaimed(Reclaimed { claim, attempt }));
            return Ok(State::Run(call.clone(), attempt));
        }
        Interrupted::Probe => probe(turn, call, &turn.held(host)).await,
    };
    conclude(turn, key, &outcome, host).await;
    let actual = outcome.clone();
    let outcome = shown(turn, key, call, outcome, host).await;
    host.note(Fact::Reclaimed(Reclaimed { claim, attempt: attempts }));
    if let ToolOutcome::Done(ToolResult::Ok(value)) = &actual {
        note_undo(undoable(turn.outfit, key, call, value), host);
    }
    let cost = turn.outfit.charged(&call.tool, &outcome);
    host.note(Fact::Answered(Answered { claim, outcome: outcome.clone().into(), cost }));
    Ok(result_of(&outcome).map_or_else(|| State::Pending(call.clone()), State::Settled))
}

/// Settles or releases the payments of an interrupted call, once its outcome is known. If it is unknown, they stay
/// reserved.
async fn conclude<H: Host>(turn: &Turn<'_>, key: &ReplayKey, outcome: &ToolOutcome, host: &mut H) {
    let open: Vec<Payment> = host.history().open_payments(key).cloned().collect();
    let facts = match outcome {
        ToolOutcome::Done(ToolResult::Ok(_)) => turn.world.settle_all(open).await,
        ToolOutcome::Done(ToolResult::Err(_)) => turn.world.free_all(open, "the call did not happen").await,
        ToolOutcome::Pending | ToolOutcome::Unknown => Vec::new(),
    };
    host.note_all(facts);
}

/// Runs the hooks on the outcome that a tool reported for an interrupted call.
async fn shown<H: Host>(
    turn: &Turn<'_>,
    key: &ReplayKey,
    call: &PreparedCall,
    outcome: ToolOutcome,
    host: &mut H,
) -> ToolOutcome {
    let ToolOutcome::Done(result) = outcome else { return outcome };
    let (history, mut changes) = (host.history().clone(), Vec::new());
    let hooks = Hooking::of(turn, &history, host.store(), key);
    let result = after_tool(hooks, call, result, &mut changes).await;
    host.note_all(changes);
    ToolOutcome::Done(result)
}

/// Asks the tool whether an interrupted call happened. If the probe fails, the outcome is unknown.
async fn probe(turn: &Turn<'_>, call: &PreparedCall, held: &Held) -> ToolOutcome {
    let asked = match (turn.outfit.catalogue.provider(&call.tool), whole(turn, call, held).await) {
        (Ok(provider), Ok(call)) => AssertUnwindSafe(provider.probe(&call)).catch_unwind().await,
        (Err(error), _) | (_, Err(error)) => Ok(Err(error)),
    };
    match asked {
        Ok(Ok(Probe::Happened(result))) => ToolOutcome::Done(result),
        Ok(Ok(Probe::DidNotHappen)) => {
            let detail = "the call was interrupted before it happened; it may be asked for again";
            ToolOutcome::Done(ToolResult::Err(Failure::new(Kind::ToolInterrupted, detail)))
        }
        Ok(Ok(Probe::CannotTell) | Err(_)) | Err(_) => ToolOutcome::Unknown,
    }
}

enum Worked {
    Settled,
    Waits(Vec<Wait>),
    /// The reason, and for each call whether it may have begun.
    Cancelled(String, Vec<bool>),
}

/// Runs the calls that have to run. The driver stays here, so every write of the batch goes through one place.
async fn work<H: Host>(
    turn: &Turn<'_>,
    slots: &mut [Slot],
    one_by_one: bool,
    host: &mut H,
) -> Result<Worked, Error> {
    let (to_driver, mut from_calls) = mpsc::channel(MESSAGES);
    let schedule = |slot: &Slot| if one_by_one { Scheduling::Serial } else { scheduling(turn, slot) };
    let schedule: Vec<Scheduling> = slots.iter().map(schedule).collect();
    let mut order = Batch::new(&schedule, turn.world.limits.parallel_tools);
    let mut running = FuturesUnordered::new();
    let mut waiting: BTreeMap<usize, Vec<Wait>> = BTreeMap::new();
    for (index, slot) in slots.iter().enumerate() {
        if let State::Settled(_) = slot.state {
            order.finish(index);
        }
    }
    loop {
        while let Some(index) = order.start() {
            running.push(start(turn, index, &slots[index], host, &to_driver));
        }
        if running.is_empty() {
            return Ok(Worked::Settled);
        }
        if waiting.len() == running.len() {
            return Ok(Worked::Waits(waiting.into_values().flatten().collect()));
        }
        let came = tokio::select! {
            biased;
            message = from_calls.recv() => {
                if let Some(message) = message {
                    take(message, &mut waiting, host).await?;
                }
                continue;
            }
            came = running.next() => came,
            reason = turn.cancel.requested() => {
                let mut patience = turn.world.clock.sleep(turn.world.limits.cancel_grace);
                while running.len() > waiting.len() {
                    tokio::select! {
                        biased;
                        Some(message) = from_calls.recv() => take(message, &mut waiting, host).await?,
                        Some(came) = running.next() => {
                            let came = came?;
                            let (Came::Ran(index, ..) | Came::Completed(index, ..)) = came;
                            settle(turn, &mut slots[index], came, host);
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
                return Ok(Worked::Cancelled(reason, began));
            }
        };
        // Calls that finish at the same time share one write.
        let mut came = came;
        let mut keep = false;
        while let Some(now) = came {
            let now = now?;
            // Facts that the call sent earlier come before its answer.
            while let Ok(message) = from_calls.try_recv() {
                take(message, &mut waiting, host).await?;
            }
            let (Came::Ran(index, ..) | Came::Completed(index, ..)) = now;
            keep |= slots[index].class != EffectClass::Pure;
            if settle(turn, &mut slots[index], now, host) {
                order.finish(index);
            } else {
                keep = true;
                running.push(start(turn, index, &slots[index], host, &to_driver));
            }
            came = poll_immediate(running.next()).await.flatten();
        }
        // The answer of a call that must not run again is written now. Pure answers wait for the next write. The caller
        // writes the last ones.
        if keep && slots.iter().any(|slot| !matches!(slot.state, State::Settled(_))) {
            host.flush().await?;
        }
    }
}

fn scheduling(turn: &Turn<'_>, slot: &Slot) -> Scheduling {
    match &slot.state {
        State::Run(call, _) => {
            contract(turn, call).map(|contract| contract.scheduling.clone()).unwrap_or_default()
        }
        State::Pending(_) | State::Settled(_) => Scheduling::Parallel,
    }
}

pub(crate) fn contract<'a>(turn: &'a Turn<'_>, call: &PreparedCall) -> Option<&'a Contract> {
    turn.outfit.contracts.iter().find(|contract| contract.name == call.tool)
}

/// Returns a call with the references in its arguments replaced by the content.
pub(crate) async fn whole<'c>(
    turn: &Turn<'_>,
    call: &'c PreparedCall,
    held: &Held,
) -> Result<Cow<'c, PreparedCall>, Error> {
    let schema = contract(turn, call).map_or(&Value::Null, |contract| &contract.input);
    held.call(call, schema).await
}

async fn take<H: Host>(
    message: FromCall,
    waiting: &mut BTreeMap<usize, Vec<Wait>>,
    host: &mut H,
) -> Result<(), Error> {
    match message {
        FromCall::Note(fact) => host.note(fact),
        FromCall::Record(fact, Written { values, files, undo }, done) => {
            note_undo(undo, host);
            host.note(fact);
            host.note_values(values);
            host.note_files(files);
            host.flush().await?;
            // The call may have been dropped meanwhile. The fact stays recorded.
            let _ = done.send(());
        }
        FromCall::Reserve(hold, word) => {
            let short = host.reserve(hold).await?.short;
            // The call may have been dropped meanwhile. The reservation then counts as used.
            let _ = word.send(short);
        }
        FromCall::GoesOut(want, word) => {
            host.want(vec![want]).await?;
            host.flush().await?;
            if let Some(pacing) = host.paced().pop() {
                // The call may have been dropped meanwhile. Its permit is then used up.
                let _ = word.send(pacing);
            }
        }
        FromCall::Settle(settled) => {
            for Settlement { key, used, .. } in settled {
                host.settle(&key, used);
            }
        }
        FromCall::WaitedForProvider(time) => host.waited_for_provider(time),
        FromCall::Waits(child, wait) => waiting.entry(child).or_default().push(wait),
    }
    Ok(())
}

/// Records the answer of a call. Returns whether the call has its result now.
fn settle<H: Host>(turn: &Turn<'_>, slot: &mut Slot, came: Came, host: &mut H) -> bool {
    let (State::Run(call, _) | State::Pending(call)) = &slot.state else { return true };
    let result = match came {
        Came::Ran(_, outcome, Written { values, files, undo }) => {
            let result = result_of(&outcome);
            note_undo(undo, host);
            let cost = turn.outfit.charged(&call.tool, &outcome);
            host.note(Fact::Answered(Answered { claim: slot.claim, outcome: outcome.into(), cost }));
            host.note_values(values);
            host.note_files(files);
            result
        }
        Came::Completed(_, resolution, result) => {
            if let (Resolution::Ok(value), None) = (&resolution, host.history().undo_of(&slot.key)) {
                note_undo(undoable(turn.outfit, &slot.key, call, value), host);
            }
            Some(result)
        }
    };
    slot.state = result.map_or_else(|| State::Pending(call.clone()), State::Settled);
    matches!(slot.state, State::Settled(_))
}

/// Fails undo calls that would wait, because an aborted turn does not wait.
fn refuse_to_wait<H: Host>(slots: &mut [Slot], waits: &[Wait], host: &mut H) {
    for slot in slots.iter_mut().filter(|slot| waits.iter().any(|wait| wait.key.is_under(&slot.key))) {
        let detail = "a call that takes another one back cannot wait";
        let result = ToolResult::Err(Failure::new(Kind::ToolFailed, detail));
        if let State::Run(..) = &slot.state {
            let outcome = ToolOutcome::Done(result.clone()).into();
            host.note(Fact::Answered(Answered { claim: slot.claim, outcome, cost: None }));
        }
        slot.state = State::Settled(result);
    }
}

fn note_undo<H: Host>(undo: Option<Undoable>, host: &mut H) {
    if let Some(undo) = undo {
        host.note(Fact::Undoable(undo));
    }
}

/// Returns whether a call of a cancelled turn may have begun, in this process or an earlier one. A call that waits for
/// an approval, a deferral, its rate limit or other calls has not begun.
fn may_have_begun(slot: &Slot, runs: bool, waits: &[Wait], history: &History) -> bool {
    let State::Run(call, attempt) = &slot.state else { return true };
    if *attempt > 1 || history.has_waited_within(&slot.key) {
        return true;
    }
    // A retried call queues for its rate limit again. Only the journal says whether it has been queued since the first
    // attempt.
    let in_line = || history.is_held(&slot.key, call);
    let to_begin = |wait: &Wait| wait.key.admits(&slot.key) && (wait.key != slot.key.rate() || in_line());
    runs && !waits.iter().any(to_begin)
}

/// Records an outcome for every call that did not finish, because the turn is cancelled.
fn give_up<H: Host>(
    turn: &Turn<'_>,
    slots: &mut [Slot],
    waiting: &BTreeMap<usize, Vec<Wait>>,
    order: &Batch<'_>,
    host: &mut H,
) {
    for (index, slot) in slots.iter_mut().enumerate() {
        let State::Run(call, _) = &slot.state else { continue };
        let runs = order.is_running(index) && !waiting.contains_key(&index);
        let failure = match (call.class.may_repeat(), host.history().has_waited_within(&slot.key)) {
            (false, _) if runs => None,
            // Only such a call may be performed by a retry of the turn.
            (false, false) => Some((Kind::ToolInterrupted, "the turn was cancelled before the call began")),
            _ => Some((Kind::ToolCancelled, "the turn was cancelled before the call was done")),
        };
        let outcome = failure.map_or(ToolOutcome::Unknown, |(kind, detail)| {
            ToolOutcome::Done(ToolResult::Err(Failure::new(kind, detail)))
        });
        let cost = turn.outfit.charged(&call.tool, &outcome);
        host.note(Fact::Answered(Answered { claim: slot.claim, outcome: outcome.into(), cost }));
    }
}

/// Returns the future that runs one slot.
fn start<'a, H: Host>(
    turn: &'a Turn<'_>,
    index: usize,
    slot: &Slot,
    host: &H,
    to_driver: &mpsc::Sender<FromCall>,
) -> std::pin::Pin<Box<dyn Future<Output = Result<Came, Error>> + Send + 'a>> {
    let call = match &slot.state {
        State::Run(call, _) | State::Pending(call) => Some(call),
        State::Settled(_) => None,
    };
    let scope = Arc::new(Scope {
        world: turn.world.clone(),
        tier: host.tier(),
        history: host.history().clone(),
        store: host.store().cloned(),
        secret: host.secret(),
        cancel: turn.cancel.clone(),
        session: turn.caller.session,
        turn: turn.caller.turn,
        outfit: turn.outfit.clone(),
        lease: turn.lease,
        metered: host.is_metered(),
        class: slot.class,
        trusted: call.and_then(|call| contract(turn, call)).is_some_and(|contract| contract.trusted),
        labels: call.map(|call| call.labels.clone()).unwrap_or_default(),
        tool: call.map(|call| call.tool.clone()),
        org: turn.org,
        spending: host.spending(),
        heard: turn.heard.clone(),
        child: index,
        key: slot.key.clone(),
        begins: slot.begins,
        to_driver: to_driver.clone(),
        used: Mutex::new(Used::default()),
    });
    match &slot.state {
        State::Run(prepared, attempt) => {
            Box::pin(perform(turn, index, slot.claim, prepared.clone(), *attempt, scope))
        }
        State::Pending(call) => {
            let call = call.clone();
            Box::pin(async move {
                let (resolution, result) = scope.completed(&call).await?;
                Ok(Came::Completed(index, resolution, result))
            })
        }
        State::Settled(_) => unreachable!("a call that has its result is not started"),
    }
}

//! Takes over a batch of calls from the journal. Interrupted calls are resolved before anything runs again.
use super::batch_budget::{most_of, reserve};
use super::claim::{note_result, note_reused, rate_refused};
use super::{BatchCallSlot, BatchCallState, ClaimedBatch, note_undo};
use crate::attachments::attachment_references::AttachmentResolver;
use crate::calls::tool_runner::ToolRunner;
use crate::limits::tool_limits::{taken_over, was_refused};
use crate::policy::hooks::{EffectHooks, after_tool};
use crate::turn::host::{Host, ReservationOutcome};
use crate::turn::undo::undoable;
use futures_util::FutureExt;
use outlast_kernel::replay::{InterruptedCallAction, RecordedBatch, interrupted_call_action};
use outlast_kernel::transcript::result_of;
use outlast_ports::tool::ProbeResult;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{BatchCall, ToolOutcome};
use outlast_vocab::event::LiveEventKind;
use outlast_vocab::message::ToolResult;
use outlast_vocab::payment::Payment;
use outlast_vocab::record::{CallReclaimed, ClaimRef, EffectAnswered, Fact};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use serde_json::Value;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

/// Takes over a batch from the journal. Interrupted calls are resolved, and the decision is durable before anything
/// runs again.
pub(super) async fn take_over<H: Host>(
    turn: &ToolRunner<'_>,
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
                turn.tell(&key, |key| LiveEventKind::Replayed { key });
                let pending = || BatchCallState::Pending(prepared.clone());
                (prepared.class, result_of(outcome).map_or_else(pending, BatchCallState::Settled))
            }
            (BatchCall::Run(prepared), None) if call.parked || history.awaits_start(&key, prepared) => {
                host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt: call.attempts }));
                (prepared.class, BatchCallState::Run(prepared.clone(), call.attempts))
            }
            (BatchCall::Run(prepared), None) => {
                turn.tell(&key, |key| LiveEventKind::Interrupted { key });
                (prepared.class, rule(turn, &key, claim, prepared, call.attempts, host).await?)
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
    turn: &ToolRunner<'_>,
    key: &ReplayKey,
    claim: ClaimRef,
    call: &PreparedCall,
    attempts: u32,
    host: &mut H,
) -> Result<BatchCallState, Error> {
    let outcome = match interrupted_call_action(call, attempts) {
        InterruptedCallAction::Repeat { attempt } => {
            host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt }));
            return Ok(BatchCallState::Run(call.clone(), attempt));
        }
        InterruptedCallAction::Probe => probe(turn, call, &turn.attachments(host.store())).await,
    };
    conclude(turn, key, &outcome, host).await;
    let undo = match &outcome {
        ToolOutcome::Done(ToolResult::Ok(value)) => undoable(turn.run.agent, key, call, value),
        _ => None,
    };
    let outcome = shown(turn, key, call, outcome, host).await;
    host.buffer_fact(Fact::Reclaimed(CallReclaimed { claim, attempt: attempts }));
    note_undo(undo, host);
    let (cost, result) = (turn.run.agent.charged(&call.tool, &outcome), result_of(&outcome));
    host.buffer_fact(Fact::Answered(EffectAnswered { claim, outcome: outcome.into(), cost }));
    Ok(result.map_or_else(|| BatchCallState::Pending(call.clone()), BatchCallState::Settled))
}

/// Settles or releases the payments of an interrupted call, once its outcome is known. If it is unknown, they stay
/// reserved.
async fn conclude<H: Host>(turn: &ToolRunner<'_>, key: &ReplayKey, outcome: &ToolOutcome, host: &mut H) {
    let open: Vec<Payment> = host.history().open_payments(key).cloned().collect();
    let facts = match outcome {
        ToolOutcome::Done(ToolResult::Ok(_)) => turn.services.payments.settle_all(open).await,
        ToolOutcome::Done(ToolResult::Err(_)) => {
            turn.services.payments.free_all(open, "the call did not happen").await
        }
        ToolOutcome::Pending | ToolOutcome::Unknown => Vec::new(),
    };
    host.buffer_facts(facts);
}

/// Runs the hooks on the outcome that a tool reported for an interrupted call.
async fn shown<H: Host>(
    turn: &ToolRunner<'_>,
    key: &ReplayKey,
    call: &PreparedCall,
    outcome: ToolOutcome,
    host: &mut H,
) -> ToolOutcome {
    let ToolOutcome::Done(result) = outcome else { return outcome };
    let mut changes = Vec::new();
    let hooks = EffectHooks::of(&turn.run, &turn.sources.hooks, host.history(), host.store(), key);
    let result = after_tool(hooks, call, result, &mut changes).await;
    host.buffer_facts(changes);
    ToolOutcome::Done(result)
}

/// Asks the tool whether an interrupted call happened. If the probe fails, the outcome is unknown.
async fn probe(turn: &ToolRunner<'_>, call: &PreparedCall, held: &AttachmentResolver) -> ToolOutcome {
    let asked = match (turn.run.agent.catalogue.provider(&call.tool), whole(turn, call, held).await) {
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

/// Returns a call with the references in its arguments replaced by the content.
async fn whole<'c>(
    turn: &ToolRunner<'_>,
    call: &'c PreparedCall,
    held: &AttachmentResolver,
) -> Result<Cow<'c, PreparedCall>, Error> {
    let contract = turn.run.agent.contract_of(&call.tool);
    held.call(call, contract.map_or(&Value::Null, |contract| &contract.input)).await
}

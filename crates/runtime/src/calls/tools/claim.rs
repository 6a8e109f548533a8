//! Claims the calls of a batch: prepares and records them before any of them runs.
use super::batch_budget::{most_of, reserve};
use super::take_over::take_over;
use super::{BatchCallSlot, BatchCallState, ClaimedBatch, note_undo};
use crate::calls::preparation::{CallRequest, prepare};
use crate::calls::tool_runner::ToolRunner;
use crate::limits::tool_limits::{CallPermit, admission_requests_of};
use crate::policy::grants::note_grants;
use crate::policy::hooks::EffectHooks;
use crate::turn::host::{Host, ReservationOutcome};
use outlast_kernel::replay::TurnHistory;
use outlast_kernel::retry::ReusableCall;
use outlast_kernel::step::RunToolsStep;
use outlast_kernel::transcript::result_of;
use outlast_ports::rate::AdmissionDecision;
use outlast_vocab::effect::{BatchCall, EffectKind, RefusedCall, ToolBatch, ToolOutcome};
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{ClaimRef, EffectAnswered, EffectRequested, Fact, UndoableCall};
use outlast_vocab::tool::{EffectClass, PreparedCall};
use outlast_vocab::{Error, Failure, Kind, ReplayKey};
use std::collections::BTreeMap;

/// Rejects all calls of a batch if a rule ends the turn because of one of them.
fn refuse_all_if_interrupted(calls: Vec<BatchCall>) -> Vec<BatchCall> {
    let interrupts = |call: &BatchCall| match call {
        BatchCall::Refused(refused) if refused.failure.code == Kind::PolicyInterrupted => {
            Some(refused.failure.clone())
        }
        _ => None,
    };
    let Some(failure) = calls.iter().find_map(interrupts) else { return calls };
    let refuse = |call| match call {
        BatchCall::Run(PreparedCall { model_id, tool, ruling, labels, provenance, .. }) => {
            let (refused, ruling) = (RefusedCall::new(model_id, tool, failure.clone()), ruling.map(Box::new));
            BatchCall::Refused(RefusedCall { ruling, labels, provenance, ..refused })
        }
        refused @ BatchCall::Refused(_) => refused,
    };
    calls.into_iter().map(refuse).collect()
}

/// Claims the calls: prepares and records them before any of them runs, or takes them over from the journal.
pub(super) async fn claim<H: Host>(
    turn: &ToolRunner<'_>,
    batch: &RunToolsStep,
    host: &mut H,
) -> Result<ClaimedBatch, Error> {
    host.begin_effect(batch.key(), EffectKind::ToolBatch)?;
    let history = host.history().clone();
    if let Some(recorded) = history.batch(batch.key(), batch.calls().map(|(ask, _)| ask))? {
        return take_over(turn, batch.key(), recorded, host).await;
    }
    let labels = turn.sources.labels_after(turn.run.agent, batch.read());
    let trusted = turn.sources.trusted_text(turn.run.agent, batch, &labels, host.store()).await?;
    let around = turn.run.agent.circumstances(turn.run.org, host.spending());
    let (mut calls, mut changes) = (Vec::new(), Vec::new());
    let reusable = history.reusable();
    for (index, (ask, refused)) in batch.calls().enumerate() {
        let key = batch.key().child(index, ask.id.as_str());
        if let Some(reused) = reusable.call(&key) {
            calls.push(reused.call.clone());
            continue;
        }
        let mut call = if let Some(failure) = refused.cloned() {
            BatchCall::Refused(RefusedCall::new(ask.id.clone(), ask.tool.clone(), failure))
        } else {
            let hooks = EffectHooks::of(&turn.run, &turn.sources.hooks, &history, host.store(), &key);
            let cancel = &turn.cancel;
            let request = CallRequest { ask, labels: &labels, trusted: &trusted, around: &around, cancel };
            prepare(hooks, request, &turn.attachments(host.store()), &mut changes).await.call
        };
        if let (BatchCall::Run(call), Some(id)) = (&mut call, reusable.call_id(&key)) {
            call.id = id;
        }
        calls.push(call);
    }
    let mut calls = refuse_all_if_interrupted(calls);
    note_grants(turn.run.agent, turn.run.caller.session, host.store(), &mut calls).await?;
    host.buffer_facts(changes);
    let known = |index: usize, call: &BatchCall| {
        let key = batch.key().child(index, call.model_id().as_str());
        reusable.outcome(&key).filter(|_| matches!(call, BatchCall::Run(_))).cloned()
    };
    let mut admission_requests =
        admission_requests_of(turn.run.agent, &turn.services.models.limits, batch.key(), &calls);
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

pub(super) fn rate_refused(failure: Failure) -> BatchCallState {
    BatchCallState::Settled(ToolResult::Err(failure))
}

/// Records the result of a call that did not run.
pub(super) fn note_result<H: Host>(slot: &BatchCallSlot, host: &mut H) {
    if let BatchCallState::Settled(result) = &slot.state {
        let outcome = ToolOutcome::Done(result.clone()).into();
        host.buffer_fact(Fact::Answered(EffectAnswered { claim: slot.claim, outcome, cost: None }));
    }
}

/// Records the outcome of a call that is reused from the turn that this one retries. It costs nothing here.
pub(super) fn note_reused<H: Host>(slot: &BatchCallSlot, history: &TurnHistory, host: &mut H) {
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

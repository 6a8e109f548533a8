//! The budget of a batch of calls: what it may use, and what it used.
use super::{BatchCallSlot, BatchCallState};
use crate::calls::tool_runner::ToolRunner;
use crate::limits::budget_meter::{calls, hold_calls, most, price_of, short_of};
use crate::turn::host::{Host, ReservationOutcome};
use outlast_ports::budget::{BudgetReservation, BudgetShortfall};
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{BatchCall, ToolOutcome};
use outlast_vocab::message::{Message, ToolName, ToolResult};
use outlast_vocab::record::{EffectAnswered, Fact};
use outlast_vocab::{Error, Failure, Kind, ReplayKey};

/// The overhead of a tool message, with the names of its call and tool.
const RESULT_BYTES: usize = 256;

/// The model call that follows a batch.
pub(super) struct NextModelCall<'b> {
    pub(super) key: ReplayKey,
    /// The messages of the turn before the results.
    pub(super) messages: &'b [Message],
    pub(super) results: Vec<&'b ToolResult>,
}

/// Writes the last answers of a batch, together with the budget reservation for the following model call.
pub(super) async fn next_call<H: Host>(
    turn: &ToolRunner<'_>,
    next: Option<NextModelCall<'_>>,
    host: &mut H,
) -> Result<(), Error> {
    let known = turn.services.models.catalogue.find(&turn.run.agent.package.model).map(|(_, info)| info);
    let (Some(NextModelCall { key, messages, results }), Ok(info), true) = (next, known, host.is_metered())
    else {
        return host.flush().await.map(drop);
    };
    let before = host.conversation().messages().clone();
    let message_bytes: usize = before.iter().chain(messages).map(Message::request_bytes_max).sum();
    let result_bytes: usize = results.iter().map(|result| result.request_bytes_max() + RESULT_BYTES).sum();
    let bytes = turn.run.agent.prompt_bytes_most() + message_bytes + result_bytes;
    let most = most(info, bytes, turn.run.agent.reply_tokens(&turn.services.models.limits));
    host.reserve_ahead(BudgetReservation::new(key, most, price_of(info))).await
}

/// Writes the claims and reserves budget for the calls. Undo calls need no budget.
pub(super) async fn reserve<H: Host>(
    batch: &ReplayKey,
    most: UsageAmount,
    host: &mut H,
) -> Result<ReservationOutcome, Error> {
    if most == UsageAmount::ZERO || batch.is_undo() {
        return Ok(ReservationOutcome { last: host.flush().await?, short: None });
    }
    host.reserve(hold_calls(batch, most)).await
}

/// Returns the most that the calls of a batch may use.
pub(super) fn most_of<'c>(turn: &ToolRunner<'_>, batch: impl Iterator<Item = &'c BatchCall>) -> UsageAmount {
    calls(batch.filter_map(|call| match call {
        BatchCall::Run(call) => Some(turn.run.agent.contract_of(&call.tool)),
        BatchCall::Refused(_) => None,
    }))
}

/// Returns what the calls used. A failed call costs nothing.
pub(super) fn used_of(turn: &ToolRunner<'_>, slots: &[BatchCallSlot], most: UsageAmount) -> UsageAmount {
    let failed = slots.iter().filter_map(|slot| match &slot.state {
        BatchCallState::Settled(ToolResult::Err(failure)) if failure.code != Kind::ToolOutcomeUnknown => {
            slot.tool.as_ref()
        }
        _ => None,
    });
    let failed = calls(failed.map(|tool| turn.run.agent.contract_of(tool)));
    UsageAmount { calls: most.calls, ..most.saturating_sub(failed) }
}

/// Returns the usage of a cancelled batch, and the part of it whose outcome is unknown. Calls that never began used
/// nothing.
pub(super) fn used_when_cut(
    turn: &ToolRunner<'_>,
    slots: &[BatchCallSlot],
    began: &[bool],
) -> (UsageAmount, UsageAmount) {
    let of = |tool: &ToolName| turn.run.agent.contract_of(tool);
    let price = |slot: &BatchCallSlot| calls(slot.tool.iter().map(of));
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
pub(super) fn refuse<H: Host>(slots: &[BatchCallSlot], short: &BudgetShortfall, host: &mut H) {
    for slot in slots.iter().filter(|slot| matches!(slot.state, BatchCallState::Run(..))) {
        let result = ToolResult::Err(Failure::from(&short_of(short)));
        let outcome = ToolOutcome::Done(result).into();
        host.buffer_fact(Fact::Answered(EffectAnswered { claim: slot.claim, outcome, cost: None }));
    }
}

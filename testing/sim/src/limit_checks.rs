//! Checks the limits of turns: no budget is overspent, untrusted text causes no call, hook output is read back, each
//! payment is made once, and no rate limit is exceeded.
use crate::effect_recorder::ObservedEffects;
use crate::oracle::OracleFindings;
use crate::plan::SimPlan;
use crate::sim_process::SimSharedState;
use outlast_conformance::block_on;
use outlast_kernel::provenance::{TrustedText, provenance};
use outlast_ports::budget::BudgetStore;
use outlast_ports::payment::PaymentAuthority as _;
use outlast_store::SqliteStore;
use outlast_views::BudgetAccountView;
use outlast_vocab::budget::UsageAmount;
use outlast_vocab::effect::{BatchCall, Command, Outcome};
use outlast_vocab::label::TrustGuard;
use outlast_vocab::package::Package;
use outlast_vocab::payment::{AuthorityPaymentState, PaymentState};
use outlast_vocab::policy::{Approval, ApprovalVerdict};
use outlast_vocab::record::{EffectPerformed, EffectRequested, Fact, Record};
use outlast_vocab::tool::{PreparedCall, ToolContract};
use outlast_vocab::wait::Resolution;
use outlast_vocab::{Error, ReplayKey};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Checks all sessions of a run together.
pub(crate) fn check_limits(
    plan: &SimPlan,
    store: &SqliteStore,
    origin: &SimSharedState,
    seen: &ObservedEffects,
    found: &mut OracleFindings,
) -> Result<(), Error> {
    let agent = origin.agent()?;
    budgets(plan, store, &agent, seen, found)?;
    rates(plan, &agent, seen, found);
    Ok(())
}

/// Checks one session by its records.
pub(crate) fn judge_session(
    records: &[Record],
    origin: &SimSharedState,
    contracts: &[ToolContract],
    seen: &ObservedEffects,
    found: &mut OracleFindings,
) -> Result<(), Error> {
    let agent = origin.agent()?;
    for (key, call) in calls(records) {
        labels(records, &key, call, &agent, contracts, seen, found);
        hooked_call(call, seen, found);
    }
    hooks(records, found);
    payments(records, origin, found)
}

/// Checks that no budget is overspent, nothing stays reserved, and at least the requested amount is booked.
fn budgets(
    plan: &SimPlan,
    store: &SqliteStore,
    agent: &Package,
    seen: &ObservedEffects,
    found: &mut OracleFindings,
) -> Result<(), Error> {
    let Some(brought) = &agent.budgets.agent else { return Ok(()) };
    let budgets = block_on(store.budgets(usize::MAX))?;
    let Some(BudgetAccountView { operator_budget: set, spent, reserved: held, .. }) =
        budgets.into_iter().find(|budget| budget.name == "agent:sim")
    else {
        found.check(false, || "nothing was booked in the agent's budget".to_owned());
        return Ok(());
    };
    let most = set.as_ref().unwrap_or(brought).calls.unwrap_or(u64::MAX);
    found.check(spent.calls <= most, || format!("{} calls were booked, and {most} allowed", spent.calls));
    found.check(held == UsageAmount::ZERO, || format!("{held:?} is left reserved"));
    let executed: BTreeSet<_> = seen.ran_calls.iter().map(|did| did.call).collect();
    let has_failures = !plan.model_faults.is_empty() || !plan.outages.is_empty();
    let asked = if has_failures { seen.asked.len() as u64 } else { seen.requests };
    let used = asked + executed.len() as u64;
    found.check(used <= spent.calls, || format!("{used} calls were made, and {} booked", spent.calls));
    Ok(())
}

/// Checks that a call which untrusted text may have caused ran only after an approval.
fn labels(
    records: &[Record],
    key: &ReplayKey,
    call: &PreparedCall,
    agent: &Package,
    contracts: &[ToolContract],
    seen: &ObservedEffects,
    found: &mut OracleFindings,
) {
    let Some(contract) = contracts.iter().find(|contract| contract.name == call.tool) else { return };
    let ran = seen.ran_calls.iter().any(|did| did.call == call.id);
    // No tool here names sink arguments, so no value can clear a call.
    let matters = provenance(Some(contract), &call.arguments, &TrustedText::default()).is_tainted();
    if agent.guard.is_open() || call.labels.is_empty() || !ran || !matters {
        return;
    }
    let approved = records.iter().any(|record| match &record.fact {
        Fact::Performed(EffectPerformed {
            key: at,
            outcome: Outcome::AwaitEvent(Resolution::Ok(word)),
            ..
        }) => {
            let word = Approval::deserialize(word);
            at.blocks_start_of(key) && word.is_ok_and(|word| word.verdict == ApprovalVerdict::Approve)
        }
        _ => false,
    });
    found.check(approved && agent.guard == TrustGuard::Guarded, || {
        format!("{key} ran, although {} may have asked for it", call.labels)
    });
}

/// Checks that a call ran with the claimed arguments, even if its hooks would now return others.
fn hooked_call(call: &PreparedCall, seen: &ObservedEffects, found: &mut OracleFindings) {
    let claimed = call.arguments["text"].as_str().unwrap_or_default();
    for took in seen.ran_arguments.get(&call.id).into_iter().flatten() {
        found.check(took == claimed, || {
            format!("{} was claimed with `{claimed}` and ran with `{took}`", call.id)
        });
    }
}

/// Checks that each change by a hook is recorded once.
fn hooks(records: &[Record], found: &mut OracleFindings) {
    let mut changed = BTreeMap::new();
    for record in records {
        if let Fact::Hooked(hooked) = &record.fact {
            *changed.entry((hooked.key.clone(), hooked.hook.to_string())).or_insert(0) += 1;
        }
    }
    for ((key, hook), times) in changed {
        found.check(times == 1, || format!("`{hook}` changed {key} {times} times"));
    }
}

/// Checks that the payments in the journal match those at the payment authority. A payment that was only requested has
/// an unknown state. Nothing is paid that is missing from the journal.
fn payments(records: &[Record], origin: &SimSharedState, found: &mut OracleFindings) -> Result<(), Error> {
    let mut written: BTreeMap<_, &PaymentState> = BTreeMap::new();
    for record in records {
        if let Fact::Payment(payment) = &record.fact {
            written.insert(payment.id, &payment.state);
        }
    }
    for (id, state) in &written {
        let made = block_on(origin.cashbox.find(*id))?;
        let agrees = matches!(
            (state, &made),
            (PaymentState::Asked, _)
                | (PaymentState::Reserved, Some(AuthorityPaymentState::Reserved))
                | (
                    PaymentState::Settling,
                    Some(AuthorityPaymentState::Reserved | AuthorityPaymentState::Settled { .. })
                )
                | (
                    PaymentState::Releasing { .. },
                    Some(AuthorityPaymentState::Reserved | AuthorityPaymentState::Released) | None
                )
                | (PaymentState::Settled { .. }, Some(AuthorityPaymentState::Settled { .. }))
                | (PaymentState::Released { .. }, Some(AuthorityPaymentState::Released) | None)
        );
        found.check(agrees, || format!("the journal has {state:?} of {id}, the cashbox {made:?}"));
    }
    let made = origin.cashbox.payments().len();
    found.check(made <= written.len(), || format!("{made} payments were made, {} written", written.len()));
    Ok(())
}

/// Checks that the rate limit held in every time span, if no clock was wrong.
fn rates(plan: &SimPlan, agent: &Package, seen: &ObservedEffects, found: &mut OracleFindings) {
    let Some(rate) = agent.rates.first().filter(|_| plan.is_strict()) else { return };
    for pair in seen.times.windows(2) {
        let gap = (pair[1] - pair[0]) * 1_000;
        found.check(gap >= rate.every(), || format!("two calls went out within {gap} µs"));
    }
}

/// Returns every claimed call with its position.
fn calls(records: &[Record]) -> impl Iterator<Item = (ReplayKey, &PreparedCall)> {
    let batches = records.iter().filter_map(|record| match &record.fact {
        Fact::Asked(EffectRequested { key, command: Command::ToolBatch(batch) }) => Some((key, batch)),
        _ => None,
    });
    batches.flat_map(|(key, batch)| {
        batch.calls.iter().enumerate().filter_map(move |(child, call)| match call {
            BatchCall::Run(call) => Some((key.child(child, call.model_id.as_str()), call)),
            BatchCall::Refused(_) => None,
        })
    })
}

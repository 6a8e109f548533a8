//! Checks what a provider outage may do to turns: none fails before its patience is over, a retry repeats no at-most-once
//! call, and waiting turns wake at a pace.
use crate::effect_recorder::ObservedEffects;
use crate::model;
use crate::oracle::OracleFindings;
use crate::plan::{ProviderOutage, SimPlan};
use crate::scenario::{Scenario, ScriptedReply, UserActionKind};
use crate::sim_process::SimSharedState;
use crate::sim_time::BEGAN;
use crate::tools::AT_MOST_ONCE;
use outlast_vocab::record::{Fact, Record, TurnEnd};
use outlast_vocab::wait::WaitKind;
use outlast_vocab::{Kind, Millis, SessionId};
use std::collections::BTreeMap;

/// When each session parked to wait for its provider, in milliseconds since the start of the world.
#[derive(Default)]
pub(crate) struct ProviderParks(BTreeMap<SessionId, Vec<u64>>);

/// Checks that retries of a session repeat no at-most-once call.
pub(crate) fn judge_retries(
    scenario: &Scenario,
    session: SessionId,
    seen: &ObservedEffects,
    found: &mut OracleFindings,
) {
    if has(scenario, |act| matches!(act, UserActionKind::Retry(_))) {
        for tool in AT_MOST_ONCE {
            let (ran, scripted) = (seen.count(session, tool), scripted_calls(scenario, tool));
            found.check(ran <= scripted, || {
                format!("{session}: {tool} ran {ran} times, and the model asked for {scripted}")
            });
        }
    }
}

/// Checks that a turn fails for its provider only after it has waited for as long as it may.
pub(crate) fn judge_patience(records: &[Record], origin: &SimSharedState, found: &mut OracleFindings) {
    let waits = |kind| [Kind::ModelUnavailable, Kind::ModelStalled].contains(&kind);
    for ended in records {
        let Fact::Ended { end: TurnEnd::Failed { failure }, .. } = &ended.fact else { continue };
        let accepted =
            |record: &&Record| record.turn == ended.turn && matches!(record.fact, Fact::Accepted(_));
        let (Some(accepted), true) = (records.iter().find(accepted), waits(failure.code)) else { continue };
        let lasted = accepted.at.until(ended.at);
        found.check(lasted >= origin.limits.provider_wait, || {
            format!("{:?} failed after {lasted:?}, before its patience was over: {failure:?}", ended.turn)
        });
    }
}

fn has(scenario: &Scenario, fits: impl Fn(UserActionKind) -> bool) -> bool {
    scenario.acts.iter().any(|act| fits(act.what))
}

/// Returns how often the model of a scenario calls a tool.
fn scripted_calls(scenario: &Scenario, tool: &str) -> usize {
    let calls = scenario.lines.iter().filter_map(|line| match line {
        ScriptedReply::Call(calls) | ScriptedReply::CallOnceUp(_, calls) => Some(*calls),
        _ => None,
    });
    calls.flatten().filter(|(name, _)| *name == tool).count()
}

impl ProviderParks {
    /// Adds a session, unless a person wakes its turn.
    pub(crate) fn add(&mut self, scenario: &Scenario, session: SessionId, records: &[Record]) {
        if has(scenario, |act| matches!(act, UserActionKind::Wake(_))) {
            return;
        }
        let parks = records.iter().filter_map(|record| match &record.fact {
            Fact::Parked { waits } => {
                let waits_for_provider = waits.iter().any(|wait| wait.kind == WaitKind::Provider);
                waits_for_provider.then(|| Millis(BEGAN).until(record.at).as_millis())
            }
            _ => None,
        });
        self.0.insert(session, parks.filter_map(|at| u64::try_from(at).ok()).collect());
    }

    /// Checks that waiting turns wake at a pace once the provider is back: each process wakes one at a time, and one more
    /// may wake because its deadline passes. A process that restarts finds several passed deadlines at once, so this holds
    /// only without faults.
    pub(crate) fn check_pace(
        &self,
        plan: &SimPlan,
        origin: &SimSharedState,
        seen: &ObservedEffects,
        found: &mut OracleFindings,
    ) {
        if !plan.faults.is_empty() || plan.has_fallback {
            return;
        }
        let apart_ms = u64::try_from(origin.limits.provider_wake_apart.as_millis()).unwrap_or(u64::MAX);
        for outage in plan.outages.iter().filter(|outage| outage.model == model::NAME) {
            let woken = self.woken(outage, seen);
            for first in &woken {
                let together = woken.iter().filter(|at| (*first..first + apart_ms).contains(*at)).count();
                found.check(together <= 2 * plan.workers, || {
                    format!("{together} turns woke within {apart_ms} ms after the outage: {woken:?}")
                });
            }
        }
    }

    /// Returns when each session that waited as an outage ended made its next request.
    fn woken(&self, outage: &ProviderOutage, seen: &ObservedEffects) -> Vec<u64> {
        let woken = self.0.iter().filter_map(|(session, parks)| {
            let during = outage.from_ms..outage.until_ms;
            let parked_ms = *parks.iter().rfind(|at| during.contains(*at))?;
            let requests = seen.model_requests.iter().filter(|request| request.session == *session);
            let next = requests.map(|request| request.at_ms).find(|at| *at > parked_ms)?;
            (next >= outage.until_ms).then_some(next)
        });
        woken.collect()
    }
}

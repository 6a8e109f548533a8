//! Checks what a provider outage may do to turns: none fails before its patience is over, a retry repeats no at-most-once
//! call, and waiting turns wake at a pace.
use crate::effect_recorder::ObservedEffects;
use crate::model;
use crate::oracle::OracleFindings;
use crate::plan::{ProviderOutage, SimPlan};
use crate::scenario::{Scenario, ScriptedReply, UserActionKind};
use crate::sim_process::SimSharedState;
use crate::sim_time::BEGAN;
use crate::task_scheduler::SimProcessNo;
use crate::tools::AT_MOST_ONCE;
use outlast_vocab::record::{Fact, Record, TurnEnd};
use outlast_vocab::wait::Wait;
use outlast_vocab::{Kind, Millis, SessionId};
use std::collections::BTreeMap;

/// When turns parked to wait for their provider.
#[derive(Default)]
pub(crate) struct ProviderParks(BTreeMap<SessionId, Vec<ProviderPark>>);

/// A wait of a turn for its provider, in milliseconds since the start of the world.
struct ProviderPark {
    parked_ms: u64,
    /// When the turn ended.
    ended_ms: u64,
}

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
        let age_ms =
            |record: &Record| u64::try_from(Millis(BEGAN).until(record.at).as_millis()).unwrap_or(u64::MAX);
        let waits_for_provider = |record: &&Record| {
            let is_for_provider = |wait: &Wait| wait.key.awaited_provider().is_some();
            matches!(&record.fact, Fact::Parked { waits } if waits.iter().any(is_for_provider))
        };
        let ended_ms = |parked: &Record| {
            let ends =
                |record: &&Record| record.turn == parked.turn && matches!(record.fact, Fact::Ended { .. });
            records.iter().find(ends).map_or(u64::MAX, age_ms)
        };
        let park = |parked: &Record| ProviderPark { parked_ms: age_ms(parked), ended_ms: ended_ms(parked) };
        self.0.insert(session, records.iter().filter(waits_for_provider).map(park).collect());
    }

    /// Checks that the turns that waited for a provider call it at a pace once it is back. Each process paces its own
    /// calls, however often others died before.
    pub(crate) fn check_pace(
        &self,
        plan: &SimPlan,
        origin: &SimSharedState,
        seen: &ObservedEffects,
        found: &mut OracleFindings,
    ) {
        // With a wrong clock, records do not show when a turn parked. With a fallback, the first call after a wait may go to either model.
        if plan.has_clock_jump() || plan.has_fallback {
            return;
        }
        let apart_ms = u64::try_from(origin.limits.provider_wake_apart.as_millis()).unwrap_or(u64::MAX);
        for outage in plan.outages.iter().filter(|outage| outage.model == model::NAME) {
            for (life, woken) in self.woken(outage, seen) {
                let too_close = woken.windows(2).any(|pair| pair[1] - pair[0] < apart_ms);
                found.check(!too_close, || {
                    format!(
                        "turns woke less than {apart_ms} ms apart after the outage, in life {life}: {woken:?}"
                    )
                });
            }
        }
    }

    /// Returns when the turns that waited as an outage ended made their next requests, in order, by process.
    fn woken(&self, outage: &ProviderOutage, seen: &ObservedEffects) -> BTreeMap<SimProcessNo, Vec<u64>> {
        let mut woken: BTreeMap<SimProcessNo, Vec<u64>> = BTreeMap::new();
        for (session, parks) in &self.0 {
            let during = outage.from_ms..outage.until_ms;
            let Some(park) = parks.iter().rfind(|park| during.contains(&park.parked_ms)) else { continue };
            let next = seen.model_requests.iter().find(|request| {
                request.session == *session && (park.parked_ms + 1..=park.ended_ms).contains(&request.at_ms)
            });
            if let Some(next) = next.filter(|next| next.at_ms >= outage.until_ms) {
                woken.entry(next.life).or_default().push(next.at_ms);
            }
        }
        for times in woken.values_mut() {
            times.sort_unstable();
        }
        woken
    }
}

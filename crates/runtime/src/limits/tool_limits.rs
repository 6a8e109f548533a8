//! Rate limits for tool calls, kept by the store or by an external [`RateLimiter`].
//!
//! Decides which calls of a batch ask for a permit, and reads recorded decisions from the journal. The waiting itself
//! is in [`crate::calls::tool_call_scope`].
use crate::agents::resolved_agent::ResolvedAgent;
use futures_util::future::{Either, select};
use outlast_kernel::call_batch::CallBatch;
use outlast_kernel::rate::rates_of;
use outlast_kernel::replay::TurnHistory;
use outlast_ports::clock::Clock;
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest, LimiterRequest, RateLimiter, rejection_of};
use outlast_vocab::effect::BatchCall;
use outlast_vocab::id::OrgId;
use outlast_vocab::message::{RateName, ToolName};
use outlast_vocab::rate::{
    AdmissionAttempt, RateAdmission, RateLimit, RateLimitOutcome, RateLimited, WhenDown,
};
use outlast_vocab::record::Fact;
use outlast_vocab::tool::CallScheduling;
use outlast_vocab::{Error, Failure, Kind, Limits, Millis, ReplayKey};
use std::sync::Arc;
use std::time::Duration;

/// When a call may begin, according to its rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPermit {
    /// Immediately: it began before, or it undoes a call and is exempt.
    Now,
    /// Its rate limits have not been checked yet.
    Unasked,
    /// Its rate limits allow it at this time.
    From(Millis),
    /// It is queued, and checks again at this time.
    Waits(Millis),
}

impl CallPermit {
    /// Converts a decision of the store or limiter. Returns the failure if the call was rejected.
    pub(crate) fn of(decision: AdmissionDecision) -> Result<Self, Failure> {
        match decision {
            AdmissionDecision::Admitted(at) => Ok(Self::From(at)),
            AdmissionDecision::Queued(until) => Ok(Self::Waits(until)),
            AdmissionDecision::Rejected(failure) => Err(failure),
        }
    }
}

/// Returns permit requests for the calls of a new batch that start immediately. A call that waits for an approval, or
/// for other calls of its batch, asks later.
pub(crate) fn admission_requests_of(
    agent: &ResolvedAgent,
    limits: &Limits,
    batch: &ReplayKey,
    calls: &[BatchCall],
) -> Vec<AdmissionRequest> {
    if agent.package.rates.is_empty() || batch.is_part_of_undo() {
        return Vec::new();
    }
    let requests = |index: usize| match &calls[index] {
        BatchCall::Run(call) if !call.is_held() => {
            let key = batch.child(index, call.model_id.as_str());
            admission_request(&agent.package.rates, key, &call.tool, limits)
        }
        BatchCall::Run(_) | BatchCall::Refused(_) => None,
    };
    at_once(agent, limits.parallel_tools, calls).into_iter().filter_map(requests).collect()
}

/// Returns the calls of a batch that start before any other has ended, in order.
fn at_once(agent: &ResolvedAgent, parallel_tools: usize, calls: &[BatchCall]) -> Vec<usize> {
    let schedule = |call: &BatchCall| match call {
        BatchCall::Run(call) => {
            agent.contract_of(&call.tool).map(|contract| contract.scheduling.clone()).unwrap_or_default()
        }
        BatchCall::Refused(_) => CallScheduling::Parallel,
    };
    let schedule: Vec<CallScheduling> = calls.iter().map(schedule).collect();
    let mut order = CallBatch::new(&schedule, parallel_tools);
    for (index, _) in calls.iter().enumerate().filter(|(_, call)| matches!(call, BatchCall::Refused(_))) {
        order.finish(index);
    }
    let mut begin: Vec<usize> = std::iter::from_fn(|| order.start()).collect();
    begin.sort_unstable();
    begin
}

/// Returns the permit request of a call, if a rate limit applies to its tool.
pub(crate) fn admission_request(
    rates: &[RateLimit],
    key: ReplayKey,
    tool: &ToolName,
    limits: &Limits,
) -> Option<AdmissionRequest> {
    let rates: Vec<RateLimit> = rates_of(rates, tool).cloned().collect();
    let falls = !rates.is_empty();
    falls.then_some(AdmissionRequest {
        key,
        rates,
        attempt: AdmissionAttempt::First,
        wait_most: limits.rate_wait,
    })
}

/// Returns when a call may begin, according to the journal.
pub(crate) fn taken_over(history: &TurnHistory, call: &ReplayKey) -> CallPermit {
    match history.paced(call) {
        _ if call.is_part_of_undo() || history.parked_after_start(call) => CallPermit::Now,
        Some(RateLimited { pace: RateLimitOutcome::Waits { until }, .. }) => CallPermit::Waits(*until),
        Some(_) | None => CallPermit::Unasked,
    }
}

/// Returns why a rate limit rejected a call, if the journal says so.
pub(crate) fn was_refused<'h>(history: &'h TurnHistory, call: &ReplayKey) -> Option<&'h Failure> {
    match history.paced(call).map(|limited| &limited.pace) {
        Some(RateLimitOutcome::Refused { failure }) => Some(failure),
        Some(RateLimitOutcome::Waits { .. } | RateLimitOutcome::Goes) | None => None,
    }
}

/// A rate limiter outside this process.
#[derive(Clone)]
pub(crate) struct ExternalRateLimiter {
    pub(crate) limiter: Arc<dyn RateLimiter>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long an answer may take.
    pub(crate) deadline: Duration,
}

impl ExternalRateLimiter {
    /// Asks for a permit. Also returns the fact to record, unless the call goes out immediately.
    pub(crate) async fn admit(
        &self,
        org: OrgId,
        request: AdmissionRequest,
    ) -> (AdmissionDecision, Option<Fact>) {
        let AdmissionRequest { key, rates, attempt: asks, wait_most } = request;
        let (now, deadline) = (self.clock.now(), self.deadline);
        let first = rates.first().map(|rate| rate.name.clone());
        let closed =
            rates.iter().find(|rate| rate.when_down == WhenDown::Closed).map(|rate| rate.name.clone());
        let asked = self.limiter.admit(LimiterRequest { org, rates, attempt: asks, wait_most, now });
        let answer = match select(asked, self.clock.sleep(deadline)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => {
                let detail = format!("the limiter did not answer within {} ms", deadline.as_millis());
                Err(Error::new(Kind::RateUnavailable, detail))
            }
        };
        match (answer, closed) {
            (Ok(RateAdmission::Admitted), _) => {
                let waited = first.filter(|_| asks == AdmissionAttempt::Again);
                (
                    AdmissionDecision::Admitted(self.clock.now()),
                    waited.map(|rate| rate_limited(key, rate, RateLimitOutcome::Goes)),
                )
            }
            (Ok(RateAdmission::Queued(until, rate)), _) => (
                AdmissionDecision::Queued(until),
                Some(rate_limited(key, rate, RateLimitOutcome::Waits { until })),
            ),
            (Ok(RateAdmission::Rejected(free, rate)), _) => {
                refused(key, rate.clone(), rejection_of(&rate, free, now))
            }
            (Err(error), Some(rate)) => {
                let detail = format!("the state of the rate `{rate}` is unknown: {}", error.detail());
                refused(key, rate, Failure::new(Kind::RateUnavailable, detail))
            }
            (Err(error), None) => {
                tracing::warn!(%error, "the limiter is down; the call is allowed, as its rate says");
                let waited = first.filter(|_| asks == AdmissionAttempt::Again);
                (
                    AdmissionDecision::Admitted(self.clock.now()),
                    waited.map(|rate| rate_limited(key, rate, RateLimitOutcome::Goes)),
                )
            }
        }
    }
}

fn refused(key: ReplayKey, rate: RateName, failure: Failure) -> (AdmissionDecision, Option<Fact>) {
    let pace = RateLimitOutcome::Refused { failure: failure.clone() };
    (AdmissionDecision::Rejected(failure), Some(rate_limited(key, rate, pace)))
}

fn rate_limited(key: ReplayKey, rate: RateName, pace: RateLimitOutcome) -> Fact {
    Fact::Paced(RateLimited { key, rate, pace })
}

//! The rate limits of the calls of a turn: decided by the store with a commit, or by a limiter outside.
use crate::limits::tool_limits::ExternalRateLimiter;
use outlast_ports::rate::{AdmissionDecision, AdmissionRequest};
use outlast_vocab::id::OrgId;
use outlast_vocab::record::Fact;

/// Decides the rate limits of one turn's calls.
pub(crate) struct TurnPermits {
    org: OrgId,
    /// The rate limiter for tool calls. `None` means the store.
    limiter: Option<ExternalRateLimiter>,
    /// The decisions that were made last.
    decisions: Vec<AdmissionDecision>,
}

/// What a request for permits adds to the next commit.
#[derive(Default)]
pub(super) struct PermitWrites {
    /// Requests that the store decides.
    pub(super) requests: Vec<AdmissionRequest>,
    /// Facts about calls that the limiter has decided.
    pub(super) facts: Vec<Fact>,
}

impl TurnPermits {
    /// Decides the calls of this organisation.
    pub(crate) fn new(org: OrgId, limiter: Option<ExternalRateLimiter>) -> Self {
        Self { org, limiter, decisions: Vec::new() }
    }

    /// Requests permits. Earlier decisions are discarded.
    pub(super) async fn request(&mut self, requests: Vec<AdmissionRequest>) -> PermitWrites {
        self.decisions.clear();
        let mut writes = PermitWrites::default();
        let Some(limiter) = &self.limiter else { return PermitWrites { requests, ..writes } };
        for request in requests {
            let (decision, fact) = limiter.admit(self.org, request).await;
            self.decisions.push(decision);
            writes.facts.extend(fact);
        }
        writes
    }

    /// Adds the decisions that the store made with a commit.
    pub(super) fn add(&mut self, mut decisions: Vec<AdmissionDecision>) {
        self.decisions.append(&mut decisions);
    }

    /// Takes the decisions, in the order of the requests.
    pub(super) fn take(&mut self) -> Vec<AdmissionDecision> {
        std::mem::take(&mut self.decisions)
    }
}

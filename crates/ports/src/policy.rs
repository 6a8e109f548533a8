//! The port for policy engines in code. The engine decides in addition to the rules of an agent; the stricter decision
//! wins.
use crate::ResultFuture;
use outlast_vocab::Hash;
use outlast_vocab::message::RuleId;
use outlast_vocab::policy::{PolicyDecision, PolicyFacts, PolicyPoint};

/// Decides what may happen in a turn.
///
/// The runtime asks it at every point at which it decides, with the timeout `policy_deadline`. It fails closed: on an
/// error, a panic, a timeout or a decision that is invalid at the point, the action is forbidden (`policy.failed`).
/// Decisions are recorded and final. A resumed turn does not ask again about the same action.
pub trait PolicyEngine: Send + Sync {
    /// Returns the fingerprint of the current policies. Records of decisions contain it, and approval requests are
    /// bound to it.
    fn version(&self) -> Hash;

    /// Returns whether the engine decides at this point in turns of this agent. The default is everywhere.
    ///
    /// If it returns `false`, the runtime does not ask at that point. Without a decision at `output`, subscribers see
    /// the answer as it streams. The runtime calls this once per agent, before any turn. An engine whose policies can
    /// change must return `true` for every point at which a policy may ever decide.
    fn decides_at(&self, _point: PolicyPoint, _agent: &str) -> bool {
        true
    }

    /// Returns the decision, or `None` for no opinion.
    fn judge<'a>(&'a self, facts: PolicyFacts<'a>) -> ResultFuture<'a, Option<EngineDecision>>;
}

/// A decision of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDecision {
    /// The rule that decided, for records and messages.
    pub rule: RuleId,
    /// The decision.
    pub decision: PolicyDecision,
}

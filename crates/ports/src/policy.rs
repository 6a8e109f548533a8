//! A policy engine in code. It decides beside the rules of an agent; the stricter of both stands (R11.1).
use crate::Answer;
use outlast_vocab::Hash;
use outlast_vocab::message::RuleId;
use outlast_vocab::policy::{Decision, Facts, Point};

/// Decides what may happen in a turn.
///
/// It is asked at every point at which it decides, within `policy_deadline`. If it gives an error, panics, does not answer in time, or decides what makes
/// no sense at a point, what it was asked about is forbidden (`policy.failed`). What it decided is in the record and stays: a turn
/// that is resumed does not ask it again about the same.
pub trait PolicyEngine: Send + Sync {
    /// The name of what it decides by now; every record of what it decided has it. Questions to people are bound to it.
    fn version(&self) -> Hash;

    /// Whether it decides at this point in turns of this agent; everywhere, unless it says otherwise. Where it does not, it is not
    /// asked, and what it does not decide at `output` is heard word by word. It is asked for this once for each agent, before any turn:
    /// an engine whose policies change says yes wherever one of them may decide some day.
    fn decides_at(&self, _point: Point, _agent: &str) -> bool {
        true
    }

    /// What it decides; nothing where it has no opinion.
    fn judge<'a>(&'a self, facts: Facts<'a>) -> Answer<'a, Option<Judgement>>;
}

/// What an engine decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What decided it, for records and messages.
    pub rule: RuleId,
    /// What it decides.
    pub decision: Decision,
}

//! The effects of a turn in order: request, outcome, decisions, labels, attempts and times.
//!
//! Folds the records of a turn. Each call of a batch is a separate effect, under its claim. A model call is an effect
//! from the first record about it, even if that only says that a rule delays it or that an attempt failed. Knows
//! nothing of the store. [`crate::views::wait_explanation`] uses it to explain what a turn waits for.
mod fold;

use outlast_vocab::cost::Cost;
use outlast_vocab::effect::{EffectKind, Usage};
use outlast_vocab::label::{Labels, Provenance};
use outlast_vocab::message::HookName;
use outlast_vocab::payment::Payment;
use outlast_vocab::policy::{PolicyPoint, RecordedDecision};
use outlast_vocab::rate::RateLimited;
use outlast_vocab::record::{Fact, FailedAttempt, Record, Seq, TurnResumed};
use outlast_vocab::tool::EffectClass;
use outlast_vocab::wait::Wait;
use outlast_vocab::{CallId, Failure, Millis, ReplayKey};
use serde_json::Value;

/// What a turn did, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Its effects, in the order in which they were requested.
    pub effects: Vec<EffectView>,
    /// Policy decisions about the turn itself, in order.
    pub decisions: Vec<DecisionView>,
    /// Where another lease resumed the turn, in order.
    pub resumes: Vec<TurnResume>,
}

/// A resume of a turn by another lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnResume {
    /// The record of the resume, in the first write of the lease.
    pub seq: Seq,
    /// The worker and lease number, and when it took over.
    pub by: TurnResumed,
    /// The number of effects that already had an outcome and were answered from the journal.
    pub replayed: usize,
}

/// A policy decision at a point of the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionView {
    /// The subject of the decision.
    pub key: ReplayKey,
    /// The record of the decision.
    pub seq: Seq,
    /// When it was written.
    pub at: Millis,
    /// The policy point.
    pub point: PolicyPoint,
    /// The decision and the rule that made it.
    pub ruling: RecordedDecision,
    /// The untrusted sources that may have caused it.
    pub labels: Labels,
}

/// One effect of a turn, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectView {
    /// Its path in the turn.
    pub key: ReplayKey,
    /// The kind of request.
    pub kind: EffectKind,
    /// The record of the request. If request and outcome were written together, that record.
    pub seq: Seq,
    /// The record of the outcome.
    pub answered: Option<Seq>,
    /// When it was requested. If request and outcome were written together, when the previous record was written.
    pub from: Millis,
    /// When its outcome became durable.
    pub until: Option<Millis>,
    /// Its state.
    pub state: EffectState,
    /// The current attempt or the one that gave the outcome, counted from 1. For a model call, failed attempts count,
    /// but not those that ended with their process.
    pub attempts: u32,
    /// The request. Empty for a model call that has not gone out yet.
    pub request: Value,
    /// The outcome.
    pub outcome: Option<Value>,
    /// Details of a tool call.
    pub call: Option<CallView>,
    /// Policy decisions about it at points other than the tool call, in order.
    pub decisions: Vec<DecisionView>,
    /// The token usage of a model call.
    pub usage: Option<Usage>,
    /// The cost, if its model or tool has a price.
    pub cost: Option<Cost>,
    /// The hooks that changed it, in order.
    pub hooks: Vec<HookName>,
    /// The waits that it is parked on.
    pub waits: Vec<Wait>,
    /// Incidents before its outcome, in order.
    pub incidents: Vec<EffectIncident>,
    /// How often it was answered from the journal after another lease resumed the turn.
    pub replays: usize,
}

/// An incident of an effect before its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectIncident {
    /// The record of the incident.
    pub seq: Seq,
    /// When it was written.
    pub at: Millis,
    /// The kind of incident.
    pub what: IncidentKind,
}

/// A kind of incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// It was restarted, after a failure or after the process died.
    Again {
        /// The number of the new attempt, from 1.
        attempt: u32,
    },
    /// An attempt to call a model failed. Here attempts are numbered from 1; in the record the numbers continue over
    /// the leases of the session.
    Failed(FailedAttempt),
    /// A rate limit delayed, released or rejected it.
    Paced(RateLimited),
    /// A payment of it changed its state.
    Payment(Payment),
    /// The turn got stuck here, and waited for a person or a deploy.
    Stuck(Failure),
}

impl IncidentKind {
    /// Returns the name of the kind, in one word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Again { .. } => "again",
            Self::Failed(_) => "failed",
            Self::Paced(_) => "paced",
            Self::Payment(_) => "payment",
            Self::Stuck(_) => "stuck",
        }
    }
}

/// Details of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallView {
    /// The id that Outlast gave the call.
    pub id: Option<CallId>,
    /// The tool.
    pub tool: String,
    /// The effect class, which says what may happen to an interrupted call.
    pub class: Option<EffectClass>,
    /// The policy decision, if a rule matched.
    pub ruling: Option<RecordedDecision>,
    /// The untrusted sources that may have caused it.
    pub labels: Labels,
    /// Where the values of its sink arguments come from.
    pub provenance: Provenance,
}

/// The state of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectState {
    /// It was requested and has no outcome.
    Open,
    /// It is parked.
    Waits,
    /// It has an outcome.
    Done,
    /// Its outcome is an error.
    Failed,
    /// It was rejected before it could run.
    Refused,
    /// It is not known whether it happened.
    Unknown,
}

impl EffectState {
    /// Returns the name of the state, in one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Waits => "waits",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// Builds the timeline of a turn from its records.
pub fn of_turn(records: Vec<Record>) -> Timeline {
    let mut fold = fold::TimelineFold::default();
    let first = records.first().map_or(Millis(0), |record| record.at);
    let (mut before, mut now) = (first, first);
    for record in records {
        // Records of one write share a time. Their effects began after the previous write.
        if record.at > now {
            (before, now) = (now, record.at);
        }
        // No worker had the turn before it was taken over.
        if let Fact::Resumed(resumed) = &record.fact {
            before = before.max(resumed.since);
        }
        fold.take(record, before);
    }
    fold.timeline()
}

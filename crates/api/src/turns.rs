//! Turns: their state and costs, cancellation and retries.
use crate::effects::PolicyDecisionResource;
use crate::sessions::MessageRef;
use crate::unknown_value;
use outlast_views::{CancelOutcome, RetryOutcome, TurnDurabilityCost, TurnState, TurnView, WriteCount};
use outlast_vocab::cost::Cost;
use outlast_vocab::effect::Usage;
use outlast_vocab::record::{NodeRef, Seq, TurnEnd};
use outlast_vocab::{Error, Millis, SessionId, TurnId, WorkerId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Parameters that select turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TurnListParams {
    /// The index of the first turn, counted from 0. Defaults to 0.
    pub from: Option<u32>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Takes precedence over `from`.
    pub cursor: Option<String>,
}

/// Parameters for waiting.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TurnWaitParams {
    /// The time to wait for the end of the turn, in seconds, at most 60. Defaults to 0.
    #[param(maximum = 60)]
    pub wait: Option<u64>,
}

/// A turn: one input, and everything done to answer it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Turn)]
pub struct TurnResource {
    /// The id of the turn.
    #[schema(value_type = String, example = "trn_019a8b6e5c7d7f3a9b1c2d3e4f506172")]
    pub id: TurnId,
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The index of the turn in the session, counted from 0.
    pub index: u32,
    /// `queued`, `active` or `ended`.
    pub state: Cow<'static, str>,
    /// The message that the turn follows. Absent if the turn starts the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<MessageRef>,
    /// The sequence number of its first message.
    #[schema(value_type = u64)]
    pub first: Seq,
    /// The sequence number of its last message so far.
    #[schema(value_type = u64)]
    pub last: Seq,
    /// How the turn ended: `how`, and the details of that ending. Absent if it has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub end: Option<Value>,
    /// The id of the turn that this one retries. Absent if it is not a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub retry_of: Option<TurnId>,
}

/// A turn with its usage and costs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TurnDetails {
    #[expect(missing_docs, reason = "it is flattened, so its text would be shown at another type")]
    #[serde(flatten)]
    pub turn: TurnResource,
    /// The name of the agent that answers. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The name of the model that the agent uses. Absent until it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// When the input was accepted, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub accepted: Millis,
    /// When the last record was written, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub updated: Millis,
    /// The tokens that models used.
    #[schema(value_type = Object)]
    pub usage: Usage,
    /// The cost in US dollars. Calls without a known price are not included.
    #[schema(value_type = String)]
    pub cost: Cost,
    /// The cost of durability.
    pub durability: DurabilityCost,
    /// Policy decisions about the turn itself. Decisions about an effect are part of the effect. Absent if
    /// there are no decisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<PolicyDecisionResource>,
    /// Where another lease resumed the turn, in order. Absent if that never happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumes: Vec<ResumeResource>,
}

/// A resume of a turn by another lease, after the previous worker died, lost the lease or handed the turn
/// back.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Resume)]
pub struct ResumeResource {
    /// The sequence number of the record of the resume, in the first write of the lease.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When the lease took over the turn, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// The number of the lease, which is the fencing token of its writes.
    pub lease: u64,
    /// The id of the worker that took over the turn.
    #[schema(value_type = String)]
    pub worker: WorkerId,
    /// The number of effects that already had an outcome. They were answered from the journal.
    pub replayed: usize,
}

/// The cost of durability for a turn.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DurabilityCost {
    /// The number of records written.
    pub records: usize,
    /// The size of the records in bytes.
    pub bytes: usize,
    /// The number of writes, including the one that accepted the input. Absent if the turn was imported or is
    /// older than this counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<u64>,
    /// The time that the turn waited for these writes, in milliseconds. The wait for the last write is not
    /// included once the process that ran the turn has exited. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<f64>,
}

impl From<TurnDurabilityCost> for DurabilityCost {
    fn from(TurnDurabilityCost { records, bytes, writes }: TurnDurabilityCost) -> Self {
        let (commits, waited) = writes.map(|writes| (writes.commits, writes.waited)).unzip();
        // Rounded to microseconds, the precision of the measurement.
        let waited_ms = waited.map(|waited| (waited.as_secs_f64() * 1e6).round() / 1e3);
        Self { records, bytes, commits, waited_ms }
    }
}

impl From<DurabilityCost> for TurnDurabilityCost {
    fn from(DurabilityCost { records, bytes, commits, waited_ms }: DurabilityCost) -> Self {
        let waited = waited_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()).unwrap_or_default();
        Self { records, bytes, writes: commits.map(|commits| WriteCount { commits, waited }) }
    }
}

impl From<TurnView> for TurnResource {
    fn from(turn: TurnView) -> Self {
        let TurnView { id, session, index, state, parent, span: (first, last), end, retry_of, .. } = turn;
        let state = match state {
            TurnState::Queued => "queued",
            TurnState::Active => "active",
            TurnState::Ended => "ended",
        };
        Self {
            id,
            session,
            index,
            state: state.into(),
            parent: parent.map(MessageRef::from),
            first,
            last,
            end: end.map(|end| turn_end_json(&end)),
            retry_of,
        }
    }
}

impl TryFrom<TurnResource> for TurnView {
    type Error = Error;

    fn try_from(turn: TurnResource) -> Result<Self, Error> {
        let state = match turn.state.as_ref() {
            "queued" => TurnState::Queued,
            "active" => TurnState::Active,
            "ended" => TurnState::Ended,
            other => return Err(unknown_value("state", other)),
        };
        Ok(Self {
            id: turn.id,
            session: turn.session,
            index: turn.index,
            state,
            parent: turn.parent.map(NodeRef::from),
            span: (turn.first, turn.last),
            end: turn.end.map(parse_turn_end).transpose()?,
            // Lists do not contain it. For a single turn it is part of the durability.
            writes: None,
            retry_of: turn.retry_of,
            // Only the server needs it for its decisions.
            foreign: false,
        })
    }
}

/// Returns how a turn ended, as a flat JSON object.
pub fn turn_end_json(end: &TurnEnd) -> Value {
    let mut flat = json!({ "how": end.name() });
    let tagged = serde_json::to_value(end).unwrap_or_default();
    let content = tagged.as_object().and_then(|tagged| tagged.values().next()?.as_object().cloned());
    if let Some(flat) = flat.as_object_mut() {
        flat.extend(content.unwrap_or_default());
    }
    flat
}

/// Parses how a turn ended from its flat form.
pub fn parse_turn_end(mut flat: Value) -> Result<TurnEnd, Error> {
    let how = flat.as_object_mut().and_then(|members| members.remove("how"));
    let how = how.as_ref().and_then(Value::as_str).unwrap_or_default();
    serde_json::from_value(json!({ how: flat })).map_err(|_| unknown_value("turn's end", how))
}

/// Options for cancelling a turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelRequest {
    /// The reason. Defaults to `cancelled by an operator`.
    pub reason: Option<String>,
    /// Whether to undo the calls of the turn. Only calls of tools that define an undo are undone. Defaults to
    /// `false`.
    pub undo: bool,
}

/// The result of a cancel request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CancelResult {
    /// The result.
    ///
    /// - `requested`: the turn will stop.
    /// - `never_began`: the turn had not started and has ended now.
    /// - `too_late`: the turn had already ended.
    pub outcome: Cow<'static, str>,
    /// How the turn had ended. Only present with `too_late`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub end: Option<Value>,
}

impl From<CancelOutcome> for CancelResult {
    fn from(outcome: CancelOutcome) -> Self {
        let (outcome, end) = match outcome {
            CancelOutcome::Requested => ("requested", None),
            CancelOutcome::EndedBeforeStart => ("never_began", None),
            CancelOutcome::AlreadyEnded(end) => ("too_late", Some(turn_end_json(&end))),
        };
        Self { outcome: outcome.into(), end }
    }
}

impl TryFrom<CancelResult> for CancelOutcome {
    type Error = Error;

    fn try_from(CancelResult { outcome, end }: CancelResult) -> Result<Self, Error> {
        match (outcome.as_ref(), end) {
            ("requested", _) => Ok(Self::Requested),
            ("never_began", _) => Ok(Self::EndedBeforeStart),
            ("too_late", Some(end)) => Ok(Self::AlreadyEnded(parse_turn_end(end)?)),
            (other, _) => Err(unknown_value("way to stop", other)),
        }
    }
}

/// Options for retrying a turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TurnRetryRequest {
    /// Whether the retry runs in a new session that forks off before the turn. Only for turns that have
    /// ended. Without it, a turn that later turns follow cannot be retried. Defaults to `false`.
    pub fork: bool,
}

/// The result of a retry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TurnRetryResult {
    /// `woken` if the same turn continues, `new_turn` if a new turn retries it.
    pub outcome: Cow<'static, str>,
    /// The id of the session of `turn`.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn to follow: the same turn, or the new one.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// Whether this retry already existed.
    pub duplicate: bool,
}

impl TryFrom<TurnRetryResult> for RetryOutcome {
    type Error = Error;

    fn try_from(result: TurnRetryResult) -> Result<Self, Error> {
        let TurnRetryResult { outcome, session, turn, duplicate } = result;
        match outcome.as_ref() {
            "woken" => Ok(Self::Woken),
            "new_turn" => Ok(Self::NewTurn { session, turn, duplicate }),
            other => Err(unknown_value("outcome of a retry", other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::{Failure, Kind};

    #[test]
    fn turn_end_reads_back_from_its_flat_form() {
        let ends = [
            TurnEnd::Answered { text: "yes".into() },
            TurnEnd::Aborted { reason: "enough".into(), undone: 2, left: 0 },
            TurnEnd::Failed { failure: Failure::new(Kind::ToolFailed, "no") },
        ];
        for end in ends {
            let flat = turn_end_json(&end);
            assert_eq!(flat["how"], end.name());
            assert_eq!(parse_turn_end(flat).unwrap(), end);
        }
        let error = parse_turn_end(json!({ "how": "dreamt" })).unwrap_err();
        assert_eq!(
            error.detail(),
            "the server sent `dreamt`, which this version does not know as a turn's end"
        );
    }

    #[test]
    fn cancel_outcome_reads_back_from_its_result() {
        let end = TurnEnd::Cancelled { reason: "enough".into() };
        for outcome in
            [CancelOutcome::Requested, CancelOutcome::EndedBeforeStart, CancelOutcome::AlreadyEnded(end)]
        {
            assert_eq!(CancelOutcome::try_from(CancelResult::from(outcome.clone())).unwrap(), outcome);
        }
    }
}

//! The guarantees that must hold after every run, with or without a crash.
use crate::end_state::{ClaimedCall, EndState};
use crate::tool_runs::{ToolRun, ToolRunLog};
use outlast_views::SessionState;
use outlast_vocab::message::{Message, ToolResult};
use outlast_vocab::tool::EffectClass;
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// A guarantee that a run can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Started work ends without help.
    Ends,
    /// Every input is answered exactly once.
    Answered,
    /// The hash chain of the session is valid.
    Chain,
    /// An at-most-once call runs at most once.
    AtMostOnce,
    /// A call has one key, which is recorded before the call runs.
    OneKey,
    /// A call with an unknown outcome is listed for an operator.
    Listed,
    /// A run with a crash ends like one without.
    SameEnd,
    /// The invariants of the agent's author hold.
    Invariant,
}

impl Guarantee {
    /// Returns the promise as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Ends => "every turn that starts also ends",
            Self::Answered => "every input is answered exactly once",
            Self::Chain => "the hash chain of the session is valid",
            Self::AtMostOnce => "an at-most-once call runs at most once",
            Self::OneKey => "a call has one key, which is in the journal before the call runs",
            Self::Listed => "a call with an unknown outcome is listed for a person",
            Self::SameEnd => "a run with a crash ends like a run without one",
            Self::Invariant => "your invariant",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// A broken promise.
#[derive(Debug)]
pub(crate) struct GuaranteeFailure {
    pub(crate) guarantee: Guarantee,
    pub(crate) detail: String,
    /// The underlying error, if the trial itself failed.
    pub(crate) error: Option<Error>,
}

impl GuaranteeFailure {
    pub(crate) fn new(guarantee: Guarantee, detail: impl Into<String>) -> Self {
        Self { guarantee, detail: detail.into(), error: None }
    }
}

impl From<Error> for GuaranteeFailure {
    fn from(error: Error) -> Self {
        Self { guarantee: Guarantee::Ends, detail: error.to_string(), error: Some(error) }
    }
}

/// Returns the promises of Outlast that the run broke.
pub(crate) fn guarantee_failures(
    left: &EndState,
    calls: &ToolRunLog,
    inputs: usize,
) -> Vec<GuaranteeFailure> {
    let runs = calls.runs();
    let all = [
        check_answered(left, inputs),
        check_ended(left),
        check_chain(left),
        check_one_key(left, &runs),
        check_listed(left),
    ];
    let repeated = left.claimed_calls.iter().filter_map(|claimed| check_at_most_once(claimed, &runs));
    all.into_iter().flatten().chain(repeated).collect()
}

fn check_answered(left: &EndState, inputs: usize) -> Option<GuaranteeFailure> {
    let (there, open) = (left.ends.len(), left.ends.iter().filter(|end| end.is_none()).count());
    let holds = there == inputs && open == 0;
    let detail = format!("{inputs} inputs were sent, {there} were accepted, and {open} of these did not end");
    (!holds).then(|| GuaranteeFailure::new(Guarantee::Answered, detail))
}

fn check_ended(left: &EndState) -> Option<GuaranteeFailure> {
    let detail = format!("every input ended, but the session is {}", left.state.name());
    (left.state != SessionState::Idle).then(|| GuaranteeFailure::new(Guarantee::Ends, detail))
}

fn check_chain(left: &EndState) -> Option<GuaranteeFailure> {
    left.chain_check.as_ref().err().map(|error| GuaranteeFailure::new(Guarantee::Chain, error.to_string()))
}

fn check_one_key(left: &EndState, runs: &[ToolRun]) -> Option<GuaranteeFailure> {
    let known: BTreeSet<_> = left.claimed_calls.iter().map(|claimed| claimed.call.id).collect();
    let stray = runs.iter().find(|run| !known.contains(&run.call))?;
    let detail =
        format!("`{}` ran under the key {}, which no claim in the journal has", stray.tool, stray.call);
    Some(GuaranteeFailure::new(Guarantee::OneKey, detail))
}

fn check_listed(left: &EndState) -> Option<GuaranteeFailure> {
    let told_unknown = |claimed: &ClaimedCall| {
        left.transcript.iter().any(|message| match message {
            Message::Tool { call, result: ToolResult::Err(failure), .. } => {
                *call == claimed.call.model_id && failure.code == Kind::ToolOutcomeUnknown
            }
            _ => false,
        })
    };
    let is_listed = |claimed: &ClaimedCall| left.unknown_calls.contains(&claimed.call.id);
    let missing = left.claimed_calls.iter().find(|claimed| told_unknown(claimed) && !is_listed(claimed))?;
    let detail = format!(
        "the model was told that the outcome of `{}` is unknown, but no operator was",
        missing.call.tool
    );
    Some(GuaranteeFailure::new(Guarantee::Listed, detail))
}

fn check_at_most_once(claimed: &ClaimedCall, runs: &[ToolRun]) -> Option<GuaranteeFailure> {
    if claimed.call.class != EffectClass::AtMostOnce {
        return None;
    }
    let of_call = || runs.iter().filter(|run| run.call == claimed.call.id);
    // It may run again after it reported that nothing happened, and it restarts from its beginning after a wait.
    let may = 1 + of_call().filter(|run| run.unavailable).count() + claimed.parked;
    let did = of_call().count();
    let detail = format!("`{}` ({}) ran {did} times", claimed.call.tool, claimed.call.id);
    (did > may).then(|| GuaranteeFailure::new(Guarantee::AtMostOnce, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::end_state::tests::{CALL, left, paid, unknown_outcome};
    use outlast_vocab::CallId;

    fn run(call: CallId, unavailable: bool) -> ToolRun {
        ToolRun { process: 0, call, tool: "pay".parse().unwrap(), pauses: 0, unavailable }
    }

    /// Returns the broken promises after these runs of the tool and one change to an otherwise valid state.
    fn found(runs: Vec<ToolRun>, class: EffectClass, change: impl FnOnce(&mut EndState)) -> Vec<Guarantee> {
        let mut left = left(class, paid());
        change(&mut left);
        guarantee_failures(&left, &ToolRunLog::of(runs), 1)
            .into_iter()
            .map(|broken| broken.guarantee)
            .collect()
    }

    fn untouched(_: &mut EndState) {}

    #[test]
    fn repeated_at_most_once_call_is_found() {
        let twice = || vec![run(CALL, false), run(CALL, false)];
        assert_eq!(found(twice(), EffectClass::AtMostOnce, untouched), [Guarantee::AtMostOnce]);
        assert_eq!(found(twice(), EffectClass::Idempotent, untouched), []);
        assert_eq!(found(vec![run(CALL, false)], EffectClass::AtMostOnce, untouched), []);
        // Nothing happened the first time, or it was parked during the run.
        let again = vec![run(CALL, true), run(CALL, false)];
        assert_eq!(found(again, EffectClass::AtMostOnce, untouched), []);
        assert_eq!(found(twice(), EffectClass::AtMostOnce, |left| left.claimed_calls[0].parked = 1), []);
    }

    #[test]
    fn call_with_another_key_is_found() {
        let stray = vec![run(CALL, false), run(CallId::from_u128(8), false)];
        assert_eq!(found(stray, EffectClass::Idempotent, untouched), [Guarantee::OneKey]);
    }

    #[test]
    fn unanswered_or_duplicate_input_is_found() {
        let once = || vec![run(CALL, false)];
        assert_eq!(found(once(), EffectClass::Pure, |left| left.ends[0] = None), [Guarantee::Answered]);
        assert_eq!(found(once(), EffectClass::Pure, |left| left.ends.push(None)), [Guarantee::Answered]);
        let busy = |left: &mut EndState| left.state = SessionState::Leased;
        assert_eq!(found(once(), EffectClass::Pure, busy), [Guarantee::Ends]);
    }

    #[test]
    fn broken_record_chain_is_found() {
        let damaged = |left: &mut EndState| left.chain_check = Err(Error::new(Kind::RecordCorrupt, "no"));
        assert_eq!(found(Vec::new(), EffectClass::Pure, damaged), [Guarantee::Chain]);
    }

    #[test]
    fn unlisted_unknown_outcome_is_found() {
        let mut left = left(EffectClass::AtMostOnce, unknown_outcome());
        let calls = ToolRunLog::of(vec![run(CALL, false)]);
        assert!(guarantee_failures(&left, &calls, 1).is_empty());
        left.unknown_calls.clear();
        let promises: Vec<Guarantee> =
            guarantee_failures(&left, &calls, 1).iter().map(|broken| broken.guarantee).collect();
        assert_eq!(promises, [Guarantee::Listed]);
    }
}

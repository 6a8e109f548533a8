//! The guarantees that must hold after every run, with or without a crash.
use super::calls::{Calls, Run};
use super::left::{Claimed, Left};
use outlast_ports::store::SessionState;
use outlast_vocab::message::{Message, ToolResult};
use outlast_vocab::tool::EffectClass;
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// A guarantee that a run can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
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

impl Promise {
    /// Returns the promise as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Ends => "what was begun comes to its end by itself",
            Self::Answered => "every input is answered, once",
            Self::Chain => "the hash chain of the session fits",
            Self::AtMostOnce => "an at-most-once call runs at most once",
            Self::OneKey => "a call has one key, and the journal knows it before it runs",
            Self::Listed => "a call whose outcome nobody knows is listed for a person",
            Self::SameEnd => "a run with a crash ends as one without",
            Self::Invariant => "your invariant",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// A broken promise.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) promise: Promise,
    pub(super) detail: String,
    /// The underlying error, if the trial itself failed.
    pub(super) error: Option<Error>,
}

impl Broken {
    pub(super) fn new(promise: Promise, detail: impl Into<String>) -> Self {
        Self { promise, detail: detail.into(), error: None }
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self { promise: Promise::Ends, detail: error.to_string(), error: Some(error) }
    }
}

/// Returns the promises of Outlast that the run broke.
pub(super) fn broken(left: &Left, calls: &Calls, inputs: usize) -> Vec<Broken> {
    let runs = calls.runs();
    let all = [answered(left, inputs), rests(left), chain(left), one_key(left, &runs), listed(left)];
    let repeated = left.claimed.iter().filter_map(|claimed| at_most_once(claimed, &runs));
    all.into_iter().flatten().chain(repeated).collect()
}

fn answered(left: &Left, inputs: usize) -> Option<Broken> {
    let (there, open) = (left.ends.len(), left.ends.iter().filter(|end| end.is_none()).count());
    let holds = there == inputs && open == 0;
    let detail = format!("{inputs} inputs were sent, {there} were accepted, {open} of these have no end");
    (!holds).then(|| Broken::new(Promise::Answered, detail))
}

fn rests(left: &Left) -> Option<Broken> {
    let detail = format!("every input has its end, but the session is {}", left.state.name());
    (left.state != SessionState::Idle).then(|| Broken::new(Promise::Ends, detail))
}

fn chain(left: &Left) -> Option<Broken> {
    left.verified.as_ref().err().map(|error| Broken::new(Promise::Chain, error.to_string()))
}

fn one_key(left: &Left, runs: &[Run]) -> Option<Broken> {
    let known: BTreeSet<_> = left.claimed.iter().map(|claimed| claimed.call.id).collect();
    let stray = runs.iter().find(|run| !known.contains(&run.call))?;
    let detail =
        format!("`{}` ran under the key {}, which no claim in the journal has", stray.tool, stray.call);
    Some(Broken::new(Promise::OneKey, detail))
}

fn listed(left: &Left) -> Option<Broken> {
    let told_unknown = |claimed: &Claimed| {
        left.transcript.iter().any(|message| match message {
            Message::Tool { call, result: ToolResult::Err(failure), .. } => {
                *call == claimed.call.model_id && failure.code == Kind::ToolOutcomeUnknown
            }
            _ => false,
        })
    };
    let is_listed = |claimed: &Claimed| left.unknown.contains(&claimed.call.id);
    let missing = left.claimed.iter().find(|claimed| told_unknown(claimed) && !is_listed(claimed))?;
    let detail = format!("the model was told that nobody knows of `{}`, but no person is", missing.call.tool);
    Some(Broken::new(Promise::Listed, detail))
}

fn at_most_once(claimed: &Claimed, runs: &[Run]) -> Option<Broken> {
    if claimed.call.class != EffectClass::AtMostOnce {
        return None;
    }
    let of_call = || runs.iter().filter(|run| run.call == claimed.call.id);
    // It may run again after it reported that nothing happened, and it restarts from its beginning after a wait.
    let may = 1 + of_call().filter(|run| run.unavailable).count() + claimed.parked;
    let did = of_call().count();
    let detail = format!("`{}` ({}) ran {did} times", claimed.call.tool, claimed.call.id);
    (did > may).then(|| Broken::new(Promise::AtMostOnce, detail))
}

#[cfg(test)]
mod tests {
    use super::super::left::tests::{CALL, left, nobody_knows, paid};
    use super::*;
    use outlast_vocab::CallId;

    fn run(call: CallId, unavailable: bool) -> Run {
        Run { life: 0, call, tool: "pay".parse().unwrap(), pauses: 0, unavailable }
    }

    /// Returns the broken promises after these runs of the tool and one change to an otherwise valid state.
    fn found(runs: Vec<Run>, class: EffectClass, change: impl FnOnce(&mut Left)) -> Vec<Promise> {
        let mut left = left(class, paid());
        change(&mut left);
        broken(&left, &Calls::of(runs), 1).into_iter().map(|broken| broken.promise).collect()
    }

    fn untouched(_: &mut Left) {}

    #[test]
    fn an_at_most_once_call_that_ran_twice_is_found() {
        let twice = || vec![run(CALL, false), run(CALL, false)];
        assert_eq!(found(twice(), EffectClass::AtMostOnce, untouched), [Promise::AtMostOnce]);
        assert_eq!(found(twice(), EffectClass::Idempotent, untouched), []);
        assert_eq!(found(vec![run(CALL, false)], EffectClass::AtMostOnce, untouched), []);
        // Nothing happened the first time, or it was parked during the run.
        let again = vec![run(CALL, true), run(CALL, false)];
        assert_eq!(found(again, EffectClass::AtMostOnce, untouched), []);
        assert_eq!(found(twice(), EffectClass::AtMostOnce, |left| left.claimed[0].parked = 1), []);
    }

    #[test]
    fn a_call_under_another_key_is_found() {
        let stray = vec![run(CALL, false), run(CallId::from_u128(8), false)];
        assert_eq!(found(stray, EffectClass::Idempotent, untouched), [Promise::OneKey]);
    }

    #[test]
    fn an_input_without_an_end_or_accepted_twice_is_found() {
        let once = || vec![run(CALL, false)];
        assert_eq!(found(once(), EffectClass::Pure, |left| left.ends[0] = None), [Promise::Answered]);
        assert_eq!(found(once(), EffectClass::Pure, |left| left.ends.push(None)), [Promise::Answered]);
        let busy = |left: &mut Left| left.state = SessionState::Leased;
        assert_eq!(found(once(), EffectClass::Pure, busy), [Promise::Ends]);
    }

    #[test]
    fn a_chain_that_does_not_fit_is_found() {
        let damaged = |left: &mut Left| left.verified = Err(Error::new(Kind::RecordCorrupt, "no"));
        assert_eq!(found(Vec::new(), EffectClass::Pure, damaged), [Promise::Chain]);
    }

    #[test]
    fn a_call_of_unknown_outcome_that_nobody_is_shown_is_found() {
        let mut left = left(EffectClass::AtMostOnce, nobody_knows());
        let calls = Calls::of(vec![run(CALL, false)]);
        assert!(broken(&left, &calls, 1).is_empty());
        left.unknown.clear();
        let promises: Vec<Promise> = broken(&left, &calls, 1).iter().map(|broken| broken.promise).collect();
        assert_eq!(promises, [Promise::Listed]);
    }
}

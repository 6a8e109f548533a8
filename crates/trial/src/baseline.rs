//! Compares each run with a run without a crash.
use crate::end_state::EndState;
use crate::guarantee::{Guarantee, GuaranteeFailure};
use outlast_vocab::Kind;
use outlast_vocab::message::{Message, ToolResult, shown};
use outlast_vocab::tool::EffectClass;
use std::collections::BTreeSet;

/// The end state of a run without a crash, and the parts of it that vary between such runs.
pub(crate) struct BaselineState {
    pub(crate) left: EndState,
    varying: VaryingParts,
}

#[derive(Default)]
struct VaryingParts {
    messages: BTreeSet<usize>,
    ends: BTreeSet<usize>,
    values: BTreeSet<String>,
}

impl BaselineState {
    /// Compares two runs without a crash. The parts that differ are excluded from later comparisons.
    pub(crate) fn of(left: EndState, again: &EndState) -> Result<Self, GuaranteeFailure> {
        if let Some((at, found, expected)) = shape_difference(&left, again) {
            let detail =
                format!("two runs without a crash differ: message {at} is {found}, before it was {expected}");
            return Err(GuaranteeFailure::new(Guarantee::SameEnd, detail));
        }
        let differ = |(index, (one, two)): (usize, (&Message, &Message))| (one != two).then_some(index);
        let messages = left.transcript.iter().zip(&again.transcript).enumerate().filter_map(differ).collect();
        let ends = (0..left.end_texts.len())
            .filter(|index| left.end_texts.get(*index) != again.end_texts.get(*index))
            .collect();
        let values = left.values.iter().filter(|(name, value)| again.values.get(*name) != Some(value));
        let values = values.map(|(name, _)| name.clone()).collect();
        Ok(Self { left, varying: VaryingParts { messages, ends, values } })
    }

    /// Returns how another run differs. After a call with an unknown outcome, any difference is allowed.
    pub(crate) fn first_difference(&self, other: &EndState) -> Option<GuaranteeFailure> {
        let unknown = |at: usize| match other.transcript.get(at) {
            Some(Message::Tool { call, result: ToolResult::Err(failure), .. }) => {
                let of_call = other.claimed_calls.iter().find(|claimed| claimed.call.model_id == *call);
                let once = of_call.is_some_and(|claimed| claimed.call.class == EffectClass::AtMostOnce);
                once && [Kind::ToolOutcomeUnknown, Kind::ToolInterrupted].contains(&failure.code)
            }
            _ => false,
        };
        let mut excused = false;
        for (at, expected) in self.left.transcript.iter().enumerate() {
            if excused && !matches!(expected, Message::Tool { .. }) {
                return None;
            }
            let found = other.transcript.get(at);
            let same = match found {
                Some(found) if self.varying.messages.contains(&at) => shape(found) == shape(expected),
                found => found == Some(expected),
            };
            if !same && !unknown(at) {
                return Some(GuaranteeFailure::new(Guarantee::SameEnd, difference(at, expected, found)));
            }
            excused |= !same;
        }
        if excused {
            return None;
        }
        self.extra_message(other).or_else(|| self.ends(other)).or_else(|| self.values(other))
    }

    fn extra_message(&self, other: &EndState) -> Option<GuaranteeFailure> {
        let at = self.left.transcript.len();
        let more = other.transcript.get(at)?;
        let detail = format!("message {} should not be there: {}", at + 1, describe(more));
        Some(GuaranteeFailure::new(Guarantee::SameEnd, detail))
    }

    fn ends(&self, other: &EndState) -> Option<GuaranteeFailure> {
        let mut ends = self.left.end_texts.iter().zip(&other.end_texts).enumerate();
        let (index, (expected, found)) =
            ends.find(|(index, (one, two))| one != two && !self.varying.ends.contains(index))?;
        let detail = format!("input {} should have ended as {expected}, but {found}", index + 1);
        Some(GuaranteeFailure::new(Guarantee::SameEnd, detail))
    }

    fn values(&self, other: &EndState) -> Option<GuaranteeFailure> {
        let names: BTreeSet<&String> = self.left.values.keys().chain(other.values.keys()).collect();
        let name = names.into_iter().find(|name| {
            self.left.values.get(*name) != other.values.get(*name) && !self.varying.values.contains(*name)
        })?;
        let of = |left: &EndState| left.values.get(name).map_or("not there".to_owned(), ToString::to_string);
        let detail = format!("the value `{name}` should be {}, but is {}", of(&self.left), of(other));
        Some(GuaranteeFailure::new(Guarantee::SameEnd, detail))
    }
}

fn shape_difference(one: &EndState, two: &EndState) -> Option<(usize, String, String)> {
    let shapes = |left: &EndState| left.transcript.iter().map(shape).collect::<Vec<_>>();
    let (one, two) = (shapes(one), shapes(two));
    let at = (0..one.len().max(two.len())).find(|at| one.get(*at) != two.get(*at))?;
    let nothing = || "not there".to_owned();
    Some((at + 1, two.get(at).cloned().unwrap_or_else(nothing), one.get(at).cloned().unwrap_or_else(nothing)))
}

/// Describes the kind of a message without its content.
fn shape(message: &Message) -> String {
    match message {
        Message::User { .. } => "an input".to_owned(),
        Message::Assistant { calls, .. } if calls.is_empty() => "a reply".to_owned(),
        Message::Assistant { calls, .. } => {
            let tools: Vec<&str> = calls.iter().map(|call| call.tool.as_str()).collect();
            format!("a reply that asks for {}", tools.join(", "))
        }
        Message::Tool { tool, .. } => format!("a result of {tool}"),
    }
}

fn describe(message: &Message) -> String {
    format!("{} `{}`", shape(message), shown(&message.text()))
}

fn difference(at: usize, expected: &Message, found: Option<&Message>) -> String {
    let found = found.map_or("is not there".to_owned(), |found| format!("is {}", describe(found)));
    format!("message {} should be {}, but {found}", at + 1, describe(expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::end_state::tests::{left, paid, unknown_outcome};
    use outlast_vocab::message::Part;
    use serde_json::Value;

    type Change = fn(&mut EndState);

    const ONCE: EffectClass = EffectClass::AtMostOnce;

    fn whole() -> BaselineState {
        BaselineState::of(left(ONCE, paid()), &left(ONCE, paid())).ok().unwrap()
    }

    fn said(left: &mut EndState, text: &str) {
        left.transcript[3] = Message::Assistant { parts: vec![Part::text(text)], calls: vec![] };
    }

    /// Returns how a run differs from the one without a crash after a change.
    fn differs(class: EffectClass, result: ToolResult, change: impl FnOnce(&mut EndState)) -> Option<String> {
        let mut other = left(class, result);
        change(&mut other);
        whole().first_difference(&other).map(|broken| broken.detail)
    }

    #[test]
    fn every_difference_is_named() {
        assert_eq!(differs(ONCE, paid(), |_| {}), None);
        let cases: [(Change, &str); 5] = [
            (|left| said(left, "no"), "message 4 should be a reply `done`, but is a reply `no`"),
            (|left| drop(left.transcript.pop()), "message 4 should be a reply `done`, but is not there"),
            (
                |left| left.transcript.push(Message::user("hm")),
                "message 5 should not be there: an input `hm`",
            ),
            (
                |left| left.end_texts[0] = "failed".to_owned(),
                "input 1 should have ended as Answered { text: \"done\" }, but failed",
            ),
            (|left| left.values.clear(), "the value `paid` should be 5, but is not there"),
        ];
        for (change, detail) in cases {
            assert_eq!(differs(ONCE, paid(), change).as_deref(), Some(detail));
        }
    }

    #[test]
    fn unknown_outcome_allows_only_later_differences() {
        let other_answer = |left: &mut EndState| {
            said(left, "unknown outcome");
            left.values.clear();
        };
        assert_eq!(differs(ONCE, unknown_outcome(), other_answer), None);
        let other_input = |left: &mut EndState| left.transcript[0] = Message::user("steal");
        assert!(differs(ONCE, unknown_outcome(), other_input).is_some());
        // Only an at-most-once call may have an unknown outcome.
        assert!(differs(EffectClass::Idempotent, unknown_outcome(), |_| {}).is_some());
    }

    #[test]
    fn values_that_vary_without_a_crash_are_ignored() {
        let mut again = left(ONCE, ToolResult::Ok(Value::from("paid at noon")));
        said(&mut again, "at noon");
        again.values.insert("paid".to_owned(), Value::from(12));
        again.end_texts[0] = "at noon".to_owned();
        let whole = BaselineState::of(left(ONCE, paid()), &again).ok().unwrap();
        let mut other = left(ONCE, ToolResult::Ok(Value::from("paid at one")));
        said(&mut other, "at one");
        other.values.insert("paid".to_owned(), Value::from(13));
        other.end_texts[0] = "at one".to_owned();
        assert!(whole.first_difference(&other).is_none());
        other.transcript[0] = Message::user("steal");
        assert!(whole.first_difference(&other).is_some());
    }

    #[test]
    fn diverging_uncrashed_runs_cannot_be_compared() {
        let mut again = left(ONCE, paid());
        again.transcript.truncate(3);
        let broken = BaselineState::of(left(ONCE, paid()), &again).err().unwrap();
        assert_eq!(
            broken.detail,
            "two runs without a crash differ: message 4 is not there, before it was a reply"
        );
    }
}

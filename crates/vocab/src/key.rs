//! Replay keys: where in a turn an effect stands, as a path that is the same in every run and that a person can read.
//!
//! `turn/3/tools/0/child:0:call_abc/step:charge`. Parts that come from outside (call ids, step names) are escaped, so
//! no name can pose as another path (R2.6).
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};

/// The path of an effect in its session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplayKey(String);

impl ReplayKey {
    /// The root of all keys of the session's `index`-th turn.
    pub fn turn(index: u32) -> Self {
        Self(format!("turn/{index}"))
    }

    /// The `iteration`-th model call of the turn.
    #[must_use]
    pub fn model(&self, iteration: u32) -> Self {
        self.under(format_args!("model/{iteration}"))
    }

    /// The model call of the turn that this is, or is a part of.
    pub fn model_call(&self) -> Option<Self> {
        let mut ends = self.0.match_indices('/').map(|(at, _)| at).chain([self.0.len()]);
        let (turn, end) = (ends.nth(1)?, ends.nth(1)?);
        self.0[turn..].starts_with("/model/").then(|| Self(self.0[..end].to_owned()))
    }

    /// The batch of tool calls that the `iteration`-th reply asked for.
    #[must_use]
    pub fn tools(&self, iteration: u32) -> Self {
        self.under(format_args!("tools/{iteration}"))
    }

    /// One call of a batch, by its place and the id the model gave it.
    #[must_use]
    pub fn child(&self, index: usize, model_call_id: &str) -> Self {
        self.under(format_args!("child:{index}:{}", Escaped(model_call_id)))
    }

    /// The `number`-th time that the turn's conversation is made shorter.
    #[must_use]
    pub fn compact(&self, number: u32) -> Self {
        self.under(format_args!("compact/{number}"))
    }

    /// A checkpoint of the turn, counted from its start.
    #[must_use]
    pub fn checkpoint(&self, number: u32) -> Self {
        self.under(format_args!("checkpoint/{number}"))
    }

    /// A durable step of a call.
    #[must_use]
    pub fn step(&self, name: &str) -> Self {
        self.under(format_args!("step:{}", Escaped(name)))
    }

    /// The `number`-th sleep of a call.
    #[must_use]
    pub fn sleep(&self, number: u32) -> Self {
        self.under(format_args!("sleep:{number}"))
    }

    /// A wait of a call for an event with this custom key.
    #[must_use]
    pub fn event(&self, custom: &str) -> Self {
        self.under(format_args!("event:{}", Escaped(custom)))
    }

    /// The `number`-th question of a call to a model.
    #[must_use]
    pub fn direct(&self, number: u32) -> Self {
        self.under(format_args!("direct:{number}"))
    }

    /// The `number`-th call of a tool by a call.
    #[must_use]
    pub fn nested(&self, number: u32, tool: &str) -> Self {
        self.under(format_args!("tool:{number}:{}", Escaped(tool)))
    }

    /// The tool of such a call.
    pub fn nested_tool(&self) -> Option<&str> {
        self.last().strip_prefix("tool:")?.split_once(':').map(|(_, tool)| tool)
    }

    /// The calls that take back what an aborted turn did.
    #[must_use]
    pub fn undo(&self) -> Self {
        self.under(format_args!("undo"))
    }

    /// Whether these are the calls that take back what an aborted turn did.
    pub fn is_undo(&self) -> bool {
        self.0.ends_with("/undo")
    }

    /// Whether this is part of what takes something back.
    pub fn takes_back(&self) -> bool {
        self.0.split('/').any(|part| part == "undo")
    }

    /// The wait of a call until somebody approves it in this form. Another form is another wait, so what was approved is what
    /// runs (R11.2).
    #[must_use]
    pub fn approval(&self, form: &crate::Hash) -> Self {
        self.under(format_args!("approval:{form}"))
    }

    /// Whether this is a wait for an approval.
    pub fn is_approval(&self) -> bool {
        self.last().starts_with("approval:")
    }

    /// The form in which somebody is asked to approve what waits here.
    pub fn approved_form(&self) -> Option<crate::Hash> {
        self.last().strip_prefix("approval:")?.parse().ok()
    }

    /// The wait of a call until its time has come.
    #[must_use]
    pub fn deferred(&self) -> Self {
        self.under(format_args!("deferred"))
    }

    /// What is here, judged for the `number`-th time after it was put off.
    #[must_use]
    pub fn again(&self, number: u32) -> Self {
        self.under(format_args!("again:{number}"))
    }

    /// The wait of a call until its rates let it go.
    #[must_use]
    pub fn rate(&self) -> Self {
        self.under(format_args!("rate"))
    }

    /// Whether this is a wait for a rate.
    pub fn is_rate(&self) -> bool {
        self.last() == "rate"
    }

    /// Whether this is a wait because a rule has put something off.
    pub fn is_deferred(&self) -> bool {
        self.last() == "deferred" || self.last().starts_with("again:")
    }

    /// Whether this is what the call at `call` waits for before it begins.
    pub fn admits(&self, call: &Self) -> bool {
        let rest = self.0.strip_prefix(&call.0).and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| {
            matches!(rest, "deferred" | "rate") || rest.starts_with("approval:") && !rest.contains('/')
        })
    }

    /// The answer that a model call gave.
    #[must_use]
    pub fn output(&self) -> Self {
        self.under(format_args!("output"))
    }

    /// The `number`-th thing of a call that a policy has a say in.
    #[must_use]
    pub fn deed(&self, number: u32) -> Self {
        self.under(format_args!("deed:{number}"))
    }

    /// A payment of a call.
    #[must_use]
    pub fn payment(&self, name: &str) -> Self {
        self.under(format_args!("payment:{}", Escaped(name)))
    }

    /// The wait for the outside completion of a call.
    #[must_use]
    pub fn completion(&self) -> Self {
        self.under(format_args!("completion"))
    }

    /// The `number`-th wait of a model call for a provider that is down.
    #[must_use]
    pub fn provider(&self, number: u32, name: &str) -> Self {
        self.under(format_args!("provider:{number}:{}", Escaped(name)))
    }

    /// The provider that this waits for, if it is such a wait.
    pub fn awaited_provider(&self) -> Option<&str> {
        self.last().strip_prefix("provider:")?.split_once(':').map(|(_, name)| name)
    }

    /// Whether this is a wait for the provider of this name.
    pub fn awaits_provider(&self, name: &str) -> bool {
        self.awaited_provider().is_some_and(|awaited| awaited == Escaped(name).to_string())
    }

    /// The model call that waits here for its provider, if this is such a wait.
    pub fn waiting_model_call(&self) -> Option<Self> {
        self.awaited_provider()?;
        self.0.rsplit_once('/').map(|(call, _)| Self(call.to_owned()))
    }

    /// A model call as its `number`-th fallback model would answer it.
    #[must_use]
    pub fn fallback(&self, number: usize) -> Self {
        self.under(format_args!("fallback:{number}"))
    }

    /// The attempt of a model call after which this is the wait, if it is one. Only journals of older versions have such waits.
    pub fn backed_off(&self) -> Option<u32> {
        self.last().strip_prefix("backoff:")?.parse().ok()
    }

    /// The `number`-th wait of a model call for its turn at the provider.
    #[must_use]
    pub fn in_line(&self, number: u32) -> Self {
        self.under(format_args!("line:{number}"))
    }

    /// Whether this is a wait for a turn at the provider.
    pub fn is_in_line(&self) -> bool {
        self.last().starts_with("line:")
    }

    /// The `number`-th wait of an effect for a budget that is large enough.
    #[must_use]
    pub fn budget(&self, number: u32) -> Self {
        self.under(format_args!("budget:{number}"))
    }

    /// Whether this is a wait for a budget.
    pub fn is_budget(&self) -> bool {
        self.0.rsplit('/').next().is_some_and(|last| last.starts_with("budget:"))
    }

    /// The wait for a person after the turn got stuck for the `number`-th time.
    #[must_use]
    pub fn stuck(&self, number: u32) -> Self {
        self.under(format_args!("stuck:{number}"))
    }

    /// Whether this is a wait for a person after the turn got stuck.
    pub fn is_stuck(&self) -> bool {
        self.last().starts_with("stuck:")
    }

    /// Returns the same place in the session's `index`-th turn.
    #[must_use]
    pub fn in_turn(&self, index: u32) -> Self {
        let rest = self.0.strip_prefix("turn/").and_then(|rest| rest.split_once('/'));
        match rest {
            Some((_, rest)) => Self(format!("turn/{index}/{rest}")),
            None => Self::turn(index),
        }
    }

    /// The path as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this key stands below `parent`.
    pub fn is_under(&self, parent: &Self) -> bool {
        self.0.strip_prefix(&parent.0).is_some_and(|rest| rest.starts_with('/'))
    }

    fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    fn under(&self, part: fmt::Arguments<'_>) -> Self {
        let mut path = String::with_capacity(self.0.len() + 24);
        write!(path, "{}/{part}", self.0).expect("a String takes every write");
        Self(path)
    }
}

impl fmt::Display for ReplayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '/' | ':' | '%' => write!(f, "%{:02x}", c as u32)?,
                c if c.is_control() => write!(f, "%{:02x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_key_is_a_path_that_a_person_can_read() {
        let call = ReplayKey::turn(3).tools(1).child(0, "call_abc");
        assert_eq!(call.step("charge").as_str(), "turn/3/tools/1/child:0:call_abc/step:charge");
        assert!(call.step("charge").is_under(&call));
        assert!(!ReplayKey::turn(3).tools(1).child(0, "call_abcd").is_under(&call));
    }

    #[test]
    fn key_moves_to_another_turn() {
        let step = |index| ReplayKey::turn(index).tools(1).child(0, "call_abc").step("charge");
        assert_eq!(step(3).in_turn(12), step(12));
        assert_eq!(ReplayKey::turn(3).in_turn(4), ReplayKey::turn(4));
    }

    #[test]
    fn a_name_from_outside_cannot_pose_as_a_path() {
        let call = ReplayKey::turn(0).tools(0).child(0, "a");
        assert_ne!(call.step("b/step:c"), call.step("b").step("c"));
        assert_eq!(call.step("b/step:c").as_str(), "turn/0/tools/0/child:0:a/step:b%2fstep%3ac");
    }
}

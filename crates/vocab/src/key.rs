//! Replay keys: the path of an effect within a session. It is the same in every run and readable for people.
//!
//! An example is `turn/3/tools/0/child:0:call_abc/step:charge`. Parts that come from outside (call ids, step
//! names) are escaped, so no name can imitate another path.
use serde::{Deserialize, Serialize, Serializer};
use std::fmt::{self, Write};
use std::sync::Arc;

/// The path of an effect in its session. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(from = "String")]
pub struct ReplayKey(Arc<str>);

impl From<String> for ReplayKey {
    fn from(path: String) -> Self {
        Self(path.into())
    }
}

impl Serialize for ReplayKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl ReplayKey {
    /// Returns the root of all keys of the session's `index`-th turn.
    pub fn turn(index: u32) -> Self {
        Self(format!("turn/{index}").into())
    }

    /// Returns the key of the `iteration`-th model call of the turn.
    #[must_use]
    pub fn model(&self, iteration: u32) -> Self {
        self.under(format_args!("model/{iteration}"))
    }

    /// Returns the model call that this key is, or is part of.
    pub fn model_call(&self) -> Option<Self> {
        let mut ends = self.0.match_indices('/').map(|(at, _)| at).chain([self.0.len()]);
        let (turn, end) = (ends.nth(1)?, ends.nth(1)?);
        self.0[turn..].starts_with("/model/").then(|| Self(self.0[..end].into()))
    }

    /// Returns whether this is a request to a model: a model call of the turn, of a tool, or for a summary.
    pub fn is_model_request(&self) -> bool {
        let mut ends = self.0.rsplit('/');
        let (last, before) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
        matches!(before, "model" | "compact") || last.starts_with("direct:")
    }

    /// Returns the key of the tool batch of the `iteration`-th reply.
    #[must_use]
    pub fn tools(&self, iteration: u32) -> Self {
        self.under(format_args!("tools/{iteration}"))
    }

    /// Returns the key of one call of a batch, from its index and the id that the model gave it.
    #[must_use]
    pub fn child(&self, index: usize, model_call_id: &str) -> Self {
        self.under(format_args!("child:{index}:{}", EscapedSegment(model_call_id)))
    }

    /// Returns the key of the `number`-th compaction of the turn's conversation.
    #[must_use]
    pub fn compact(&self, number: u32) -> Self {
        self.under(format_args!("compact/{number}"))
    }

    /// Returns the key of a checkpoint of the turn, counted from its start.
    #[must_use]
    pub fn checkpoint(&self, number: u32) -> Self {
        self.under(format_args!("checkpoint/{number}"))
    }

    /// Returns the key of a durable step of a call.
    #[must_use]
    pub fn step(&self, name: &str) -> Self {
        self.under(format_args!("step:{}", EscapedSegment(name)))
    }

    /// Returns the key of the `number`-th sleep of a call.
    #[must_use]
    pub fn sleep(&self, number: u32) -> Self {
        self.under(format_args!("sleep:{number}"))
    }

    /// Returns the key of a call's wait for an event with this custom key.
    #[must_use]
    pub fn event(&self, custom: &str) -> Self {
        self.under(format_args!("event:{}", EscapedSegment(custom)))
    }

    /// Returns the key of the `number`-th direct model call of a tool call.
    #[must_use]
    pub fn direct(&self, number: u32) -> Self {
        self.under(format_args!("direct:{number}"))
    }

    /// Returns the key of the `number`-th nested tool call of a call.
    #[must_use]
    pub fn nested(&self, number: u32, tool: &str) -> Self {
        self.under(format_args!("tool:{number}:{}", EscapedSegment(tool)))
    }

    /// Returns the tool of a nested call.
    pub fn nested_tool(&self) -> Option<&str> {
        self.last().strip_prefix("tool:")?.split_once(':').map(|(_, tool)| tool)
    }

    /// Returns the key of the calls that undo the effects of an aborted turn.
    #[must_use]
    pub fn undo(&self) -> Self {
        self.under(format_args!("undo"))
    }

    /// Returns whether this is the key of the calls that undo an aborted turn.
    pub fn is_undo(&self) -> bool {
        self.0.ends_with("/undo")
    }

    /// Returns whether this key belongs to an undo.
    pub fn is_part_of_undo(&self) -> bool {
        self.0.split('/').any(|part| part == "undo")
    }

    /// Returns the key of a call's wait for the approval of this form. Another form has another key, so only
    /// the approved form can run.
    #[must_use]
    pub fn approval(&self, form: &crate::Hash) -> Self {
        self.under(format_args!("approval:{form}"))
    }

    /// Returns whether this is a wait for an approval.
    pub fn is_approval(&self) -> bool {
        self.last().starts_with("approval:")
    }

    /// Returns the form that an approval wait asks about.
    pub fn approved_form(&self) -> Option<crate::Hash> {
        self.last().strip_prefix("approval:")?.parse().ok()
    }

    /// Returns the key of a deferred call's wait.
    #[must_use]
    pub fn deferred(&self) -> Self {
        self.under(format_args!("deferred"))
    }

    /// Returns the key of the `number`-th policy decision after a deferral.
    #[must_use]
    pub fn decision_after_deferral(&self, number: u32) -> Self {
        self.under(format_args!("again:{number}"))
    }

    /// Returns the key of a call's wait for its rate limits.
    #[must_use]
    pub fn rate(&self) -> Self {
        self.under(format_args!("rate"))
    }

    /// Returns whether this is a wait for a rate limit.
    pub fn is_rate(&self) -> bool {
        self.last() == "rate"
    }

    /// Returns whether this is a wait after a deferral.
    pub fn is_deferred(&self) -> bool {
        self.last() == "deferred" || self.last().starts_with("again:")
    }

    /// Returns whether the call at `call` waits for this before it starts.
    pub fn blocks_start_of(&self, call: &Self) -> bool {
        let rest = self.0.strip_prefix(&*call.0).and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| {
            matches!(rest, "deferred" | "rate") || rest.starts_with("approval:") && !rest.contains('/')
        })
    }

    /// Returns the key of the answer of a model call.
    #[must_use]
    pub fn output(&self) -> Self {
        self.under(format_args!("output"))
    }

    /// Returns the key of the `number`-th action of a call that a policy decides about.
    #[must_use]
    pub fn action(&self, number: u32) -> Self {
        self.under(format_args!("deed:{number}"))
    }

    /// Returns the key of a payment of a call.
    #[must_use]
    pub fn payment(&self, name: &str) -> Self {
        self.under(format_args!("payment:{}", EscapedSegment(name)))
    }

    /// Returns the key of the wait for the external completion of a call.
    #[must_use]
    pub fn completion(&self) -> Self {
        self.under(format_args!("completion"))
    }

    /// Returns the key of the `number`-th wait of a model call for a provider that is down.
    #[must_use]
    pub fn provider(&self, number: u32, name: &str) -> Self {
        self.under(format_args!("provider:{number}:{}", EscapedSegment(name)))
    }

    /// Returns the provider that this key waits for, if it is such a wait.
    pub fn awaited_provider(&self) -> Option<&str> {
        self.last().strip_prefix("provider:")?.split_once(':').map(|(_, name)| name)
    }

    /// Returns the number of this wait for a provider, if it is such a wait.
    pub fn provider_wait_number(&self) -> Option<u32> {
        self.last().strip_prefix("provider:")?.split_once(':')?.0.parse().ok()
    }

    /// Returns whether this is a wait for the provider with this name.
    pub fn awaits_provider(&self, name: &str) -> bool {
        self.awaited_provider().is_some_and(|awaited| awaited == EscapedSegment(name).to_string())
    }

    /// Returns the model call of this wait for a provider, if it is such a wait.
    pub fn waiting_model_call(&self) -> Option<Self> {
        self.awaited_provider()?;
        self.0.rsplit_once('/').map(|(call, _)| Self(call.into()))
    }

    /// Returns the key of a model call to its `number`-th fallback model.
    #[must_use]
    pub fn fallback(&self, number: usize) -> Self {
        self.under(format_args!("fallback:{number}"))
    }

    /// Returns the model call attempt that this backoff wait follows. Only journals of older versions have
    /// such waits.
    pub fn backoff_attempt(&self) -> Option<u32> {
        self.last().strip_prefix("backoff:")?.parse().ok()
    }

    /// Returns the key of the `number`-th wait of a model call in the provider's queue.
    #[must_use]
    pub fn provider_queue(&self, number: u32) -> Self {
        self.under(format_args!("line:{number}"))
    }

    /// Returns whether this is a wait in a provider's queue.
    pub fn is_provider_queue(&self) -> bool {
        self.last().starts_with("line:")
    }

    /// Returns the key of the `number`-th wait of an effect for a sufficient budget.
    #[must_use]
    pub fn budget(&self, number: u32) -> Self {
        self.under(format_args!("budget:{number}"))
    }

    /// Returns whether this is a wait for a budget.
    pub fn is_budget(&self) -> bool {
        self.0.rsplit('/').next().is_some_and(|last| last.starts_with("budget:"))
    }

    /// Returns the key of the wait for a person after the turn got stuck for the `number`-th time.
    #[must_use]
    pub fn stuck(&self, number: u32) -> Self {
        self.under(format_args!("stuck:{number}"))
    }

    /// Returns whether this is a wait for a person after the turn got stuck.
    pub fn is_stuck(&self) -> bool {
        self.last().starts_with("stuck:")
    }

    /// Returns the turn, or the model call of a tool, that got stuck with this wait, if it is such a wait.
    pub fn stuck_at(&self) -> Option<Self> {
        let (stuck, _) = self.0.rsplit_once('/').filter(|_| self.is_stuck())?;
        Some(Self(stuck.into()))
    }

    /// Returns the same key in the session's `index`-th turn.
    #[must_use]
    pub fn in_turn(&self, index: u32) -> Self {
        let rest = self.0.strip_prefix("turn/").and_then(|rest| rest.split_once('/'));
        match rest {
            Some((_, rest)) => Self(format!("turn/{index}/{rest}").into()),
            None => Self::turn(index),
        }
    }

    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this key is below `parent`.
    pub fn is_under(&self, parent: &Self) -> bool {
        self.0.strip_prefix(&*parent.0).is_some_and(|rest| rest.starts_with('/'))
    }

    fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    fn under(&self, part: fmt::Arguments<'_>) -> Self {
        let mut path = String::with_capacity(self.0.len() + 24);
        write!(path, "{}/{part}", self.0).expect("a String takes every write");
        Self(path.into())
    }
}

impl fmt::Display for ReplayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

struct EscapedSegment<'a>(&'a str);

impl fmt::Display for EscapedSegment<'_> {
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
    fn replay_key_is_a_readable_path() {
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
    fn external_name_cannot_forge_a_path() {
        let call = ReplayKey::turn(0).tools(0).child(0, "a");
        assert_ne!(call.step("b/step:c"), call.step("b").step("c"));
        assert_eq!(call.step("b/step:c").as_str(), "turn/0/tools/0/child:0:a/step:b%2fstep%3ac");
    }
}

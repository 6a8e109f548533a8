//! Policy as data: rules, what they decide, and what a record keeps of a decision (R11.1, R11.2).
use crate::message::RuleId;
use crate::tool::PreparedCall;
use crate::{Hash, canon};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The rules of an agent. The first one that fits a call decides; a call that none fits is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Policy {
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The name of this version of the policy.
    pub fn version(&self) -> Hash {
        canon::fingerprint(self)
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What it is called in records and messages.
    pub id: RuleId,
    /// Which tools it is for; `*` stands for anything.
    #[serde(default = "any_tool", skip_serializing_if = "is_any_tool")]
    pub tool: String,
    /// What must be true of the arguments, all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<Test>,
    /// Whether it is only for calls that untrusted text may have asked for, or only for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted: Option<bool>,
    /// What it decides.
    pub then: Decision,
}

fn any_tool() -> String {
    "*".to_owned()
}

fn is_any_tool(pattern: &str) -> bool {
    pattern == "*"
}

/// Something that must be true of one argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// JSON pointer to the argument, like `/to/0`.
    pub path: String,
    /// What it must be.
    pub is: Comparison,
}

/// What an argument is held against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// It is one of these.
    OneOf(Vec<Value>),
    /// It is none of these.
    NoneOf(Vec<Value>),
    /// It is a larger number.
    Over(Number),
    /// It is a smaller number.
    Under(Number),
    /// It is a text like this, where `*` stands for anything.
    Like(String),
    /// It is a text unlike this.
    Unlike(String),
}

/// What a policy decides of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It runs.
    Allow,
    /// It does not; the model is told.
    Deny {
        /// Why.
        reason: String,
    },
    /// Somebody has to approve it first.
    Ask(Ask),
    /// It runs with these arguments changed, each by its JSON pointer.
    Modify {
        /// What is set.
        set: BTreeMap<String, Value>,
    },
    /// The turn ends here.
    Interrupt {
        /// Why.
        reason: String,
    },
    /// It runs after a while.
    Defer {
        /// How long it waits.
        pause: Duration,
    },
}

/// Who is asked, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Who may approve; nobody named is everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<String>,
    /// After which time nobody has approved, which is a no; without it the question waits for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Duration>,
}

/// What was decided, as the record of the call keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// The rule that decided.
    pub rule: RuleId,
    /// The version of the policy it is of.
    pub policy: Hash,
    /// What it decided.
    pub decision: Decision,
}

/// What somebody said to a question for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who.
    pub by: String,
    /// What.
    pub verdict: Verdict,
}

/// Yes, no, or yes with a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run as it was shown.
    Approve,
    /// It may not.
    Deny {
        /// Why.
        reason: String,
    },
    /// It may run with these arguments.
    Edit {
        /// All of them.
        arguments: Value,
    },
}

/// The fingerprint of what is approved: the tool as it is defined, the arguments, their labels, and the policy that asked.
pub fn approved_form(call: &PreparedCall, definition: Hash, policy: Hash) -> Hash {
    let PreparedCall { tool, arguments, labels, .. } = call;
    if labels.is_empty() {
        return canon::fingerprint(&(tool, definition, arguments, policy));
    }
    canon::fingerprint(&(tool, definition, arguments, policy, labels))
}

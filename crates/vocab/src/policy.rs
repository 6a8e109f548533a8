//! Policy as data: rules, decisions, and what a record stores about a decision.
//!
//! [`PolicyPoint`] lists where a policy decides, [`PolicyFacts`] what it decides about, and [`RuleTimes`] when a rule
//! applies.
mod facts;
mod point;
mod times;

pub use facts::{PolicyAction, PolicyFacts, TurnCircumstances};
pub use point::{PolicyPoint, TEMPERATURE, TEXT, TOKENS_MOST, VARIANT};
pub use times::{Day, Hours, LocalTime, RuleTimes};

use crate::approval::{AppliedGrant, Escalation};
use crate::cost::Cost;
use crate::effect::is_default;
use crate::id::OrgId;
use crate::message::RuleId;
use crate::tool::PreparedCall;
use crate::{Error, Hash, Kind, canonical_json};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// The rules of an agent. The first rule that matches a call decides; a call that no rule matches is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Policy {
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the fingerprint of this version of the policy.
    pub fn version(&self) -> Hash {
        canonical_json::fingerprint(self)
    }

    /// Returns an error if a rule is invalid at its point.
    pub fn check(&self) -> Result<(), Error> {
        self.rules.iter().try_for_each(Rule::check)
    }

    /// Returns whether a rule applies at this point.
    pub fn applies_at(&self, at: PolicyPoint) -> bool {
        self.rules.iter().any(|rule| rule.at == at)
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name in records and messages.
    pub id: RuleId,
    /// The point at which it decides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: PolicyPoint,
    /// The pattern of the tools it applies to; `*` stands for any text.
    #[serde(default = "any_tool", skip_serializing_if = "is_any_tool")]
    pub tool: String,
    /// Tests on the facts of its point, all of which must be true. The facts of a call are its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<RuleTest>,
    /// If set, it applies only to calls that untrusted text may have caused, or only to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted: Option<bool>,
    /// Patterns of the sources it applies to, of which one must match; `*` stands for any text. Applies to
    /// any source if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// If set, it applies only to calls whose sink values all come from trusted text, or only to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<ValueTrust>,
    /// The pattern of the agents it applies to; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The organisation whose sessions it applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<OrgId>,
    /// It applies to turns that have cost more than this so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_over: Option<Cost>,
    /// The times at which it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<RuleTimes>,
    /// Whether a session or a turn added the rule, and not the agent. Such a rule can only restrict.
    #[serde(default, skip_serializing_if = "is_default")]
    pub narrows: bool,
    /// Its decision.
    pub then: PolicyDecision,
}

impl Rule {
    /// Creates a rule for every call of every tool.
    pub fn new(id: RuleId, then: PolicyDecision) -> Self {
        Self {
            id,
            at: PolicyPoint::Tool,
            tool: any_tool(),
            tests: Vec::new(),
            untrusted: None,
            labels: Vec::new(),
            provenance: None,
            agent: None,
            org: None,
            cost_over: None,
            times: None,
            narrows: false,
            then,
        }
    }
}

/// Whether untrusted text may have chosen the sink values of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueTrust {
    /// Every sink value appears in trusted text, or the call has no sink.
    Trusted,
    /// A sink value does not appear in trusted text, or the call itself is the sink.
    Untrusted,
}

fn any_tool() -> String {
    "*".to_owned()
}

fn is_any_tool(pattern: &str) -> bool {
    pattern == "*"
}

/// A test of one fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleTest {
    /// The JSON pointer to the fact, like `/to/0`.
    pub path: String,
    /// The condition.
    pub is: Comparison,
}

/// The condition of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// It equals one of these values.
    OneOf(Vec<Value>),
    /// It equals none of these values.
    NoneOf(Vec<Value>),
    /// It is a number greater than this.
    Over(Number),
    /// It is a number less than this.
    Under(Number),
    /// It is a text that matches this pattern; `*` stands for any text.
    Like(String),
    /// It is a text that does not match this pattern.
    Unlike(String),
}

/// A policy decision. [`PolicyPoint::decisions`] lists which ones are possible at a point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyDecision {
    /// Let it run.
    Allow,
    /// Refuse it. The model reads the reason.
    Deny {
        /// The reason.
        reason: String,
    },
    /// Ask a person first.
    Ask(ApprovalRequirement),
    /// Let it run with some of its facts changed.
    Modify {
        /// The new values, each by its JSON pointer.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        set: BTreeMap<String, Value>,
        /// The replacements in an answer.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        redact: Vec<Redaction>,
    },
    /// End the turn.
    Interrupt {
        /// The reason.
        reason: String,
    },
    /// Let it run after a pause.
    Defer {
        /// The length of the pause.
        pause: Duration,
        /// What happens after the pause.
        #[serde(default, skip_serializing_if = "is_default")]
        resume: AfterDeferral,
    },
}

/// What happens to a deferred action after its pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterDeferral {
    /// It continues.
    #[default]
    Go,
    /// It is judged again, like a new action.
    Judge,
}

/// A replacement of every match in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redaction {
    /// A regular expression, matched in linear time.
    pub pattern: String,
    /// The literal replacement.
    pub with: String,
}

/// An approval question: who may approve, and by when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRequirement {
    /// The people who may approve. If empty, everyone may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<String>,
    /// The time after which a question without enough approvals is denied. Without it, the question never
    /// expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Duration>,
    /// The number of approvals needed. Defaults to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<NonZeroU32>,
    /// Whether every call needs its own approval, so that an approval for the rest of a session is not
    /// possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each_time: bool,
    /// The interval of reminders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind: Option<Duration>,
    /// Additional approvers after a timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate: Option<Box<Escalation>>,
    /// The reason for the question, for the approvers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
}

/// A decision, as a record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDecision {
    /// The rule that decided.
    pub rule: RuleId,
    /// The version of its policy.
    pub policy: Hash,
    /// The decision.
    pub decision: PolicyDecision,
    /// Whether this is a denial because the policy engine failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
    /// The grant that allowed the call without a question: an approval for the rest of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Box<AppliedGrant>>,
    /// The tool's preview of the call, for the approvers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Box<str>>,
    /// The other rule that took part, if two decided and both apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<RuleId>,
    /// Changes in addition to the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Box<FactChanges>>,
    /// The version of everything that decides, if a policy engine took part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Hash>,
}

/// A change to the facts that a policy decided about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactChanges {
    /// The new values, each by its JSON pointer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Value>,
    /// The replacements in an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<Redaction>,
}

impl RecordedDecision {
    /// Creates a ruling of a rule of this version of a policy.
    pub fn new(rule: RuleId, policy: Hash, decision: PolicyDecision) -> Self {
        Self {
            rule,
            policy,
            decision,
            failed: false,
            grant: None,
            preview: None,
            with: None,
            also: None,
            whole: None,
        }
    }

    /// Returns the new values, each by its JSON pointer, and the replacements, if the ruling changes
    /// anything.
    pub fn change(&self) -> Option<(&BTreeMap<String, Value>, &[Redaction])> {
        match (&self.decision, &self.also) {
            (PolicyDecision::Modify { set, redact }, _) => Some((set, redact)),
            (_, Some(change)) => Some((&change.set, &change.redact)),
            (_, None) => None,
        }
    }

    /// Returns the version of everything that decides here.
    pub fn version(&self) -> Hash {
        self.whole.unwrap_or(self.policy)
    }

    /// Returns whether the action does not happen now: it is refused or delayed.
    pub const fn prevents_action(&self) -> bool {
        !matches!(self.decision, PolicyDecision::Allow | PolicyDecision::Modify { .. })
    }

    /// Returns why the ruling refuses the action, if it does.
    pub fn refusal(&self) -> Option<Error> {
        let (kind, does, reason) = match &self.decision {
            PolicyDecision::Deny { reason } if self.failed => (Kind::PolicyFailed, "forbids it", reason),
            PolicyDecision::Deny { reason } => (Kind::PolicyDenied, "forbids it", reason),
            PolicyDecision::Interrupt { reason } => (Kind::PolicyInterrupted, "ends the turn", reason),
            _ => return None,
        };
        let refusal = Error::new(kind, format!("the rule `{}` {does}: {reason}", self.rule));
        Some(refusal.decided_by(self.to_string()))
    }
}

/// Formats the rule and the version of its policy, as errors name them.
impl fmt::Display for RecordedDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.rule, self.policy)
    }
}

/// A person's answer to an approval question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The person.
    pub by: String,
    /// The answer.
    pub verdict: ApprovalVerdict,
    /// The people who approved earlier, if several must.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

impl Approval {
    /// Creates the answer of one person.
    pub fn new(by: impl Into<String>, verdict: ApprovalVerdict) -> Self {
        Self { by: by.into(), verdict, with: Vec::new() }
    }
}

/// The answer to an approval question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// The call may run as it was shown.
    Approve,
    /// The call may run as it was shown, and so may every later call of the session that the same rule asks
    /// about.
    ApproveForSession,
    /// The call may not run.
    Deny {
        /// The reason.
        reason: String,
    },
    /// The call may run with these arguments.
    Edit {
        /// All arguments.
        arguments: Value,
    },
}

/// Returns the fingerprint of what is approved at a point other than `tool`: its facts, and the policy that
/// asked.
pub fn approved_facts_fingerprint(at: PolicyPoint, facts: &Value, policy: Hash) -> Hash {
    canonical_json::fingerprint(&(at, facts, policy))
}

/// Returns the fingerprint of an approved call: the tool with its definition, the arguments, their labels,
/// and the policy that asked.
pub fn approved_call_fingerprint(call: &PreparedCall, definition: Hash, policy: Hash) -> Hash {
    let PreparedCall { tool, arguments, labels, .. } = call;
    if labels.is_empty() {
        return canonical_json::fingerprint(&(tool, definition, arguments, policy));
    }
    canonical_json::fingerprint(&(tool, definition, arguments, policy, labels))
}

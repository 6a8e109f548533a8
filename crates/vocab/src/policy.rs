//! Policy as data: rules, what they decide, and what a record keeps of a decision (R11.1, R11.2).
//!
//! Where a policy is asked: [`Point`]. What it is asked about: [`Facts`]. When a rule is for: [`Times`].
mod facts;
mod point;
mod times;

pub use facts::{Circumstances, Deed, Facts};
pub use point::{Point, TEMPERATURE, TEXT, TOKENS_MOST, VARIANT};
pub use times::{Day, Hours, LocalTime, Times};

use crate::approval::{Escalation, Granted};
use crate::cost::Cost;
use crate::effect::is_default;
use crate::id::OrgId;
use crate::message::RuleId;
use crate::tool::PreparedCall;
use crate::{Error, Hash, Kind, canon};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
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

    /// Refuses rules that make no sense where they stand.
    pub fn check(&self) -> Result<(), Error> {
        self.rules.iter().try_for_each(Rule::check)
    }

    /// Whether a rule is for this point.
    pub fn speaks_at(&self, at: Point) -> bool {
        self.rules.iter().any(|rule| rule.at == at)
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it is called in records and messages.
    pub id: RuleId,
    /// Where it decides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub at: Point,
    /// Which tools it is for; `*` stands for anything.
    #[serde(default = "any_tool", skip_serializing_if = "is_any_tool")]
    pub tool: String,
    /// What must be true of the facts of its point, all of it; those of a call are its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<Test>,
    /// Whether it is only for calls that untrusted text may have asked for, or only for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted: Option<bool>,
    /// The sources one of which may have asked for what it is for; `*` stands for anything. Any where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Whether it is only for calls whose sink values all come from trusted text, or only for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<ValueTrust>,
    /// Which agents it is for; `*` stands for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Whose sessions it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<OrgId>,
    /// It is for turns that have cost more than this so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_over: Option<Cost>,
    /// When it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// Whether a session or a turn says it and not the agent: it lets only less happen than would without it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub narrows: bool,
    /// What it decides.
    pub then: Decision,
}

impl Rule {
    /// A rule for every call of every tool.
    pub fn new(id: RuleId, then: Decision) -> Self {
        Self {
            id,
            at: Point::Tool,
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

/// Whether untrusted text may have chosen the values that matter of a call.
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

/// Something that must be true of one fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// JSON pointer to the fact, like `/to/0`.
    pub path: String,
    /// What it must be.
    pub is: Comparison,
}

/// What a fact is held against.
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

/// What a policy decides. What of it is possible where is said by [`Point::decisions`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
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
    /// It runs with some of its facts changed.
    Modify {
        /// What is set, each by its JSON pointer.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        set: BTreeMap<String, Value>,
        /// What is replaced in an answer.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        redact: Vec<Redaction>,
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
        /// What becomes of it then.
        #[serde(default, skip_serializing_if = "is_default")]
        resume: Resume,
    },
}

/// What becomes of what was put off when its pause is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// It goes on.
    #[default]
    Go,
    /// It is judged again, as if it came only then.
    Judge,
}

/// What is replaced wherever it stands in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redaction {
    /// A regular expression, matched in linear time.
    pub pattern: String,
    /// What stands there instead, as it is.
    pub with: String,
}

/// Who is asked, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// Who may approve; nobody named is everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<String>,
    /// After which time nobody has approved, which is a no; without it the question waits for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Duration>,
    /// How many of them it takes; one where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<NonZeroU32>,
    /// Whether somebody is asked each time: nobody may approve for the rest of a session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each_time: bool,
    /// After which time they are reminded, again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind: Option<Duration>,
    /// Who may approve too after a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate: Option<Box<Escalation>>,
    /// Why they are asked, for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
}

/// What was decided, as the record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    /// The rule that decided.
    pub rule: RuleId,
    /// The version of the policy it is of.
    pub policy: Hash,
    /// What it decided.
    pub decision: Decision,
    /// Whether it stands because whoever decides could not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
    /// What allowed the call where somebody would have been asked: that it was approved for the rest of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Box<Granted>>,
    /// What the tool says the call would do, for whoever is asked about it (R6.16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Box<str>>,
    /// The other rule whose word counts too, where two decided and neither made up for the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<RuleId>,
    /// What is changed besides what is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<Box<Change>>,
    /// The version of everything that decides, where an engine had a say in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Hash>,
}

/// What is changed of what a policy is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What is set, each by its JSON pointer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Value>,
    /// What is replaced in an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<Redaction>,
}

impl Ruling {
    /// That a rule of this version of a policy decided this.
    pub fn new(rule: RuleId, policy: Hash, decision: Decision) -> Self {
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

    /// What is set, each by its JSON pointer, and what is replaced, if anything is.
    pub fn change(&self) -> Option<(&BTreeMap<String, Value>, &[Redaction])> {
        match (&self.decision, &self.also) {
            (Decision::Modify { set, redact }, _) => Some((set, redact)),
            (_, Some(change)) => Some((&change.set, &change.redact)),
            (_, None) => None,
        }
    }

    /// The version of everything that decides here.
    pub fn version(&self) -> Hash {
        self.whole.unwrap_or(self.policy)
    }

    /// Whether what it is about does not happen as it stands: not at all, or not yet.
    pub const fn holds_back(&self) -> bool {
        !matches!(self.decision, Decision::Allow | Decision::Modify { .. })
    }

    /// Why it keeps from happening what was asked about, if it does.
    pub fn refusal(&self) -> Option<Error> {
        let (kind, does, reason) = match &self.decision {
            Decision::Deny { reason } if self.failed => (Kind::PolicyFailed, "forbids it", reason),
            Decision::Deny { reason } => (Kind::PolicyDenied, "forbids it", reason),
            Decision::Interrupt { reason } => (Kind::PolicyInterrupted, "ends the turn", reason),
            _ => return None,
        };
        let refusal = Error::new(kind, format!("the rule `{}` {does}: {reason}", self.rule));
        Some(refusal.decided_by(self.to_string()))
    }
}

/// The rule and the version of its policy, as errors name them.
impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.rule, self.policy)
    }
}

/// What somebody said to a question for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Who.
    pub by: String,
    /// What.
    pub verdict: Verdict,
    /// Who said so before, where it takes several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

impl Approval {
    /// The word of one.
    pub fn new(by: impl Into<String>, verdict: Verdict) -> Self {
        Self { by: by.into(), verdict, with: Vec::new() }
    }
}

/// Yes, no, or yes with a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run as it was shown.
    Approve,
    /// It may run as it was shown, and so may every later call of the session that the same rule asks about.
    ApproveForSession,
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

/// The fingerprint of what is approved at a point that is no call: its facts, and the policy that asked.
pub fn approved_facts(at: Point, facts: &Value, policy: Hash) -> Hash {
    canon::fingerprint(&(at, facts, policy))
}

/// The fingerprint of what is approved: the tool as it is defined, the arguments, their labels, and the policy that asked.
pub fn approved_form(call: &PreparedCall, definition: Hash, policy: Hash) -> Hash {
    let PreparedCall { tool, arguments, labels, .. } = call;
    if labels.is_empty() {
        return canon::fingerprint(&(tool, definition, arguments, policy));
    }
    canon::fingerprint(&(tool, definition, arguments, policy, labels))
}

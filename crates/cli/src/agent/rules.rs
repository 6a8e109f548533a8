//! The `[[rules]]` tables of an agent: its policy.
use outlast::vocab::OrgId;
use outlast::vocab::approval::Escalation;
use outlast::vocab::cost::Cost;
use outlast::vocab::message::RuleId;
use outlast::vocab::policy::{
    AfterDeferral, ApprovalRequirement, Comparison, Day, Hours, PolicyDecision, PolicyPoint, Redaction, Rule,
    RuleTest, RuleTimes, ValueTrust,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// A rule. A field that belongs to another decision is an error.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[agents.NAME.rules]]")]
pub(super) struct RuleTable {
    /// The name in records and messages.
    #[schemars(with = "String")]
    name: RuleId,
    /// The point where it decides; default: `tool`.
    #[serde(default)]
    at: RulePoint,
    /// The tools that it applies to; `*` matches anything; default: every tool.
    tool: Option<String>,
    /// Conditions on the arguments, or on the facts of its point; all must be true.
    #[serde(default, rename = "where")]
    tests: Vec<ConditionTable>,
    /// `true`: only calls that untrusted text may have caused; `false`: only other calls.
    untrusted: Option<bool>,
    /// Only calls that text from one of these sources may have caused, like `tool:fetch`; `*` matches anything.
    labels: Option<Vec<String>>,
    /// `trusted`: only calls whose sink values all appear in trusted text; `untrusted`: only other calls.
    provenance: Option<ProvenanceTable>,
    /// The agents that it applies to; `*` matches anything.
    agent: Option<String>,
    /// The organisation whose sessions it applies to, by id: `org_…`.
    #[schemars(with = "Option<String>")]
    org: Option<OrgId>,
    /// Only turns whose model calls have cost more than this many dollars so far, like `"0.50"`.
    #[schemars(with = "Option<String>")]
    cost_over: Option<Cost>,
    /// Only on these days of the week; default: every day.
    days: Option<Vec<WeekDay>>,
    /// Only at these hours, like `09:00-17:30`; `22:00-06:00` spans midnight.
    #[schemars(with = "Option<String>")]
    hours: Option<Hours>,
    /// The time zone of `days` and `hours`, like `Europe/Berlin`; default: UTC.
    zone: Option<String>,
    /// The decision.
    then: RuleDecision,
    /// The reason, for `deny`, `interrupt` and `ask`.
    reason: Option<String>,
    /// Who may approve, for `ask`; default: anyone.
    who: Option<Vec<String>>,
    /// Seconds after which an unanswered request is denied, for `ask`.
    expires_s: Option<NonZeroU32>,
    /// How many approvals are needed, for `ask`; default: 1.
    approvals: Option<NonZeroU32>,
    /// Whether approvers may approve for the rest of a session, for `ask`; default: `true`.
    session: Option<bool>,
    /// Interval of reminders to the approvers in seconds, for `ask`.
    remind_s: Option<NonZeroU32>,
    /// Seconds after which the people in `escalate_to` may approve too, for `ask`.
    escalate_s: Option<NonZeroU32>,
    /// Who may also approve after `escalate_s`, for `ask`.
    escalate_to: Option<Vec<String>>,
    /// Arguments to set, by JSON pointer, for `modify`.
    set: Option<BTreeMap<String, Value>>,
    /// Text to replace in an answer, for `modify` at `output`.
    redact: Option<Vec<RedactionTable>>,
    /// Seconds that the call waits, for `defer`.
    pause_s: Option<NonZeroU32>,
    /// What follows the pause, for `defer` at `turn` and `model`: continue (`go`, default) or evaluate again (`judge`).
    #[schemars(with = "Option<String>", extend("enum" = [AfterDeferral::Go, AfterDeferral::Judge]))]
    resume: Option<AfterDeferral>,
}

/// The point where a rule decides.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum RulePoint {
    #[default]
    Tool,
    Turn,
    Model,
    Egress,
    Secret,
    Process,
    Payment,
    Output,
}

impl From<RulePoint> for PolicyPoint {
    fn from(at: RulePoint) -> Self {
        match at {
            RulePoint::Tool => Self::Tool,
            RulePoint::Turn => Self::Turn,
            RulePoint::Model => Self::Model,
            RulePoint::Egress => Self::Egress,
            RulePoint::Secret => Self::Secret,
            RulePoint::Process => Self::Process,
            RulePoint::Payment => Self::Payment,
            RulePoint::Output => Self::Output,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum WeekDay {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// Text to replace in an answer, at every occurrence.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[agents.NAME.rules.redact]]")]
struct RedactionTable {
    /// A regular expression.
    pattern: String,
    /// The replacement, inserted literally.
    with: String,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RuleDecision {
    Allow,
    Deny,
    Ask,
    Modify,
    Interrupt,
    Defer,
}

/// A condition on an argument: a path and one comparison.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[agents.NAME.rules.where]]")]
struct ConditionTable {
    /// JSON pointer to the argument or the fact, like `/euros`.
    path: String,
    /// Equals this value.
    is: Option<Value>,
    /// Equals one of these values.
    one_of: Option<Vec<Value>>,
    /// Equals none of these values.
    none_of: Option<Vec<Value>>,
    /// Is a number greater than this.
    over: Option<Number>,
    /// Is a number less than this.
    under: Option<Number>,
    /// Is a string that matches this pattern; `*` matches anything.
    like: Option<String>,
    /// Is a string that does not match this pattern.
    unlike: Option<String>,
}

/// Whether untrusted text may have chosen the sink values of a call.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ProvenanceTable {
    /// Every sink value appears in trusted text.
    Trusted,
    /// A sink value does not appear in trusted text, or the call itself is the sink.
    Untrusted,
}

impl From<ProvenanceTable> for ValueTrust {
    fn from(table: ProvenanceTable) -> Self {
        match table {
            ProvenanceTable::Trusted => Self::Trusted,
            ProvenanceTable::Untrusted => Self::Untrusted,
        }
    }
}

impl RuleTable {
    /// Converts the table to a rule. The error says what is wrong.
    pub(super) fn rule(mut self) -> Result<Rule, String> {
        let tests = std::mem::take(&mut self.tests).into_iter().map(ConditionTable::test);
        let wrong = |what: String| format!("rule `{}`: {what}", self.name);
        let tests = tests.collect::<Result<_, _>>().map_err(wrong)?;
        let then = self.decision().map_err(wrong)?;
        if self.labels.as_ref().is_some_and(Vec::is_empty) {
            return Err(wrong("`labels` needs a source, like `tool:fetch`".to_owned()));
        }
        let times = self.times().map_err(wrong)?;
        let rule = Rule {
            at: self.at.into(),
            tool: self.tool.unwrap_or_else(|| "*".to_owned()),
            tests,
            untrusted: self.untrusted,
            labels: self.labels.unwrap_or_default(),
            provenance: self.provenance.map(Into::into),
            agent: self.agent,
            org: self.org,
            cost_over: self.cost_over,
            times,
            ..Rule::new(self.name, then)
        };
        rule.check().map_err(|error| error.detail().to_owned())?;
        Ok(rule)
    }

    /// Returns the times at which the rule applies.
    fn times(&self) -> Result<Option<RuleTimes>, String> {
        let Self { days, hours, zone, .. } = self;
        if days.is_none() && hours.is_none() && zone.is_none() {
            return Ok(None);
        }
        let zone = zone.clone().unwrap_or_else(|| "UTC".to_owned());
        if jiff::tz::TimeZone::get(&zone).is_err() {
            return Err(format!("expected a time zone like `Europe/Berlin`, got `{zone}`"));
        }
        let days = days.iter().flatten().map(|day| Day::ALL[*day as usize]).collect();
        Ok(Some(RuleTimes { zone, days, hours: *hours }))
    }

    fn decision(&self) -> Result<PolicyDecision, String> {
        let fields = [
            ("reason", self.reason.is_some()),
            ("who", self.who.is_some()),
            ("expires_s", self.expires_s.is_some()),
            ("approvals", self.approvals.is_some()),
            ("session", self.session.is_some()),
            ("remind_s", self.remind_s.is_some()),
            ("escalate_s", self.escalate_s.is_some()),
            ("escalate_to", self.escalate_to.is_some()),
            ("set", self.set.is_some()),
            ("redact", self.redact.is_some()),
            ("pause_s", self.pause_s.is_some()),
            ("resume", self.resume.is_some()),
        ];
        let only = |name: &str, allowed: &[&str]| {
            let other = fields.iter().find(|(field, there)| *there && !allowed.contains(field));
            other.map_or(Ok(()), |(field, _)| {
                Err(format!("`{field}` has no effect if `then` is `{name}`; remove it"))
            })
        };
        let why = |name: &str| self.reason.clone().ok_or_else(|| format!("`{name}` needs a `reason`"));
        match self.then {
            RuleDecision::Allow => only("allow", &[]).map(|()| PolicyDecision::Allow),
            RuleDecision::Deny => {
                only("deny", &["reason"])?;
                Ok(PolicyDecision::Deny { reason: why("deny")? })
            }
            RuleDecision::Interrupt => {
                only("interrupt", &["reason"])?;
                Ok(PolicyDecision::Interrupt { reason: why("interrupt")? })
            }
            RuleDecision::Ask => {
                let more = ["remind_s", "escalate_s", "escalate_to"];
                only("ask", &[&["reason", "who", "expires_s", "approvals", "session"][..], &more].concat())?;
                self.ask().map(PolicyDecision::Ask)
            }
            RuleDecision::Modify => {
                only("modify", &["set", "redact"])?;
                let redact: Vec<Redaction> =
                    self.redact.iter().flatten().map(RedactionTable::redaction).collect();
                let set = self.set.clone().unwrap_or_default();
                if set.is_empty() && redact.is_empty() {
                    return Err(
                        "`modify` needs `set`, like `set = { \"/euros\" = 100 }`, or `redact`".to_owned()
                    );
                }
                match set.keys().find(|path| !path.starts_with('/')) {
                    Some(path) => Err(format!("expected a path like `/euros`, got `{path}`")),
                    None => Ok(PolicyDecision::Modify { set, redact }),
                }
            }
            RuleDecision::Defer => {
                only("defer", &["pause_s", "resume"])?;
                let pause = self.pause_s.ok_or("`defer` needs `pause_s`")?;
                let (pause, resume) =
                    (Duration::from_secs(pause.get().into()), self.resume.unwrap_or_default());
                Ok(PolicyDecision::Defer { pause, resume })
            }
        }
    }
}

impl RedactionTable {
    fn redaction(&self) -> Redaction {
        Redaction { pattern: self.pattern.clone(), with: self.with.clone() }
    }
}

impl RuleTable {
    fn ask(&self) -> Result<ApprovalRequirement, String> {
        let span = |seconds: NonZeroU32| Duration::from_secs(seconds.get().into());
        let escalate = match (self.escalate_s, &self.escalate_to) {
            (Some(after), Some(to)) => Some(Box::new(Escalation { after: span(after), to: to.clone() })),
            (None, None) => None,
            (Some(_), None) => return Err("`escalate_s` needs `escalate_to`".to_owned()),
            (None, Some(_)) => return Err("`escalate_to` needs `escalate_s`".to_owned()),
        };
        let ask = ApprovalRequirement {
            who: self.who.clone().unwrap_or_default(),
            expires: self.expires_s.map(span),
            approvals: self.approvals,
            each_time: self.session == Some(false),
            remind: self.remind_s.map(span),
            escalate,
            reason: self.reason.as_deref().map(Into::into),
        };
        ask.check().map(|()| ask)
    }
}

impl ConditionTable {
    fn test(self) -> Result<RuleTest, String> {
        let path = self.path;
        if !path.starts_with('/') {
            return Err(format!("expected a path like `/euros`, got `{path}`"));
        }
        let mut said = [
            self.is.map(|value| Comparison::OneOf(vec![value])),
            self.one_of.map(Comparison::OneOf),
            self.none_of.map(Comparison::NoneOf),
            self.over.map(Comparison::Over),
            self.under.map(Comparison::Under),
            self.like.map(Comparison::Like),
            self.unlike.map(Comparison::Unlike),
        ]
        .into_iter()
        .flatten();
        match (said.next(), said.next()) {
            (Some(is), None) => Ok(RuleTest { path, is }),
            _ => Err(format!(
                "`{path}` takes exactly one of `is`, `one_of`, `none_of`, `over`, `under`, `like`, `unlike`"
            )),
        }
    }
}

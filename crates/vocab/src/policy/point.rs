//! The points at which a policy decides, with the possible decisions and the visible facts of each.
use super::{AfterDeferral, PolicyDecision, Rule};
use crate::label::UntrustedSource;
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A point of a turn at which a policy decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyPoint {
    /// Before a tool call is claimed.
    #[default]
    Tool,
    /// Before a turn starts.
    Turn,
    /// Before a model call.
    Model,
    /// Before a tool sends a request.
    Egress,
    /// Before a tool receives a secret.
    Secret,
    /// Before a tool starts a program.
    Process,
    /// Before a tool reserves money.
    Payment,
    /// Before an answer completes its turn.
    Output,
}

/// The names of decisions in rules.
const ALLOW: &str = "allow";
const DENY: &str = "deny";
const ASK: &str = "ask";
const MODIFY: &str = "modify";
const INTERRUPT: &str = "interrupt";
const DEFER: &str = "defer";

impl PolicyPoint {
    /// All points.
    pub const ALL: [Self; 8] = [
        Self::Tool,
        Self::Turn,
        Self::Model,
        Self::Egress,
        Self::Secret,
        Self::Process,
        Self::Payment,
        Self::Output,
    ];

    /// Returns the name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Turn => "turn",
            Self::Model => "model",
            Self::Egress => "egress",
            Self::Secret => "secret",
            Self::Process => "process",
            Self::Payment => "payment",
            Self::Output => "output",
        }
    }

    /// Returns the names of the decisions that are possible here.
    pub const fn decisions(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &[ALLOW, DENY, ASK, MODIFY, INTERRUPT, DEFER],
            Self::Turn => &[ALLOW, DENY, ASK, DEFER],
            Self::Model => &[ALLOW, DENY, ASK, MODIFY, DEFER],
            Self::Egress | Self::Secret | Self::Process => &[ALLOW, DENY, INTERRUPT],
            Self::Payment => &[ALLOW, DENY, ASK, INTERRUPT],
            Self::Output => &[ALLOW, DENY, ASK, MODIFY, INTERRUPT],
        }
    }

    /// Returns the facts that rules see here, as JSON pointers. Rules also see everything below them. The
    /// arguments of a call depend on its tool.
    pub const fn facts(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &[""],
            Self::Turn => &["/input", "/attachments"],
            Self::Model => &["/model", "/call", TOKENS_MOST, TEMPERATURE, VARIANT],
            Self::Egress => &["/scheme", "/host", "/port", "/method", "/path"],
            Self::Secret => &["/name"],
            Self::Process => &["/program", "/args", "/sandboxed"],
            Self::Payment => &["/amount", "/currency", "/payee"],
            Self::Output => &[TEXT, "/value"],
        }
    }

    /// Returns whether the point belongs to a tool call.
    pub const fn is_call_point(self) -> bool {
        !matches!(self, Self::Turn | Self::Model | Self::Output)
    }

    /// Returns why a decision is not possible here, and the alternative.
    const fn impossible_reason(self, decision: &str) -> &'static str {
        match (self, decision.as_bytes()) {
            (Self::Egress | Self::Secret | Self::Process, b"ask" | b"defer" | b"modify") => {
                "; the tool is already running: decide the call instead, at `tool`"
            }
            (Self::Payment, b"defer" | b"modify") => "; decide the call instead, at `tool`",
            (Self::Turn | Self::Model, b"interrupt") => "; `deny` ends the turn here",
            _ => "",
        }
    }
}

impl fmt::Display for PolicyPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The token limit of a model call, which a rule can change.
pub const TOKENS_MOST: &str = "/options/tokens_most";
/// The temperature of a model call, which a rule can change.
pub const TEMPERATURE: &str = "/options/temperature_milli";
/// The variant of a model call, which a rule can change.
pub const VARIANT: &str = "/options/variant";
/// The text of an answer, which a rule can change.
pub const TEXT: &str = "/text";

impl PolicyDecision {
    /// Returns the name in rules.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Allow => ALLOW,
            Self::Deny { .. } => DENY,
            Self::Ask(_) => ASK,
            Self::Modify { .. } => MODIFY,
            Self::Interrupt { .. } => INTERRUPT,
            Self::Defer { .. } => DEFER,
        }
    }

    /// Returns the reason for the decision, if it has one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Deny { reason } | Self::Interrupt { reason } => Some(reason),
            Self::Ask(ask) => ask.reason.as_deref(),
            Self::Allow | Self::Modify { .. } | Self::Defer { .. } => None,
        }
    }

    /// Returns an error if the decision is not possible at a point.
    pub fn check_at(&self, at: PolicyPoint) -> Result<(), String> {
        let (name, possible) = (self.name(), at.decisions());
        if !possible.contains(&name) {
            let instead = at.impossible_reason(name);
            return Err(format!(
                "`{name}` is not supported at `{at}`, which supports: {}{instead}",
                possible.join(", ")
            ));
        }
        match self {
            Self::Modify { set, redact } => {
                if at != PolicyPoint::Output && !redact.is_empty() {
                    return Err(format!("`redact` is for answers, at `output`; this rule is at `{at}`"));
                }
                set.iter().try_for_each(|(path, value)| check_settable(at, path, value))
            }
            Self::Defer { resume: AfterDeferral::Judge, .. } if at == PolicyPoint::Tool => Err(format!(
                "only a turn or a model call is evaluated again after a pause, not a tool call; remove `resume` at `{at}`"
            )),
            _ => Ok(()),
        }
    }
}

/// Returns an error if a rule cannot set this value at a point.
fn check_settable(at: PolicyPoint, path: &str, value: &Value) -> Result<(), String> {
    let (fits, expected) = match (at, path) {
        (PolicyPoint::Model, TOKENS_MOST | TEMPERATURE) => (
            value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            "a whole number of at least 0",
        ),
        (PolicyPoint::Model, VARIANT) | (PolicyPoint::Output, TEXT) => (value.is_string(), "a text"),
        (PolicyPoint::Model, _) => {
            return Err(format!(
                "`{path}` cannot be set at `model`, only {TOKENS_MOST}, {TEMPERATURE}, {VARIANT}"
            ));
        }
        (PolicyPoint::Output, _) => return Err(format!("`{path}` cannot be set at `output`, only {TEXT}")),
        _ => return Ok(()),
    };
    if fits { Ok(()) } else { Err(format!("expected {expected} for `{path}`, got {value}")) }
}

impl Rule {
    /// Returns an error if the rule is invalid at its point.
    pub fn check(&self) -> Result<(), Error> {
        self.invalid_reason().map_or(Ok(()), |fault| {
            Err(Error::new(Kind::ConfigInvalid, format!("rule `{}`: {fault}", self.id)))
        })
    }

    fn invalid_reason(&self) -> Option<String> {
        let Self { at, tool, tests, untrusted, labels, provenance, then, times, .. } = self;
        if let Err(fault) = then.check_at(*at) {
            return Some(fault);
        }
        if !at.is_call_point() && tool != "*" {
            return Some(format!("`tool` has no effect at `{at}`, where no tool is called; remove it"));
        }
        if let Some(label) = labels.iter().find(|label| !UntrustedSource::may_be_like(label)) {
            return Some(format!(
                "no text has the label `{label}`; `labels` are `tool:NAME`, `hook:NAME`, `mcp:NAME`, `attachment` and `before`, and `*` matches anything"
            ));
        }
        if provenance.is_some() && *at != PolicyPoint::Tool {
            return Some("`provenance` is for rules at `tool`, where a call has arguments".to_owned());
        }
        if !labels.is_empty() && *untrusted == Some(false) {
            return Some(
                "`labels` select untrusted text, which `untrusted = false` excludes; remove one of them"
                    .to_owned(),
            );
        }
        let unseen = tests.iter().find(|test| !at.facts().iter().any(|fact| is_within(&test.path, fact)));
        if let Some(test) = unseen {
            let there = at.facts().join(", ");
            return Some(format!("there is no `{}` at `{at}`, which has: {there}", test.path));
        }
        let never = times.as_ref().filter(|times| times.days.is_empty() && times.hours.is_none());
        never.map(|_| "`zone` has no effect without `days` or `hours`; remove it".to_owned())
    }
}

fn is_within(path: &str, fact: &str) -> bool {
    path.strip_prefix(fact).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ApprovalRequirement, Comparison, Redaction, RuleTest};
    use expect_test::{Expect, expect};
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn decisions() -> [PolicyDecision; 6] {
        let reason = || "no".to_owned();
        [
            PolicyDecision::Allow,
            PolicyDecision::Deny { reason: reason() },
            PolicyDecision::Ask(ApprovalRequirement::default()),
            PolicyDecision::Modify { set: BTreeMap::new(), redact: Vec::new() },
            PolicyDecision::Interrupt { reason: reason() },
            PolicyDecision::Defer { pause: Duration::from_secs(1), resume: AfterDeferral::Go },
        ]
    }

    fn rule(at: PolicyPoint, then: PolicyDecision) -> Rule {
        Rule { at, ..Rule::new("r".parse().unwrap(), then) }
    }

    #[test]
    fn each_point_accepts_its_valid_decisions() {
        let line = |at: PolicyPoint| {
            let takes =
                |then: &PolicyDecision| if rule(at, then.clone()).check().is_ok() { '+' } else { '-' };
            format!("{:8}{}\n", at.name(), decisions().iter().map(takes).collect::<String>())
        };
        expect![[r"
            tool    ++++++
            turn    +++--+
            model   ++++-+
            egress  ++--+-
            secret  ++--+-
            process ++--+-
            payment +++-+-
            output  +++++-
        "]]
        .assert_eq(&PolicyPoint::ALL.map(line).concat());
    }

    #[track_caller]
    fn check(rule: &Rule, want: &Expect) {
        want.assert_eq(&rule.check().unwrap_err().to_string());
    }

    #[test]
    fn invalid_decision_error_lists_valid_ones() {
        check(
            &rule(PolicyPoint::Egress, PolicyDecision::Ask(ApprovalRequirement::default())),
            &expect![
                "config.invalid: rule `r`: `ask` is not supported at `egress`, which supports: allow, deny, interrupt; the tool is already running: decide the call instead, at `tool`"
            ],
        );
        check(
            &rule(PolicyPoint::Turn, PolicyDecision::Interrupt { reason: String::new() }),
            &expect![
                "config.invalid: rule `r`: `interrupt` is not supported at `turn`, which supports: allow, deny, ask, defer; `deny` ends the turn here"
            ],
        );
        let test = |path: &str| RuleTest { path: path.to_owned(), is: Comparison::Like("*".to_owned()) };
        check(
            &Rule { tests: vec![test("/hostname")], ..rule(PolicyPoint::Egress, PolicyDecision::Allow) },
            &expect![
                "config.invalid: rule `r`: there is no `/hostname` at `egress`, which has: /scheme, /host, /port, /method, /path"
            ],
        );
        check(
            &Rule { tool: "pay".to_owned(), ..rule(PolicyPoint::Model, PolicyDecision::Allow) },
            &expect![
                "config.invalid: rule `r`: `tool` has no effect at `model`, where no tool is called; remove it"
            ],
        );
        let set = |path: &str, value| PolicyDecision::Modify {
            set: [(path.to_owned(), value)].into(),
            redact: vec![],
        };
        check(
            &rule(PolicyPoint::Model, set("/model", json!("x"))),
            &expect![
                "config.invalid: rule `r`: `/model` cannot be set at `model`, only /options/tokens_most, /options/temperature_milli, /options/variant"
            ],
        );
        check(
            &rule(PolicyPoint::Model, set("/options/tokens_most", json!(-1))),
            &expect![
                "config.invalid: rule `r`: expected a whole number of at least 0 for `/options/tokens_most`, got -1"
            ],
        );
        let redact = vec![Redaction { pattern: "a".to_owned(), with: String::new() }];
        check(
            &rule(PolicyPoint::Model, PolicyDecision::Modify { set: BTreeMap::new(), redact }),
            &expect![
                "config.invalid: rule `r`: `redact` is for answers, at `output`; this rule is at `model`"
            ],
        );
        let again = PolicyDecision::Defer { pause: Duration::from_secs(1), resume: AfterDeferral::Judge };
        check(
            &rule(PolicyPoint::Tool, again.clone()),
            &expect![
                "config.invalid: rule `r`: only a turn or a model call is evaluated again after a pause, not a tool call; remove `resume` at `tool`"
            ],
        );
        assert!(
            rule(PolicyPoint::Turn, again.clone()).check().is_ok()
                && rule(PolicyPoint::Model, again).check().is_ok()
        );
        let labels = |label: &str| vec!["tool:fetch".to_owned(), label.to_owned()];
        check(
            &Rule { labels: labels("web"), ..rule(PolicyPoint::Tool, PolicyDecision::Allow) },
            &expect![
                "config.invalid: rule `r`: no text has the label `web`; `labels` are `tool:NAME`, `hook:NAME`, `mcp:NAME`, `attachment` and `before`, and `*` matches anything"
            ],
        );
        check(
            &Rule {
                labels: labels("hook:*"),
                untrusted: Some(false),
                ..rule(PolicyPoint::Tool, PolicyDecision::Allow)
            },
            &expect![
                "config.invalid: rule `r`: `labels` select untrusted text, which `untrusted = false` excludes; remove one of them"
            ],
        );
        for path in ["/args/0", "/args"] {
            assert!(
                Rule { tests: vec![test(path)], ..rule(PolicyPoint::Process, PolicyDecision::Allow) }
                    .check()
                    .is_ok()
            );
        }
    }
}

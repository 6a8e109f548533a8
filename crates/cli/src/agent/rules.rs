//! The rules of an agent as tables of its file.
use outlast::vocab::message::RuleId;
use outlast::vocab::policy::{Ask, Comparison, Decision, Rule, Test};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// One rule. What belongs to another decision is an error.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[agents.NAME.rules]]")]
pub(super) struct RuleTable {
    /// What it is called in records and messages.
    #[schemars(with = "String")]
    name: RuleId,
    /// Which tools it is for, `*` stands for anything; every tool without it.
    tool: Option<String>,
    /// What must be true of the arguments, all of it.
    #[serde(default, rename = "where")]
    tests: Vec<TestTable>,
    /// Only calls that untrusted text may have asked for, or only others.
    untrusted: Option<bool>,
    /// What it decides.
    then: Then,
    /// Why, for `deny` and `interrupt`.
    reason: Option<String>,
    /// Who may approve, for `ask`; anybody without it.
    who: Option<Vec<String>>,
    /// Seconds after which silence is a no, for `ask`.
    expires_s: Option<NonZeroU32>,
    /// Arguments that are set, by JSON pointer, for `modify`.
    set: Option<BTreeMap<String, Value>>,
    /// Seconds that the call waits, for `defer`.
    pause_s: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Then {
    Allow,
    Deny,
    Ask,
    Modify,
    Interrupt,
    Defer,
}

/// What must be true of an argument: one comparison.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[agents.NAME.rules.where]]")]
struct TestTable {
    /// JSON pointer to the argument, like `/euros`.
    path: String,
    /// It is this.
    is: Option<Value>,
    /// It is one of these.
    one_of: Option<Vec<Value>>,
    /// It is none of these.
    none_of: Option<Vec<Value>>,
    /// It is a larger number.
    over: Option<Number>,
    /// It is a smaller number.
    under: Option<Number>,
    /// It is a text like this, where `*` stands for anything.
    like: Option<String>,
    /// It is a text unlike this.
    unlike: Option<String>,
}

impl RuleTable {
    /// The rule, or what is wrong with it.
    pub(super) fn rule(&self) -> Result<Rule, String> {
        let name = &self.name;
        let tests = self.tests.iter().map(TestTable::test).collect::<Result<_, _>>();
        let tests = tests.map_err(|what| format!("rule `{name}`: {what}"))?;
        let then = self.decision().map_err(|what| format!("rule `{name}`: {what}"))?;
        let tool = self.tool.clone().unwrap_or_else(|| "*".to_owned());
        Ok(Rule { id: name.clone(), tool, tests, untrusted: self.untrusted, then })
    }

    fn decision(&self) -> Result<Decision, String> {
        let fields = [
            ("reason", self.reason.is_some()),
            ("who", self.who.is_some()),
            ("expires_s", self.expires_s.is_some()),
            ("set", self.set.is_some()),
            ("pause_s", self.pause_s.is_some()),
        ];
        let only = |name: &str, allowed: &[&str]| {
            let other = fields.iter().find(|(field, there)| *there && !allowed.contains(field));
            other
                .map_or(Ok(()), |(field, _)| Err(format!("`{field}` means nothing where `then` is `{name}`")))
        };
        let why = |name: &str| self.reason.clone().ok_or_else(|| format!("`{name}` needs a `reason`"));
        match self.then {
            Then::Allow => only("allow", &[]).map(|()| Decision::Allow),
            Then::Deny => {
                only("deny", &["reason"])?;
                Ok(Decision::Deny { reason: why("deny")? })
            }
            Then::Interrupt => {
                only("interrupt", &["reason"])?;
                Ok(Decision::Interrupt { reason: why("interrupt")? })
            }
            Then::Ask => {
                only("ask", &["who", "expires_s"])?;
                let expires = self.expires_s.map(|seconds| Duration::from_secs(seconds.get().into()));
                Ok(Decision::Ask(Ask { who: self.who.clone().unwrap_or_default(), expires }))
            }
            Then::Modify => {
                only("modify", &["set"])?;
                let set =
                    self.set.clone().ok_or("`modify` needs `set`, like `set = { \"/euros\" = 100 }`")?;
                match set.keys().find(|path| !path.starts_with('/')) {
                    Some(path) => Err(format!("expected a path like `/euros`, got `{path}`")),
                    None => Ok(Decision::Modify { set }),
                }
            }
            Then::Defer => {
                only("defer", &["pause_s"])?;
                let pause = self.pause_s.ok_or("`defer` needs `pause_s`")?;
                Ok(Decision::Defer { pause: Duration::from_secs(pause.get().into()) })
            }
        }
    }
}

impl TestTable {
    fn test(&self) -> Result<Test, String> {
        let path = self.path.clone();
        if !path.starts_with('/') {
            return Err(format!("expected a path like `/euros`, got `{path}`"));
        }
        let mut said = [
            self.is.clone().map(|value| Comparison::OneOf(vec![value])),
            self.one_of.clone().map(Comparison::OneOf),
            self.none_of.clone().map(Comparison::NoneOf),
            self.over.clone().map(Comparison::Over),
            self.under.clone().map(Comparison::Under),
            self.like.clone().map(Comparison::Like),
            self.unlike.clone().map(Comparison::Unlike),
        ]
        .into_iter()
        .flatten();
        match (said.next(), said.next()) {
            (Some(is), None) => Ok(Test { path, is }),
            _ => Err(format!(
                "`{path}` takes exactly one of `is`, `one_of`, `none_of`, `over`, `under`, `like`, `unlike`"
            )),
        }
    }
}

//! The rules of an agent as tables of its file.
use outlast::vocab::message::RuleId;
use outlast::vocab::policy::{Ask, Comparison, Decision, Rule, Test};
use serde::Deserialize;
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// One rule. What belongs to another decision is an error.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    name: RuleId,
    tool: Option<String>,
    #[serde(default, rename = "where")]
    tests: Vec<TestTable>,
    untrusted: Option<bool>,
    then: Then,
    reason: Option<String>,
    who: Option<Vec<String>>,
    expires_s: Option<NonZeroU32>,
    set: Option<BTreeMap<String, Value>>,
    pause_s: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
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
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestTable {
    path: String,
    is: Option<Value>,
    one_of: Option<Vec<Value>>,
    none_of: Option<Vec<Value>>,
    over: Option<Number>,
    under: Option<Number>,
    like: Option<String>,
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

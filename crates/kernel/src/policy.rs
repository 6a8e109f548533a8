//! Finds the rule that decides a call. Pure: the same rules and the same call give the same decision.
use outlast_vocab::label::Labels;
use outlast_vocab::message::ToolName;
use outlast_vocab::policy::{Comparison, Decision, Policy, Rule, Test};
use serde_json::{Number, Value};
use std::cmp::Ordering;

/// The first rule that fits, if one does.
pub fn judge<'p>(
    policy: &'p Policy,
    tool: &ToolName,
    arguments: &Value,
    labels: &Labels,
) -> Option<&'p Rule> {
    let meant = |rule: &&Rule| rule.untrusted.is_none_or(|untrusted| untrusted != labels.is_empty());
    policy.rules.iter().filter(meant).find(|rule| fits(rule, tool, arguments))
}

fn fits(rule: &Rule, tool: &ToolName, arguments: &Value) -> bool {
    // What cannot be compared is taken for the worse: it does not open what a rule allows, and falls under what it forbids.
    let unclear = !matches!(rule.then, Decision::Allow);
    like(&rule.tool, tool.as_str()) && rule.tests.iter().all(|test| holds(test, arguments).unwrap_or(unclear))
}

/// Whether something is true of the arguments; nothing if it cannot be told.
fn holds(test: &Test, arguments: &Value) -> Option<bool> {
    let value = at(arguments, &test.path);
    match &test.is {
        Comparison::OneOf(values) => Some(value.is_some_and(|value| values.contains(value))),
        Comparison::NoneOf(values) => Some(value.is_none_or(|value| !values.contains(value))),
        Comparison::Over(bound) => Some(compare(value?, bound)? == Ordering::Greater),
        Comparison::Under(bound) => Some(compare(value?, bound)? == Ordering::Less),
        Comparison::Like(pattern) => Some(like(pattern, value?.as_str()?)),
        Comparison::Unlike(pattern) => Some(!like(pattern, value?.as_str()?)),
    }
}

/// The value at a pointer. Most pointers name members alone and are followed without a copy.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    if path.contains('~') || !path.starts_with('/') {
        return value.pointer(path);
    }
    let mut found = value;
    for name in path[1..].split('/') {
        found = match found {
            Value::Object(members) => members.get(name)?,
            _ => return value.pointer(path),
        };
    }
    Some(found)
}

fn compare(value: &Value, bound: &Number) -> Option<Ordering> {
    let whole = |number: &Number| number.as_i128();
    let number = value.as_number()?;
    match (whole(number), whole(bound)) {
        (Some(value), Some(bound)) => Some(value.cmp(&bound)),
        _ => number.as_f64()?.partial_cmp(&bound.as_f64()?),
    }
}

/// Whether a text is like a pattern in which `*` stands for anything. Linear in the text for every star.
fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::label::Source;
    use serde_json::json;

    fn rule(id: &str, tool: &str, tests: Vec<(&str, Comparison)>, then: Decision) -> Rule {
        let tests = tests.into_iter().map(|(path, is)| Test { path: path.to_owned(), is }).collect();
        Rule { id: id.parse().unwrap(), tool: tool.to_owned(), tests, untrusted: None, then }
    }

    fn deny() -> Decision {
        Decision::Deny { reason: "no".to_owned() }
    }

    #[track_caller]
    fn check(policy: &Policy, tool: &str, arguments: &Value, want: Option<&str>) {
        let found =
            judge(policy, &tool.parse().unwrap(), arguments, &Labels::default()).map(|rule| rule.id.as_str());
        assert_eq!(found, want, "{tool} {arguments}");
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = Policy {
            rules: vec![
                rule("small", "pay", vec![("/euros", Comparison::Under(10.into()))], Decision::Allow),
                rule("large", "pay", vec![("/euros", Comparison::Over(100.into()))], deny()),
                rule("files", "file_*", vec![("/path", Comparison::Unlike("notes/*".into()))], deny()),
                rule("rest", "*", vec![("/to", Comparison::OneOf(vec![json!("eve")]))], deny()),
            ],
        };
        check(&policy, "pay", &json!({ "euros": 5 }), Some("small"));
        check(&policy, "pay", &json!({ "euros": 9.5 }), Some("small"));
        check(&policy, "pay", &json!({ "euros": 101 }), Some("large"));
        check(&policy, "pay", &json!({ "euros": 50 }), None);
        check(&policy, "pay", &json!({ "euros": 50, "to": "eve" }), Some("rest"));
        check(&policy, "file_write", &json!({ "path": "notes/a" }), None);
        check(&policy, "file_write", &json!({ "path": "etc/a" }), Some("files"));
    }

    #[test]
    fn what_cannot_be_compared_is_taken_for_the_worse() {
        let over = |then| Policy {
            rules: vec![rule("r", "pay", vec![("/euros", Comparison::Over(100.into()))], then)],
        };
        for arguments in [json!({}), json!({ "euros": "1000" }), json!({ "euros": null }), json!([])] {
            check(&over(deny()), "pay", &arguments, Some("r"));
            check(&over(Decision::Allow), "pay", &arguments, None);
        }
        // Numbers beyond what a float holds are compared exactly.
        let bound = Number::from(9_007_199_254_740_993_u64);
        let exact = Policy { rules: vec![rule("r", "pay", vec![("/n", Comparison::Over(bound))], deny())] };
        check(&exact, "pay", &json!({ "n": 9_007_199_254_740_993_u64 }), None);
        check(&exact, "pay", &json!({ "n": 9_007_199_254_740_994_u64 }), Some("r"));
    }

    #[test]
    fn a_rule_can_be_for_what_untrusted_text_may_have_asked_for() {
        let only = |untrusted, id| Rule { untrusted: Some(untrusted), ..rule(id, "*", vec![], deny()) };
        let policy = Policy { rules: vec![only(true, "tainted"), only(false, "clean")] };
        let found = |labels: &Labels| {
            judge(&policy, &"pay".parse().unwrap(), &json!({}), labels).map(|rule| rule.id.to_string())
        };
        assert_eq!(found(&Labels::default()).as_deref(), Some("clean"));
        assert_eq!(found(&Labels::from_iter([Source::Attachment])).as_deref(), Some("tainted"));
    }

    #[test]
    fn a_pointer_is_followed_as_the_standard_says() {
        let value = json!({ "a": { "b": [1, { "c": 2 }] }, "": 3, "a/b": 4, "m~n": 5 });
        for path in
            ["", "/", "/a", "/a/b/0", "/a/b/1/c", "/a/b/01", "/a~1b", "/m~0n", "/x", "/a/x", "a", "/a/"]
        {
            assert_eq!(at(&value, path), value.pointer(path), "{path}");
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "a b c", true),
            ("a*a", "a", false),
            ("*ab*", "aab", true),
            ("abc", "abcd", false),
            ("a**c", "ac", true),
            ("*b*b", "ab", false),
        ] {
            assert_eq!(like(pattern, text), fits, "{pattern} {text}");
        }
    }
}

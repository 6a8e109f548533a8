//! Finds the rule that decides, and combines the decisions of rules and an engine.
//!
//! Pure: the same rules and the same facts give the same decision.
use outlast_vocab::label::{Labels, UntrustedSource};
use outlast_vocab::message::ToolName;
use outlast_vocab::policy::{
    Comparison, FactChanges, Policy, PolicyDecision, PolicyFacts, PolicyPoint, RecordedDecision, Rule,
    RuleTest, TurnCircumstances, ValueTrust,
};
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem::discriminant;

/// Returns the first rule that matches.
pub fn judge<'p>(policy: &'p Policy, facts: &PolicyFacts<'_>) -> Option<&'p Rule> {
    policy.rules.iter().filter(|rule| rule.at == facts.at).find(|rule| matches_facts(rule, facts))
}

/// Returns the rules before `rule` that match the value as `rule` changes it, so that a change cannot bypass
/// an earlier rule. If such an earlier rule changes the value too, the rules before it are matched against
/// its result.
pub fn rules_overriding<'p>(policy: &'p Policy, rule: &'p Rule, facts: &PolicyFacts<'_>) -> Vec<&'p Rule> {
    let (mut found, mut last, mut value) = (Vec::new(), rule, Cow::Borrowed(facts.value));
    while let PolicyDecision::Modify { set, .. } = &last.then {
        value = Cow::Owned(with_values_set(&value, set));
        let facts = PolicyFacts { value: &value, ..*facts };
        let mut before = policy.rules.iter().take_while(|one| one.id != last.id);
        let Some(next) = before.find(|one| one.at == facts.at && matches_facts(one, &facts)) else { break };
        found.push(next);
        last = next;
    }
    found
}

/// Returns a copy of a value with some members set, each by its JSON pointer. A missing member is created if
/// its parent exists.
pub fn with_values_set(arguments: &Value, set: &BTreeMap<String, Value>) -> Value {
    let mut changed = arguments.clone();
    for (pointer, value) in set {
        if let Some(place) = changed.pointer_mut(pointer) {
            *place = value.clone();
        } else if let Some((parent, name)) = pointer.rsplit_once('/')
            && let Some(Value::Object(members)) = changed.pointer_mut(parent)
        {
            members.insert(name.replace("~1", "/").replace("~0", "~"), value.clone());
        }
    }
    changed
}

/// Returns whether no call of a tool can ever run: a rule denies all of them, and every rule for the tool
/// before it denies as well.
pub fn always_denies(policy: &Policy, agent: &str, tool: &ToolName) -> bool {
    let is_for = |rule: &&Rule| {
        let agent = rule.agent.as_ref().is_none_or(|pattern| matches_wildcard(pattern, agent));
        rule.at == PolicyPoint::Tool && agent && matches_wildcard(&rule.tool, tool.as_str())
    };
    let mut denies = policy
        .rules
        .iter()
        .filter(is_for)
        .take_while(|rule| matches!(rule.then, PolicyDecision::Deny { .. }));
    denies.any(|rule| {
        let Rule { tests, untrusted, labels, provenance, org, cost_over, times, .. } = rule;
        let of_facts = tests.is_empty() && untrusted.is_none() && labels.is_empty() && provenance.is_none();
        of_facts && org.is_none() && cost_over.is_none() && times.is_none()
    })
}

/// Returns whether a rule names every source of a text, so that no unnamed source can have influenced it.
pub fn names_all(rule: &Rule, labels: &Labels) -> bool {
    rule.labels.is_empty() || labels.sources().all(|source| names(rule, source))
}

fn names(rule: &Rule, source: &UntrustedSource) -> bool {
    let source = source.to_string();
    rule.labels.iter().any(|pattern| matches_wildcard(pattern, &source))
}

/// Returns whether a rule applies to text from these sources. One named source is enough, and an unknown
/// source may be any. An `allow` rule applies only if it names every source.
fn matches_labels(rule: &Rule, labels: &Labels) -> bool {
    match rule.then {
        _ if rule.labels.is_empty() => true,
        PolicyDecision::Allow => !labels.is_empty() && names_all(rule, labels),
        _ => labels.sources().any(|source| *source == UntrustedSource::Before || names(rule, source)),
    }
}

fn matches_facts(rule: &Rule, facts: &PolicyFacts<'_>) -> bool {
    // Unknown facts fail closed: they match restrictive rules and never `allow`.
    let unclear = !matches!(rule.then, PolicyDecision::Allow);
    let tool = facts.tool.map_or("", |tool| tool.as_str());
    rule.untrusted.is_none_or(|untrusted| untrusted != facts.labels.is_empty())
        && matches_wildcard(&rule.tool, tool)
        && matches_labels(rule, facts.labels)
        && rule
            .provenance
            .is_none_or(|trust| (trust == ValueTrust::Untrusted) == facts.provenance.is_tainted())
        && rule.tests.iter().all(|test| test_holds(test, facts.value).unwrap_or(unclear))
        && matches_circumstances(rule, facts.circumstances).unwrap_or(unclear)
}

/// Returns whether a rule applies in these circumstances, or `None` if that is unknown.
fn matches_circumstances(rule: &Rule, around: &TurnCircumstances) -> Option<bool> {
    let agent = rule.agent.as_ref().map(|pattern| Some(matches_wildcard(pattern, &around.agent)));
    let org = rule.org.map(|org| around.org.map(|whose| whose == org));
    let cost = rule.cost_over.map(|most| around.spent.map(|spent| spent > most));
    let times = rule.times.as_ref();
    let time = times.map(|times| around.times.get(&times.zone).map(|now| times.contain(*now)));
    let all: Vec<Option<bool>> = [agent, org, cost, time].into_iter().flatten().collect();
    // A known mismatch decides, whatever else is unknown.
    if all.contains(&Some(false)) {
        return Some(false);
    }
    all.into_iter().collect::<Option<Vec<bool>>>().map(|_| true)
}

/// Combines the decisions of rules and an engine: the stricter one stands, with the changes of the other.
/// Neither can allow what the other forbids. If both ask a person, an answer must satisfy both.
pub fn combine_decisions(
    rules: Option<RecordedDecision>,
    engine: Option<RecordedDecision>,
) -> Option<RecordedDecision> {
    let (first, second) = match (rules, engine) {
        (Some(first), Some(second)) => (first, second),
        (one, other) => return one.or(other),
    };
    let (stands, other) = match (&first.decision, &second.decision) {
        (PolicyDecision::Ask(_), PolicyDecision::Ask(_)) => return Some(join_questions(first, second)),
        (PolicyDecision::Modify { .. }, PolicyDecision::Modify { .. }) => {
            return Some(join_changes(first, second));
        }
        (PolicyDecision::Defer { pause, .. }, PolicyDecision::Defer { pause: longer, .. })
            if longer > pause =>
        {
            (second, first)
        }
        _ if strictness(&second.decision) > strictness(&first.decision) => (second, first),
        _ => (first, second),
    };
    Some(match (&stands.decision, other.decision) {
        (PolicyDecision::Defer { pause, resume }, PolicyDecision::Defer { resume: also, .. })
            if also > *resume =>
        {
            let decision = PolicyDecision::Defer { pause: *pause, resume: also };
            let (with, whole) = (Some(other.rule), stands.whole.or(other.whole));
            RecordedDecision { decision, with, whole, ..stands }
        }
        (PolicyDecision::Defer { .. } | PolicyDecision::Ask(_), PolicyDecision::Modify { set, redact }) => {
            let (with, whole) = (Some(other.rule), stands.whole.or(other.whole));
            RecordedDecision { with, whole, also: Some(Box::new(FactChanges { set, redact })), ..stands }
        }
        _ => stands,
    })
}

/// Ranks a decision by how much it restricts.
fn strictness(decision: &PolicyDecision) -> u8 {
    match decision {
        PolicyDecision::Allow => 0,
        PolicyDecision::Modify { .. } => 1,
        PolicyDecision::Defer { .. } => 2,
        PolicyDecision::Ask(_) => 3,
        PolicyDecision::Deny { .. } => 4,
        PolicyDecision::Interrupt { .. } => 5,
    }
}

/// Joins two questions into one. If no person could answer both, the result is a denial.
fn join_questions(first: RecordedDecision, second: RecordedDecision) -> RecordedDecision {
    let (PolicyDecision::Ask(one), PolicyDecision::Ask(other)) = (&first.decision, &second.decision) else {
        return first;
    };
    let decision = match one.join(other) {
        Ok(ask) => PolicyDecision::Ask(ask),
        Err(what) => PolicyDecision::Deny { reason: format!("`{}` asks too, and {what}", second.rule) },
    };
    RecordedDecision { decision, with: Some(second.rule), whole: first.whole.or(second.whole), ..first }
}

/// Joins two changes. If they contradict each other, the result is a denial.
fn join_changes(first: RecordedDecision, second: RecordedDecision) -> RecordedDecision {
    let (set, redact, more, also) = match (first.decision, second.decision) {
        (PolicyDecision::Modify { set, redact }, PolicyDecision::Modify { set: more, redact: also }) => {
            (set, redact, more, also)
        }
        (decision, _) => return RecordedDecision { decision, ..first },
    };
    let contradicts = |path: &&String| set.get(*path).is_some_and(|value| more.get(*path) != Some(value));
    if let Some(path) = more.keys().find(contradicts) {
        let reason = format!("`{}` and `{}` set `{path}` to something else each", first.rule, second.rule);
        return RecordedDecision { decision: PolicyDecision::Deny { reason }, ..first };
    }
    let set = set.into_iter().chain(more).collect();
    let redact = redact.into_iter().chain(also).collect();
    RecordedDecision { decision: PolicyDecision::Modify { set, redact }, with: Some(second.rule), ..first }
}

/// Returns whether a test is true of the facts, or `None` if that is unknown because the tested value is
/// missing or has another type.
fn test_holds(test: &RuleTest, facts: &Value) -> Option<bool> {
    let value = at(facts, &test.path)?;
    match &test.is {
        Comparison::OneOf(values) => is_among(value, values),
        Comparison::NoneOf(values) => is_among(value, values).map(|is| !is),
        Comparison::Over(bound) => Some(compare(value.as_number()?, bound)? == Ordering::Greater),
        Comparison::Under(bound) => Some(compare(value.as_number()?, bound)? == Ordering::Less),
        Comparison::Like(pattern) => Some(matches_wildcard(pattern, value.as_str()?)),
        Comparison::Unlike(pattern) => Some(!matches_wildcard(pattern, value.as_str()?)),
    }
}

/// Returns whether a value is in a list, or `None` if no element has the type of the value.
fn is_among(value: &Value, values: &[Value]) -> Option<bool> {
    if values.iter().any(|one| equal(value, one)) {
        return Some(true);
    }
    values.iter().any(|one| discriminant(value) == discriminant(one)).then_some(false)
}

/// Returns whether two values are equal. Numbers are compared by value, not by notation.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare(one, other) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(name, value)| other.get(name).is_some_and(|other| equal(value, other));
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}

/// Returns the value at a JSON pointer. Most pointers name members only and are followed without a copy.
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

fn compare(number: &Number, bound: &Number) -> Option<Ordering> {
    let whole = |number: &Number| number.as_i128();
    match (whole(number), whole(bound)) {
        (Some(value), Some(bound)) => Some(value.cmp(&bound)),
        _ => number.as_f64()?.partial_cmp(&bound.as_f64()?),
    }
}

/// Returns whether a text matches a pattern in which `*` stands for any text. Takes linear time in the text
/// for every star.
pub fn matches_wildcard(pattern: &str, text: &str) -> bool {
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
    use outlast_vocab::Hash;
    use outlast_vocab::approval::{Escalation, SentNotices};
    use outlast_vocab::id::OrgId;
    use outlast_vocab::label::Provenance;
    use outlast_vocab::policy::{AfterDeferral, ApprovalRequirement, Day, LocalTime, RuleTimes};
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::num::NonZeroU32;
    use std::time::Duration;

    fn rule(id: &str, tool: &str, tests: Vec<(&str, Comparison)>, then: PolicyDecision) -> Rule {
        let tests = tests.into_iter().map(|(path, is)| RuleTest { path: path.to_owned(), is }).collect();
        Rule { tool: tool.to_owned(), tests, ..Rule::new(id.parse().unwrap(), then) }
    }

    fn deny() -> PolicyDecision {
        PolicyDecision::Deny { reason: "no".to_owned() }
    }

    fn found<'p>(
        policy: &'p Policy,
        tool: &str,
        value: &Value,
        labels: &Labels,
        around: &TurnCircumstances,
    ) -> Option<&'p str> {
        let tool: ToolName = tool.parse().unwrap();
        let provenance = &Provenance::default();
        let facts = PolicyFacts {
            at: PolicyPoint::Tool,
            tool: Some(&tool),
            value,
            labels,
            provenance,
            circumstances: around,
        };
        judge(policy, &facts).map(|rule| rule.id.as_str())
    }

    #[track_caller]
    fn check(policy: &Policy, tool: &str, arguments: &Value, want: Option<&str>) {
        let found = found(policy, tool, arguments, &Labels::default(), &TurnCircumstances::default());
        assert_eq!(found, want, "{tool} {arguments}");
    }

    #[test]
    fn first_matching_rule_decides() {
        let policy = Policy {
            rules: vec![
                rule("small", "pay", vec![("/euros", Comparison::Under(10.into()))], PolicyDecision::Allow),
                rule("large", "pay", vec![("/euros", Comparison::Over(100.into()))], deny()),
                rule("files", "file_*", vec![("/path", Comparison::Unlike("notes/*".into()))], deny()),
                rule("rest", "pay", vec![("/to", Comparison::OneOf(vec![json!("eve")]))], deny()),
            ],
        };
        check(&policy, "pay", &json!({ "euros": 5 }), Some("small"));
        check(&policy, "pay", &json!({ "euros": 9.5 }), Some("small"));
        check(&policy, "pay", &json!({ "euros": 101 }), Some("large"));
        check(&policy, "pay", &json!({ "euros": 50, "to": "bob" }), None);
        check(&policy, "pay", &json!({ "euros": 50, "to": "eve" }), Some("rest"));
        check(&policy, "file_write", &json!({ "path": "notes/a" }), None);
        check(&policy, "file_write", &json!({ "path": "etc/a" }), Some("files"));
    }

    #[test]
    fn modified_call_is_checked_by_earlier_rules() {
        let set = |pairs: &[(&str, Value)]| PolicyDecision::Modify {
            set: pairs.iter().map(|(path, value)| ((*path).to_owned(), value.clone())).collect(),
            redact: vec![],
        };
        let policy = Policy {
            rules: vec![
                rule("gold", "pay", vec![("/to", Comparison::OneOf(vec![json!("gold")]))], deny()),
                rule(
                    "rename",
                    "pay",
                    vec![("/to", Comparison::OneOf(vec![json!("g")]))],
                    set(&[("/to", json!("gold"))]),
                ),
                rule("large", "pay", vec![("/euros", Comparison::Over(100.into()))], deny()),
                rule(
                    "alias",
                    "pay",
                    vec![("/to", Comparison::OneOf(vec![json!("bob")]))],
                    set(&[("/to", json!("g"))]),
                ),
                rule("more", "pay", vec![], set(&[("/euros", json!(1000))])),
            ],
        };
        let check = |arguments: Value, first: &str, want: &[&str]| {
            let (tool, labels, around) =
                ("pay".parse::<ToolName>().unwrap(), Labels::default(), TurnCircumstances::default());
            let facts = PolicyFacts {
                at: PolicyPoint::Tool,
                tool: Some(&tool),
                value: &arguments,
                labels: &labels,
                provenance: &Provenance::default(),
                circumstances: &around,
            };
            let rule = judge(&policy, &facts).unwrap();
            let found: Vec<&str> =
                rules_overriding(&policy, rule, &facts).into_iter().map(|rule| rule.id.as_str()).collect();
            assert_eq!((rule.id.as_str(), found.as_slice()), (first, want), "{arguments}");
        };
        check(json!({ "to": "ann", "euros": 1 }), "more", &["large"]);
        check(json!({ "to": "bob", "euros": 1 }), "alias", &["rename", "gold"]);
        check(json!({ "to": "g", "euros": 1 }), "rename", &["gold"]);
        check(json!({ "to": "gold", "euros": 1 }), "gold", &[]);
    }

    #[test]
    fn incomparable_argument_fails_closed() {
        let (number, text) = (&json!(1000), &json!("1000"));
        let comparisons = [
            // `is` in a rule file becomes `one_of` with one value.
            (Comparison::OneOf(vec![json!(1000)]), text),
            (Comparison::OneOf(vec![json!("1000"), json!("a")]), number),
            (Comparison::NoneOf(vec![json!("1000")]), number),
            (Comparison::Over(100.into()), text),
            (Comparison::Under(100.into()), text),
            (Comparison::Like("1*".to_owned()), number),
            (Comparison::Unlike("a*".to_owned()), number),
        ];
        for (comparison, other_kind) in comparisons {
            let policy =
                |then| Policy { rules: vec![rule("r", "pay", vec![("/x", comparison.clone())], then)] };
            let there = |value: &Value| json!({ "x": value });
            for arguments in [
                json!({}),
                json!([]),
                there(&json!(null)),
                there(&json!([1000])),
                there(&json!(["1000"])),
                there(&json!({ "0": 1000 })),
                there(&json!(true)),
                there(other_kind),
            ] {
                check(&policy(deny()), "pay", &arguments, Some("r"));
                check(&policy(PolicyDecision::Allow), "pay", &arguments, None);
            }
        }
    }

    #[test]
    fn number_comparison_ignores_notation() {
        let policy = |is| Policy { rules: vec![rule("r", "pay", vec![("/x", is)], deny())] };
        let among = || vec![json!(100), json!([1, { "n": 2 }])];
        for (x, is) in [
            (json!(100), true),
            (json!(100.0), true),
            (json!(1e2), true),
            (json!(100.5), false),
            (json!([1.0, { "n": 2.0 }]), true),
            (json!([1.0, { "n": 2.5 }]), false),
        ] {
            let (arguments, found) = (json!({ "x": x }), |holds: bool| holds.then_some("r"));
            check(&policy(Comparison::OneOf(among())), "pay", &arguments, found(is));
            check(&policy(Comparison::NoneOf(among())), "pay", &arguments, found(!is));
        }
        // Numbers that a float cannot represent are compared exactly.
        let bound = Number::from(9_007_199_254_740_993_u64);
        let exact = Policy { rules: vec![rule("r", "pay", vec![("/n", Comparison::Over(bound))], deny())] };
        check(&exact, "pay", &json!({ "n": 9_007_199_254_740_993_u64 }), None);
        check(&exact, "pay", &json!({ "n": 9_007_199_254_740_994_u64 }), Some("r"));
    }

    #[test]
    fn rule_can_match_untrusted_calls() {
        let only = |untrusted, id| Rule { untrusted: Some(untrusted), ..rule(id, "*", vec![], deny()) };
        let policy = Policy { rules: vec![only(true, "tainted"), only(false, "clean")] };
        let around = TurnCircumstances::default();
        let found = |labels: &Labels| found(&policy, "pay", &json!({}), labels, &around);
        assert_eq!(found(&Labels::default()), Some("clean"));
        assert_eq!(found(&Labels::from_iter([UntrustedSource::Attachment])), Some("tainted"));
    }

    #[test]
    fn rule_for_sources_allows_no_other_source() {
        let tool = |name: &str| UntrustedSource::Tool(name.parse().unwrap());
        let labels = |sources: &[UntrustedSource]| sources.iter().cloned().collect::<Labels>();
        let (around, nothing) = (TurnCircumstances::default(), json!({}));
        let fits = |then: &PolicyDecision, labels: &Labels| {
            let patterns = ["tool:wiki.*", "attachment"].map(str::to_owned).to_vec();
            let rule = Rule { labels: patterns, ..rule("r", "*", vec![], then.clone()) };
            found(&Policy { rules: vec![rule] }, "pay", &nothing, labels, &around).is_some()
        };
        let (wiki, fetch) = (|| tool("wiki.read"), || tool("fetch"));
        for (sources, denies, allows) in [
            (labels(&[]), false, false),
            (labels(&[wiki()]), true, true),
            (labels(&[UntrustedSource::Attachment, wiki()]), true, true),
            (labels(&[wiki(), fetch()]), true, false),
            (labels(&[fetch()]), false, false),
            // The sources are unknown.
            (labels(&[UntrustedSource::Before]), true, false),
        ] {
            assert_eq!(fits(&deny(), &sources), denies, "{sources}");
            assert_eq!(fits(&PolicyDecision::Allow, &sources), allows, "{sources}");
        }
    }

    #[test]
    fn agent_org_cost_and_time_conditions_fail_closed() {
        let (ours, others) = (OrgId::from_u128(1), OrgId::from_u128(2));
        let office = RuleTimes { zone: "UTC".to_owned(), days: vec![Day::Mon], hours: None };
        let known = TurnCircumstances {
            agent: "clerk".to_owned(),
            org: Some(ours),
            spent: Some("0.5".parse().unwrap()),
            times: [("UTC".to_owned(), LocalTime { day: Day::Mon, minute: 0 })].into(),
        };
        let unknown = TurnCircumstances { agent: "clerk".to_owned(), ..TurnCircumstances::default() };
        let base = |then| Rule::new("r".parse().unwrap(), then);
        let narrowed = |then: fn() -> PolicyDecision| {
            let at = |day| Some(RuleTimes { days: vec![day], ..office.clone() });
            [
                (Rule { org: Some(ours), ..base(then()) }, true),
                (Rule { org: Some(others), ..base(then()) }, false),
                (Rule { cost_over: Some("0.499999999999".parse().unwrap()), ..base(then()) }, true),
                (Rule { cost_over: Some("0.5".parse().unwrap()), ..base(then()) }, false),
                (Rule { times: at(Day::Mon), ..base(then()) }, true),
                (Rule { times: at(Day::Tue), ..base(then()) }, false),
            ]
        };
        let fits = |rule: &Rule, around: &TurnCircumstances| {
            let policy = Policy { rules: vec![rule.clone()] };
            found(&policy, "pay", &json!({}), &Labels::default(), around).is_some()
        };
        for (rule, is_for) in narrowed(deny) {
            assert_eq!(fits(&rule, &known), is_for, "{rule:?}");
            assert!(fits(&rule, &unknown), "{rule:?}");
        }
        for (rule, is_for) in narrowed(|| PolicyDecision::Allow) {
            assert_eq!(fits(&rule, &known), is_for, "{rule:?}");
            assert!(!fits(&rule, &unknown), "{rule:?}");
        }
        for (pattern, is_for) in [("cl*", true), ("clerk", true), ("boss", false)] {
            let rule = Rule { agent: Some(pattern.to_owned()), ..base(deny()) };
            assert_eq!(fits(&rule, &unknown), is_for, "{pattern}");
        }
        // The agent is known to be another one, whatever else is unknown.
        let boss =
            Rule { agent: Some("boss".to_owned()), cost_over: Some("1".parse().unwrap()), ..base(deny()) };
        assert!(!fits(&boss, &unknown));
    }

    #[test]
    fn rule_decides_only_at_its_point() {
        let policy =
            Policy { rules: vec![Rule { at: PolicyPoint::Egress, ..rule("out", "*", vec![], deny()) }] };
        check(&policy, "pay", &json!({}), None);
        assert!(policy.applies_at(PolicyPoint::Egress) && !policy.applies_at(PolicyPoint::Tool));
    }

    fn ask() -> impl Strategy<Value = ApprovalRequirement> {
        let names = || prop::collection::btree_set(prop::sample::select(vec!["ann", "bob", "cfo"]), 0..3);
        let list = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let span = || prop::option::of((1_u64..5).prop_map(Duration::from_secs));
        let asked = (names(), span(), 0_u32..3, any::<bool>(), span(), names());
        let asked = asked.prop_map(move |(who, expires, approvals, each_time, escalates, to)| {
            let escalate = escalates.map(|after| Box::new(Escalation { after, to: list(to) }));
            let approvals = NonZeroU32::new(approvals);
            ApprovalRequirement {
                who: list(who),
                expires,
                approvals,
                each_time,
                escalate,
                ..ApprovalRequirement::default()
            }
        });
        asked.prop_filter("it makes sense", |ask| ask.check().is_ok())
    }

    fn decision() -> impl Strategy<Value = PolicyDecision> {
        prop_oneof![
            Just(PolicyDecision::Allow),
            Just(deny()),
            ask().prop_map(PolicyDecision::Ask),
            Just(PolicyDecision::Interrupt { reason: "stop".to_owned() }),
            (1_u64..4, prop::sample::select(vec![AfterDeferral::Go, AfterDeferral::Judge])).prop_map(
                |(seconds, resume)| PolicyDecision::Defer { pause: Duration::from_secs(seconds), resume }
            ),
            (prop::sample::select(vec!["/a", "/b"]), 0..2).prop_map(|(path, value)| PolicyDecision::Modify {
                set: [(path.to_owned(), json!(value))].into(),
                redact: Vec::new()
            }),
        ]
    }

    fn ruling(rule: &str, decision: Option<&PolicyDecision>) -> Option<RecordedDecision> {
        decision.map(|decision| RecordedDecision::new(rule.parse().unwrap(), Hash::ZERO, decision.clone()))
    }

    /// Returns whether this person may answer now, and after the escalation.
    fn hears(ask: &ApprovalRequirement, name: &str) -> [bool; 2] {
        [false, true].map(|escalated| {
            let approvers = ask.approvers(SentNotices { escalated, ..SentNotices::default() });
            approvers.is_empty() || approvers.contains(&name)
        })
    }

    proptest! {
        #[test]
        fn stricter_of_two_decisions_wins(
            one in prop::option::of(decision()),
            other in prop::option::of(decision()),
        ) {
            let (one, other) = (one.as_ref(), other.as_ref());
            let both = combine_decisions(ruling("one", one), ruling("other", other));
            let turned = combine_decisions(ruling("one", other), ruling("other", one));
            let how = |decision: Option<&PolicyDecision>| decision.map_or(0, strictness);
            let stands = how(both.as_ref().map(|ruling| &ruling.decision));
            prop_assert!(stands >= how(one) && stands >= how(other));
            prop_assert_eq!(stands, how(turned.as_ref().map(|ruling| &ruling.decision)));
            prop_assert_eq!(both.is_some(), one.is_some() || other.is_some());
            // If one of them wants another judgement after the pause, it happens.
            let judges = |decision: Option<&PolicyDecision>| {
                matches!(decision, Some(PolicyDecision::Defer { resume: AfterDeferral::Judge, .. }))
            };
            if stands == 2 && (judges(one) || judges(other)) {
                prop_assert!(judges(both.as_ref().map(|ruling| &ruling.decision)));
            }
            // No change is lost while the call can still run.
            if let (Some(PolicyDecision::Modify { set, .. }), Some(both), 0..=3) = (one, &both, stands) {
                let (all, _) = both.change().expect("what one changes is changed");
                prop_assert!(set.iter().all(|(path, value)| all.get(path) == Some(value)));
            }
        }

        #[test]
        fn joined_approvals_require_approver_accepted_by_both(one in ask(), other in ask()) {
            let asks = |ask: &ApprovalRequirement| PolicyDecision::Ask(ask.clone());
            let both = combine_decisions(ruling("one", Some(&asks(&one))), ruling("other", Some(&asks(&other))));
            let both = both.unwrap();
            let PolicyDecision::Ask(joined) = &both.decision else {
                // No person could answer both.
                prop_assert_eq!(both.decision.name(), "deny");
                return Ok(());
            };
            prop_assert_eq!(joined.check(), Ok(()));
            for name in ["ann", "bob", "cfo", "eve"] {
                let (one, other) = (hears(&one, name), hears(&other, name));
                for (later, hears) in hears(joined, name).into_iter().enumerate() {
                    prop_assert!(!hears || one[later] && other[later], "{name}");
                }
            }
            prop_assert!(joined.approvals_needed() >= one.approvals_needed().max(other.approvals_needed()));
            prop_assert!(joined.each_time == (one.each_time || other.each_time));
            for expires in [one.expires, other.expires].into_iter().flatten() {
                prop_assert!(joined.expires.is_some_and(|joined| joined <= expires));
            }
            prop_assert_eq!(both.with.map(|rule| rule.to_string()), Some("other".to_owned()));
        }
    }

    #[test]
    fn json_pointer_follows_the_rfc() {
        let value = json!({ "a": { "b": [1, { "c": 2 }] }, "": 3, "a/b": 4, "m~n": 5 });
        for path in
            ["", "/", "/a", "/a/b/0", "/a/b/1/c", "/a/b/01", "/a~1b", "/m~0n", "/x", "/a/x", "a", "/a/"]
        {
            assert_eq!(at(&value, path), value.pointer(path), "{path}");
        }
    }

    #[test]
    fn wildcard_matches_any_text() {
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
            assert_eq!(matches_wildcard(pattern, text), fits, "{pattern} {text}");
        }
    }
}

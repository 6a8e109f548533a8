//! Shows people how two packages differ: `-` marks what is gone, `+` what is new.
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Texts with more lines than this are not compared line by line.
const LINES: usize = 1_000;

/// The member that fingerprints a program. Its value means nothing to people.
const MADE_OF: &str = "made_of";

/// Returns the lines that describe how `b` differs from `a`.
pub fn between(a: &Value, b: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", a, b, &mut lines);
    lines
}

fn compare(name: &str, a: &Value, b: &Value, lines: &mut Vec<String>) {
    if a == b {
        return;
    }
    if let (Some(a), Some(b)) = (named(a), named(b)) {
        let names: BTreeSet<&str> = a.keys().chain(b.keys()).copied().collect();
        for member in names {
            if member == MADE_OF && a.get(member) != b.get(member) {
                lines.push(format!("  {name}: it has another program or address"));
                continue;
            }
            let below = if name.is_empty() { member.to_owned() } else { format!("{name}.{member}") };
            match (a.get(member), b.get(member)) {
                (Some(was), Some(is)) => compare(&below, was, is, lines),
                (Some(gone), None) => lines.push(format!("- {below}: {}", summary(gone))),
                (None, new) => lines.extend(new.map(|new| format!("+ {below}: {}", summary(new)))),
            }
        }
        return;
    }
    match (a, b) {
        (Value::String(was), Value::String(is)) if was.contains('\n') || is.contains('\n') => {
            lines.push(format!("  {name}:"));
            lines.extend(changed(was, is));
        }
        (was, is) => lines.extend([format!("- {name}: {}", shown(was)), format!("+ {name}: {}", shown(is))]),
    }
}

/// Returns the members of an object, or the items of a list by their names, whatever their order.
fn named(value: &Value) -> Option<BTreeMap<&str, &Value>> {
    match value {
        Value::Object(members) => Some(members.iter().map(|(name, value)| (name.as_str(), value)).collect()),
        Value::Array(items) => items.iter().map(|item| Some((called(item)?, item))).collect(),
        _ => None,
    }
}

/// Describes a value that only one side has: its description, or the whole value.
fn summary(value: &Value) -> String {
    value.get("description").and_then(Value::as_str).map_or_else(|| shown(value), str::to_owned)
}

/// Formats a value for people: text without quotes.
pub fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the value with a name like `tools.pay`: a member, a named list item, or the list itself.
pub fn at<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let found = value.get(first)?;
    let Some(rest) = rest else { return Some(found) };
    match found {
        Value::Array(items) => items.iter().find(|item| called(item).or(item.as_str()) == Some(rest)),
        _ => found.get(rest),
    }
}

/// Returns the name of a list item, if it has one.
fn called(item: &Value) -> Option<&str> {
    ["name", "id"].iter().find_map(|key| item.get(key)?.as_str())
}

/// Returns the removed and added lines, without those that stayed.
fn changed(was: &str, is: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (was.lines().collect(), is.lines().collect());
    let minus = |line: &&str| format!("- {line}");
    let plus = |line: &&str| format!("+ {line}");
    if a.len() > LINES || b.len() > LINES {
        return a.iter().map(minus).chain(b.iter().map(plus)).collect();
    }
    // The length of the longest common subsequence, counted from each position to the end.
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] =
                if a[i] == b[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(minus(&a[i]));
            i += 1;
        } else {
            lines.push(plus(&b[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn difference_names_paths_and_compares_text_lines() {
        let a = json!({"agent": "a", "system": "one\ntwo\nthree", "tools": ["x"], "gone": {"x": 1},
            "contracts": [{"name": "x", "class": "pure"}, {"name": "y", "class": "pure", "made_of": "1"}]});
        let b = json!({"agent": "a", "system": "one\ntwo and a half\nthree\nfour", "tools": ["x", "y"], "model": "m",
            "contracts": [{"name": "y", "class": "idempotent", "made_of": "2"}, {"name": "x", "class": "pure"}]});
        expect![[r#"
            - contracts.y.class: pure
            + contracts.y.class: idempotent
              contracts.y: it has another program or address
            - gone: {"x":1}
            + model: m
              system:
            - two
            + two and a half
            + four
            - tools: ["x"]
            + tools: ["x","y"]"#]]
        .assert_eq(&between(&a, &b).join("\n"));
        assert!(between(&a, &a).is_empty());
    }
}

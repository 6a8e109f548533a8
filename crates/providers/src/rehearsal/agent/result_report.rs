//! Describes a tool's result in a sentence.
use outlast_vocab::message::{CallArguments, ToolName, ToolResult};
use outlast_vocab::{Failure, Kind};
use serde_json::Value;

/// The maximum number of remembered names to look up at once.
const LOOKED_UP_MOST: usize = 8;

/// The maximum number of characters of a result to show.
const RESULT_CHARS: usize = 1_000;

/// The report of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResultReport {
    /// A sentence.
    Sentence(String),
    /// These names must be looked up first.
    LookUp {
        /// The names.
        names: Vec<String>,
        /// The number of further names.
        left_out: usize,
    },
}

/// Describes a tool's result to the user. `arguments` are the arguments of the call, if known.
pub(super) fn report(
    tool: &ToolName,
    arguments: Option<&CallArguments>,
    result: &ToolResult,
) -> ResultReport {
    let value = match result {
        ToolResult::Ok(value) => value,
        ToolResult::Err(failure) => return ResultReport::Sentence(failed(tool, failure)),
    };
    let argument = |name: &str| match arguments {
        Some(CallArguments::Json(arguments)) => arguments.get(name).unwrap_or(&Value::Null),
        _ => &Value::Null,
    };
    let sentence = match tool.as_str() {
        "clock" => time(&text(value)),
        "calculator" => format!("{} is {}.", text(argument("expression")), text(value)),
        "value_set" => remembered(&text(argument("name")), argument("value")),
        "value_get" => recalled(&text(argument("name")), value),
        "value_list" => match value.as_array().map(Vec::as_slice) {
            None | Some([]) => "I do not remember anything yet.".to_owned(),
            Some(names) => {
                let looked_up = names.iter().take(LOOKED_UP_MOST).map(text).collect();
                let left_out = names.len().saturating_sub(LOOKED_UP_MOST);
                return ResultReport::LookUp { names: looked_up, left_out };
            }
        },
        "file_read" => format!("{} says:\n{}", text(argument("path")), shortened(&text(value))),
        "file_write" => format!("I wrote {} bytes to {}.", text(&value["bytes"]), text(argument("path"))),
        "file_list" => listed(argument("path"), value),
        _ => format!("{tool} gave {}.", shortened(&text(value))),
    };
    ResultReport::Sentence(sentence)
}

fn failed(tool: &ToolName, failure: &Failure) -> String {
    match failure.code {
        Kind::ToolOutcomeUnknown => format!("I do not know whether {tool} happened: {}.", failure.detail),
        _ => format!("I could not use {tool}: {} ({}).", failure.detail, failure.code.code()),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn time(iso: &str) -> String {
    match iso.strip_suffix('Z').and_then(|local| local.split_once('T')) {
        Some((date, time)) => format!("It is {time} UTC on {date}."),
        None => format!("It is {iso}."),
    }
}

fn remembered(name: &str, value: &Value) -> String {
    match value {
        Value::Null => format!("I have forgotten {}.", second_person(name)),
        Value::Bool(true) => format!("I will remember: {name}."),
        value => format!("I will remember that {} is {}.", second_person(name), text(value)),
    }
}

fn recalled(name: &str, value: &Value) -> String {
    match value {
        Value::Null => format!("I do not remember {}.", second_person(name)),
        Value::Bool(true) => format!("You asked me to remember: {name}."),
        value => {
            let name = second_person(name);
            let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
            format!("{}{rest} is {}.", first.to_uppercase(), text(value))
        }
    }
}

/// Changes "my" to "your" in the name of a value.
fn second_person(name: &str) -> String {
    name.strip_prefix("my ").map_or_else(|| name.to_owned(), |rest| format!("your {rest}"))
}

fn listed(path: &Value, value: &Value) -> String {
    let place = path.as_str().map(|path| format!(" in {path}")).unwrap_or_default();
    match value["entries"].as_array().map(Vec::as_slice) {
        None | Some([]) => format!("There are no files{place}."),
        Some(entries) => {
            let names: Vec<String> = entries.iter().map(text).collect();
            let more = value["left_out"].as_u64().filter(|more| *more > 0);
            let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
            format!("I see{place}: {}{more}.", shortened(&names.join(", ")))
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(RESULT_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    fn sentence(tool: &str, arguments: Value, result: &ToolResult) -> String {
        match report(&tool.parse().unwrap(), Some(&CallArguments::Json(arguments)), result) {
            ResultReport::Sentence(sentence) => sentence + "\n",
            look_up @ ResultReport::LookUp { .. } => format!("{look_up:?}\n"),
        }
    }

    #[test]
    fn each_tool_result_has_its_own_sentence() {
        let results = [
            ("clock", json!({}), json!("2026-07-03T10:20:30Z")),
            ("clock", json!({}), json!("2026-07-03T12:20:30+02:00")),
            ("calculator", json!({"expression": "2 + 3"}), json!("5")),
            ("value_set", json!({"name": "my name", "value": "Ann"}), json!({})),
            ("value_set", json!({"name": "tea", "value": null}), json!({})),
            ("value_set", json!({"name": "to buy milk", "value": true}), json!({})),
            ("value_get", json!({"name": "door code"}), json!("12 34")),
            ("value_get", json!({"name": "my name"}), json!(null)),
            ("value_get", json!({"name": "to buy milk"}), json!(true)),
            ("value_list", json!({}), json!([])),
            ("value_list", json!({}), json!(["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"])),
            ("file_read", json!({"path": "a.txt"}), json!("One.\nTwo.")),
            ("file_write", json!({"path": "a.txt"}), json!({"bytes": 9})),
            ("file_list", json!({}), json!({"entries": ["a.txt", "docs/"], "left_out": 0})),
            ("file_list", json!({"path": "docs"}), json!({"entries": ["a.md"], "left_out": 7})),
            ("file_list", json!({"path": "empty"}), json!({"entries": [], "left_out": 0})),
            ("pay", json!({}), json!({"receipt": 7})),
        ];
        let log = results.map(|(tool, arguments, value)| sentence(tool, arguments, &ToolResult::Ok(value)));
        expect![[r#"
            It is 10:20:30 UTC on 2026-07-03.
            It is 2026-07-03T12:20:30+02:00.
            2 + 3 is 5.
            I will remember that your name is Ann.
            I have forgotten tea.
            I will remember: to buy milk.
            Door code is 12 34.
            I do not remember your name.
            You asked me to remember: to buy milk.
            I do not remember anything yet.
            LookUp { names: ["1", "2", "3", "4", "5", "6", "7", "8"], left_out: 2 }
            a.txt says:
            One.
            Two.
            I wrote 9 bytes to a.txt.
            I see: a.txt, docs/.
            I see in docs: a.md and 7 more.
            There are no files in empty.
            pay gave {"receipt":7}.
        "#]]
        .assert_eq(&log.concat());
    }

    #[test]
    fn tool_failure_is_reported_with_its_reason() {
        let fail =
            |code, detail: &str| sentence("pay", json!({}), &ToolResult::Err(Failure::new(code, detail)));
        let log = fail(Kind::ToolFailed, "the account is closed")
            + &fail(Kind::ToolOutcomeUnknown, "the process stopped while this call ran");
        expect![[r"
            I could not use pay: the account is closed (tool.failed).
            I do not know whether pay happened: the process stopped while this call ran.
        "]]
        .assert_eq(&log);
    }

    #[test]
    fn a_long_result_is_shortened() {
        let long = "é".repeat(RESULT_CHARS + 1);
        let want = format!("pay gave {}… ({} bytes in all).\n", "é".repeat(RESULT_CHARS), long.len());
        assert_eq!(sentence("pay", json!({}), &ToolResult::Ok(json!(long))), want);
    }
}

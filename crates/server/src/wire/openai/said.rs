//! What the `input` of the Responses API says.
use crate::wire::conversed::Conversed;
use crate::wire::refusal::{Answer, Refusal};
use outlast_vocab::message::shown;
use serde_json::{Map, Value};

/// Reads the `input` of a request: a text, or a list of items.
pub(crate) fn input(input: &Value, into: &mut Conversed) -> Answer<()> {
    match input {
        Value::String(text) => into.say("user", text.clone(), "input"),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let place = format!("input[{index}]");
                let Value::Object(item) = item else {
                    return Err(Refusal::wrong(place, "expected an item, got something else"));
                };
                read(item, &place, into)?;
            }
            Ok(())
        }
        Value::Null => Err(Refusal::wrong("input", "expected a text or a list of items, got nothing")),
        _ => Err(Refusal::wrong("input", "expected a text or a list of items")),
    }
}

fn read(item: &Map<String, Value>, place: &str, into: &mut Conversed) -> Answer<()> {
    let member = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => {
            let content = item.get("content").unwrap_or(&Value::Null);
            into.say(member("role"), text(content, &format!("{place}.content"))?, place)
        }
        "function_call" => into.call(member("call_id"), member("name"), member("arguments"), place),
        "function_call_output" => {
            let output = item.get("output").unwrap_or(&Value::Null);
            let output = text(output, &format!("{place}.output"))?;
            into.result(member("call_id"), Value::String(output), &format!("{place}.call_id"))
        }
        // A tool of the agent, as an answer of ours told of it.
        "mcp_call" => {
            into.call(member("id"), member("name"), member("arguments"), place)?;
            into.result(member("id"), Value::String(member("output").to_owned()), place)
        }
        // What a model thought is not said.
        "reasoning" => Ok(()),
        other => {
            let why = format!("items of the type `{}` are not known here", shown(other));
            Err(Refusal::unsupported(format!("{place}.type"), why))
        }
    }
}

/// A text, or a list of parts that are text.
pub(crate) fn text(content: &Value, place: &str) -> Answer<String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let mut all = String::new();
            for (index, part) in parts.iter().enumerate() {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
                let member = if kind == "refusal" { "refusal" } else { "text" };
                let text = part.get(member).and_then(Value::as_str);
                let is_text = matches!(kind, "input_text" | "output_text" | "text" | "refusal");
                let Some(text) = text.filter(|_| is_text) else {
                    let why = format!("only text is taken, and this is `{}`", shown(kind));
                    return Err(Refusal::unsupported(format!("{place}[{index}].type"), why));
                };
                all.push_str(text);
            }
            Ok(all)
        }
        _ => Err(Refusal::wrong(place, "expected a text or a list of parts")),
    }
}

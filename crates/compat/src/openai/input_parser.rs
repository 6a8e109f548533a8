//! Parses the `input` of the Responses API.
use crate::compat_error::{CompatError, CompatResult};
use crate::content::{MessageContent, data_url};
use crate::conversation_items::ConversationItems;
use outlast_vocab::message::shown;
use serde_json::{Map, Value};

/// Parses the `input` of a request: a text, or a list of items.
pub(crate) fn input(input: &Value, into: &mut ConversationItems) -> CompatResult<()> {
    match input {
        Value::String(text) => into.add_message("user", vec![MessageContent::Text(text.clone())], "input"),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let place = format!("input[{index}]");
                let Value::Object(item) = item else {
                    return Err(CompatError::invalid_param(place, "expected an item, got something else"));
                };
                parse_item(item, &place, into)?;
            }
            Ok(())
        }
        Value::Null => {
            Err(CompatError::invalid_param("input", "expected a text or a list of items, got nothing"))
        }
        _ => Err(CompatError::invalid_param("input", "expected a text or a list of items")),
    }
}

fn parse_item(item: &Map<String, Value>, place: &str, into: &mut ConversationItems) -> CompatResult<()> {
    let member = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => {
            let content = item.get("content").unwrap_or(&Value::Null);
            into.add_message(member("role"), said(content, &format!("{place}.content"))?, place)
        }
        "function_call" => into.add_call(member("call_id"), member("name"), member("arguments"), place),
        "function_call_output" => {
            let output = item.get("output").unwrap_or(&Value::Null);
            let output = text(output, &format!("{place}.output"))?;
            into.add_result(member("call_id"), Value::String(output), &format!("{place}.call_id"))
        }
        // A call of one of the agent's own tools, as it appears in our answers.
        "mcp_call" => {
            into.add_call(member("id"), member("name"), member("arguments"), place)?;
            into.add_result(member("id"), Value::String(member("output").to_owned()), place)
        }
        // Reasoning is not part of the conversation.
        "reasoning" => Ok(()),
        other => {
            let why = format!("items of the type `{}` are not supported", shown(other));
            Err(CompatError::unsupported(format!("{place}.type"), why))
        }
    }
}

/// Parses a text, or a list of text parts, and concatenates them.
pub(crate) fn text(content: &Value, place: &str) -> CompatResult<String> {
    let texts = said(content, place)?.into_iter().map(|piece| piece.into_text(place));
    texts.collect::<CompatResult<Vec<String>>>().map(|texts| texts.concat())
}

/// Parses a text, or a list of parts.
pub(crate) fn said(content: &Value, place: &str) -> CompatResult<Vec<MessageContent>> {
    match content {
        Value::String(text) => Ok(vec![MessageContent::Text(text.clone())]),
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| content_part(part, &format!("{place}[{index}]")))
            .collect(),
        _ => Err(CompatError::invalid_param(place, "expected a text or a list of parts")),
    }
}

/// Parses a part. Chat Completions has `image_url` and `file`, Responses has `input_image` and `input_file`.
fn content_part(part: &Value, place: &str) -> CompatResult<MessageContent> {
    let kind = part["type"].as_str().unwrap_or_default();
    let member = |of: &Value, name: &str| of[name].as_str().map(ToOwned::to_owned);
    let held = |of: &Value, name: &str, place: &str| {
        let place = format!("{place}.{name}");
        let Some(url) = member(of, name) else {
            return Err(CompatError::unsupported(
                place,
                "only data in the request itself is supported, as `data:TYPE;base64,…`",
            ));
        };
        data_url(&url, of["filename"].as_str(), &place)
    };
    let text = match kind {
        "input_text" | "output_text" | "text" => member(part, "text"),
        "refusal" => member(part, "refusal"),
        "image_url" => return held(&part["image_url"], "url", &format!("{place}.image_url")),
        "file" => return held(&part["file"], "file_data", &format!("{place}.file")),
        "input_image" => return held(part, "image_url", place),
        "input_file" => return held(part, "file_data", place),
        _ => None,
    };
    text.map(MessageContent::Text).ok_or_else(|| {
        let why = format!("only texts, images and files are supported, not `{}`", shown(kind));
        CompatError::unsupported(format!("{place}.type"), why)
    })
}

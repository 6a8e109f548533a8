//! Parses the `messages` and the `system` prompt of a request.
use crate::compat_error::{CompatError, CompatResult};
use crate::content::{MessageContent, file, text_file};
use crate::conversation_items::ConversationItems;
use crate::segment_answer::BETWEEN_TEXTS;
use outlast_vocab::message::{ToolResult, shown};
use outlast_vocab::{Failure, Kind};
use serde_json::{Map, Value};

/// Parses one message.
pub(crate) fn message(
    message: &Map<String, Value>,
    place: &str,
    into: &mut ConversationItems,
) -> CompatResult<()> {
    let place = format!("{place}.content");
    let content = message.get("content").unwrap_or(&Value::Null);
    match message.get("role").and_then(Value::as_str) {
        Some("user") => parse_user(content, &place, into),
        Some("assistant") => parse_assistant(content, &place, into),
        other => {
            let detail = format!("expected user or assistant, got `{}`", shown(other.unwrap_or("nothing")));
            Err(CompatError::invalid_param(place.replace(".content", ".role"), detail))
        }
    }
}

/// Parses the system prompt, which adds to that of the agent.
pub(crate) fn system(system: &Value) -> CompatResult<Vec<String>> {
    match system {
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        said => blocks(said, "system")?
            .into_iter()
            .map(|(block, place)| text_of(block, &place).map(ToOwned::to_owned))
            .collect(),
    }
}

/// Parses a text, or blocks that are all text.
fn text(content: &Value, place: &str) -> CompatResult<String> {
    let mut all = String::new();
    for (block, place) in blocks(content, place)? {
        all.push_str(text_of(block, &place)?);
    }
    Ok(all)
}

/// Returns the blocks of a content, each with its path. A plain text is one block.
fn blocks<'a>(content: &'a Value, place: &str) -> CompatResult<Vec<(&'a Value, String)>> {
    match content {
        Value::String(_) => Ok(vec![(content, place.to_owned())]),
        Value::Array(blocks) => {
            Ok(blocks.iter().enumerate().map(|(index, block)| (block, format!("{place}[{index}]"))).collect())
        }
        _ => Err(CompatError::invalid_param(place, "expected a text or a list of blocks")),
    }
}

fn kind(block: &Value) -> &str {
    if block.is_string() { "text" } else { block["type"].as_str().unwrap_or_default() }
}

fn text_of<'a>(block: &'a Value, place: &str) -> CompatResult<&'a str> {
    let text = block.as_str().or_else(|| block["text"].as_str().filter(|_| kind(block) == "text"));
    text.ok_or_else(|| unknown(block, place))
}

fn unknown(block: &Value, place: &str) -> CompatError {
    let why = format!("blocks of the type `{}` are not supported", shown(kind(block)));
    CompatError::unsupported(format!("{place}.type"), why)
}

/// Parses a message of the user. Its tool results come before the rest of its content.
fn parse_user(content: &Value, place: &str, into: &mut ConversationItems) -> CompatResult<()> {
    let (mut said, mut results) = (Vec::new(), 0);
    for (block, place) in blocks(content, place)? {
        if kind(block) == "tool_result" {
            parse_result(block, &place, into)?;
            results += 1;
        } else {
            said.push(parse_block(block, &place)?);
        }
    }
    if said.is_empty() && results > 0 { Ok(()) } else { into.add_message("user", said, place) }
}

/// Parses a text, an image or a document.
fn parse_block(block: &Value, place: &str) -> CompatResult<MessageContent> {
    if !matches!(kind(block), "image" | "document") {
        return text_of(block, place).map(|text| MessageContent::Text(text.to_owned()));
    }
    let (source, name) = (&block["source"], block["title"].as_str());
    let member = |name: &str| source[name].as_str().unwrap_or_default();
    match member("type") {
        "base64" => file(member("media_type"), member("data"), name, &format!("{place}.source")),
        // A text document stays a file, because the user did not type its text.
        "text" => text_file(member("media_type"), member("data"), name, &format!("{place}.source")),
        other => {
            let why = format!("only data in the request itself is supported, not `{}`", shown(other));
            Err(CompatError::unsupported(format!("{place}.source.type"), why))
        }
    }
}

fn parse_result(block: &Value, place: &str, into: &mut ConversationItems) -> CompatResult<()> {
    let content = &block["content"];
    let said = if content.is_null() { String::new() } else { text(content, &format!("{place}.content"))? };
    let result = if block["is_error"] == Value::Bool(true) {
        ToolResult::Err(Failure::new(Kind::ToolFailed, said))
    } else {
        ToolResult::Ok(Value::String(said))
    };
    into.add_tool_result(
        block["tool_use_id"].as_str().unwrap_or_default(),
        result,
        &format!("{place}.tool_use_id"),
    )
}

fn parse_assistant(content: &Value, place: &str, into: &mut ConversationItems) -> CompatResult<()> {
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    for (block, place) in blocks(content, place)? {
        match kind(block) {
            "tool_use" => calls.push((block, place)),
            // Reasoning is not part of the conversation.
            "thinking" | "redacted_thinking" => {}
            _ => texts.push(text_of(block, &place)?),
        }
    }
    if texts.is_empty() && !calls.is_empty() {
        into.add_silent_reply();
    } else {
        // Join the text blocks, because our own answers have one block for each text.
        into.add_message("assistant", vec![MessageContent::Text(texts.join(BETWEEN_TEXTS))], place)?;
    }
    for (call, place) in calls {
        let of = |name: &str| call[name].as_str().unwrap_or_default();
        into.add_call(of("id"), of("name"), &call["input"].to_string(), &place)?;
    }
    Ok(())
}

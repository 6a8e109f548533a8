//! Parses the `messages` and the `system` prompt of a request.
use crate::wire::content::{Content, file, text_file};
use crate::wire::conversed::Conversed;
use crate::wire::gather::BETWEEN_TEXTS;
use crate::wire::refusal::{Answer, Refusal};
use outlast_vocab::message::{ToolResult, shown};
use outlast_vocab::{Failure, Kind};
use serde_json::{Map, Value};

/// Parses one message.
pub(crate) fn message(message: &Map<String, Value>, place: &str, into: &mut Conversed) -> Answer<()> {
    let place = format!("{place}.content");
    let content = message.get("content").unwrap_or(&Value::Null);
    match message.get("role").and_then(Value::as_str) {
        Some("user") => user(content, &place, into),
        Some("assistant") => assistant(content, &place, into),
        other => {
            let detail = format!("expected user or assistant, got `{}`", shown(other.unwrap_or("nothing")));
            Err(Refusal::wrong(place.replace(".content", ".role"), detail))
        }
    }
}

/// Parses the system prompt, which adds to that of the agent.
pub(crate) fn system(system: &Value) -> Answer<Vec<String>> {
    match system {
        Value::Null => Ok(Vec::new()),
        said => blocks(said, "system")?
            .into_iter()
            .map(|(block, place)| text_of(block, &place).map(ToOwned::to_owned))
            .collect(),
    }
}

/// Parses a text, or blocks that are all text.
fn text(content: &Value, place: &str) -> Answer<String> {
    let mut all = String::new();
    for (block, place) in blocks(content, place)? {
        all.push_str(text_of(block, &place)?);
    }
    Ok(all)
}

/// Returns the blocks of a content, each with its path. A plain text is one block.
fn blocks<'a>(content: &'a Value, place: &str) -> Answer<Vec<(&'a Value, String)>> {
    match content {
        Value::String(_) => Ok(vec![(content, place.to_owned())]),
        Value::Array(blocks) => {
            Ok(blocks.iter().enumerate().map(|(index, block)| (block, format!("{place}[{index}]"))).collect())
        }
        _ => Err(Refusal::wrong(place, "expected a text or a list of blocks")),
    }
}

fn kind(block: &Value) -> &str {
    if block.is_string() { "text" } else { block["type"].as_str().unwrap_or_default() }
}

fn text_of<'a>(block: &'a Value, place: &str) -> Answer<&'a str> {
    let text = block.as_str().or_else(|| block["text"].as_str().filter(|_| kind(block) == "text"));
    text.ok_or_else(|| unknown(block, place))
}

fn unknown(block: &Value, place: &str) -> Refusal {
    let why = format!("blocks of the type `{}` are not known here", shown(kind(block)));
    Refusal::unsupported(format!("{place}.type"), why)
}

/// Parses a message of the user. Its tool results come before the rest of its content.
fn user(content: &Value, place: &str, into: &mut Conversed) -> Answer<()> {
    let (mut said, mut results) = (Vec::new(), 0);
    for (block, place) in blocks(content, place)? {
        if kind(block) == "tool_result" {
            result(block, &place, into)?;
            results += 1;
        } else {
            said.push(piece(block, &place)?);
        }
    }
    if said.is_empty() && results > 0 { Ok(()) } else { into.say("user", said, place) }
}

/// Parses a text, an image or a document.
fn piece(block: &Value, place: &str) -> Answer<Content> {
    if !matches!(kind(block), "image" | "document") {
        return text_of(block, place).map(|text| Content::Text(text.to_owned()));
    }
    let (source, name) = (&block["source"], block["title"].as_str());
    let member = |name: &str| source[name].as_str().unwrap_or_default();
    match member("type") {
        "base64" => file(member("media_type"), member("data"), name, &format!("{place}.source")),
        // A text document stays a file, because the user did not type its text.
        "text" => text_file(member("media_type"), member("data"), name, &format!("{place}.source")),
        other => {
            let why = format!("only what the request holds itself is, and this is `{}`", shown(other));
            Err(Refusal::unsupported(format!("{place}.source.type"), why))
        }
    }
}

fn result(block: &Value, place: &str, into: &mut Conversed) -> Answer<()> {
    let content = &block["content"];
    let said = if content.is_null() { String::new() } else { text(content, &format!("{place}.content"))? };
    let result = if block["is_error"] == Value::Bool(true) {
        ToolResult::Err(Failure::new(Kind::ToolFailed, said))
    } else {
        ToolResult::Ok(Value::String(said))
    };
    into.gave(block["tool_use_id"].as_str().unwrap_or_default(), result, &format!("{place}.tool_use_id"))
}

fn assistant(content: &Value, place: &str, into: &mut Conversed) -> Answer<()> {
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
        into.silent_reply();
    } else {
        // Join the text blocks, because our own answers have one block for each text.
        into.say("assistant", vec![Content::Text(texts.join(BETWEEN_TEXTS))], place)?;
    }
    for (call, place) in calls {
        let of = |name: &str| call[name].as_str().unwrap_or_default();
        into.call(of("id"), of("name"), &call["input"].to_string(), &place)?;
    }
    Ok(())
}

//! Placeholders in a script for the input and the results of tools.
use outlast_ports::model::ModelRequest;
use outlast_vocab::message::{Message, ToolName, ToolResult, shown};
use outlast_vocab::{Error, Kind};
use serde_json::Value;
use std::borrow::Cow;

/// The part of a request that a script can see.
pub(super) struct ScriptView<'a> {
    /// The last input.
    pub(super) input: &'a Message,
    /// The number of replies since then.
    pub(super) replies: usize,
    turn: &'a [Message],
}

impl<'a> ScriptView<'a> {
    pub(super) fn of(request: &ModelRequest<'a>) -> Result<Self, Error> {
        let mut replies = 0;
        for message in request.messages().rev() {
            match message {
                Message::User { .. } => return Ok(Self { input: message, replies, turn: request.turn }),
                Message::Assistant { .. } => replies += 1,
                Message::Tool { .. } => {}
            }
        }
        Err(Error::new(Kind::ScriptMismatch, "the script replies to input, but the conversation has none"))
    }

    fn results(&self) -> impl DoubleEndedIterator<Item = (&'a ToolName, &'a ToolResult)> {
        self.turn.iter().filter_map(|message| match message {
            Message::Tool { tool, result, .. } => Some((tool, result)),
            Message::User { .. } | Message::Assistant { .. } => None,
        })
    }
}

/// A text with placeholders.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptTemplate(Vec<TemplatePiece>);

#[derive(Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Input,
    Result(ResultReference),
}

/// A result, or a part of it.
#[derive(Debug, PartialEq, Eq)]
struct ResultReference {
    selector: ResultSelector,
    /// A JSON pointer; empty for the whole.
    pointer: String,
}

#[derive(Debug, PartialEq, Eq)]
enum ResultSelector {
    Nth(usize),
    LatestOf(ToolName),
}

impl ScriptTemplate {
    /// Parses a text. The error says what was expected and what was found.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inside, after) = after
                .split_once("}}")
                .ok_or_else(|| format!("expected `}}}}` after `{{{{`, found `{}`", shown(after)))?;
            if !before.is_empty() {
                pieces.push(TemplatePiece::Text(before.to_owned()));
            }
            pieces.push(TemplatePiece::parse(inside.trim())?);
            rest = after;
        }
        if !rest.is_empty() || pieces.is_empty() {
            pieces.push(TemplatePiece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// Prepends a line break.
    pub(super) fn on_a_new_line(mut self) -> Self {
        match self.0.first_mut() {
            Some(TemplatePiece::Text(text)) => text.insert(0, '\n'),
            _ => self.0.insert(0, TemplatePiece::Text("\n".into())),
        }
        self
    }

    /// Appends another template.
    pub(super) fn append(&mut self, other: Self) {
        for piece in other.0 {
            match (self.0.last_mut(), piece) {
                (Some(TemplatePiece::Text(text)), TemplatePiece::Text(more)) => text.push_str(&more),
                (_, piece) => self.0.push(piece),
            }
        }
    }

    /// Fills in all placeholders. The error names what the session lacks.
    pub(super) fn fill<'a>(&'a self, scene: &ScriptView<'a>) -> Result<Cow<'a, str>, String> {
        if let [piece] = self.0.as_slice() {
            return piece.fill(scene);
        }
        self.0.iter().map(|piece| piece.fill(scene)).collect::<Result<String, String>>().map(Cow::Owned)
    }
}

impl TemplatePiece {
    fn parse(inside: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "expected `input`, `result TOOL` or `result N` between `{{{{` and `}}}}`, found `{}`",
                shown(inside)
            )
        };
        let mut words = inside.split_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("input"), None, ..) => Ok(Self::Input),
            (Some("result"), Some(which), pointer, None)
                if pointer.is_none_or(|pointer| pointer.starts_with('/')) =>
            {
                let which = match which.parse() {
                    Ok(index) => ResultSelector::Nth(index),
                    Err(_) => ResultSelector::LatestOf(which.parse().map_err(|_| unknown())?),
                };
                Ok(Self::Result(ResultReference {
                    selector: which,
                    pointer: pointer.unwrap_or_default().to_owned(),
                }))
            }
            _ => Err(unknown()),
        }
    }

    fn fill<'a>(&'a self, scene: &ScriptView<'a>) -> Result<Cow<'a, str>, String> {
        match self {
            Self::Text(text) => Ok(Cow::Borrowed(text)),
            Self::Input => Ok(scene.input.text()),
            Self::Result(wanted) => match wanted.find(scene)? {
                ResultValue::Whole(result) => Ok(result.text()),
                ResultValue::Part(Value::String(text)) => Ok(Cow::Borrowed(text)),
                ResultValue::Part(value) => Ok(Cow::Owned(value.to_string())),
            },
        }
    }
}

enum ResultValue<'a> {
    Whole(&'a ToolResult),
    Part(&'a Value),
}

impl ResultReference {
    fn find<'a>(&self, scene: &ScriptView<'a>) -> Result<ResultValue<'a>, String> {
        let result = match &self.selector {
            ResultSelector::Nth(index) => {
                scene.results().nth(*index).map(|(_, result)| result).ok_or_else(|| {
                    format!(
                        "wants result {index} of the turn, counted from 0, but the turn has {}",
                        scene.results().count()
                    )
                })
            }
            ResultSelector::LatestOf(tool) => {
                let latest = scene.results().rfind(|(name, _)| *name == tool);
                latest.map(|(_, result)| result).ok_or_else(|| {
                    let names: Vec<&str> = scene.results().map(|(name, _)| name.as_str()).collect();
                    match names.as_slice() {
                        [] => format!("wants a result of `{tool}`, but the turn has no results"),
                        names => {
                            format!("wants a result of `{tool}`, but the turn has only: {}", names.join(", "))
                        }
                    }
                })
            }
        }?;
        match result {
            ToolResult::Ok(value) if !self.pointer.is_empty() => {
                value.pointer(&self.pointer).map(ResultValue::Part).ok_or_else(|| {
                    let (pointer, result) = (&self.pointer, result.text());
                    format!("wants `{pointer}` of a result, but the result is `{}`", shown(&result))
                })
            }
            _ => Ok(ResultValue::Whole(result)),
        }
    }
}

/// Checks the placeholders in the strings of a JSON value.
pub(super) fn check_json(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => ScriptTemplate::parse(text).map(drop),
        Value::Array(items) => items.iter().try_for_each(check_json),
        Value::Object(members) => members.values().try_for_each(check_json),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Fills in all placeholders of a JSON value. A string that is a single result becomes that result.
pub(super) fn fill_json(value: &Value, scene: &ScriptView<'_>) -> Result<Value, String> {
    match value {
        Value::String(text) if text.contains("{{") => {
            let template = ScriptTemplate::parse(text)?;
            if let [TemplatePiece::Result(wanted)] = template.0.as_slice() {
                return Ok(match wanted.find(scene)? {
                    ResultValue::Whole(ToolResult::Ok(value)) | ResultValue::Part(value) => value.clone(),
                    ResultValue::Whole(failed) => Value::String(failed.text().into_owned()),
                });
            }
            Ok(Value::String(template.fill(scene)?.into_owned()))
        }
        Value::Array(items) => {
            items.iter().map(|item| fill_json(item, scene)).collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| Ok((name.clone(), fill_json(value, scene)?));
            members.iter().map(member).collect::<Result<_, _>>().map(Value::Object)
        }
        plain => Ok(plain.clone()),
    }
}

//! What people, models and tools say to each other in a session.
use crate::error::Failure;
use crate::id::AttachmentId;
use crate::{Error, Hash, Kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// One message of a session, in the order a model reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Somebody's input.
    User {
        /// What they sent.
        parts: Vec<Part>,
    },
    /// A model's reply.
    Assistant {
        /// What it said.
        parts: Vec<Part>,
        /// The tools it asked for, in its order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolUse>,
    },
    /// The result of one tool call.
    Tool {
        /// The id the model gave the call.
        call: ModelCallId,
        /// The tool that ran.
        tool: ToolName,
        /// What it gave.
        result: ToolResult,
    },
}

impl Message {
    /// A user's message of one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { parts: vec![Part::text(text)] }
    }

    /// The text parts, joined; a tool's result as the model reads it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::User { parts } | Self::Assistant { parts, .. } => text_of(parts),
            Self::Tool { result, .. } => result.text(),
        }
    }

    /// About how many bytes a model reads for this message, its role and ids among them.
    pub fn size(&self) -> usize {
        const ROLE_AND_IDS: usize = 32;
        let content = match self {
            Self::User { parts } => parts.iter().map(Part::size).sum(),
            Self::Assistant { parts, calls } => {
                let asked: usize =
                    calls.iter().map(|call| call.tool.as_str().len() + call.arguments.size()).sum();
                parts.iter().map(Part::size).sum::<usize>() + asked
            }
            Self::Tool { result, .. } => result.size(),
        };
        ROLE_AND_IDS + content
    }
}

/// The text of some parts, joined; borrowed when there is one.
pub fn text_of(parts: &[Part]) -> Cow<'_, str> {
    match parts {
        [Part::Text { text }] => Cow::Borrowed(text),
        parts => parts.iter().filter_map(Part::as_text).collect(),
    }
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// What a model thought before it answered, kept with its signature so that it can be sent back.
    Reasoning {
        /// The thought, as far as the provider shows it.
        text: String,
        /// The provider's proof that the thought is its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// What only the provider that gave it can read, sent back to it as it came and shown to nobody else.
    Sealed {
        /// The provider.
        provider: String,
        /// The block, as it came.
        data: Value,
    },
    /// An image or file, by reference.
    Attachment {
        /// Where its bytes are and what they are.
        attachment: Attachment,
    },
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text, if this is a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Reasoning { .. } | Self::Sealed { .. } | Self::Attachment { .. } => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Text { text } | Self::Reasoning { text, .. } => text.len(),
            Self::Sealed { data, .. } => json_size(data),
            Self::Attachment { .. } => 0,
        }
    }
}

/// Bytes that a message refers to but does not hold (R2.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The attachment's id.
    pub id: AttachmentId,
    /// Where its bytes are in the blob store.
    pub content: Hash,
    /// What kind of bytes they are.
    pub media_type: MediaType,
    /// What it was called where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A media type that can be stored: `type/subtype`, lower case, no parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MediaType(String);

impl TryFrom<String> for MediaType {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let token = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
        };
        match text.split_once('/') {
            Some((kind, subtype)) if token(kind) && token(subtype) => Ok(Self(text)),
            _ => Err(Error::new(
                Kind::AttachmentMediaType,
                format!("expected a media type like `image/png`, got `{text}`"),
            )),
        }
    }
}

impl MediaType {
    /// The type as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<MediaType> for String {
    fn from(media_type: MediaType) -> Self {
        media_type.0
    }
}

/// A tool as a model asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The id the model gave the call; unique in its reply.
    pub id: ModelCallId,
    /// The tool it named.
    pub tool: ToolName,
    /// What it wants to pass.
    pub arguments: Arguments,
    /// The provider's proof that the call is its own, sent back with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl ToolUse {
    /// A call without a provider's proof.
    pub fn new(id: ModelCallId, tool: ToolName, arguments: Arguments) -> Self {
        Self { id, tool, arguments, signature: None }
    }
}

impl ModelCallId {
    /// The id of the `number`-th call that takes back what the session's `turn`-th turn did. No model gave it.
    pub fn undo(turn: u32, number: u32) -> Self {
        Self(format!("undo_{turn}_{number}"))
    }
}

/// Arguments as they came from a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    /// Arguments that are JSON.
    Json(Value),
    /// Text that is not JSON or was cut; never executed, never replaced by something made up (R5.2).
    Broken(String),
}

impl Arguments {
    fn size(&self) -> usize {
        match self {
            Self::Json(value) => json_size(value),
            Self::Broken(text) => text.len(),
        }
    }
}

/// What a tool gave back, as the model is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResult {
    /// It worked.
    Ok(Value),
    /// It did not, or nobody knows.
    Err(Failure),
}

impl ToolResult {
    /// The result as a model reads it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Ok(Value::String(text)) => Cow::Borrowed(text),
            Self::Ok(value) => Cow::Owned(value.to_string()),
            Self::Err(failure) => Cow::Owned(format!("error {failure}")),
        }
    }

    /// About how many bytes a model reads for this result.
    pub fn size(&self) -> usize {
        match self {
            Self::Ok(value) => json_size(value),
            Self::Err(failure) => failure.detail.len(),
        }
    }
}

/// About how many bytes a value is as JSON.
pub fn json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| json_size(item) + 1).sum::<usize>(),
        Value::Object(members) => 2 + members.iter().map(|(k, v)| k.len() + 4 + json_size(v)).sum::<usize>(),
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident: $what:literal, $most:literal bytes, $fits:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as it is written.
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                let fits: fn(char) -> bool = $fits;
                if !text.is_empty() && text.len() <= $most && text.chars().all(fits) {
                    return Ok(Self(text));
                }
                let detail = format!(concat!("expected ", $what, " of 1 to ", $most, " bytes, got `{}`"), shown(&text));
                Err(Error::new(Kind::InputInvalid, detail))
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> { Self::try_from(text.to_owned()) }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self { name.0 }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(&self.0) }
        }
    )*};
}

names! {
    /// The id a model gives to a tool call: opaque, and only unique within its reply.
    ModelCallId: "a call id", 256 bytes, |c| !c.is_control();
    /// What a person, a program or an organisation is called.
    Name: "a name without control characters", 128 bytes, |c| !c.is_control();
    /// What a rule of a policy is called.
    RuleId: "a rule's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// What a rate of outbound calls is called.
    RateName: "a rate's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// What a hook is called.
    HookName: "a hook's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// What a plug-in is called.
    PluginName: "a plug-in's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// What a trigger is called.
    TriggerName: "a trigger's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// What a capability is called.
    CapabilityName: "a capability's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// What a tool is called.
    ToolName: "a tool name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// Which model is asked: a provider and the name it knows, like `rehearsal/small`.
    ModelName: "a model name like `provider/model`", 128 bytes, |c| c.is_ascii_graphic();
}

impl Name {
    /// A name of our own.
    pub(crate) fn ours(name: &'static str) -> Self {
        Self(name.to_owned())
    }
}

/// Text from outside, shortened so that an error stays readable.
pub fn shown(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(80) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_fit_is_refused_where_it_is_decoded() {
        assert!(serde_json::from_str::<ToolName>("\"read file\"").is_err());
        assert_eq!(
            ToolName::try_from(String::new()).unwrap_err().to_string(),
            "input.invalid: expected a tool name (letters, digits, `_`, `-`, `.`) of 1 to 64 bytes, got ``"
        );
    }

    #[test]
    fn a_media_type_that_cannot_be_stored_has_its_own_code() {
        assert!(MediaType::try_from("image/png".to_owned()).is_ok());
        for text in ["image", "image/", "image/PNG", "text/html; charset=utf-8"] {
            let error = MediaType::try_from(text.to_owned()).unwrap_err();
            assert_eq!(error.kind(), Kind::AttachmentMediaType, "{text}");
        }
    }
}

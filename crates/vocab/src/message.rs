//! The messages of people, models and tools in a session.
use crate::error::Failure;
use crate::id::AttachmentId;
use crate::{Error, Hash, Kind};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// One message of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// A user's input.
    User {
        /// The content of the input.
        parts: Vec<Part>,
    },
    /// A model's reply.
    Assistant {
        /// The content of the reply.
        parts: Vec<Part>,
        /// The tool calls of the reply, in its order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolUse>,
    },
    /// The result of one tool call.
    Tool {
        /// The id that the model gave the call.
        call: ModelCallId,
        /// The tool that ran.
        tool: ToolName,
        /// The result.
        result: ToolResult,
    },
}

impl Message {
    /// Creates a user message with one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { parts: vec![Part::text(text)] }
    }

    /// Returns the joined text parts, or a tool result as the model reads it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::User { parts } | Self::Assistant { parts, .. } => text_of(parts),
            Self::Tool { result, .. } => result.text(),
        }
    }

    /// Returns the approximate number of bytes that a model reads for this message, including its role and
    /// ids.
    pub fn size(&self) -> usize {
        const ROLE_AND_IDS: usize = 32;
        let content = match self {
            Self::User { parts } => parts.iter().map(Part::size).sum(),
            Self::Assistant { parts, calls } => {
                parts.iter().map(Part::size).chain(calls.iter().map(ToolUse::size)).sum()
            }
            Self::Tool { result, .. } => result.size(),
        };
        ROLE_AND_IDS + content
    }
}

/// Returns the joined text of some parts. Borrows if there is only one.
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
    /// The reasoning of a model, stored with its signature so that it can be sent back.
    Reasoning {
        /// The reasoning, if the provider shows it.
        text: String,
        /// The provider's proof that it wrote the reasoning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A block that only its provider can read. It is sent back unchanged to that provider and shown to no
    /// other.
    Sealed {
        /// The provider.
        provider: String,
        /// The unchanged block.
        data: Value,
    },
    /// An image or file, by reference.
    Attachment {
        /// The reference to its content.
        attachment: Attachment,
    },
    /// An instruction in the middle of a conversation. The program that sends the input wrote it, not its user.
    Instruction {
        /// The instruction.
        text: String,
    },
    /// An image or file elsewhere, which the provider fetches.
    Link {
        /// The reference to its content.
        link: Link,
    },
}

impl Part {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Returns the text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Reasoning { .. }
            | Self::Sealed { .. }
            | Self::Attachment { .. }
            | Self::Instruction { .. }
            | Self::Link { .. } => None,
        }
    }

    /// Returns whether this is an image or a file.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::Attachment { .. } | Self::Link { .. })
    }

    /// Returns the approximate number of bytes that a model reads for this part.
    pub fn size(&self) -> usize {
        match self {
            Self::Text { text } | Self::Reasoning { text, .. } | Self::Instruction { text } => text.len(),
            Self::Sealed { data, .. } => json_size(data),
            Self::Link { link } => link.url.len(),
            Self::Attachment { .. } => 0,
        }
    }
}

/// A reference to an image or file outside of Outlast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The address.
    pub url: String,
    /// The kind of content.
    pub kind: LinkKind,
    /// The file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How closely the model looks at an image, in the provider's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The kind of content behind a [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// An image.
    Image,
    /// Another file.
    File,
}

impl LinkKind {
    /// Returns the name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::File => "file",
        }
    }
}

/// A reference from a message to stored content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The attachment's id.
    pub id: AttachmentId,
    /// The hash of its content in the blob store.
    pub content: Hash,
    /// The media type of the content.
    pub media_type: MediaType,
    /// The original file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A media type that can be stored: `type/subtype`, lower case, no parameters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct MediaType(Arc<str>);

impl Serialize for MediaType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl TryFrom<String> for MediaType {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let token = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
        };
        match text.split_once('/') {
            Some((kind, subtype)) if token(kind) && token(subtype) => Ok(Self(text.into())),
            _ => Err(Error::new(
                Kind::AttachmentMediaType,
                format!("expected a media type like `image/png`, got `{text}`"),
            )),
        }
    }
}

impl MediaType {
    /// Returns the media type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<MediaType> for String {
    fn from(media_type: MediaType) -> Self {
        media_type.as_str().to_owned()
    }
}

/// A tool call as a model asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The id that the model gave the call. Unique within its reply.
    pub id: ModelCallId,
    /// The tool that the model named.
    pub tool: ToolName,
    /// The arguments.
    pub arguments: CallArguments,
    /// The provider's proof that it wrote the call. Sent back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl ToolUse {
    /// Creates a call without a provider's proof.
    pub fn new(id: ModelCallId, tool: ToolName, arguments: CallArguments) -> Self {
        Self { id, tool, arguments, signature: None }
    }

    /// Returns the approximate number of bytes of the call, without its id.
    pub(crate) fn size(&self) -> usize {
        self.tool.as_str().len() + self.arguments.size()
    }
}

impl ModelCallId {
    /// Returns the id of the `number`-th call that undoes the effects of the session's `turn`-th turn. No
    /// model gave this id.
    pub fn undo(turn: u32, number: u32) -> Self {
        Self(format!("undo_{turn}_{number}").into())
    }
}

/// Arguments as a model wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallArguments {
    /// Valid JSON.
    Json(Value),
    /// Text that is not JSON or was cut off. It is never executed and never replaced.
    Broken(String),
}

impl CallArguments {
    fn size(&self) -> usize {
        match self {
            Self::Json(value) => json_size(value),
            Self::Broken(text) => text.len(),
        }
    }
}

/// The result of a tool call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResult {
    /// The call succeeded.
    Ok(Value),
    /// The call failed, or its outcome is unknown.
    Err(Failure),
}

impl ToolResult {
    /// Returns the result as a model reads it.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Ok(Value::String(text)) => Cow::Borrowed(text),
            Self::Ok(value) => Cow::Owned(value.to_string()),
            Self::Err(failure) => Cow::Owned(format!("error {failure}")),
        }
    }

    /// Returns the approximate number of bytes that a model reads for this result.
    pub fn size(&self) -> usize {
        match self {
            Self::Ok(value) => json_size(value),
            Self::Err(failure) => failure.detail.len(),
        }
    }
}

/// Returns the approximate size of a value as JSON, in bytes.
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
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> { to.serialize_str(&self.0) }
        }

        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                let fits: fn(char) -> bool = $fits;
                if !text.is_empty() && text.len() <= $most && text.chars().all(fits) {
                    return Ok(Self(text.into()));
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
            fn from(name: $name) -> Self { name.as_str().to_owned() }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(&self.0) }
        }
    )*};
}

names! {
    /// The id that a model gives to a tool call: opaque, and unique only within its reply.
    ModelCallId: "a call id", 256 bytes, |c| !c.is_control();
    /// The name of a person, a program or an organisation.
    Name: "a name without control characters", 128 bytes, |c| !c.is_control();
    /// The name of a policy rule.
    RuleId: "a rule's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// The name of a rate limit for outbound calls.
    RateName: "a rate's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// The name of a hook.
    HookName: "a hook's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// The name of a plug-in.
    PluginName: "a plug-in's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// The name of a trigger.
    TriggerName: "a trigger's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// The name of a capability.
    CapabilityName: "a capability's name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// The name of a tool.
    ToolName: "a tool name (letters, digits, `_`, `-`, `.`)", 64 bytes,
        |c| c.is_ascii_alphanumeric() || "_-.".contains(c);
    /// The name of a model: a provider and the provider's name for it, like `rehearsal/small`.
    ModelName: "a model name like `provider/model`", 128 bytes, |c| c.is_ascii_graphic();
}

impl Name {
    /// Creates a built-in name.
    pub(crate) fn ours(name: &'static str) -> Self {
        Self(name.into())
    }
}

/// Shortens external text so that an error message stays readable.
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
    fn invalid_name_is_refused_while_decoding() {
        assert!(serde_json::from_str::<ToolName>("\"read file\"").is_err());
        assert_eq!(
            ToolName::try_from(String::new()).unwrap_err().to_string(),
            "input.invalid: expected a tool name (letters, digits, `_`, `-`, `.`) of 1 to 64 bytes, got ``"
        );
    }

    #[test]
    fn unstorable_media_type_has_its_own_code() {
        assert!(MediaType::try_from("image/png".to_owned()).is_ok());
        for text in ["image", "image/", "image/PNG", "text/html; charset=utf-8"] {
            let error = MediaType::try_from(text.to_owned()).unwrap_err();
            assert_eq!(error.kind(), Kind::AttachmentMediaType, "{text}");
        }
    }
}

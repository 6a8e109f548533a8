//! Upper bounds on the size of messages in a model request, for every provider API.
//!
//! A request is JSON, so text grows by its escapes, and JSON within text by the escapes of those. A token has
//! at least one byte, so this limits the tokens that a model can charge for reading. For the approximate
//! size, see [`Message::size`].
use crate::message::{CallArguments, Message, Part, ToolResult, ToolUse};
use serde_json::{Number, Value};

/// Overhead of a message, in bytes.
const MESSAGE: usize = 80;
/// Overhead of a part, in bytes.
const PART: usize = 88;
/// Overhead of an attachment, or of the text that replaces one that cannot be shown, in bytes.
const ATTACHMENT: usize = 128;
/// Overhead of an instruction in the middle of a conversation, in bytes.
const INSTRUCTION: usize = 32;
/// Overhead of a call, and of its result, in bytes.
const CALL: usize = 144;
/// Overhead of the instructions about the form of an answer, without the schema, in bytes.
const ANSWER: usize = 384;
/// Overhead of a type that a provider adds to a part of a schema, in bytes.
const TYPE: usize = 80;

/// How often text is quoted as a JSON string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonQuoting {
    Once,
    /// The text is part of JSON that is sent as text.
    Twice,
}

impl JsonQuoting {
    const fn byte(self, byte: u8) -> usize {
        match (byte, self) {
            (b'"' | b'\\' | 8 | 9 | 10 | 12 | 13, Self::Once) => 2,
            (b'"' | b'\\', Self::Twice) => 4,
            (8 | 9 | 10 | 12 | 13, Self::Twice) => 3,
            (0..=0x1f, Self::Once) => 6,
            (0..=0x1f, Self::Twice) => 7,
            _ => 1,
        }
    }

    fn text(self, text: &str) -> usize {
        let quotes = 2 * if self == Self::Once { 1 } else { 2 };
        quotes + text.bytes().map(|byte| self.byte(byte)).sum::<usize>()
    }

    fn json(self, value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) => 5,
            Value::Number(number) => digits(number),
            Value::String(text) => self.text(text),
            Value::Array(items) => 2 + items.iter().map(|item| 1 + self.json(item)).sum::<usize>(),
            Value::Object(members) => {
                2 + members.iter().map(|(name, value)| 2 + self.text(name) + self.json(value)).sum::<usize>()
            }
        }
    }
}

fn digits(number: &Number) -> usize {
    match (number.as_u64(), number.as_i64()) {
        (Some(whole), _) => whole.checked_ilog10().unwrap_or(0) as usize + 1,
        (None, Some(below)) => below.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 2,
        (None, None) => number.to_string().len(),
    }
}

/// Returns the most bytes of a text.
pub fn text(text: &str) -> usize {
    JsonQuoting::Once.text(text)
}

/// Returns the most bytes of the content of an attachment, either as text or in base64.
pub fn content(bytes: &[u8]) -> usize {
    let base64 = bytes.len().div_ceil(3).saturating_mul(4);
    bytes.iter().map(|byte| JsonQuoting::Once.byte(*byte)).sum::<usize>().max(base64)
}

/// Returns the most bytes of the schema of a tool's arguments.
pub fn schema(schema: &Value) -> usize {
    TYPE + JsonQuoting::Once.json(schema) + TYPE * untyped(schema)
}

/// Returns the most bytes of the schema of an answer. It may be described in words, or in a stricter form
/// that names its properties again.
pub fn answer_schema(schema: &Value) -> usize {
    ANSWER + 2 * JsonQuoting::Twice.json(schema) + TYPE * objects(schema)
}

/// Returns how many parts of a schema may get an additional type.
fn untyped(schema: &Value) -> usize {
    const TYPED: [&str; 8] = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties"];
    match schema {
        Value::Object(members) => {
            let typed = TYPED.iter().any(|key| members.contains_key(*key));
            usize::from(!typed) + members.values().map(untyped).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(untyped).sum(),
        Value::Bool(anything) => usize::from(*anything),
        Value::Null | Value::Number(_) | Value::String(_) => 0,
    }
}

fn objects(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => 1 + members.values().map(objects).sum::<usize>(),
        Value::Array(items) => items.iter().map(objects).sum(),
        Value::Bool(_) => 1,
        Value::Null | Value::Number(_) | Value::String(_) => 0,
    }
}

impl Message {
    /// Returns the most bytes of the message in a request, without the contents of its attachments.
    pub fn request_bytes_max(&self) -> usize {
        let content = match self {
            Self::User { parts } => parts.iter().map(Part::request_bytes_max).sum(),
            Self::Assistant { parts, calls } => {
                parts.iter().map(Part::request_bytes_max).sum::<usize>()
                    + calls.iter().map(ToolUse::request_bytes_max).sum::<usize>()
            }
            Self::Tool { call, tool, result } => {
                text(call.as_str()) + tool.as_str().len() + result.request_bytes_max()
            }
        };
        MESSAGE + content
    }
}

impl Part {
    fn request_bytes_max(&self) -> usize {
        let content = match self {
            Self::Text { text: said } => text(said),
            Self::Instruction { text: said } => INSTRUCTION + text(said),
            Self::Link { link } => {
                let words = [&link.name, &link.detail].into_iter().flatten();
                ATTACHMENT + 2 * text(&link.url) + words.map(|word| 2 * text(word)).sum::<usize>()
            }
            Self::Reasoning { text: thought, signature } => {
                text(thought) + signature.as_deref().map_or(0, text)
            }
            Self::Sealed { data, .. } => JsonQuoting::Once.json(data),
            Self::Attachment { attachment } => {
                let name = attachment.name.as_deref().map_or(0, text);
                ATTACHMENT + 2 * name + attachment.media_type.as_str().len()
            }
        };
        PART + content
    }
}

impl ToolUse {
    fn request_bytes_max(&self) -> usize {
        let arguments = match &self.arguments {
            CallArguments::Json(value) => JsonQuoting::Twice.json(value),
            CallArguments::Broken(broken) => JsonQuoting::Twice.text(broken),
        };
        CALL + text(self.id.as_str())
            + self.tool.as_str().len()
            + self.signature.as_deref().map_or(0, text)
            + arguments
    }
}

impl ToolResult {
    /// Returns the most bytes of the result in a request, without the names of its call and tool.
    pub fn request_bytes_max(&self) -> usize {
        CALL + match self {
            Self::Ok(Value::String(said)) => text(said),
            Self::Ok(value) => JsonQuoting::Twice.json(value),
            Self::Err(failure) => text(&failure.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counted_size_is_never_too_small() {
        for value in [
            json!(null),
            json!(true),
            json!(0),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(-1.234_567_890_123_456_7e-300),
            json!(["\u{1}\n\"\\ä", { "\t": [[], {}] }]),
        ] {
            let once = value.to_string();
            let twice = json!(once).to_string();
            assert!(once.len() <= JsonQuoting::Once.json(&value), "{value}");
            assert!(twice.len() <= JsonQuoting::Twice.json(&value) + 2, "{value}");
        }
    }
}

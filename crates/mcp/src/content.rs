//! Converts a server's answers into results for a model. Text is passed on; everything else becomes an attachment of
//! the session.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::service::CallScope;
use outlast_ports::tool::failed;
use outlast_vocab::Error;
use outlast_vocab::message::{MediaType, shown};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

/// The maximum number of attachments of one result. Further ones are left out.
const ATTACHMENTS_MAX: usize = 16;

/// The maximum length of an attachment's name in characters.
const NAME_CHARS: usize = 100;

/// The default media type.
const DEFAULT_MEDIA_TYPE: &str = "application/octet-stream";

/// The contents of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceBody {
    /// A text.
    Text(String),
    /// Binary data.
    Bytes {
        /// The media type according to the server.
        media_type: String,
        /// The data.
        bytes: Vec<u8>,
    },
}

impl ResourceBody {
    /// Returns the contents as bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes { bytes, .. } => bytes,
        }
    }

    pub(crate) fn of(server: &str, contents: &ResourceContents) -> Result<Self, Error> {
        Ok(match contents {
            ResourceContents::TextResourceContents { text, .. } => Self::Text(text.clone()),
            other => match resource_text(other) {
                Ok(words) => Self::Text(words),
                Err(file) => {
                    Self::Bytes { media_type: file.media_type.to_owned(), bytes: file.bytes(server)? }
                }
            },
        })
    }
}

/// Converts the result of a call.
pub(crate) fn result(server: &str, answer: CallToolResult, scope: &dyn CallScope) -> Result<Value, Error> {
    if answer.is_error.unwrap_or(false) {
        return Err(failed(text(&answer.content)));
    }
    let mut reading = ResultConverter { server, scope, files: 0 };
    let said = reading.blocks(&answer.content)?;
    Ok(match answer.structured_content {
        None => Value::from(said),
        // The text content repeats the structured content, unless there are attachments.
        Some(structured) if reading.files == 0 => structured,
        Some(structured) => json!({"structured": structured, "content": said}),
    })
}

/// Converts the contents of a resource.
pub(crate) fn resource(
    server: &str,
    contents: &[ResourceContents],
    scope: &dyn CallScope,
) -> Result<Value, Error> {
    let mut reading = ResultConverter { server, scope, files: 0 };
    match contents {
        [ResourceContents::TextResourceContents { text, .. }] => Ok(Value::from(text.as_str())),
        several => {
            let said = several.iter().map(|contents| reading.contents(contents));
            Ok(Value::from(said.collect::<Result<Vec<_>, _>>()?.join("\n")))
        }
    }
}

/// Returns an answer as text for people. Anything that is not text is named.
pub(crate) fn text(content: &[ContentBlock]) -> String {
    content
        .iter()
        .map(|block| block_text(block).unwrap_or_else(|file| file.placeholder()))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Binary data in an answer.
struct BinaryContent<'a> {
    what: &'static str,
    media_type: &'a str,
    uri: Option<&'a str>,
    base64: &'a str,
}

impl BinaryContent<'_> {
    fn bytes(&self, server: &str) -> Result<Vec<u8>, Error> {
        STANDARD.decode(self.base64).map_err(|cause| {
            let what = self.what;
            failed(format!("the MCP server `{server}` answered with {what} that is not base64: {cause}"))
        })
    }

    fn placeholder(&self) -> String {
        let uri = self.uri.map(|uri| format!("{uri}, ")).unwrap_or_default();
        format!("[{}, {uri}{}, {} bytes in base64]", self.what, self.media_type, self.base64.len())
    }
}

/// Returns the text of a block, or its binary data.
fn block_text(block: &ContentBlock) -> Result<String, BinaryContent<'_>> {
    let file = |what, media_type, base64| Err(BinaryContent { what, media_type, uri: None, base64 });
    match block {
        ContentBlock::Text(text) => Ok(text.text.clone()),
        ContentBlock::Image(image) => file("an image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => file("a sound", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => resource_text(&resource.resource),
        ContentBlock::ResourceLink(link) => Ok(format!("[{}]", link.uri)),
        #[allow(unreachable_patterns, reason = "the protocol grows")]
        other => Ok(json!(other).to_string()),
    }
}

fn resource_text(contents: &ResourceContents) -> Result<String, BinaryContent<'_>> {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => Ok(format!("[{uri}]\n{text}")),
        ResourceContents::BlobResourceContents { uri, blob, mime_type, .. } => Err(BinaryContent {
            what: "a resource",
            media_type: mime_type.as_deref().unwrap_or(DEFAULT_MEDIA_TYPE),
            uri: Some(uri),
            base64: blob,
        }),
        #[allow(unreachable_patterns, reason = "the protocol grows")]
        _ => Ok("[a resource of an unknown kind]".to_owned()),
    }
}

/// The state of converting an answer.
struct ResultConverter<'a> {
    server: &'a str,
    scope: &'a dyn CallScope,
    files: usize,
}

impl ResultConverter<'_> {
    fn blocks(&mut self, content: &[ContentBlock]) -> Result<String, Error> {
        let said = content.iter().map(|block| block_text(block).or_else(|file| self.attach_file(&file)));
        Ok(said.collect::<Result<Vec<_>, _>>()?.join("\n"))
    }

    fn contents(&mut self, contents: &ResourceContents) -> Result<String, Error> {
        resource_text(contents).or_else(|file| self.attach_file(&file))
    }

    /// Attaches bytes to the session and returns the text with which the model can refer to them.
    ///
    /// The call has already happened, so bytes that cannot be stored are left out of its result. Bytes that cannot be
    /// decoded are an error, because the rest of the answer may be wrong too.
    fn attach_file(&mut self, file: &BinaryContent<'_>) -> Result<String, Error> {
        let bytes = file.bytes(self.server)?;
        let (what, count) = (file.what, bytes.len());
        self.files += 1;
        let attached = if self.files > ATTACHMENTS_MAX {
            Err(format!("a result has at most {ATTACHMENTS_MAX} attachments"))
        } else {
            self.attach(file, bytes).map_err(|error| error.detail().to_owned())
        };
        let media_type = shown(file.media_type);
        Ok(match attached {
            Ok(id) => format!("[{what}, {media_type}, {count} bytes: {id}]"),
            Err(why) => format!("[{what}, {media_type}, {count} bytes, left out: {why}]"),
        })
    }

    fn attach(&self, file: &BinaryContent<'_>, bytes: Vec<u8>) -> Result<String, Error> {
        let media_type = file.media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let upload = Upload::new(MediaType::try_from(media_type)?, file.uri.and_then(name), bytes)?;
        let id = upload.attachment.id.to_string();
        self.scope.attach(upload)?;
        Ok(id)
    }
}

/// Returns a safe file name for a resource, without any path.
fn name(uri: &str) -> Option<String> {
    let last = uri.rsplit(['/', '\\', ':']).next().unwrap_or_default();
    let plain = |letter: &char| letter.is_alphanumeric() || "._- ".contains(*letter);
    let name: String = last.chars().filter(plain).take(NAME_CHARS).collect();
    let name = name.trim_start_matches('.').trim().to_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn file_name_excludes_paths_and_control_characters() {
        let names =
            ["file:///etc/a.png", "demo://x/../../..", "a\\..\\b c.txt", "x://h/\u{202e}\u{7}gpj.exe", "x:"];
        let called = names.map(|uri| name(uri).unwrap_or_default());
        assert_eq!(called, ["a.png", "", "b c.txt", "gpj.exe", ""]);
    }
}

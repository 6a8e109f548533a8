//! Attachments in requests: as bytes if the API accepts them, as text if they are text, and otherwise as a note that
//! names the missing content.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_ports::model::AttachmentContents;
use outlast_vocab::message::{Attachment, Link};

/// An attachment in a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RenderedAttachment<'a> {
    /// Text in place of the attachment.
    Text(String),
    /// Bytes in base64.
    Bytes {
        /// The media type.
        media_type: &'a str,
        /// The name of the attachment.
        name: &'a str,
        /// The bytes.
        base64: String,
    },
}

impl RenderedAttachment<'_> {
    /// Returns a data URL.
    pub(crate) fn data_url(media_type: &str, base64: &str) -> String {
        format!("data:{media_type};base64,{base64}")
    }
}

/// Renders an attachment for an API that accepts bytes of some media types.
pub(crate) fn render_attachment<'a>(
    attachment: &'a Attachment,
    files: &AttachmentContents,
    takes: fn(&str) -> bool,
) -> RenderedAttachment<'a> {
    let media_type = attachment.media_type.as_str();
    let name = attachment.name.as_deref().unwrap_or("attachment");
    let Some(bytes) = files.get(attachment.content) else {
        return RenderedAttachment::Text(format!(
            "[{name} ({media_type}) is missing: its bytes were not found]"
        ));
    };
    if takes(media_type) {
        return RenderedAttachment::Bytes { media_type, name, base64: STANDARD.encode(bytes) };
    }
    match str::from_utf8(bytes) {
        Ok(text) if is_text(media_type) => {
            RenderedAttachment::Text(format!("[begin of {name}]\n{text}\n[end of {name}]"))
        }
        _ => RenderedAttachment::Text(format!("[{name} is {media_type}, which this model cannot be shown]")),
    }
}

/// Returns the note that replaces a link in an API that opens no such links.
pub(crate) fn link_note(link: &Link) -> String {
    let name = link.name.as_deref().unwrap_or(link.kind.name());
    format!("[{name} is at {}, which this model cannot open]", link.url)
}

/// Returns an instruction in the middle of a conversation as a text within the user's message, because some servers
/// reject a system message there.
pub(crate) fn instruction_text(text: &str) -> String {
    format!("<system>\n{text}\n</system>")
}

/// Text media types that do not start with `text/`.
const OTHER_TEXT_TYPES: [&str; 8] = ["json", "xml", "yaml", "x-yaml", "toml", "javascript", "sql", "x-sh"];

fn is_text(media_type: &str) -> bool {
    let (kind, subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
    kind == "text"
        || OTHER_TEXT_TYPES.contains(&subtype)
        || subtype.ends_with("+json")
        || subtype.ends_with("+xml")
}

/// Returns whether every API with image input accepts this media type.
pub(crate) fn is_picture(media_type: &str) -> bool {
    matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

/// Returns whether this is an image or a PDF document.
pub(crate) fn is_picture_or_pdf(media_type: &str) -> bool {
    is_picture(media_type) || media_type == "application/pdf"
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::Hash;
    use outlast_vocab::id::AttachmentId;

    #[track_caller]
    fn check(media_type: &str, bytes: Option<&[u8]>, want: &RenderedAttachment<'_>) {
        let content = Hash::of(bytes.unwrap_or_default());
        let mut files = AttachmentContents::default();
        if let Some(bytes) = bytes {
            files.insert(content, bytes.into());
        }
        let media_type = media_type.to_owned().try_into().unwrap();
        let name = Some("a.bin".to_owned());
        let attachment = Attachment { id: AttachmentId::from_u128(1), content, media_type, name };
        assert_eq!(render_attachment(&attachment, &files, is_picture), *want);
    }

    fn text(text: &str) -> RenderedAttachment<'static> {
        RenderedAttachment::Text(text.to_owned())
    }

    #[test]
    fn attachment_renders_as_bytes_text_or_placeholder() {
        let base64 = "AQI=".to_owned();
        check(
            "image/png",
            Some(&[1, 2]),
            &RenderedAttachment::Bytes { media_type: "image/png", name: "a.bin", base64 },
        );
        check("application/json", Some(b"{}"), &text("[begin of a.bin]\n{}\n[end of a.bin]"));
        check("image/png", None, &text("[a.bin (image/png) is missing: its bytes were not found]"));
        check("video/mp4", Some(&[1]), &text("[a.bin is video/mp4, which this model cannot be shown]"));
        check("text/plain", Some(&[0xff]), &text("[a.bin is text/plain, which this model cannot be shown]"));
    }
}

//! Attachments as a model is shown them: bytes where its API takes them, text where they are text, and a note that says
//! what is missing otherwise (R5.7).
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_ports::model::Files;
use outlast_vocab::message::Attachment;

/// An attachment as it is shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shown<'a> {
    /// Text in its place.
    Text(String),
    /// Bytes in base64.
    Bytes {
        /// What kind of bytes they are.
        media_type: &'a str,
        /// What it is called.
        name: &'a str,
        /// The bytes.
        base64: String,
    },
}

impl Shown<'_> {
    /// Bytes as an address that holds them.
    pub(crate) fn data_url(media_type: &str, base64: &str) -> String {
        format!("data:{media_type};base64,{base64}")
    }
}

/// Shows an attachment to a model whose API takes bytes of some media types.
pub(crate) fn show<'a>(attachment: &'a Attachment, files: &Files, takes: fn(&str) -> bool) -> Shown<'a> {
    let media_type = attachment.media_type.as_str();
    let name = attachment.name.as_deref().unwrap_or("attachment");
    let Some(bytes) = files.get(attachment.content) else {
        return Shown::Text(format!("[{name} ({media_type}) is missing: its bytes were not found]"));
    };
    if takes(media_type) {
        return Shown::Bytes { media_type, name, base64: STANDARD.encode(bytes) };
    }
    match str::from_utf8(bytes) {
        Ok(text) if is_text(media_type) => Shown::Text(format!("[begin of {name}]\n{text}\n[end of {name}]")),
        _ => Shown::Text(format!("[{name} is {media_type}, which this model cannot be shown]")),
    }
}

/// Text whose type does not begin with `text/`.
const OTHERS: [&str; 8] = ["json", "xml", "yaml", "x-yaml", "toml", "javascript", "sql", "x-sh"];

fn is_text(media_type: &str) -> bool {
    let (kind, subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
    kind == "text" || OTHERS.contains(&subtype) || subtype.ends_with("+json") || subtype.ends_with("+xml")
}

/// Pictures that every API with eyes takes.
pub(crate) fn is_picture(media_type: &str) -> bool {
    matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

/// Pictures and documents.
pub(crate) fn is_picture_or_pdf(media_type: &str) -> bool {
    is_picture(media_type) || media_type == "application/pdf"
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::Hash;
    use outlast_vocab::id::AttachmentId;

    #[track_caller]
    fn check(media_type: &str, bytes: Option<&[u8]>, want: &Shown<'_>) {
        let content = Hash::of(bytes.unwrap_or_default());
        let mut files = Files::default();
        if let Some(bytes) = bytes {
            files.insert(content, bytes.into());
        }
        let media_type = media_type.to_owned().try_into().unwrap();
        let name = Some("a.bin".to_owned());
        let attachment = Attachment { id: AttachmentId::from_u128(1), content, media_type, name };
        assert_eq!(show(&attachment, &files, is_picture), *want);
    }

    fn text(text: &str) -> Shown<'static> {
        Shown::Text(text.to_owned())
    }

    #[test]
    fn an_attachment_is_shown_as_bytes_as_text_or_as_what_is_missing() {
        let base64 = "AQI=".to_owned();
        check("image/png", Some(&[1, 2]), &Shown::Bytes { media_type: "image/png", name: "a.bin", base64 });
        check("application/json", Some(b"{}"), &text("[begin of a.bin]\n{}\n[end of a.bin]"));
        check("image/png", None, &text("[a.bin (image/png) is missing: its bytes were not found]"));
        check("video/mp4", Some(&[1]), &text("[a.bin is video/mp4, which this model cannot be shown]"));
        check("text/plain", Some(&[0xff]), &text("[a.bin is text/plain, which this model cannot be shown]"));
    }
}

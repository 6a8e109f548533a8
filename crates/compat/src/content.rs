//! Contents of messages: texts, and files that the request contains.
use super::compat_error::{CompatError, CompatResult};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_ports::attachment_upload::{AttachmentUpload, Upload};
use outlast_vocab::Error;
use outlast_vocab::message::{MediaType, shown};

/// A part of a message.
pub(crate) enum MessageContent {
    Text(String),
    File(AttachmentUpload),
}

impl MessageContent {
    /// Returns the text. Fails for a file, for places where an API allows only text.
    pub(crate) fn into_text(self, place: &str) -> CompatResult<String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::File(_) => {
                Err(CompatError::unsupported(place, "files are supported only in user messages"))
            }
        }
    }
}

/// Decodes a file from base64.
pub(crate) fn file(
    media_type: &str,
    data: &str,
    name: Option<&str>,
    place: &str,
) -> CompatResult<MessageContent> {
    let Ok(bytes) = STANDARD.decode(data) else {
        return Err(CompatError::invalid_param(place, "expected base64, got something else"));
    };
    attach(media_type, bytes, name, place)
}

fn attach(media_type: &str, bytes: Vec<u8>, name: Option<&str>, place: &str) -> CompatResult<MessageContent> {
    let about = |error: Error| CompatError::from(error).about(place);
    let media_type = MediaType::try_from(media_type.to_ascii_lowercase()).map_err(about)?;
    let name = name.filter(|name| !name.is_empty()).map(ToOwned::to_owned);
    Upload::new(media_type, name, bytes).map(|upload| MessageContent::File(upload.into())).map_err(about)
}

/// Creates a file from a text.
pub(crate) fn text_file(
    media_type: &str,
    text: &str,
    name: Option<&str>,
    place: &str,
) -> CompatResult<MessageContent> {
    let media_type = if media_type.is_empty() { "text/plain" } else { media_type };
    attach(media_type, text.as_bytes().to_vec(), name, place)
}

/// Decodes the file in a data URL (`data:image/png;base64,…`). Other URLs are not fetched.
pub(crate) fn data_url(url: &str, name: Option<&str>, place: &str) -> CompatResult<MessageContent> {
    let held = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let Some((media_type, data)) = held else {
        let why = format!("expected `data:TYPE;base64,…`, got `{}`; URLs are not fetched", shown(url));
        return Err(CompatError::unsupported(place, why));
    };
    file(media_type, data, name, place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::Kind;

    #[test]
    fn data_url_becomes_a_file_without_fetching() {
        let taken = data_url("data:image/png;base64,AQID", Some("a.png"), "here");
        let Ok(MessageContent::File(file)) = taken else { panic!("it holds a file") };
        let attachment = file.attachment();
        let name = attachment.name.as_deref();
        assert_eq!(
            (String::from(attachment.media_type.clone()).as_str(), name),
            ("image/png", Some("a.png"))
        );
        assert_eq!(file.bytes(), 3);
        let refused = |url: &str| data_url(url, None, "here").err().map(|refusal| refusal.error.kind());
        assert_eq!(refused("https://example.com/a.png"), Some(Kind::ParameterUnsupported));
        assert_eq!(refused("data:image/png,AQID"), Some(Kind::ParameterUnsupported));
        assert_eq!(refused("data:image/png;base64,A!"), Some(Kind::InputInvalid));
        assert_eq!(refused("data:image;base64,AQID"), Some(Kind::AttachmentMediaType));
    }
}

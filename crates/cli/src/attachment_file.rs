//! A file that is sent with an input: its name, media type and bytes.
use outlast::tools::{is_link_refusal, open_without_links};
use outlast::{Error, Kind};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The number of bytes from which the media type is detected.
const BEGINNING: u64 = 64 << 10;

/// An open file, ready to be sent.
#[derive(Debug)]
pub(crate) struct AttachmentFile {
    pub(crate) media_type: &'static str,
    /// The file name without directories.
    pub(crate) name: String,
    /// The size in bytes; zero for a pipe.
    pub(crate) bytes: u64,
    /// The bytes that were already read.
    beginning: Vec<u8>,
    /// The file, positioned after `beginning`.
    rest: File,
}

impl AttachmentFile {
    /// Opens a file and reads its beginning.
    ///
    /// A symbolic link is refused. Another user who can write to the directory could have placed it there to
    /// get another file sent.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let unread = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("{} cannot be read: {cause}", path.display())).because(cause)
        };
        let mut rest = open_without_links(path).map_err(|cause| {
            if !is_link_refusal(&cause) {
                return unread(cause);
            }
            let place = path.display();
            let detail = format!(
                "{place} is a symbolic link or goes through one, and links are not followed; name the file itself, as \
                 `realpath {place}` prints it"
            );
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        let bytes = rest.metadata().map_err(unread)?.len();
        let mut beginning = Vec::new();
        rest.by_ref().take(BEGINNING).read_to_end(&mut beginning).map_err(unread)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { media_type: media_type(&beginning), name, bytes, beginning, rest })
    }

    /// Returns a reader over all bytes.
    pub(crate) fn reader(self) -> impl AsyncRead + Send {
        let beginning = std::io::Cursor::new(self.beginning);
        AsyncReadExt::chain(beginning, tokio::fs::File::from_std(self.rest))
    }
}

/// Detects the media type from the first bytes.
///
/// The file name is not used, because it can be wrong: a program must not be shown as a picture.
fn media_type(bytes: &[u8]) -> &'static str {
    const BEGINNINGS: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-", "application/pdf"),
    ];
    let begun = BEGINNINGS.iter().find(|(beginning, _)| bytes.starts_with(beginning)).map(|(_, name)| *name);
    match begun {
        Some(name) => name,
        None if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") => "image/webp",
        None if is_text(bytes) => "text/plain",
        None => "application/octet-stream",
    }
}

/// Returns whether the bytes are the start of UTF-8 text. The last character may be incomplete.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|cause| cause.error_len().is_none(), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_is_detected_from_content() {
        let detected = |bytes: &[u8]| media_type(bytes);
        assert_eq!(detected(b"\x89PNG\r\n\x1a\n...."), "image/png");
        assert_eq!(detected(b"RIFF\0\0\0\0WEBPVP8 "), "image/webp");
        assert_eq!(detected(b"RIFF\0\0\0\0WAVE\xff"), "application/octet-stream");
        assert_eq!(detected("zw\u{f6}lf".as_bytes()), "text/plain");
        assert_eq!(detected(b"zw\xc3"), "text/plain");
    }
}

//! A file that is sent with an input: its name, and what kind it is.
use outlast::tools::{is_link_refusal, open_without_links};
use outlast::{Error, Kind};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes by which a file is told.
const BEGINNING: u64 = 64 << 10;

/// A file before it is sent.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Its media type.
    pub(crate) media_type: &'static str,
    /// Its name without the directories.
    pub(crate) name: String,
    /// How many bytes it has; none are known of a pipe.
    pub(crate) bytes: u64,
    /// Its first bytes.
    beginning: Vec<u8>,
    /// What comes behind them.
    rest: File,
}

impl Attached {
    /// Opens a file, and reads its beginning. A symbolic link is refused: whoever can write to the file's directory could have
    /// placed it there to have another file sent.
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

    /// All its bytes.
    pub(crate) fn reader(self) -> impl AsyncRead + Send {
        let beginning = std::io::Cursor::new(self.beginning);
        AsyncReadExt::chain(beginning, tokio::fs::File::from_std(self.rest))
    }
}

/// What bytes are, by how they begin: names lie, and nobody should be shown a program as a picture.
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

/// Whether bytes begin a text; the last character may be cut.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|cause| cause.error_len().is_none(), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_is_told_by_its_bytes() {
        let told = |bytes: &[u8]| media_type(bytes);
        assert_eq!(told(b"\x89PNG\r\n\x1a\n...."), "image/png");
        assert_eq!(told(b"RIFF\0\0\0\0WEBPVP8 "), "image/webp");
        assert_eq!(told(b"RIFF\0\0\0\0WAVE\xff"), "application/octet-stream");
        assert_eq!(told("zw\u{f6}lf".as_bytes()), "text/plain");
        assert_eq!(told(b"zw\xc3"), "text/plain");
    }
}

//! A file that is sent with an input: its bytes, and what kind they are.
use outlast::{Error, Kind, Limits};
use std::path::Path;

/// A file before it is sent.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Its media type.
    pub(crate) media_type: &'static str,
    /// Its name without the directories.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

impl Attached {
    /// Reads a file. One that is too large is refused before it is read.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let unread = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("{} cannot be read: {cause}", path.display())).because(cause)
        };
        let size = usize::try_from(std::fs::metadata(path).map_err(unread)?.len()).unwrap_or(usize::MAX);
        outlast::vocab::limits::check("attachment_bytes", size, Limits::default().attachment_bytes)?;
        let bytes = std::fs::read(path).map_err(unread)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { media_type: media_type(&bytes), name, bytes })
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
        None if std::str::from_utf8(bytes).is_ok() => "text/plain",
        None => "application/octet-stream",
    }
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
    }
}

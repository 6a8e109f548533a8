//! Appends outputs to a file as JSON lines, each id once.
//!
//! A line is on disk before the delivery is reported as done. A crash in between leaves a complete line, which the next
//! attempt finds by its id, or a partial line, which it cuts off. The first attempt does not search for a line.
use crate::message;
use outlast_ports::ResultFuture;
use outlast_ports::sink::{Sink, SinkOutput};
use outlast_tools::is_link_refusal;
use outlast_vocab::{Error, Kind};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How much to read at a time to find the end of the last complete line.
const SCAN_BYTES: u64 = 64 << 10;

/// A sink that appends to a file. The file belongs to the sink: anything after its last line break is cut off.
pub struct JsonLinesFile {
    path: PathBuf,
}

impl JsonLinesFile {
    /// Creates a sink for this file. The file is created if needed; its directory must exist.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        if path.file_name().is_none() || path.is_dir() || !parent_directory(&path).is_dir() {
            let detail = format!("expected a file in an existing directory, got `{}`", path.display());
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        Ok(Self { path })
    }
}

impl Sink for JsonLinesFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn deliver<'a>(&'a self, output: &'a SinkOutput) -> ResultFuture<'a, ()> {
        Box::pin(async move {
            let mut line = message::encode(output)?;
            line.push(b'\n');
            let wanted = (output.attempt > 1).then(|| message::message_prefix(output.id));
            let path = self.path.clone();
            let appended = tokio::task::spawn_blocking(move || append(&path, &line, wanted.as_deref())).await;
            let appended = appended.unwrap_or_else(|cause| Err(io::Error::other(cause)));
            appended.map_err(|cause| {
                let detail = format!("`{}` cannot be appended to: {cause}", self.path.display());
                Error::new(Kind::DeliveryFailed, detail).because(cause)
            })
        })
    }
}

/// Appends a line, unless a line with this prefix exists.
fn append(path: &Path, line: &[u8], unless: Option<&str>) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = open(path)?;
    // This and other processes append too. Closing the file releases the lock.
    file.lock()?;
    if let Some(beginning) = unless
        && has_line(&file, beginning.as_bytes())?
    {
        // Its writer may have died before it was on disk.
        return file.sync_all();
    }
    let whole = complete_lines_end(&mut file)?;
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    file.write_all(line)?;
    file.sync_all()?;
    if is_new { File::open(parent_directory(path))?.sync_all() } else { Ok(()) }
}

/// Opens the file so that only its owner can read it. A symbolic link is refused: anyone who can write to the directory
/// could have placed it, and its target would be cut after its last line break.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    options.custom_flags(no_follow).open(path).map_err(|cause| {
        if is_link_refusal(&cause) {
            return io::Error::new(ErrorKind::InvalidInput, "it is a symbolic link; name the file itself");
        }
        cause
    })
}

fn parent_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns whether a complete line starts like this.
fn has_line(file: &File, beginning: &[u8]) -> io::Result<bool> {
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        lines.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(false);
        }
        if line.starts_with(beginning) {
            return Ok(true);
        }
    }
}

/// Returns the end of the last complete line.
fn complete_lines_end(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(SCAN_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut piece = Vec::new();
        Read::by_ref(file).take(end - start).read_to_end(&mut piece)?;
        if let Some(last) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::output;
    use outlast_vocab::id::DeliveryId;
    use outlast_vocab::record::TurnEnd;
    use std::fs;
    use tempfile::TempDir;

    fn numbered(id: u128, attempt: u32) -> SinkOutput {
        let id = DeliveryId::from_u128(id);
        SinkOutput { id, attempt, ..output(TurnEnd::Answered { text: format!("{id}") }) }
    }

    fn file() -> (TempDir, JsonLinesFile) {
        let folder = tempfile::tempdir().unwrap();
        let lines = JsonLinesFile::new(folder.path().join("out.jsonl")).unwrap();
        (folder, lines)
    }

    /// Returns the ids in a file, and checks that each line is JSON.
    fn ids(lines: &JsonLinesFile) -> Vec<String> {
        let text = fs::read_to_string(&lines.path).unwrap();
        assert!(text.ends_with('\n'));
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].clone();
        text.lines().map(|line| id(line).as_str().unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn repeated_delivery_writes_each_id_once() {
        let (_folder, lines) = file();
        for (id, attempt) in [(1, 1), (2, 1), (1, 2), (3, 2), (2, 3)] {
            lines.deliver(&numbered(id, attempt)).await.unwrap();
        }
        let expected: Vec<String> = (1..=3).map(|id| DeliveryId::from_u128(id).to_string()).collect();
        assert_eq!(ids(&lines), expected);
    }

    #[tokio::test]
    async fn next_attempt_rewrites_a_truncated_line() {
        let (_folder, lines) = file();
        lines.deliver(&numbered(1, 1)).await.unwrap();
        let before = fs::read(&lines.path).unwrap();
        lines.deliver(&numbered(2, 1)).await.unwrap();
        let whole = fs::read(&lines.path).unwrap();
        for end in before.len()..=whole.len() {
            fs::write(&lines.path, &whole[..end]).unwrap();
            lines.deliver(&numbered(2, 2)).await.unwrap();
            assert_eq!(fs::read(&lines.path).unwrap(), whole, "cut at {end}");
        }
        // Another delivery may come first.
        fs::write(&lines.path, &whole[..whole.len() - 1]).unwrap();
        lines.deliver(&numbered(3, 1)).await.unwrap();
        lines.deliver(&numbered(2, 2)).await.unwrap();
        assert_eq!(ids(&lines).len(), 3);
    }

    #[tokio::test]
    async fn truncated_line_beyond_read_buffer_is_removed() {
        let (_folder, lines) = file();
        lines.deliver(&numbered(1, 1)).await.unwrap();
        let before = fs::read(&lines.path).unwrap();
        fs::write(&lines.path, [before, vec![b'x'; 200_000]].concat()).unwrap();
        lines.deliver(&numbered(2, 1)).await.unwrap();
        assert_eq!(ids(&lines).len(), 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_appends_never_tear_lines() {
        let (_folder, lines) = file();
        let lines = std::sync::Arc::new(lines);
        let tasks: Vec<_> = (1..=50)
            .map(|id| {
                let lines = lines.clone();
                tokio::spawn(async move { lines.deliver(&numbered(id, 1)).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(ids(&lines).len(), 50);
    }

    #[tokio::test]
    async fn link_in_place_of_file_is_refused() {
        let (folder, lines) = file();
        let target = folder.path().join("notes.txt");
        fs::write(&target, "kept\nand this").unwrap();
        std::os::unix::fs::symlink(&target, &lines.path).unwrap();
        let error = lines.deliver(&numbered(1, 1)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::DeliveryFailed);
        assert!(error.detail().contains("it is a symbolic link; name the file itself"), "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept\nand this");
    }

    #[tokio::test]
    async fn unwritable_file_fails_the_attempt() {
        let (folder, lines) = file();
        fs::create_dir(folder.path().join("out.jsonl")).unwrap();
        let error = lines.deliver(&numbered(1, 1)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::DeliveryFailed);
        assert!(JsonLinesFile::new(folder.path()).is_err());
        assert!(JsonLinesFile::new(folder.path().join("no/such/file")).is_err());
    }
}

//! Edits the arguments of a call in the user's editor.
use outlast::clock::{Clock, Entropy};
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::{Error, Kind, SessionId};
use serde_json::Value;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Opens the arguments in an editor. Returns the edited version, or `None` if nothing changed.
pub(super) fn edit(arguments: &Value) -> Result<Option<Value>, Error> {
    let file = ArgumentsTempFile::new(arguments)?;
    let mut named = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| env::var(name).ok());
    let editor = named.find(|named| !named.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program).args(words).arg(&file.0).status();
    let status = status.map_err(|cause| {
        let detail = format!("the editor `{editor}` cannot be started: {cause}; set EDITOR");
        Error::new(Kind::IoFailed, detail)
    })?;
    if !status.success() {
        return Err(Error::new(
            Kind::InputInvalid,
            format!("the editor `{editor}` failed; nothing was decided"),
        ));
    }
    let edited = read(&file.0)?;
    Ok((edited != *arguments).then_some(edited))
}

fn read(path: &Path) -> Result<Value, Error> {
    let text = fs::read_to_string(path)
        .map_err(|cause| Error::new(Kind::IoFailed, format!("the edited file cannot be read: {cause}")))?;
    serde_json::from_str(&text).map_err(|cause| {
        Error::new(
            Kind::InputInvalid,
            format!("the edited text is not valid JSON: {cause}; nothing was decided"),
        )
    })
}

/// A temporary file with arguments that only its owner can read. Dropping it deletes the file.
struct ArgumentsTempFile(PathBuf);

impl ArgumentsTempFile {
    fn new(arguments: &Value) -> Result<Self, Error> {
        let failed = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("a file for the editor cannot be created: {cause}"))
        };
        let unique = SessionId::fresh(SystemClock.now(), SystemEntropy.random_id_bytes());
        let name = format!("outlast-{unique}.json");
        let path = env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path).map_err(failed)?;
        let draft = Self(path);
        writeln!(file, "{arguments:#}").map_err(failed)?;
        Ok(draft)
    }
}

impl Drop for ArgumentsTempFile {
    fn drop(&mut self) {
        // The file may already be gone.
        let _ = fs::remove_file(&self.0);
    }
}

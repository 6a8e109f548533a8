//! Counts executions outside of the journal. Each is one line, synced to disk before the tool continues.
use outlast::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// One execution of an action.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExecutionRecord {
    pub(super) tool: String,
    /// The call id, which is the idempotency key.
    pub(super) call: String,
    pub(super) attempt: u32,
    /// The process that executed it.
    pub(super) pid: u32,
}

/// Writes executions to a file.
#[derive(Debug)]
pub(super) struct ExecutionLog(File);

impl ExecutionLog {
    /// Opens the file for appending.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.map(Self).map_err(|cause| failed(path, "opened", &cause))
    }

    /// Writes one line with a single write, and syncs it.
    pub(super) fn saw(&self, sighting: &ExecutionRecord) -> Result<(), Error> {
        let mut line = serde_json::to_vec(sighting).expect("a sighting is plain data");
        line.push(b'\n');
        let written = (&self.0).write_all(&line).and_then(|()| self.0.sync_data());
        written.map_err(|cause| failed(Path::new("witness"), "written", &cause))
    }
}

/// The executions of one action.
#[derive(Debug, Default)]
pub(super) struct ExecutionCounts {
    /// The number of executions by call id.
    pub(super) by_call: BTreeMap<String, usize>,
}

impl ExecutionCounts {
    /// Returns the number of executions of all calls.
    pub(super) fn executions(&self) -> usize {
        self.by_call.values().sum()
    }
}

/// Reads the executions of each action.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, ExecutionCounts>, Error> {
    let text = fs::read_to_string(path).map_err(|cause| failed(path, "read", &cause))?;
    let mut seen: BTreeMap<String, ExecutionCounts> = BTreeMap::new();
    for line in text.lines() {
        let sighting: ExecutionRecord = serde_json::from_str(line).map_err(|cause| {
            Error::new(Kind::Internal, format!("a line of the witness is no sighting: {cause}"))
        })?;
        let seen = seen.entry(sighting.tool).or_default();
        *seen.by_call.entry(sighting.call).or_default() += 1;
    }
    Ok(seen)
}

fn failed(path: &Path, what: &str, cause: &std::io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("the witness {} cannot be {what}: {cause}", path.display()))
}

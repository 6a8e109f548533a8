//! What was acknowledged, on disk before anything is done with it: this must never be lost.
use crate::worker::Receipt;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The ledger within the directory of a round.
pub(crate) const LEDGER: &str = "ledger.log";

/// Something that somebody was told has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Entry {
    /// An input was accepted.
    Accepted(Receipt),
    /// A wait was resolved with this, and it was the first resolution.
    Resolved {
        /// The completion key.
        completion: String,
        /// The value.
        value: u64,
    },
    /// The wish that a turn stops is durable.
    Cancelled {
        /// The turn.
        turn: String,
    },
}

/// Keeps entries.
pub(crate) struct Ledger(File);

impl Ledger {
    /// The ledger of a new round.
    pub(crate) fn begin(dir: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create_new(true).open(dir.join(LEDGER)).map(Self)
    }

    /// Keeps an entry; it is on disk when this returns.
    pub(crate) fn keep(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        self.0.sync_data()
    }
}

/// The entries of a round.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<Entry>> {
    let text = fs::read_to_string(dir.join(LEDGER))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

//! Stores acknowledgements on disk before anything else happens. They must never be lost.
use crate::worker::InputReceipt;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The name of the ledger in the directory of a round.
pub(crate) const LEDGER: &str = "ledger.log";

/// Something that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LedgerEntry {
    /// An input was accepted.
    Accepted(InputReceipt),
    /// A wait was resolved with this value, as the first resolution.
    Resolved {
        /// The completion key.
        completion: String,
        /// The value.
        value: u64,
    },
    /// The request to cancel a turn is durable.
    Cancelled {
        /// The turn.
        turn: String,
    },
}

/// Writes entries.
pub(crate) struct Ledger(File);

impl Ledger {
    /// Creates the ledger of a new round.
    pub(crate) fn begin(dir: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create_new(true).open(dir.join(LEDGER)).map(Self)
    }

    /// Writes an entry. It is on disk when this returns.
    pub(crate) fn write_durably(&mut self, entry: &LedgerEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        self.0.sync_data()
    }
}

/// Reads the entries of a round.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<LedgerEntry>> {
    let text = fs::read_to_string(dir.join(LEDGER))?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

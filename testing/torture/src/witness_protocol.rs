//! The protocol of the witness: reports, answers and log entries.
//!
//! The other side is the hidden worker mode of the binary (`outlast torture-worker`). The lines are defined again here
//! on purpose: a witness must not depend on the program that it watches.
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// A report to the witness, as one line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WitnessReport {
    /// A tool is executing now.
    Executed(Execution),
    /// Asks whether an interrupted call happened.
    Probed {
        /// The call.
        call: String,
    },
}

/// The answer of the witness, as one line.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WitnessAnswer {
    /// The execution is on disk.
    Counted,
    /// The call was called off before; it must not execute.
    CalledOff,
    /// The call happened.
    Happened,
    /// The call did not happen and is now called off, so that a stopped process cannot do it later.
    DidNotHappen,
}

/// A log entry, on disk before the witness answers, as one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WitnessLogEntry {
    /// A tool was executed.
    Executed(Execution),
    /// A call that had not happened was called off.
    CalledOff {
        /// The call.
        call: String,
    },
}

/// One execution of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Execution {
    /// The tool.
    pub(crate) tool: String,
    /// The call id, which is the idempotency key.
    pub(crate) call: String,
    /// The durable step within the call, if any.
    pub(crate) step: Option<String>,
    /// The number of the attempt.
    pub(crate) attempt: u32,
    /// The process id.
    pub(crate) pid: u32,
    /// The fingerprint of the arguments.
    pub(crate) arguments: String,
    /// The completion key, if the call is completed from outside.
    pub(crate) completion: Option<String>,
}

/// Reads the executions from the log of a witness.
pub(crate) fn read(log: &Path) -> io::Result<Vec<Execution>> {
    let mut executions = Vec::new();
    for line in fs::read_to_string(log)?.lines() {
        if let WitnessLogEntry::Executed(execution) = serde_json::from_str(line)? {
            executions.push(execution);
        }
    }
    Ok(executions)
}

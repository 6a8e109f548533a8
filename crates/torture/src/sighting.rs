//! What the witness is told, what it answers, and what it writes down.
//!
//! The other side is the hidden worker mode of the binary (`outlast torture-worker`). The lines are defined again here on
//! purpose: a witness must not depend on the program that it watches.
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// Something that the witness is told, as one line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    /// A tool acts, now.
    Executed(Execution),
    /// An interrupted call: did it happen?
    Probed {
        /// The call.
        call: String,
    },
}

/// What the witness answers, as one line.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The execution is on disk.
    Counted,
    /// The call was called off before; it must not act.
    CalledOff,
    /// The call happened.
    Happened,
    /// The call did not happen, and is called off: whoever was only stopped cannot do it later.
    DidNotHappen,
}

/// What is on disk before the witness answers, as one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sighting {
    /// A tool acted.
    Executed(Execution),
    /// A call that had not happened was called off.
    CalledOff {
        /// The call.
        call: String,
    },
}

/// One act of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Execution {
    /// The tool.
    pub(crate) tool: String,
    /// The call, which is its idempotency key.
    pub(crate) call: String,
    /// The durable step within the call, where it is one.
    pub(crate) step: Option<String>,
    /// Which attempt it was.
    pub(crate) attempt: u32,
    /// The process.
    pub(crate) pid: u32,
    /// The fingerprint of the arguments.
    pub(crate) arguments: String,
    /// What finishes the call from outside, where somebody has to.
    pub(crate) completion: Option<String>,
}

/// The executions that a witness has written down.
pub(crate) fn read(log: &Path) -> io::Result<Vec<Execution>> {
    let mut executions = Vec::new();
    for line in fs::read_to_string(log)?.lines() {
        if let Sighting::Executed(execution) = serde_json::from_str(line)? {
            executions.push(execution);
        }
    }
    Ok(executions)
}

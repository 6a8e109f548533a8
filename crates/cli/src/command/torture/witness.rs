//! The client of the witness: one connection per report, one line in each direction.
//!
//! The server is in `outlast-torture`. It defines the lines again on purpose, because the witness must not
//! depend on the program that it watches.
use outlast::prelude::*;
use outlast::vocab::{CallId, Hash};
use outlast::{Error, Kind};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A report to the witness.
#[derive(Serialize)]
#[serde(crate = "outlast::serde", rename_all = "snake_case")]
enum WitnessRequest<'a> {
    /// A tool acts now.
    Executed(&'a Execution),
    /// Asks whether an interrupted call happened. If not, it must not happen later.
    Probed { call: CallId },
}

/// One execution.
#[derive(Serialize)]
#[serde(crate = "outlast::serde")]
pub(super) struct Execution {
    pub(super) tool: &'static str,
    /// The call id, which is the idempotency key.
    pub(super) call: CallId,
    /// The durable step within the call, if any.
    pub(super) step: Option<&'static str>,
    pub(super) attempt: u32,
    pub(super) pid: u32,
    /// The fingerprint of the arguments.
    pub(super) arguments: Hash,
    /// The completion key, if the call is completed from outside.
    pub(super) completion: Option<String>,
}

/// The answer of the witness.
#[derive(Deserialize, PartialEq, Eq)]
#[serde(crate = "outlast::serde", rename_all = "snake_case")]
enum WitnessReply {
    /// The execution was counted.
    Counted,
    /// The call was revoked earlier and must not act.
    CalledOff,
    /// The call happened.
    Happened,
    /// The call did not happen, and is now revoked.
    DidNotHappen,
}

/// A client of the witness.
pub(super) struct WitnessClient {
    socket: PathBuf,
}

impl WitnessClient {
    /// Creates a client for the witness at this socket.
    pub(super) fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Performs the action: the witness counts it.
    pub(super) async fn act(&self, execution: &Execution) -> Result<(), Error> {
        match self.tell(&WitnessRequest::Executed(execution)).await? {
            WitnessReply::Counted => Ok(()),
            _ => Err(failed("the call was called off")),
        }
    }

    /// Returns whether a call happened. If not, the witness revokes it, so that a stopped process cannot
    /// perform it later.
    pub(super) async fn happened(&self, call: CallId) -> Result<bool, Error> {
        Ok(self.tell(&WitnessRequest::Probed { call }).await? == WitnessReply::Happened)
    }

    async fn tell(&self, report: &WitnessRequest<'_>) -> Result<WitnessReply, Error> {
        let mut line = serde_json::to_string(report).expect("a report is plain data");
        line.push('\n');
        let socket = self.socket.clone();
        let answer = tokio::task::spawn_blocking(move || exchange(&socket, &line)).await;
        let answer = answer.map_err(io::Error::other).flatten().map_err(|cause| {
            let detail = format!("the witness at {} does not answer: {cause}", self.socket.display());
            Error::new(Kind::ToolUnavailable, detail)
        })?;
        serde_json::from_str(&answer).map_err(|cause| failed(format!("the witness said `{answer}`: {cause}")))
    }
}

fn exchange(socket: &Path, line: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

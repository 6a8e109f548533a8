//! The way to the witness: one connection per report, one line there and one line back.
//!
//! The other side is `outlast-torture`; what the lines look like is repeated there on purpose, because the witness must
//! not depend on the program that it watches.
use outlast::prelude::*;
use outlast::vocab::{CallId, Hash};
use outlast::{Error, Kind};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Something to tell the witness.
#[derive(Serialize)]
#[serde(crate = "outlast::serde", rename_all = "snake_case")]
enum Report<'a> {
    /// A tool acts, now.
    Executed(&'a Execution),
    /// An interrupted call: did it happen? If not, it must not happen from here on.
    Probed { call: CallId },
}

/// One execution.
#[derive(Serialize)]
#[serde(crate = "outlast::serde")]
pub(super) struct Execution {
    /// The tool.
    pub(super) tool: &'static str,
    /// The call, which is its idempotency key.
    pub(super) call: CallId,
    /// The durable step within the call, where it is one.
    pub(super) step: Option<&'static str>,
    /// Which attempt it is.
    pub(super) attempt: u32,
    /// The process.
    pub(super) pid: u32,
    /// The fingerprint of the arguments.
    pub(super) arguments: Hash,
    /// What finishes the call from outside, where somebody has to.
    pub(super) completion: Option<String>,
}

/// What the witness says.
#[derive(Deserialize, PartialEq, Eq)]
#[serde(crate = "outlast::serde", rename_all = "snake_case")]
enum Answer {
    /// The execution counts.
    Counted,
    /// The call was called off before; it must not act.
    CalledOff,
    /// The call happened.
    Happened,
    /// The call did not happen, and is called off.
    DidNotHappen,
}

/// The witness, as a tool reaches it.
pub(super) struct Witness {
    socket: PathBuf,
}

impl Witness {
    /// The witness that listens here.
    pub(super) fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Acts: what the witness counts is what happened.
    pub(super) async fn act(&self, execution: &Execution) -> Result<(), Error> {
        match self.tell(&Report::Executed(execution)).await? {
            Answer::Counted => Ok(()),
            _ => Err(failed("the call was called off")),
        }
    }

    /// Whether a call happened. One that did not is called off, so that a process that was only stopped cannot do it later.
    pub(super) async fn happened(&self, call: CallId) -> Result<bool, Error> {
        Ok(self.tell(&Report::Probed { call }).await? == Answer::Happened)
    }

    async fn tell(&self, report: &Report<'_>) -> Result<Answer, Error> {
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

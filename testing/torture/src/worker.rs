//! The processes under test: the hidden worker mode of the real binary, and its ordinary commands.
use crate::witness;
use crate::witness_protocol::Execution;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// The name of the database in the directory of a round.
pub(crate) const DATABASE: &str = "outlast.db";
/// The directory of the workers' lock files, in the directory of a round.
const WORKERS: &str = "outlast.db-workers";
/// The standard error of the workers, in the directory of a round.
const WORKER_LOG: &str = "worker.log";

/// The timeout of a shutdown. It is longer than the timeout of an orderly shutdown.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// An input for a worker.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkerInput {
    /// The key of the session.
    pub(crate) session: String,
    /// The idempotency key of the input.
    pub(crate) key: String,
    /// The text.
    pub(crate) text: String,
    /// Whether it joins the running turn.
    pub(crate) steer: bool,
}

/// A message from a worker.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerMessage {
    /// It accepts inputs now.
    Ready {},
    /// An input is durable.
    Accepted(InputReceipt),
    /// An input was refused.
    Refused {
        /// Its idempotency key.
        key: String,
        /// The reason.
        why: String,
    },
    /// No turn runs any more; only the checkpoint is left.
    Closing {},
}

/// The content of an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InputReceipt {
    /// The idempotency key of the input.
    pub(crate) key: String,
    /// The turn.
    pub(crate) turn: String,
    /// Its position in the session.
    pub(crate) seq: u64,
    /// The chain hash at that position.
    pub(crate) hash: String,
}

/// A message to the player of the round.
#[derive(Debug)]
pub(crate) enum RoundMessage {
    /// A message from a worker.
    FromWorker { pid: u32, said: WorkerMessage },
    /// A worker will send nothing more.
    WorkerGone { pid: u32 },
    /// The witness saw an execution.
    WitnessSaw(Execution),
}

/// The real binary in the directory of a round.
#[derive(Clone, Debug)]
pub(crate) struct OutlastBinary {
    pub(crate) program: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) lease: Duration,
}

impl OutlastBinary {
    /// Returns the path of the database.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join(DATABASE)
    }

    /// Returns an ordinary command on the database.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.dir).env_remove("OUTLAST_DATA").args(["--data", DATABASE]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a worker. Its output becomes messages.
    pub(crate) fn worker(&self, news: Sender<RoundMessage>) -> io::Result<Worker> {
        let lease = self.lease.as_millis().to_string();
        let arguments = ["torture-worker", "--witness", witness::SOCKET, "--lease-ms", &lease];
        let complaints = OpenOptions::new().append(true).create(true).open(self.dir.join(WORKER_LOG))?;
        let mut child =
            self.command(&arguments).stdin(Stdio::piped()).stderr(Stdio::from(complaints)).spawn()?;
        let (pid, stdin) = (child.id(), child.stdin.take());
        let stdout = BufReader::new(child.stdout.take().expect("its output is piped"));
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The last line of a killed process may be cut and is then ignored.
                if let Ok(said) = serde_json::from_str(&line) {
                    let _ = news.send(RoundMessage::FromWorker { pid, said });
                }
            }
            // After the end of a round, messages are dropped.
            let _ = news.send(RoundMessage::WorkerGone { pid });
        });
        Ok(Worker { pid, process: ChildProcess(child), stdin, terminated: false })
    }

    /// Returns the names of the workers' lock files.
    pub(crate) fn workers(&self) -> BTreeSet<String> {
        let files = std::fs::read_dir(self.dir.join(WORKERS)).into_iter().flatten().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Returns the standard error of the workers so far.
    pub(crate) fn worker_stderr(&self) -> String {
        std::fs::read_to_string(self.dir.join(WORKER_LOG)).unwrap_or_default()
    }
}

/// A child process that is killed when this is dropped.
pub(crate) struct ChildProcess(pub(crate) Child);

impl ChildProcess {
    /// Kills the process. Returns how it ended, which may have been before the kill.
    pub(crate) fn kill(&mut self) -> io::Result<ProcessExit> {
        // Fails only if the process was already waited for.
        self.0.kill()?;
        self.0.wait().map(ProcessExit::of)
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> io::Result<ProcessExit> {
        let begun = Instant::now();
        while begun.elapsed() < ENDS_WITHIN {
            if let Some(status) = self.0.try_wait()? {
                return Ok(ProcessExit::of(status));
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.kill()?;
        Ok(ProcessExit::EndedItself(format!(
            "it had not ended {} s after it was asked to",
            ENDS_WITHIN.as_secs()
        )))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // Fails only if the process is already gone.
        let _ = self.kill();
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessExit {
    /// By SIGKILL, so it was alive.
    Killed,
    /// By an orderly exit.
    ExitedCleanly,
    /// On its own, with this description.
    EndedItself(String),
}

impl ProcessExit {
    fn of(status: ExitStatus) -> Self {
        match (status.signal(), status.code()) {
            (Some(signal), _) if signal == Signal::KILL.as_raw() => Self::Killed,
            (None, Some(0)) => Self::ExitedCleanly,
            _ => Self::EndedItself(status.to_string()),
        }
    }
}

/// A worker that runs, or did until recently.
pub(crate) struct Worker {
    pub(crate) pid: u32,
    process: ChildProcess,
    stdin: Option<ChildStdin>,
    terminated: bool,
}

impl Worker {
    /// Sends it an input. A dead worker takes none.
    pub(crate) fn write_input_line(&mut self, order: &WorkerInput) {
        if let Some(stdin) = &mut self.stdin {
            let line = serde_json::to_string(order).expect("an order is plain data");
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process.0), signal)?)
    }

    /// Closes its standard input, which asks it to shut down.
    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Asks it to shut down with SIGTERM.
    pub(crate) fn terminate(&mut self) -> io::Result<()> {
        self.terminated = true;
        self.signal(Signal::TERM)
    }

    /// Returns whether it was asked to end.
    pub(crate) fn was_asked_to_end(&self) -> bool {
        self.terminated || self.stdin.is_none()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) -> io::Result<ProcessExit> {
        self.process.kill()
    }

    /// Asks it to shut down, and waits for it.
    pub(crate) fn end(&mut self) -> io::Result<ProcessExit> {
        self.end_input();
        self.process.wait()
    }
}

/// Returns the size and modification time of a file, which show whether it was written.
pub(crate) fn file_size_and_mtime(file: &Path) -> Option<(u64, std::time::SystemTime)> {
    let found = std::fs::metadata(file).ok()?;
    Some((found.len(), found.modified().ok()?))
}

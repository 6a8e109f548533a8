//! The processes that are tortured: the hidden worker mode of the real binary, and its ordinary commands.
use crate::sighting::Execution;
use crate::witness;
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

/// The database within the directory of a round.
pub(crate) const DATABASE: &str = "outlast.db";
/// Where workers show that they live, within the directory of a round.
const WORKERS: &str = "outlast.db-workers";
/// What workers complain about, within the directory of a round.
const COMPLAINTS: &str = "worker.log";

/// How long a process that was asked to end may take. It is longer than the patience of an orderly shutdown.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// An input, as a worker takes it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Order {
    /// The key of the session.
    pub(crate) session: String,
    /// The idempotency key of the input.
    pub(crate) key: String,
    /// What it says.
    pub(crate) text: String,
    /// Whether it joins the turn under way.
    pub(crate) steer: bool,
}

/// What a worker says.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// It takes inputs from here on.
    Ready {},
    /// An input is durable.
    Accepted(Receipt),
    /// An input was not taken in.
    Refused {
        /// Its idempotency key.
        key: String,
        /// Why.
        why: String,
    },
    /// Nothing is driven any more; what is left is to put the log away.
    Closing {},
}

/// What an acknowledgement promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// The idempotency key of the input.
    pub(crate) key: String,
    /// The turn it is.
    pub(crate) turn: String,
    /// Its number in its session.
    pub(crate) seq: u64,
    /// The hash of the chain there.
    pub(crate) hash: String,
}

/// What reaches whoever plays the round.
#[derive(Debug)]
pub(crate) enum News {
    /// A worker said something.
    Said { pid: u32, said: Said },
    /// A worker will say nothing more.
    Silent { pid: u32 },
    /// The witness saw a tool act.
    Saw(Execution),
}

/// The real binary in the directory of a round.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) program: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) lease: Duration,
}

impl Binary {
    /// The database of the round.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join(DATABASE)
    }

    /// One of the ordinary commands, on the database of the round.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.dir).env_remove("OUTLAST_DATA").args(["--data", DATABASE]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a worker; what it says becomes news.
    pub(crate) fn worker(&self, news: Sender<News>) -> io::Result<Worker> {
        let lease = self.lease.as_millis().to_string();
        let arguments = ["torture-worker", "--witness", witness::SOCKET, "--lease-ms", &lease];
        let complaints = OpenOptions::new().append(true).create(true).open(self.dir.join(COMPLAINTS))?;
        let mut child =
            self.command(&arguments).stdin(Stdio::piped()).stderr(Stdio::from(complaints)).spawn()?;
        let (pid, stdin) = (child.id(), child.stdin.take());
        let stdout = BufReader::new(child.stdout.take().expect("its output is piped"));
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The last line of a killed process may be cut; what was cut was not said.
                if let Ok(said) = serde_json::from_str(&line) {
                    let _ = news.send(News::Said { pid, said });
                }
            }
            // A round that is over has no use for news.
            let _ = news.send(News::Silent { pid });
        });
        Ok(Worker { pid, process: Process(child), stdin, terminated: false })
    }

    /// The files by which workers show that they live, by worker.
    pub(crate) fn workers(&self) -> BTreeSet<String> {
        let files = std::fs::read_dir(self.dir.join(WORKERS)).into_iter().flatten().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }

    /// What workers complained about so far.
    pub(crate) fn complaints(&self) -> String {
        std::fs::read_to_string(self.dir.join(COMPLAINTS)).unwrap_or_default()
    }
}

/// A process that does not outlive whoever holds it.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Kills it; says how it was found. A process that had ended by itself was not killed.
    pub(crate) fn kill(&mut self) -> io::Result<Death> {
        // It fails only if the process was waited for before.
        self.0.kill()?;
        self.0.wait().map(Death::of)
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> io::Result<Death> {
        let begun = Instant::now();
        while begun.elapsed() < ENDS_WITHIN {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Death::of(status));
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.kill()?;
        Ok(Death::Itself(format!("it had not ended {} s after it was asked to", ENDS_WITHIN.as_secs())))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is gone already needs no killing.
        let _ = self.kill();
    }
}

/// How a process came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// By SIGKILL: it was alive.
    Killed,
    /// In good order.
    InOrder,
    /// By itself, with this to say.
    Itself(String),
}

impl Death {
    fn of(status: ExitStatus) -> Self {
        match (status.signal(), status.code()) {
            (Some(signal), _) if signal == Signal::KILL.as_raw() => Self::Killed,
            (None, Some(0)) => Self::InOrder,
            _ => Self::Itself(status.to_string()),
        }
    }
}

/// A worker that runs, or did until a moment ago.
pub(crate) struct Worker {
    pub(crate) pid: u32,
    process: Process,
    stdin: Option<ChildStdin>,
    terminated: bool,
}

impl Worker {
    /// Gives it an input. One that is dead takes none.
    pub(crate) fn order(&mut self, order: &Order) {
        if let Some(stdin) = &mut self.stdin {
            let line = serde_json::to_string(order).expect("an order is plain data");
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process.0), signal)?)
    }

    /// Ends its input, which asks it to end.
    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Asks it to end with SIGTERM.
    pub(crate) fn terminate(&mut self) -> io::Result<()> {
        self.terminated = true;
        self.signal(Signal::TERM)
    }

    /// Whether it has a reason to end.
    pub(crate) fn was_asked_to_end(&self) -> bool {
        self.terminated || self.stdin.is_none()
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) -> io::Result<Death> {
        self.process.kill()
    }

    /// Asks it to end and waits for that.
    pub(crate) fn end(&mut self) -> io::Result<Death> {
        self.end_input();
        self.process.wait()
    }
}

/// What shows that a file was written: its size and when it was last changed.
pub(crate) fn trace(file: &Path) -> Option<(u64, std::time::SystemTime)> {
    let found = std::fs::metadata(file).ok()?;
    Some((found.len(), found.modified().ok()?))
}

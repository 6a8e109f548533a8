//! The witness: counts what tools really did, outside every process that is killed.
//!
//! It listens on a Unix socket. Each report is on disk before it is answered: only written reports count, and
//! everything that a tool was told is written. It does not know journals.
use crate::witness_protocol::{Execution, WitnessAnswer, WitnessLogEntry, WitnessReport};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// The name of the socket in the directory of a round.
pub(crate) const SOCKET: &str = "witness.sock";
/// The name of the log in the directory of a round.
pub(crate) const LOG: &str = "witness.log";

/// The name of the hidden mode of the program.
const MODE: &str = "witness";

/// Where the witness runs.
#[derive(Clone, Debug)]
pub enum WitnessPlacement {
    /// In a separate process: this program, which calls [`serve_if_asked`] first.
    Process(PathBuf),
    /// In this process, which is not killed either. For tests, whose program has no modes.
    Thread,
}

/// Runs the witness if the arguments ask for it; otherwise returns `None`.
pub fn serve_if_asked(arguments: &[String]) -> Option<io::Result<()>> {
    match arguments {
        [mode] if mode == MODE => Some(serve_alone()),
        _ => None,
    }
}

/// Serves in the current directory until standard input ends, so that the witness ends with its parent.
fn serve_alone() -> io::Result<()> {
    let listening = WitnessListener::at(Path::new("."))?;
    thread::spawn(|| {
        // On end or error, the parent is gone. Everything answered is on disk.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    print_json_line("listening");
    listening.serve(|execution| print_json_line(execution))
}

/// Prints one line on standard output. The parent reads it to know when to kill; the log is what counts.
fn print_json_line(what: impl serde::Serialize) {
    let line = serde_json::to_string(&what).expect("what is said is plain data");
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A witness that accepts reports.
struct WitnessListener {
    listener: UnixListener,
    shared_log: Arc<Mutex<WitnessLog>>,
    stopped: Arc<AtomicBool>,
}

/// The record of events so far.
struct WitnessLog {
    log: File,
    happened: BTreeSet<String>,
    called_off: BTreeSet<String>,
}

impl WitnessListener {
    fn at(dir: &Path) -> io::Result<Self> {
        let log = OpenOptions::new().append(true).create_new(true).open(dir.join(LOG))?;
        let shared_log = WitnessLog { log, happened: BTreeSet::new(), called_off: BTreeSet::new() };
        let listener = UnixListener::bind(dir.join(SOCKET))?;
        Ok(Self { listener, shared_log: Arc::new(Mutex::new(shared_log)), stopped: Arc::default() })
    }

    /// Serves each connection on a thread, so that a process stopped during its report does not block the others.
    fn serve(self, tell: impl Fn(&Execution) + Send + Sync + 'static) -> io::Result<()> {
        let tell = Arc::new(tell);
        loop {
            let (stream, _) = self.listener.accept()?;
            if self.stopped.load(Ordering::SeqCst) {
                return Ok(());
            }
            let (shared_log, tell) = (self.shared_log.clone(), tell.clone());
            // A process that is killed during its report has not reported.
            thread::spawn(move || handle_report(stream, &shared_log, &*tell));
        }
    }
}

/// Reads one report and answers it.
fn handle_report(
    mut stream: UnixStream,
    shared_log: &Mutex<WitnessLog>,
    tell: &impl Fn(&Execution),
) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let report: WitnessReport = serde_json::from_str(&line)?;
    let answer = shared_log.lock().unwrap_or_else(PoisonError::into_inner).answer(&report)?;
    if let (WitnessReport::Executed(execution), WitnessAnswer::Counted) = (&report, &answer) {
        tell(execution);
    }
    writeln!(stream, "{}", serde_json::to_string(&answer)?)
}

impl WitnessLog {
    /// Writes a report to the log, then answers.
    fn answer(&mut self, report: &WitnessReport) -> io::Result<WitnessAnswer> {
        match report {
            WitnessReport::Executed(execution) if self.called_off.contains(&execution.call) => {
                Ok(WitnessAnswer::CalledOff)
            }
            WitnessReport::Executed(execution) => {
                self.write(&WitnessLogEntry::Executed(execution.clone()))?;
                self.happened.insert(execution.call.clone());
                Ok(WitnessAnswer::Counted)
            }
            WitnessReport::Probed { call } if self.happened.contains(call) => Ok(WitnessAnswer::Happened),
            WitnessReport::Probed { call } => {
                self.write(&WitnessLogEntry::CalledOff { call: call.clone() })?;
                self.called_off.insert(call.clone());
                Ok(WitnessAnswer::DidNotHappen)
            }
        }
    }

    fn write(&mut self, sighting: &WitnessLogEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(sighting)?;
        line.push(b'\n');
        self.log.write_all(&line)?;
        self.log.sync_data()
    }
}

/// A running witness. Dropping it stops the witness.
pub(crate) enum WitnessServer {
    Process(Child),
    Thread { socket: PathBuf, stopped: Arc<AtomicBool>, thread: Option<JoinHandle<io::Result<()>>> },
}

impl WitnessServer {
    /// Starts a witness in the directory. `tell` receives every execution right after it was written.
    pub(crate) fn start(
        seat: &WitnessPlacement,
        dir: &Path,
        tell: impl Fn(Execution) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        match seat {
            WitnessPlacement::Process(program) => {
                let mut command = Command::new(program);
                command.arg(MODE).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = command.spawn()?;
                let mut said = BufReader::new(child.stdout.take().expect("its output is piped"));
                said.read_line(&mut String::new())?;
                thread::spawn(move || {
                    for line in said.lines().map_while(Result::ok) {
                        if let Ok(execution) = serde_json::from_str(&line) {
                            tell(execution);
                        }
                    }
                });
                Ok(Self::Process(child))
            }
            WitnessPlacement::Thread => {
                let listening = WitnessListener::at(dir)?;
                let stopped = listening.stopped.clone();
                let thread = thread::spawn(move || listening.serve(move |execution| tell(execution.clone())));
                Ok(Self::Thread { socket: dir.join(SOCKET), stopped, thread: Some(thread) })
            }
        }
    }
}

impl Drop for WitnessServer {
    fn drop(&mut self) {
        // Everything answered is on disk, so the way it ends does not matter.
        match self {
            Self::Process(child) => {
                drop(child.stdin.take());
                let _ = child.wait();
            }
            Self::Thread { socket, stopped, thread } => {
                stopped.store(true, Ordering::SeqCst);
                if UnixStream::connect(socket).is_ok() {
                    let _ = thread.take().map(JoinHandle::join);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(call: &str, attempt: u32) -> Execution {
        let (call, arguments) = (call.to_owned(), String::new());
        Execution { tool: "pay".into(), call, step: None, attempt, pid: 7, arguments, completion: None }
    }

    fn report(socket: &Path, line: &str) -> String {
        let mut stream = UnixStream::connect(socket).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    }

    #[test]
    fn call_probed_as_absent_cannot_execute_later() {
        let dir = tempfile::tempdir().unwrap();
        let witness = WitnessServer::start(&WitnessPlacement::Thread, dir.path(), |_| {}).unwrap();
        let socket = dir.path().join(SOCKET);
        let executed = |call: &str, attempt| {
            let execution = serde_json::to_string(&execution(call, attempt)).unwrap();
            report(&socket, &format!("{{\"executed\":{execution}}}"))
        };
        assert_eq!(executed("a", 1), "\"counted\"\n");
        assert_eq!(report(&socket, r#"{"probed":{"call":"a"}}"#), "\"happened\"\n");
        assert_eq!(report(&socket, r#"{"probed":{"call":"b"}}"#), "\"did_not_happen\"\n");
        assert_eq!(executed("b", 1), "\"called_off\"\n");
        assert_eq!(executed("a", 2), "\"counted\"\n");
        drop(witness);
        let seen = crate::witness_protocol::read(&dir.path().join(LOG)).unwrap();
        assert_eq!(seen, [execution("a", 1), execution("a", 2)]);
    }

    #[test]
    fn interrupted_report_is_ignored_without_blocking_others() {
        let dir = tempfile::tempdir().unwrap();
        let _witness = WitnessServer::start(&WitnessPlacement::Thread, dir.path(), |_| {}).unwrap();
        let socket = dir.path().join(SOCKET);
        let mut stopped = UnixStream::connect(&socket).unwrap();
        write!(stopped, "{{\"probed\":{{\"ca").unwrap();
        assert_eq!(report(&socket, r#"{"probed":{"call":"a"}}"#), "\"did_not_happen\"\n");
    }
}

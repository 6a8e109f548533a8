//! The ways to reach a server: as a child process, over HTTP, or over streams.
use crate::lock;
use outlast_ports::environment::redact_variables;
use outlast_vocab::overlay::NetworkAllowList;
use outlast_vocab::{Error, Kind};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, DuplexStream, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// The maximum length of a message from a server in bytes.
const MESSAGE_BYTES: usize = 16 << 20;

/// How much of the end of a server's standard error is kept, in bytes.
const STDERR_BYTES: usize = 2 << 10;

/// How long to wait for the last output on standard error.
const STDERR_WAIT: Duration = Duration::from_millis(500);

/// The environment variables that every server inherits. They contain no secrets of the agent.
const INHERITED_ENV: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// A server that runs as a child process and communicates over standard input and output. It is started without a
/// shell.
#[derive(Clone, Debug)]
pub struct ProcessTransport {
    /// The program, searched on `PATH` unless it contains a slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its working directory.
    pub dir: PathBuf,
    /// Environment variables that are passed to it, in addition to the few that every server inherits.
    pub passed_env: Vec<String>,
    /// A guardian program with its arguments, started instead of the server. It runs the server, optionally in a
    /// sandbox. When the reader of its standard error goes away, it kills the server and all its child processes.
    pub launcher: Option<(OsString, Vec<OsString>)>,
}

/// A server that is reached over HTTP.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    /// Its address. The creator of the client has checked that it may be reached.
    pub url: String,
    /// The HTTP client. It must not follow redirects or use a proxy on its own.
    pub client: reqwest::Client,
    /// The environment variable that contains the bearer token.
    pub bearer: Option<String>,
    /// Checks whether a turn may reach the server.
    pub network_check: NetworkCheck,
}

/// Checks whether a server is within the network access of a turn. The creator of the client knows which hosts that
/// covers.
#[derive(Clone)]
pub struct NetworkCheck(Arc<ReachCheck>);

/// Returns an error if the server is out of reach.
type ReachCheck = dyn Fn(&NetworkAllowList) -> Result<(), Error> + Send + Sync;

impl NetworkCheck {
    /// Wraps a check that runs before every call. It returns an error if the server is out of reach.
    pub fn new(check: impl Fn(&NetworkAllowList) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) fn check(&self, network: &NetworkAllowList) -> Result<(), Error> {
        (self.0)(network)
    }
}

impl fmt::Debug for NetworkCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").finish_non_exhaustive()
    }
}

/// A server within this program.
#[derive(Clone)]
pub struct StreamTransport(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl StreamTransport {
    /// Wraps a function that opens a connection. It returns the client's end of a new stream; the server has the other
    /// end.
    pub fn new(connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    pub(crate) fn connect(&self) -> DuplexStream {
        (self.0)()
    }
}

impl fmt::Debug for StreamTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

/// A running server process. Dropping it ends everything that the server started. Without a guardian, only processes in
/// the server's group are ended.
pub(crate) struct ServerProcess {
    child: Child,
    stderr_tail: Arc<Mutex<VecDeque<u8>>>,
    stderr_task: JoinHandle<()>,
    /// Whether a guardian runs it. The guardian itself must not be killed.
    guarded: bool,
    /// Environment variables that are passed to it.
    passed_env: Vec<String>,
}

/// The output and input of a server's process.
pub(crate) type ProcessPipes = (LineLimitedReader, ChildStdin);

impl ProcessTransport {
    pub(crate) fn start(&self) -> Result<(ServerProcess, ProcessPipes), Error> {
        let (program, args) =
            self.launcher.as_ref().map_or((&self.program, &self.args), |(program, args)| (program, args));
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.dir).env_clear().process_group(0);
        let inherited = INHERITED_ENV.iter().copied().chain(self.passed_env.iter().map(String::as_str));
        command.envs(inherited.filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|cause| {
            let detail = format!("`{}` cannot be started: {cause}", self.program.display());
            Error::new(Kind::McpUnavailable, detail).because(cause)
        })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Error::new(Kind::Internal, "a process that was started with pipes has none"));
        };
        let complained = Arc::default();
        let listening = tokio::spawn(collect_stderr(stderr, Arc::clone(&complained)));
        let (guarded, passed_on) = (self.launcher.is_some(), self.passed_env.clone());
        let running = ServerProcess {
            child,
            stderr_tail: complained,
            stderr_task: listening,
            guarded,
            passed_env: passed_on,
        };
        Ok((running, (LineLimitedReader { stdout, line: 0 }, stdin)))
    }
}

impl ServerProcess {
    /// Waits briefly for the rest of standard error and returns the end of it, for a server that is gone.
    pub(crate) async fn drain_stderr(mut self) -> String {
        let _ended = tokio::time::timeout(STDERR_WAIT, &mut self.stderr_task).await;
        self.stderr_tail()
    }

    /// Returns the end of standard error with the values of passed secrets redacted.
    pub(crate) fn stderr_tail(&self) -> String {
        let tail: Vec<u8> = lock(&self.stderr_tail).iter().copied().collect();
        redact_variables(String::from_utf8_lossy(&tail).trim(), &self.passed_env)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.guarded {
            // This closes the read end of standard error, which tells the guardian to end.
            self.stderr_task.abort();
            return;
        }
        // Without an id, the process has been reaped, and its id may belong to another process.
        let number = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(number) = number {
            // Killing fails only if the group is already gone.
            let _killed = kill_process_group(number, Signal::KILL);
        }
    }
}

/// Keeps the end of a server's standard error until the server is gone.
async fn collect_stderr(mut stderr: ChildStderr, complained: Arc<Mutex<VecDeque<u8>>>) {
    let mut piece = [0; 1 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let mut tail = lock(&complained);
        tail.extend(&piece[..read]);
        let over = tail.len().saturating_sub(STDERR_BYTES);
        tail.drain(..over);
    }
}

/// Reads a server's messages, one per line, and bounds their length. An endless line would otherwise fill the memory.
pub(crate) struct LineLimitedReader {
    stdout: ChildStdout,
    line: usize,
}

impl AsyncRead for LineLimitedReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stdout).poll_read(context, into);
        let new = &into.filled()[before..];
        self.line = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => new.len() - end - 1,
            None => self.line + new.len(),
        };
        if self.line > MESSAGE_BYTES {
            let detail = format!("a message of the server is longer than {MESSAGE_BYTES} bytes");
            return Poll::Ready(Err(io::Error::other(detail)));
        }
        read
    }
}

//! How a server is reached: as a process with its words, its environment and its end, over HTTP, or over streams.
use crate::lock;
use outlast_ports::environment::without_variables;
use outlast_vocab::overlay::Reach;
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

/// The longest message of a server in bytes.
const MESSAGE_BYTES: usize = 16 << 20;

/// How much of its complaints is kept, in bytes: the end of them.
const COMPLAINT_BYTES: usize = 2 << 10;

/// How long the last complaints of a server are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What a server finds in its environment without being given it. Secrets of the agent are not among it.
const INHERITED: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// A server that is started as a process and spoken to by its standard input and output. No shell reads its words.
#[derive(Clone, Debug)]
pub struct Process {
    /// What is started, found on the path unless it has a slash.
    pub program: OsString,
    /// What it is passed.
    pub args: Vec<OsString>,
    /// Where it works.
    pub dir: PathBuf,
    /// Variables of our environment that it finds in its own, beside a few that every program needs.
    pub passed_on: Vec<String>,
    /// A guardian that is started in its place and runs it, with what that is passed; it may put up walls first. It ends the server
    /// and everything the server started when the reader of its standard error goes away.
    pub launcher: Option<(OsString, Vec<OsString>)>,
}

/// A server that is spoken to over HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    /// Where it is. Whoever made the client has decided that it may be reached.
    pub url: String,
    /// What connects. It must follow no redirect and go by no proxy of its own accord.
    pub client: reqwest::Client,
    /// The variable of our environment that holds what proves who we are.
    pub bearer: Option<String>,
    /// Whether it may be reached in a turn.
    pub within: Within,
}

/// Says whether a server is within what a turn lets be reached. Which hosts a list names is for whoever made the client to know.
#[derive(Clone)]
pub struct Within(Arc<Check>);

/// Gives an error where a server lies outside.
type Check = dyn Fn(&Reach) -> Result<(), Error> + Send + Sync;

impl Within {
    /// What is called before every call gives an error where the server lies outside.
    pub fn new(check: impl Fn(&Reach) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) fn check(&self, network: &Reach) -> Result<(), Error> {
        (self.0)(network)
    }
}

impl fmt::Debug for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").finish_non_exhaustive()
    }
}

/// A server within this program.
#[derive(Clone)]
pub struct Streams(Arc<dyn Fn() -> DuplexStream + Send + Sync>);

impl Streams {
    /// What is called for every connection gives its end of a new stream; the server has the other end.
    pub fn new(connect: impl Fn() -> DuplexStream + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    pub(crate) fn connect(&self) -> DuplexStream {
        (self.0)()
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

/// A server's process while it runs; with it ends everything it started. Without a guardian, that is what stayed in its group.
pub(crate) struct Running {
    child: Child,
    complained: Arc<Mutex<VecDeque<u8>>>,
    listening: JoinHandle<()>,
    /// Whether a guardian runs it, which must not be killed itself.
    guarded: bool,
    /// Variables of our environment that it finds in its own.
    passed_on: Vec<String>,
}

/// The two ends of a server's process.
pub(crate) type Ends = (Bounded, ChildStdin);

impl Process {
    pub(crate) fn start(&self) -> Result<(Running, Ends), Error> {
        let (program, args) =
            self.launcher.as_ref().map_or((&self.program, &self.args), |(program, args)| (program, args));
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.dir).env_clear().process_group(0);
        let inherited = INHERITED.iter().copied().chain(self.passed_on.iter().map(String::as_str));
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
        let listening = tokio::spawn(listen(stderr, Arc::clone(&complained)));
        let (guarded, passed_on) = (self.launcher.is_some(), self.passed_on.clone());
        let running = Running { child, complained, listening, guarded, passed_on };
        Ok((running, (Bounded { stdout, line: 0 }, stdin)))
    }
}

impl Running {
    /// What a server that is gone complained about: all of it has arrived, or nothing more comes in time.
    pub(crate) async fn last_words(mut self) -> String {
        let _heard = tokio::time::timeout(LAST_WORDS, &mut self.listening).await;
        self.complained()
    }

    /// What it complained about last, without secrets that it was given.
    pub(crate) fn complained(&self) -> String {
        let kept: Vec<u8> = lock(&self.complained).iter().copied().collect();
        without_variables(String::from_utf8_lossy(&kept).trim(), &self.passed_on)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.guarded {
            // Nobody reads what the server complains about any more, which is how its guardian learns that it is to end.
            self.listening.abort();
            return;
        }
        // Without a number it has been waited for, and the number may be somebody else's by now.
        let number = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(number) = number {
            // Only a group that is gone already cannot be killed.
            let _killed = kill_process_group(number, Signal::KILL);
        }
    }
}

/// Keeps the end of what a server complains about, until it is gone.
async fn listen(mut stderr: ChildStderr, complained: Arc<Mutex<VecDeque<u8>>>) {
    let mut piece = [0; 1 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let mut kept = lock(&complained);
        kept.extend(&piece[..read]);
        let over = kept.len().saturating_sub(COMPLAINT_BYTES);
        kept.drain(..over);
    }
}

/// What a server says, a message a line. A line without end would fill the memory.
pub(crate) struct Bounded {
    stdout: ChildStdout,
    line: usize,
}

impl AsyncRead for Bounded {
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
            let detail =
                format!("a message of the server is longer than the {MESSAGE_BYTES} bytes it may have");
            return Poll::Ready(Err(io::Error::other(detail)));
        }
        read
    }
}

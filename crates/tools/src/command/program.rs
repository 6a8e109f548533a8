//! Runs a program to its end with bounded output. If the caller stops waiting, the program and its child processes are
//! killed.
use outlast_ports::environment::redact_variables;
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::{Error, Kind};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// The maximum size of a program's output in bytes.
pub const OUTPUT_BYTES: usize = 1 << 20;

/// How much of the end of standard error is kept, in bytes.
const STDERR_BYTES: usize = 4 << 10;

/// The environment variables that every program inherits. They contain no secrets of the agent.
const INHERITED_ENV: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// A program with its arguments and working directory. It is started without a shell.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program, searched on `PATH` unless it contains a slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its working directory.
    pub dir: PathBuf,
    /// Environment variables that are passed to it, in addition to the few that every program inherits.
    pub passed_env: Vec<String>,
}

/// The result of a program that has ended.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// The end of its standard error.
    pub stderr_tail: String,
}

impl Program {
    /// Runs the program with this standard input and these additional environment variables.
    ///
    /// The program has ended when its process has exited and none of its child processes holds its output open. Under a
    /// guardian, its child processes end with it. Dropping the future kills all of them.
    pub async fn run(&self, input: Vec<u8>, variables: &[(&str, String)]) -> Result<ProgramOutput, Error> {
        let mut group = self.start(variables)?;
        let (stdin, stdout, stderr) = group.pipes();
        let fed = async {
            // A program need not read its input.
            if let Some(mut stdin) = stdin {
                let _fed = stdin.write_all(&input).await;
            }
            Ok(())
        };
        let ((), printed, complained) =
            tokio::try_join!(fed, read_all(stdout), read_tail(stderr, STDERR_BYTES))
                .map_err(|error| self.with_program_name(&error))?;
        let status = group.wait().await.map_err(|cause| self.wait_error(cause))?;
        #[cfg(target_os = "linux")]
        if group.is_guarded()
            && let Some(why) = crate::sandbox::not_started(status.code(), &complained.text)
        {
            let detail = format!("`{}` cannot be started: {why}", self.program.display());
            return Err(Error::new(Kind::ToolUnavailable, detail));
        }
        let complained = redact_variables(&complained.text, &self.passed_env);
        Ok(ProgramOutput { status, stdout: printed, stderr_tail: complained })
    }

    /// Returns the policy actions of running it: the program and the variables that it is passed.
    pub(crate) fn policy_actions(&self) -> impl Iterator<Item = PolicyAction> {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let (program, args) = (text(&self.program), self.args.iter().map(text).collect());
        let starts = PolicyAction::Process { program, args, sandboxed: false };
        std::iter::once(starts)
            .chain(self.passed_env.iter().map(|name| PolicyAction::Secret { name: name.clone() }))
    }

    fn start(&self, variables: &[(&str, String)]) -> Result<ProcessTree, Error> {
        #[cfg(target_os = "linux")]
        let launch = crate::sandbox::guarded_command(&self.program, &self.args);
        #[cfg(not(target_os = "linux"))]
        let launch: Option<(OsString, Vec<OsString>)> = None;
        let (program, args) =
            launch.as_ref().map_or((&self.program, &self.args), |(program, args)| (program, args));
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.dir).env_clear().process_group(0);
        let inherited = INHERITED_ENV.iter().copied().chain(self.passed_env.iter().map(String::as_str));
        command.envs(inherited.filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|cause| {
            let detail = format!("`{}` cannot be started: {cause}", self.program.display());
            Error::new(Kind::ToolUnavailable, detail).because(cause)
        })?;
        Ok(if launch.is_some() { ProcessTree::guarded(child) } else { ProcessTree::of(child) })
    }

    fn with_program_name(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("`{}` {}", self.program.display(), error.detail()))
    }

    fn wait_error(&self, cause: std::io::Error) -> Error {
        let detail = format!("the exit status of `{}` is unknown: {cause}", self.program.display());
        Error::new(Kind::ToolFailed, detail).because(cause)
    }
}

/// A process and everything it started. Dropping it ends all of them.
pub(crate) struct ProcessTree {
    root: Child,
    end_mechanism: EndMechanism,
}

/// The mechanism that ends the processes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndMechanism {
    /// A guardian, which ends them when the reader of its standard error goes away. The guardian itself must not be
    /// killed.
    Guardian,
    /// The process group. A process that leaves the group is not ended.
    ProcessGroup,
}

type Pipes = (
    Option<tokio::process::ChildStdin>,
    Option<tokio::process::ChildStdout>,
    Option<tokio::process::ChildStderr>,
);

impl ProcessTree {
    /// Creates the group of a process that is its group leader.
    fn of(root: Child) -> Self {
        Self { root, end_mechanism: EndMechanism::ProcessGroup }
    }

    /// Creates the group of the processes under a guardian.
    pub(crate) fn guarded(guardian: Child) -> Self {
        Self { root: guardian, end_mechanism: EndMechanism::Guardian }
    }

    #[cfg(target_os = "linux")]
    fn is_guarded(&self) -> bool {
        self.end_mechanism == EndMechanism::Guardian
    }

    pub(crate) fn pipes(&mut self) -> Pipes {
        (self.root.stdin.take(), self.root.stdout.take(), self.root.stderr.take())
    }

    /// Waits for the process to exit. Call it last, because the process id then no longer identifies the group.
    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.root.wait().await
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        // The guardian notices that its standard error, which closes with this call, has no reader.
        if self.end_mechanism == EndMechanism::Guardian {
            return;
        }
        // Without an id, the process has been reaped, and its id may belong to another process.
        let number = self.root.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(number) = number {
            // Killing fails only if the group is already gone.
            let _killed = kill_process_group(number, Signal::KILL);
        }
    }
}

/// Reads the whole output, up to the limit.
async fn read_all(from: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(OUTPUT_BYTES as u64 + 1).read_to_end(&mut bytes).await.map_err(read_error)?;
    }
    if bytes.len() > OUTPUT_BYTES {
        let detail = format!("printed more than {OUTPUT_BYTES} bytes");
        return Err(Error::new(Kind::ToolFailed, detail));
    }
    Ok(bytes)
}

/// The end of a text.
pub(crate) struct OutputTail {
    pub(crate) text: String,
    /// Whether earlier text was dropped.
    pub(crate) cut: bool,
}

/// Reads output of any length and keeps the end of it.
pub(crate) async fn read_tail(
    from: Option<impl AsyncRead + Unpin>,
    most: usize,
) -> Result<OutputTail, Error> {
    let (mut output, mut cut) = (Vec::new(), false);
    if let Some(mut from) = from {
        let mut piece = [0; 4 << 10];
        loop {
            let read = from.read(&mut piece).await.map_err(read_error)?;
            if read == 0 {
                break;
            }
            output.extend_from_slice(&piece[..read]);
            let over = output.len().saturating_sub(most);
            cut |= over > 0;
            output.drain(..over);
        }
    }
    Ok(OutputTail { text: String::from_utf8_lossy(&output).trim().to_owned(), cut })
}

fn read_error(cause: std::io::Error) -> Error {
    Error::new(Kind::ToolFailed, format!("its output cannot be read: {cause}")).because(cause)
}

//! `shell`: runs a command in the directory for files, in a sandbox.
//!
//! This program starts itself, enters the sandbox and then becomes the command ([`crate::sandbox`]). A command
//!
//! - sees only the directory for files and the programs and libraries of the system (Landlock),
//! - can change nothing else and reach no outside process (namespaces, or a filter if they are not available),
//! - has no network and cannot trace, mount or load anything (seccomp),
//! - is limited in time, memory, files and processes,
//! - has its own environment and none of our file descriptors.
//!
//! A guardian ends everything that the command started when the command ends, at its deadline, when the turn is
//! cancelled, and when this process is killed.
//!
//! A program with this tool must call [`start`] first in its `main`.
pub use crate::sandbox::start;

use crate::command::{ProcessTree, read_tail};
use crate::files::file_root::FileRoot;
use crate::sandbox::{self, GuardianSpec, NOT_STARTED_EXIT_CODE, SandboxSpec};
use outlast_ports::environment::redact_variables;
use outlast_ports::service::{Agent, Service};
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done, failed};
use outlast_vocab::policy::PolicyAction;
use outlast_vocab::tool::CallScheduling;
use outlast_vocab::{CallId, Error, Kind, limits};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::runtime::Handle;

/// The maximum length of a command in bytes.
pub const COMMAND_BYTES: usize = 16 << 10;

/// How much of the end of standard output is kept, in bytes; the same for standard error.
pub const PRINTED_BYTES: usize = 64 << 10;

/// The default timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// The search path for programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The settings for running commands.
#[derive(Clone, Debug)]
pub struct Shell {
    root: PathBuf,
    deadline: Duration,
    read: Vec<PathBuf>,
    passed_env: Vec<String>,
    needs_landlock: bool,
}

impl Shell {
    /// Creates a shell that works in the directory for files.
    pub fn new(root: &FileRoot) -> Self {
        let root = root.path().to_owned();
        Self {
            root,
            deadline: COMMAND_TIMEOUT,
            read: Vec::new(),
            passed_env: Vec::new(),
            needs_landlock: true,
        }
    }

    /// Returns the directory in which commands work, and in which they may change everything.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Sets the timeout of a command.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Lets commands also read and execute this path.
    #[must_use]
    pub fn read(mut self, path: impl Into<PathBuf>) -> Self {
        self.read.push(path.into());
        self
    }

    /// Passes an environment variable to commands.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>) -> Self {
        self.passed_env.push(name.into());
        self
    }

    /// Runs commands even without Landlock in the kernel. They can then read and write everything that this process
    /// can.
    #[must_use]
    pub fn allow_missing_landlock(mut self) -> Self {
        self.needs_landlock = false;
        self
    }

    /// Returns an error if the shell could not run any command. Call it at start-up rather than fail during a turn.
    pub fn check(&self) -> Result<(), Error> {
        sandbox::available(self.needs_landlock)?;
        if let Some(missing) = self.passed_env.iter().find(|name| std::env::var_os(name).is_none()) {
            let detail =
                format!("the environment variable `{missing}`, which is passed to commands, is not set");
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        Ok(())
    }

    /// Returns the policy actions of a command: a sandboxed program and the variables that it is passed.
    fn policy_actions(&self, command: &str) -> impl Iterator<Item = PolicyAction> {
        let args = vec!["-c".to_owned(), command.to_owned()];
        let starts = PolicyAction::Process { program: "sh".to_owned(), args, sandboxed: true };
        std::iter::once(starts)
            .chain(self.passed_env.iter().map(|name| PolicyAction::Secret { name: name.clone() }))
    }

    fn command(&self, command: &str, temporary: &Path) -> Result<Command, Error> {
        let sandbox = SandboxSpec {
            read: self.read.clone(),
            write: vec![self.root.clone(), temporary.to_owned()],
            seconds: Some(self.deadline.as_secs().max(1)),
            needs_landlock: self.needs_landlock,
            isolation: sandbox::isolation(),
        };
        let spec = GuardianSpec { sandbox: Some(sandbox), temporary: Some(temporary.to_owned()) };
        let (program, args) = spec.launch("/bin/sh".as_ref(), &["-c".into(), command.into()])?;
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.root).env_clear().process_group(0);
        command.env("PATH", PATH).env("HOME", &self.root).env("TMPDIR", temporary).env("LANG", "C.UTF-8");
        command.envs(self.passed_env.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// The tool that runs a command.
pub struct ShellRun {
    deadline: Duration,
}

impl ShellRun {
    /// Creates the tool for this shell. Grant the shell as a service too.
    pub fn new(shell: &Shell) -> Self {
        Self { deadline: shell.deadline }
    }
}

/// What the model passes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShellArgs {
    /// The command, as `sh` reads it.
    command: String,
}

impl Tool for ShellRun {
    type Args = ShellArgs;
    type Needs = (Service<Shell>, Agent);

    fn spec(&self) -> ToolSpec {
        let description = "Runs a command with `sh` in the directory for files. It has no network and sees no other \
             files than these and the programs of the system. Gives the exit code and the end of what it printed.";
        ToolSpec::new("shell", description)
            .scheduled(CallScheduling::Keyed("files".to_owned()))
            .deadline(self.deadline)
            .approval()
    }

    async fn run(
        &self,
        (shell, agent): (Service<Shell>, Agent),
        call: Call,
        args: ShellArgs,
    ) -> Result<ToolRunOutcome, Error> {
        limits::check("command_bytes", args.command.len(), COMMAND_BYTES)?;
        if args.command.contains('\0') {
            return Err(Error::new(Kind::ToolArgsInvalid, "expected a command, got one with a zero byte"));
        }
        for action in shell.policy_actions(&args.command) {
            agent.permit(action).await?;
        }
        let temporary = TemporaryDirectory::make(call.id)?;
        let child = shell.command(&args.command, &temporary.0)?.spawn().map_err(|cause| {
            Error::new(Kind::ToolUnavailable, format!("the shell cannot be started: {cause}")).because(cause)
        })?;
        let mut guardian = ProcessTree::guarded(child);
        let (_, stdout, stderr) = guardian.pipes();
        let running = RunningCommand(Some((guardian, temporary)));
        let (printed, complained) =
            tokio::try_join!(read_tail(stdout, PRINTED_BYTES), read_tail(stderr, PRINTED_BYTES))?;
        let status =
            running.wait().await.map_err(|cause| failed(format!("its exit status is unknown: {cause}")))?;
        if status.code() == Some(NOT_STARTED_EXIT_CODE) && complained.text.starts_with(sandbox::SANDBOX_ERROR)
        {
            return Err(Error::new(Kind::SandboxUnavailable, complained.text));
        }
        done(json!({
            "exit_code": status.code(),
            "signal": status.signal(),
            "stdout": redact_variables(&printed.text, &shell.passed_env),
            "stderr": redact_variables(&complained.text, &shell.passed_env),
            "cut": printed.cut || complained.cut,
        }))
    }
}

/// The temporary directory of a command. The guardian empties it, because a command may have filled it with millions of
/// files.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn make(call: CallId) -> Result<Self, Error> {
        let place = std::env::temp_dir().join(format!("outlast-{call}"));
        std::fs::DirBuilder::new().mode(0o700).create(&place).map_err(|cause| {
            let detail = format!("the directory {} cannot be made: {cause}", place.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        Ok(Self(place))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // This fails if the guardian has removed it already, or could not empty it. The system's cleanup of temporary
        // files then removes the rest.
        let _removed = std::fs::remove_dir(&self.0);
    }
}

/// A running command with its temporary directory. If the caller stops waiting, the directory is removed after the
/// guardian has ended.
struct RunningCommand(Option<(ProcessTree, TemporaryDirectory)>);

impl RunningCommand {
    /// Waits for the guardian to end.
    async fn wait(mut self) -> std::io::Result<ExitStatus> {
        let Some((guardian, _)) = &mut self.0 else { unreachable!("only `drop` takes it") };
        let status = guardian.wait().await;
        drop(self.0.take());
        status
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let Some((mut guardian, temporary)) = self.0.take() else { return };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ended = guardian.wait().await;
                drop(temporary);
            });
        }
    }
}

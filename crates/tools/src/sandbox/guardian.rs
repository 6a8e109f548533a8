//! The guardian of one program, and the first process of its PID namespace.
//!
//! The guardian uses only standard process features:
//!
//! - It inherits standard input, output and error. It passes the first two to the program. The program gets a separate
//!   pipe for standard error, which the guardian copies.
//! - It watches the reader of standard error. When the reader closes it, is killed or crashes, the guardian ends the
//!   program and everything the program started. Standard output may be closed earlier, so that a program can still
//!   report an error on standard error.
//! - The program cannot hold that pipe open. It never has it, and the guardian is not dumpable, so `/proc` does not
//!   show its descriptors.
//! - When the program ends, everything it started is ended too. The guardian then ends in the same way: with the same
//!   exit code or by the same signal.
//!
//! The guardian writes no output, except the reason if the program could not be started.
use super::containment::ProcessContainment;
use super::namespaces;
use super::{GuardianSpec, Isolation, NOT_STARTED, SANDBOX_ERROR, SandboxRole};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, geteuid, getpid, kill_process,
    pidfd_open, set_child_subreaper, set_dumpable_behavior, setrlimit, wait,
};
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set,
};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// How often to reap ended processes without a parent.
const REAP_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How often to check whether the program ended, if the kernel has no pidfd.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The timeout for more of standard error after all its writers were ended. A process that could not be ended may still
/// hold the pipe.
const STDERR_DRAIN_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Bytes of standard error that are copied at once.
const COPY_BYTES: usize = 16 << 10;

/// How long the first process of a namespace waits if there is nothing to reap.
const IDLE: Duration = Duration::from_millis(50);

/// The end of watching a program.
enum WatchEnd {
    Ended(ExitStatus),
    /// The reader of standard error is gone.
    Abandoned,
}

/// Runs a program and ends in the same way. Returns only if the program could not be started, with the reason.
pub(super) fn run(spec: &GuardianSpec, program: &OsStr, args: &[OsString]) -> Result<Infallible, String> {
    let refused = |what: &str, cause: &dyn std::fmt::Display| format!("{what}: {cause}");
    set_child_subreaper(Some(getpid())).map_err(|cause| refused(NOT_STARTED, &cause))?;
    close_fds::set_fds_cloexec(3, &[]);
    // It may have to end by a signal that dumps core.
    let _bounded = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let (tree, started) = match &spec.sandbox {
        Some(sandbox) if sandbox.isolation == Isolation::Namespaces => {
            namespaces::enter(&sandbox.write).map_err(|why| refused(SANDBOX_ERROR, &why))?;
            let mut init = SandboxRole::Init.command();
            init.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let init = init.spawn().map_err(|cause| refused(SANDBOX_ERROR, &cause))?;
            hide();
            (ProcessContainment::Namespace(init), sandboxed_program(spec, program, args).spawn())
        }
        Some(_) => {
            hide();
            let tree = ProcessContainment::new();
            let started = tree.inside(|| sandboxed_program(spec, program, args).spawn());
            (tree, started)
        }
        None => {
            drop_tracing_capabilities();
            hide();
            let tree = ProcessContainment::new();
            let mut command = Command::new(program);
            command.args(args).process_group(0).stderr(Stdio::piped());
            let started = tree.inside(|| command.spawn());
            (tree, started)
        }
    };
    let mut child = started.map_err(|cause| refused(NOT_STARTED, &cause))?;
    let mut complaints = StderrRelay(child.stderr.take());
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has an id");
    let watched = watch(id, &mut complaints);
    tree.end();
    if let Some(temporary) = &spec.temporary {
        // In namespaces it is a mount point, so that only its content is removed.
        let _emptied = std::fs::remove_dir_all(temporary);
    }
    match watched {
        WatchEnd::Ended(status) => {
            complaints.copy_rest();
            exit_like(status)
        }
        WatchEnd::Abandoned => std::process::exit(super::NOT_STARTED_EXIT_CODE),
    }
}

/// Returns a command that starts this program, which then enters the sandbox and becomes the other one.
fn sandboxed_program(spec: &GuardianSpec, program: &OsStr, args: &[OsString]) -> Command {
    let text = serde_json::to_string(spec).expect("it was read from text");
    let mut command = SandboxRole::Program.command();
    command.arg(text).arg(program).args(args).process_group(0).stderr(Stdio::piped());
    command
}

/// Hides the descriptors and the memory of this process from other processes of the same user. Child processes are
/// visible again.
fn hide() {
    let _hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// The capabilities with which root could inspect protected processes, such as the one that started this.
const TRACING: [CapabilitySet; 3] =
    [CapabilitySet::SYS_PTRACE, CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN];

/// Drops the capabilities with which root could inspect protected processes.
fn drop_tracing_capabilities() {
    for capability in TRACING {
        // It fails for a user other than root, who has none of them. For root, `keeps_tracing_capabilities` reports it.
        let _dropped = remove_capability_from_bounding_set(capability);
    }
}

/// Returns whether programs without a sandbox keep such a capability, because this process may not drop it.
pub(super) fn keeps_tracing_capabilities() -> bool {
    // Root regains the capabilities of the bounding set in the programs that it starts.
    let is_kept = |capability| capability_is_in_bounding_set(capability).unwrap_or(true);
    let may_drop = capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SETPCAP));
    geteuid().is_root() && !may_drop && TRACING.into_iter().any(is_kept)
}

/// The program's standard error until it is closed. [`watch`] copies it, because a process that created a PID namespace
/// cannot start threads.
struct StderrRelay(Option<ChildStderr>);

impl StderrRelay {
    /// Copies the bytes that are ready. An error means that the reader is gone.
    fn copy(&mut self) -> io::Result<()> {
        let Some(from) = &mut self.0 else { return Ok(()) };
        let mut space = [0; COPY_BYTES];
        let read = from.read(&mut space).unwrap_or(0);
        if read == 0 {
            self.0 = None;
            return Ok(());
        }
        io::stderr().write_all(&space[..read])
    }

    /// Copies the rest after all writers were ended.
    fn copy_rest(&mut self) {
        while let Some(from) = &self.0 {
            let mut fds = [PollFd::new(from, PollFlags::IN)];
            let is_ready = poll(&mut fds, Some(&STDERR_DRAIN_TIMEOUT)).is_ok_and(|ready| ready > 0);
            if !is_ready || self.copy().is_err() {
                return;
            }
        }
    }
}

/// Waits until the program ends or the reader of its standard error goes away.
fn watch(program: Pid, complaints: &mut StderrRelay) -> WatchEnd {
    let stderr = std::io::stderr();
    let ended: Option<OwnedFd> = pidfd_open(program, PidfdFlags::empty()).ok();
    let timeout = if ended.is_some() { REAP_INTERVAL } else { POLL_INTERVAL };
    loop {
        // No events are requested, because errors are always reported, and a pipe without a reader is an error.
        let mut fds = vec![PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::empty())];
        fds.extend(complaints.0.as_ref().map(|complaints| PollFd::new(complaints, PollFlags::IN)));
        fds.extend(ended.as_ref().map(|ended| PollFd::new(ended, PollFlags::IN)));
        let polled = poll(&mut fds, Some(&timeout));
        let mut abandoned = fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        let has_more = complaints.0.is_some() && !fds[1].revents().is_empty();
        drop(fds);
        if has_more {
            abandoned |= complaints.copy().is_err();
        }
        while let Ok(Some((id, status))) = wait(WaitOptions::NOHANG) {
            if id == program {
                return WatchEnd::Ended(ExitStatus::from_raw(status.as_raw()));
            }
        }
        if abandoned || polled.is_err_and(|cause| cause != Errno::INTR) {
            return WatchEnd::Abandoned;
        }
    }
}

/// Ends this process in the same way.
fn exit_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        if let Some(named) = Signal::from_named_raw(signal) {
            let _killed = kill_process(getpid(), named);
        }
        // This process ignores the signal, so use the exit code that shells use.
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(super::NOT_STARTED_EXIT_CODE))
}

/// Runs as the first process of a PID namespace until its guardian closes its standard input or is gone.
pub(super) fn init() -> Result<Infallible, String> {
    thread::Builder::new()
        .name("collect".to_owned())
        .spawn(|| {
            loop {
                if wait(WaitOptions::empty()).is_err() {
                    thread::sleep(IDLE);
                }
            }
        })
        .map_err(|cause| format!("{SANDBOX_ERROR}: {cause}"))?;
    let _closed = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0)
}

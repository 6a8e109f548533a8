//! The guardian of one program, and the first process of its PID namespace.
//!
//! The guardian's protocol is what every process has:
//!
//! - It inherits the program's standard input, output and error, and passes them on.
//! - It watches the other end of standard error. When its reader goes away, whether it hung up, was killed or crashed, the guardian
//!   ends the program and everything the program started. Standard output may be closed before: a program can then still say on
//!   standard error what went wrong.
//! - When the program ends, everything it started is ended too, and the guardian ends in the same way: with the same exit code, or
//!   by the same signal.
//!
//! It never writes to the pipes, except the reason why there is no program.
use super::namespaces;
use super::tree::Tree;
use super::{COMPLAINT, Isolation, NOT_STARTED, Role, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process, pidfd_open,
    set_child_subreaper, setrlimit, wait,
};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// How often ended processes are collected whose parents are gone.
const COLLECT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How often it is looked whether the program ended, where the kernel does not tell.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long the first process of a namespace waits when there is nothing to collect.
const IDLE: Duration = Duration::from_millis(50);

/// How the watch over a program came to its end.
enum Watched {
    Ended(ExitStatus),
    /// Nobody reads its standard error any more.
    Abandoned,
}

/// Runs a program and ends in the same way. Returns only if there is no program, with the reason.
pub(super) fn run(spec: &Spec, program: &OsStr, args: &[OsString]) -> Result<Infallible, String> {
    let refused = |what: &str, cause: &dyn std::fmt::Display| format!("{what}: {cause}");
    set_child_subreaper(Some(getpid())).map_err(|cause| refused(NOT_STARTED, &cause))?;
    close_fds::set_fds_cloexec(3, &[]);
    // It may have to end by a signal that dumps core.
    let _bounded = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let (tree, started) = match &spec.walls {
        Some(walls) if walls.isolation == Isolation::Namespaces => {
            namespaces::enter(&walls.write).map_err(|why| refused(COMPLAINT, &why))?;
            let mut init = Role::Init.command();
            init.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let init = init.spawn().map_err(|cause| refused(COMPLAINT, &cause))?;
            (Tree::Namespace(init), walled(spec, program, args).spawn())
        }
        Some(_) => {
            let tree = Tree::new();
            let started = tree.inside(|| walled(spec, program, args).spawn());
            (tree, started)
        }
        None => {
            keep_from_tracing();
            let tree = Tree::new();
            let mut command = Command::new(program);
            let started = tree.inside(|| command.args(args).process_group(0).spawn());
            (tree, started)
        }
    };
    let child = started.map_err(|cause| refused(NOT_STARTED, &cause))?;
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has an id");
    let watched = watch(id);
    tree.end();
    match watched {
        Watched::Ended(status) => end_like(status),
        Watched::Abandoned => std::process::exit(super::REFUSED),
    }
}

/// This program again, which goes behind the walls and becomes the other one.
fn walled(spec: &Spec, program: &OsStr, args: &[OsString]) -> Command {
    let text = serde_json::to_string(spec).expect("it was read from text");
    let mut command = Role::Program.command();
    command.arg(text).arg(program).args(args).process_group(0);
    command
}

/// Without these capabilities root cannot look into processes that do not want it, such as the one that started this.
fn keep_from_tracing() {
    for capability in [CapabilitySet::SYS_PTRACE, CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN] {
        // Whoever is not root has none of them to begin with.
        let _dropped = remove_capability_from_bounding_set(capability);
    }
}

/// Waits for the program's end, or for the end of whoever reads its standard error.
fn watch(program: Pid) -> Watched {
    let stderr = std::io::stderr();
    let ended: Option<OwnedFd> = pidfd_open(program, PidfdFlags::empty()).ok();
    let timeout = if ended.is_some() { COLLECT } else { LOOK };
    loop {
        // Nothing is asked of the pipe: errors are always told, and a pipe without a reader is one.
        let mut fds = vec![PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::empty())];
        fds.extend(ended.as_ref().map(|ended| PollFd::new(ended, PollFlags::IN)));
        let polled = poll(&mut fds, Some(&timeout));
        let abandoned = fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        while let Ok(Some((id, status))) = wait(WaitOptions::NOHANG) {
            if id == program {
                return Watched::Ended(ExitStatus::from_raw(status.as_raw()));
            }
        }
        if abandoned || polled.is_err_and(|cause| cause != Errno::INTR) {
            return Watched::Abandoned;
        }
    }
}

/// Ends this process as that one ended.
fn end_like(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        if let Some(named) = Signal::from_named_raw(signal) {
            let _killed = kill_process(getpid(), named);
        }
        // A signal that this process ignores, as shells tell it.
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(super::REFUSED))
}

/// Is the first process of a PID namespace until its guardian closes its standard input, or is gone.
pub(super) fn init() -> Result<Infallible, String> {
    std::thread::Builder::new()
        .name("collect".to_owned())
        .spawn(|| {
            loop {
                if wait(WaitOptions::empty()).is_err() {
                    std::thread::sleep(IDLE);
                }
            }
        })
        .map_err(|cause| format!("{COMPLAINT}: {cause}"))?;
    let _closed = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0)
}

//! The guardian of one program, and the first process of its PID namespace.
//!
//! The guardian's protocol is what every process has:
//!
//! - It inherits the program's standard input, output and error. The program gets the first two as they are, and a pipe of its own
//!   for standard error, from which the guardian copies.
//! - It watches the other end of standard error. When its reader goes away, whether it hung up, was killed or crashed, the guardian
//!   ends the program and everything the program started. Standard output may be closed before: a program can then still say on
//!   standard error what went wrong. The program cannot hold that pipe open: it never has it, and the guardian is not dumpable, so
//!   that `/proc` does not show its descriptors.
//! - When the program ends, everything it started is ended too, and the guardian ends in the same way: with the same exit code, or
//!   by the same signal.
//!
//! It writes nothing of its own, except the reason why there is no program.
use super::namespaces;
use super::tree::Tree;
use super::{COMPLAINT, Isolation, NOT_STARTED, Role, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process,
    pidfd_open, set_child_subreaper, set_dumpable_behavior, setrlimit, wait,
};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// How often ended processes are collected whose parents are gone.
const COLLECT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How often it is looked whether the program ended, where the kernel does not tell.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// How long the guardian waits for more of standard error after everything that could write to it was ended. A process that could not
/// be ended may still hold the pipe.
const COPY_LAST: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Bytes of standard error that are copied at once.
const COPY_BYTES: usize = 16 << 10;

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
            hide();
            (Tree::Namespace(init), walled(spec, program, args).spawn())
        }
        Some(_) => {
            hide();
            let tree = Tree::new();
            let started = tree.inside(|| walled(spec, program, args).spawn());
            (tree, started)
        }
        None => {
            keep_from_tracing();
            hide();
            let tree = Tree::new();
            let mut command = Command::new(program);
            command.args(args).process_group(0).stderr(Stdio::piped());
            let started = tree.inside(|| command.spawn());
            (tree, started)
        }
    };
    let mut child = started.map_err(|cause| refused(NOT_STARTED, &cause))?;
    let mut complaints = Complaints(child.stderr.take());
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has an id");
    let watched = watch(id, &mut complaints);
    tree.end();
    match watched {
        Watched::Ended(status) => {
            complaints.copy_rest();
            end_like(status)
        }
        Watched::Abandoned => std::process::exit(super::REFUSED),
    }
}

/// This program again, which goes behind the walls and becomes the other one.
fn walled(spec: &Spec, program: &OsStr, args: &[OsString]) -> Command {
    let text = serde_json::to_string(spec).expect("it was read from text");
    let mut command = Role::Program.command();
    command.arg(text).arg(program).args(args).process_group(0).stderr(Stdio::piped());
    command
}

/// Keeps the descriptors and the memory of this process from processes of the same user. What it starts may be looked at again.
fn hide() {
    let _hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Without these capabilities root cannot look into processes that do not want it, such as the one that started this.
fn keep_from_tracing() {
    for capability in [CapabilitySet::SYS_PTRACE, CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN] {
        // Whoever is not root has none of them to begin with.
        let _dropped = remove_capability_from_bounding_set(capability);
    }
}

/// The standard error of the program, until it is closed. A process that made a PID namespace can start no thread, so it is copied
/// between two looks at the program.
struct Complaints(Option<ChildStderr>);

impl Complaints {
    /// Copies what is there. An error means that nobody reads it any more.
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

    /// Copies the rest after everything that could write was ended.
    fn copy_rest(&mut self) {
        while let Some(from) = &self.0 {
            let mut fds = [PollFd::new(from, PollFlags::IN)];
            let is_ready = poll(&mut fds, Some(&COPY_LAST)).is_ok_and(|ready| ready > 0);
            if !is_ready || self.copy().is_err() {
                return;
            }
        }
    }
}

/// Waits for the program's end, or for the end of whoever reads its standard error.
fn watch(program: Pid, complaints: &mut Complaints) -> Watched {
    let stderr = std::io::stderr();
    let ended: Option<OwnedFd> = pidfd_open(program, PidfdFlags::empty()).ok();
    let timeout = if ended.is_some() { COLLECT } else { LOOK };
    loop {
        // Nothing is asked of the pipe: errors are always told, and a pipe without a reader is one.
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
    thread::Builder::new()
        .name("collect".to_owned())
        .spawn(|| {
            loop {
                if wait(WaitOptions::empty()).is_err() {
                    thread::sleep(IDLE);
                }
            }
        })
        .map_err(|cause| format!("{COMPLAINT}: {cause}"))?;
    let _closed = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0)
}

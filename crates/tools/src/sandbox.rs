//! Runs programs for tools under a guardian, and in a sandbox if requested ([`SandboxPaths`]).
//!
//! This program starts itself again in one of these roles, before it has threads:
//!
//! | role | what it does |
//! |---|---|
//! | guardian | runs the program and ends all its processes afterwards ([`guardian`]) |
//! | init | is the first process of the PID namespace; the kernel ends the others with it ([`guardian`]) |
//! | program | enters the sandbox, then becomes the program |
//! | probe | tries the namespaces and reports whether they work here ([`namespaces`]) |
//!
//! A guardian also ends all processes when the reader of its standard error goes away.
mod containment;
mod guardian;
mod namespaces;
mod syscalls;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use outlast_vocab::{Error, Kind};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getuid, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use syscalls::SignalScope;

/// The first argument of a process in one of these roles. The role and its arguments follow.
const ROLE_ARGUMENT: &str = "__outlast_sandbox";

/// This program, even if its file was replaced in the meantime.
const SELF: &str = "/proc/self/exe";

/// The exit code of a process that could not become the program.
pub(crate) const NOT_STARTED_EXIT_CODE: i32 = 121;

/// The prefix of its error message if the sandbox is the reason.
pub(crate) const SANDBOX_ERROR: &str = "the sandbox cannot be set up";

/// The prefix of its error message if the program is the reason.
const NOT_STARTED: &str = "the program cannot be started";

/// The Landlock version to request. Features beyond files are optional.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Directories with programs and libraries. Commands may read and execute them, but not write.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// System files that programs read. The rest of `/etc` may contain secrets.
const SYSTEM_FILES: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/alternatives",
    "/etc/mime.types",
    "/etc/terminfo",
];

/// Harmless devices.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// The maximum memory of one process in bytes.
const MEMORY: u64 = 4 << 30;
/// The maximum size of a file in bytes.
const FILE: u64 = 256 << 20;
/// The maximum number of open files of one process.
const FILES: u64 = 256;
/// The maximum number of processes in addition to those the user already has. It does not apply to root.
const PROCESSES: u64 = 128;

/// The roles in which this program starts itself again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SandboxRole {
    Guardian,
    Init,
    Program,
    Probe,
}

impl SandboxRole {
    const ALL: [Self; 4] = [Self::Guardian, Self::Init, Self::Program, Self::Probe];

    fn name(self) -> &'static str {
        match self {
            Self::Guardian => "guardian",
            Self::Init => "init",
            Self::Program => "program",
            Self::Probe => "probe",
        }
    }

    /// Returns a command that starts this program in the role.
    fn command(self) -> Command {
        let mut command = Command::new(SELF);
        command.args([ROLE_ARGUMENT, self.name()]);
        command
    }
}

/// The settings of a guardian, apart from the program and its arguments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GuardianSpec {
    /// The sandbox; `None` for a program without one.
    pub(crate) sandbox: Option<SandboxSpec>,
    /// A directory to empty after all processes have ended.
    pub(crate) temporary: Option<PathBuf>,
}

/// The sandbox of one program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SandboxSpec {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// The limit of processor time; unlimited if absent.
    pub(crate) seconds: Option<u64>,
    pub(crate) needs_landlock: bool,
    pub(crate) isolation: Isolation,
}

/// How a program is isolated from outside files, processes and shared memory, in addition to Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Isolation {
    /// Its own namespaces: all other files are read-only, and it has its own processes and shared memory.
    Namespaces,
    /// A filter that refuses the system calls which could reach them.
    Filter,
}

/// The paths that a sandboxed program may access in addition to the system's programs and libraries. It has no network.
#[derive(Clone, Debug, Default)]
pub struct SandboxPaths {
    /// Paths that it may read and execute.
    pub read: Vec<PathBuf>,
    /// Paths that it may also write.
    pub write: Vec<PathBuf>,
}

impl SandboxPaths {
    /// Returns the command that runs this program in the sandbox. Fails if no sandbox is available.
    pub fn sandboxed_command(
        &self,
        program: &OsStr,
        args: &[OsString],
    ) -> Result<(OsString, Vec<OsString>), Error> {
        available(true)?;
        let mut read = self.read.clone();
        read.push(program.into());
        let sandbox = SandboxSpec {
            read,
            write: self.write.clone(),
            seconds: None,
            needs_landlock: true,
            isolation: isolation(),
        };
        GuardianSpec { sandbox: Some(sandbox), temporary: None }.launch(program, args)
    }
}

/// Returns the command that runs this program under a guardian. The guardian ends everything that the program started
/// when the program ends or the reader of its standard error goes away.
///
/// Returns `None` if this program cannot start itself again ([`start`]).
pub fn guarded_command(program: &OsStr, args: &[OsString]) -> Option<(OsString, Vec<OsString>)> {
    if !STARTED.load(Ordering::Relaxed) {
        return None;
    }
    GuardianSpec::default().launch(program, args).ok()
}

/// Returns an error if no sandbox is available.
pub(crate) fn available(needs_landlock: bool) -> Result<(), Error> {
    let unavailable = |detail| Err(Error::new(Kind::SandboxUnavailable, detail));
    if !STARTED.load(Ordering::Relaxed) {
        return unavailable(
            "the sandbox requires a call of `outlast::tools::shell::start()` at the start of `main`",
        );
    }
    if needs_landlock && !has_landlock() {
        return unavailable("this kernel has no Landlock, which restricts programs to their directories");
    }
    Ok(())
}

impl GuardianSpec {
    /// Returns the program to start instead, and its arguments.
    pub(crate) fn launch(
        &self,
        program: &OsStr,
        args: &[OsString],
    ) -> Result<(OsString, Vec<OsString>), Error> {
        let words = [
            ROLE_ARGUMENT.into(),
            SandboxRole::Guardian.name().into(),
            self.text()?.into(),
            program.to_owned(),
        ];
        Ok((SELF.into(), words.into_iter().chain(args.iter().cloned()).collect()))
    }

    fn text(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|cause| {
            let detail = format!("a path that a program may access is not UTF-8 text: {cause}");
            Error::new(Kind::ConfigInvalid, detail).because(cause)
        })
    }
}

/// Returns why a program was not started, if the guardian's exit says so.
pub(crate) fn not_started(code: Option<i32>, complaint: &str) -> Option<&str> {
    complaint.strip_prefix(NOT_STARTED).filter(|_| code == Some(NOT_STARTED_EXIT_CODE))?.strip_prefix(": ")
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// Plays the role that this process was started for, and does not return. If it has no role, notes that this program
/// can start itself again, and prevents other processes of the same user from reading its memory and environment.
pub fn start() {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_none_or(|word| word != ROLE_ARGUMENT) {
        STARTED.store(true, Ordering::Relaxed);
        // If this fails, everything else still works; `protections` reports it.
        let _set = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        return;
    }
    let role = words.next().and_then(|word| SandboxRole::ALL.into_iter().find(|role| word == role.name()));
    let why = match role {
        Some(SandboxRole::Guardian) => parse_arguments(&mut words)
            .and_then(|(spec, program, args)| guardian::run(&spec, &program, &args)),
        Some(SandboxRole::Init) => guardian::init(),
        Some(SandboxRole::Program) => parse_arguments(&mut words)
            .and_then(|(spec, program, args)| become_program(&spec, &program, &args)),
        Some(SandboxRole::Probe) => namespaces::probe(),
        None => Err("this program has no such role".to_owned()),
    };
    let Err(why) = why;
    eprintln!("{why}");
    std::process::exit(NOT_STARTED_EXIT_CODE);
}

/// Parses the arguments of a guardian or a program.
fn parse_arguments(
    words: &mut impl Iterator<Item = OsString>,
) -> Result<(GuardianSpec, OsString, Vec<OsString>), String> {
    let spec = words.next().and_then(|word| word.into_string().ok()).unwrap_or_default();
    let spec = serde_json::from_str(&spec).map_err(|cause| format!("{SANDBOX_ERROR}: {cause}"))?;
    let program = words.next().ok_or_else(|| format!("{NOT_STARTED}: there is none"))?;
    Ok((spec, program, words.collect()))
}

/// Returns whether namespaces work here. They are tried once, in a separate process.
pub(crate) fn isolation() -> Isolation {
    match namespaces_work() {
        Ok(()) => Isolation::Namespaces,
        Err(_) => Isolation::Filter,
    }
}

fn namespaces_work() -> &'static Result<(), String> {
    static WORK: OnceLock<Result<(), String>> = OnceLock::new();
    WORK.get_or_init(|| {
        let tried = SandboxRole::Probe.command().env_clear().output().map_err(|cause| cause.to_string())?;
        if tried.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned())
    })
}

/// What Landlock protects from sandboxed programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandlockSupport {
    /// Landlock is missing: such programs are not started.
    Missing,
    /// Files outside their directories.
    Files,
    /// Files outside their directories, and outside processes from signals.
    FilesAndSignals,
}

/// Who can read the memory and the environment of this process, in addition to the system's own tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvironmentExposure {
    /// No program that a tool starts.
    Hidden,
    /// Programs without a sandbox, which keep capabilities that this process may not drop.
    UnsandboxedPrograms,
    /// All processes of the same user.
    SameUser,
}

/// The protections against programs that tools start.
#[derive(Clone, Debug)]
pub struct Protections {
    /// What Landlock protects.
    pub landlock: LandlockSupport,
    /// Whether such programs get their own namespaces; otherwise the reason.
    pub namespaces: Result<(), String>,
    /// Who can read the memory and the environment of this process.
    pub environment: EnvironmentExposure,
    /// Whether a program without a sandbox gets a control group, with which all its processes are ended at once.
    pub cgroup: bool,
}

/// Detects the active protections.
pub fn protections() -> Protections {
    let not_dumpable =
        rustix::process::dumpable_behavior().is_ok_and(|now| now == DumpableBehavior::NotDumpable);
    Protections {
        landlock: match (has_landlock(), has_signal_scope()) {
            (false, _) => LandlockSupport::Missing,
            (true, false) => LandlockSupport::Files,
            (true, true) => LandlockSupport::FilesAndSignals,
        },
        namespaces: namespaces_work().clone(),
        environment: if !not_dumpable {
            EnvironmentExposure::SameUser
        } else if guardian::keeps_tracing_capabilities() {
            EnvironmentExposure::UnsandboxedPrograms
        } else {
            EnvironmentExposure::Hidden
        },
        cgroup: containment::Cgroup::create().is_ok_and(|made| made.is_some()),
    }
}

/// Returns whether the kernel has Landlock. Creating a ruleset without applying it is harmless.
fn has_landlock() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// Returns whether the kernel can confine signals to the sandboxed processes.
fn has_signal_scope() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules.scope(Scope::Signal).and_then(Ruleset::create).is_ok()
}

/// Becomes the program. Returns only on failure, with the reason.
fn become_program(
    spec: &GuardianSpec,
    program: &OsStr,
    args: &[OsString],
) -> Result<std::convert::Infallible, String> {
    if let Some(sandbox) = &spec.sandbox {
        enter_sandbox(sandbox).map_err(|why| format!("{SANDBOX_ERROR}: {why}"))?;
    }
    Err(format!("{NOT_STARTED}: {}", Command::new(program).args(args).exec()))
}

/// Puts this process into the sandbox.
fn enter_sandbox(sandbox: &SandboxSpec) -> Result<(), String> {
    // A killed guardian takes the program with it.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|cause| cause.to_string())?;
    let signals = match sandbox.isolation {
        Isolation::Namespaces => SignalScope::SameSandbox,
        Isolation::Filter if has_signal_scope() => SignalScope::SameSandbox,
        Isolation::Filter => SignalScope::None,
    };
    set_resource_limits(sandbox)?;
    close_fds::set_fds_cloexec(3, &[]);
    restrict_files(sandbox)?;
    drop_capabilities()?;
    syscalls::install_filter(signals, sandbox.isolation)
}

/// Sets the resource limits of the process.
fn set_resource_limits(sandbox: &SandboxSpec) -> Result<(), String> {
    let bounds = [
        (Resource::Core, 0),
        (Resource::As, MEMORY),
        (Resource::Fsize, FILE),
        (Resource::Nofile, FILES),
        (Resource::Nproc, processes() + PROCESSES),
    ];
    let time = sandbox.seconds.map(|seconds| (Resource::Cpu, seconds + 1));
    for (resource, most) in bounds.into_iter().chain(time) {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|cause| format!("{resource:?} cannot be limited: {cause}"))?;
    }
    Ok(())
}

/// Returns the number of processes of the user.
fn processes() -> u64 {
    let us = getuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_process && entry.metadata().is_ok_and(|found| found.uid() == us)
    });
    ours.count() as u64
}

/// Restricts the process to its directories and the system's programs, and confines its signals.
fn restrict_files(sandbox: &SandboxSpec) -> Result<(), String> {
    let everything = AccessFs::from_all(LANDLOCK_ABI);
    let read = AccessFs::from_read(LANDLOCK_ABI);
    // Creating devices and device ioctls are not allowed.
    let write = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    let restricted = || {
        let mut rules =
            Ruleset::default().handle_access(everything)?.scope(Scope::from_all(LANDLOCK_ABI))?.create()?;
        let own = sandbox.write.iter().map(|path| (path.as_path(), write));
        let system = SYSTEM.iter().chain(SYSTEM_FILES).map(|path| (Path::new(path), read));
        let more = sandbox.read.iter().map(|path| (path.as_path(), read));
        let devices = DEVICES.iter().map(|path| (Path::new(path), device));
        for (path, access) in own.chain(system).chain(more).chain(devices) {
            // Missing paths need no rule.
            let Ok(descriptor) = PathFd::new(path) else { continue };
            rules = rules.add_rule(PathBeneath::new(descriptor, applicable_access(path, access)))?;
        }
        rules.restrict_self()
    };
    let status = restricted().map_err(|cause: landlock::RulesetError| cause.to_string())?;
    match status.ruleset {
        RulesetStatus::NotEnforced if sandbox.needs_landlock => Err("this kernel has no Landlock".to_owned()),
        _ => Ok(()),
    }
}

/// Returns the part of an access that applies to this path.
fn applicable_access(path: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK_ABI) }
}

/// Drops the capabilities of root, which would bypass parts of the sandbox. Without capabilities, this has no effect.
fn drop_capabilities() -> Result<(), String> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|cause| format!("capabilities cannot be dropped: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_never_starts_without_its_requested_sandbox() {
        let refused = SandboxPaths::default().sandboxed_command("true".as_ref(), &[]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "sandbox.unavailable: the sandbox requires a call of `outlast::tools::shell::start()` at the start of `main`"
        );
        assert_eq!(guarded_command("true".as_ref(), &[]), None);
    }

    #[test]
    fn only_the_guard_reports_not_started() {
        let said = format!("{NOT_STARTED}: No such file");
        assert_eq!(not_started(Some(NOT_STARTED_EXIT_CODE), &said), Some("No such file"));
        assert_eq!(not_started(Some(1), &said), None);
        assert_eq!(not_started(Some(NOT_STARTED_EXIT_CODE), "something else"), None);
    }
}

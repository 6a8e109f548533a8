//! Walls around a program: what the tool `shell` runs, and servers that are started as processes ([`Walls`]).
//!
//! The program's process is started by this very program, which first goes behind the walls itself and then becomes it. That
//! side runs in a process of its own, before it has threads.
mod calls;

use calls::Signals;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use outlast_vocab::{Error, Kind};
use rustix::process::{Resource, Rlimit, getuid, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first argument of a process that is to go behind the walls.
const MARK: &str = "__outlast_sandbox";

/// The exit code of a process that could not.
pub(crate) const REFUSED: i32 = 121;

/// How what it then says begins.
pub(crate) const COMPLAINT: &str = "the sandbox cannot be set up";

/// What is asked of the kernel where it has it. What it lacks of this beyond files is done without.
const NEWEST: ABI = ABI::V6;

/// Directories with programs and libraries. They are read and run from, not written.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// Files of the system that programs look into. The rest of `/etc` may hold secrets.
const SETTINGS: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/alternatives",
    "/etc/mime.types",
    "/etc/terminfo",
];

/// Devices that do nothing.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// The memory of one process in bytes.
const MEMORY: u64 = 4 << 30;
/// The largest file in bytes.
const FILE: u64 = 256 << 20;
/// Open files of one process.
const FILES: u64 = 256;
/// Processes beside those that the user has already. Root is not held to it.
const PROCESSES: u64 = 128;

/// What a process behind the walls is to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct Spec<'a> {
    #[serde(borrow)]
    pub(crate) becomes: Become<'a>,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// Time of the processor; as much as it takes when absent.
    pub(crate) seconds: Option<u64>,
    pub(crate) needs_landlock: bool,
}

/// What it becomes.
#[derive(Serialize, Deserialize)]
pub(crate) enum Become<'a> {
    /// A command, as `sh` reads it.
    #[serde(borrow)]
    Command(Cow<'a, str>),
    /// A program and what it is passed.
    Program(Vec<String>),
}

/// What a program behind walls may reach beside the programs and libraries of the system. It has no network.
#[derive(Clone, Debug, Default)]
pub struct Walls {
    /// What it may read, and run from.
    pub read: Vec<PathBuf>,
    /// What it may write too.
    pub write: Vec<PathBuf>,
}

impl Walls {
    /// What is started to become this program behind the walls. Refused where there can be no walls.
    pub fn around(&self, program: &OsStr, args: &[OsString]) -> Result<(OsString, Vec<OsString>), Error> {
        available(true)?;
        let words = std::iter::once(program).chain(args.iter().map(OsString::as_os_str));
        let words: Option<Vec<String>> = words.map(|word| word.to_str().map(str::to_owned)).collect();
        let words = words.ok_or_else(|| {
            Error::new(Kind::ConfigInvalid, format!("the words of `{}` are not text", program.display()))
        })?;
        let mut read = self.read.clone();
        read.push(program.into());
        let spec = Spec {
            becomes: Become::Program(words),
            read,
            write: self.write.clone(),
            seconds: None,
            needs_landlock: true,
        };
        Ok((us()?, spec.words().into()))
    }
}

/// Refuses where nothing can be put behind walls.
pub(crate) fn available(needs_landlock: bool) -> Result<(), Error> {
    let unavailable = |detail| Err(Error::new(Kind::SandboxUnavailable, detail));
    if !STARTED.load(Ordering::Relaxed) {
        return unavailable(
            "the sandbox needs `outlast::tools::shell::start()` as the first thing in `main`",
        );
    }
    if needs_landlock && !has_landlock() {
        return unavailable("this kernel has no Landlock, which keeps programs in their directories");
    }
    Ok(())
}

/// This program.
pub(crate) fn us() -> Result<OsString, Error> {
    let us = std::env::current_exe().map_err(|cause| {
        Error::new(Kind::SandboxUnavailable, format!("this program cannot be found: {cause}")).because(cause)
    })?;
    Ok(us.into())
}

impl Spec<'_> {
    /// The arguments with which this program is started again.
    pub(crate) fn words(&self) -> [OsString; 2] {
        let spec = serde_json::to_string(self).expect("paths of a directory for files are text");
        [MARK.into(), spec.into()]
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// Becomes the command, if this process was started to. Otherwise it notes that this program can be started so, and
/// returns.
pub fn start() {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_none_or(|word| word != MARK) {
        STARTED.store(true, Ordering::Relaxed);
        return;
    }
    let spec = words.next().and_then(|word| word.into_string().ok()).unwrap_or_default();
    let why = match serde_json::from_str::<Spec<'_>>(&spec) {
        Ok(spec) => become_command(&spec),
        Err(cause) => cause.to_string(),
    };
    eprintln!("{COMPLAINT}: {why}");
    std::process::exit(REFUSED);
}

/// Whether the kernel can keep a process in a directory. Making a set of rules that nobody is put under is harmless.
fn has_landlock() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// Whether the kernel can keep signals among the processes behind the walls; otherwise there are none.
fn signals() -> Signals {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let kept = rules.scope(Scope::Signal).and_then(Ruleset::create).is_ok();
    if kept { Signals::Kept } else { Signals::None }
}

/// Returns only if it fails, with the reason.
fn become_command(spec: &Spec<'_>) -> String {
    let walled = bound(spec)
        .and_then(|()| {
            close_fds::set_fds_cloexec(3, &[]);
            keep_to_files(spec)
        })
        .and_then(|()| drop_powers())
        .and_then(|()| calls::refuse(signals()));
    match walled {
        Ok(()) => spec.becomes.exec(),
        Err(why) => why,
    }
}

impl Become<'_> {
    /// Returns only if it fails, with the reason.
    fn exec(&self) -> String {
        match self {
            Self::Command(command) => Command::new("/bin/sh").arg("-c").arg(&**command).exec().to_string(),
            Self::Program(words) => match words.split_first() {
                Some((program, args)) => format!("`{program}`: {}", Command::new(program).args(args).exec()),
                None => "there is no program".to_owned(),
            },
        }
    }
}

/// Bounds what one process may take.
fn bound(spec: &Spec<'_>) -> Result<(), String> {
    let bounds = [
        (Resource::Core, 0),
        (Resource::As, MEMORY),
        (Resource::Fsize, FILE),
        (Resource::Nofile, FILES),
        (Resource::Nproc, processes() + PROCESSES),
    ];
    let time = spec.seconds.map(|seconds| (Resource::Cpu, seconds + 1));
    for (resource, most) in bounds.into_iter().chain(time) {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(|cause| format!("{resource:?} cannot be bounded: {cause}"))?;
    }
    Ok(())
}

/// How many processes the user has.
fn processes() -> u64 {
    let us = getuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_process && entry.metadata().is_ok_and(|found| found.uid() == us)
    });
    ours.count() as u64
}

/// Lets the process see its directories and the programs of the system, and signal nobody outside.
fn keep_to_files(spec: &Spec<'_>) -> Result<(), String> {
    let everything = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    // Devices are not made, and not told what to do.
    let write = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let device = AccessFs::ReadFile | AccessFs::WriteFile;
    let restricted = || {
        let mut rules =
            Ruleset::default().handle_access(everything)?.scope(Scope::from_all(NEWEST))?.create()?;
        let own = spec.write.iter().map(|path| (path.as_path(), write));
        let system = SYSTEM.iter().chain(SETTINGS).map(|path| (Path::new(path), read));
        let more = spec.read.iter().map(|path| (path.as_path(), read));
        let devices = DEVICES.iter().map(|path| (Path::new(path), device));
        for (path, access) in own.chain(system).chain(more).chain(devices) {
            // What is not there needs no permission.
            let Ok(descriptor) = PathFd::new(path) else { continue };
            rules = rules.add_rule(PathBeneath::new(descriptor, fitting(path, access)))?;
        }
        rules.restrict_self()
    };
    let status = restricted().map_err(|cause: landlock::RulesetError| cause.to_string())?;
    match status.ruleset {
        RulesetStatus::NotEnforced if spec.needs_landlock => Err("this kernel has no Landlock".to_owned()),
        _ => Ok(()),
    }
}

/// The part of an access that a file can have.
fn fitting(path: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) }
}

/// Gives up the powers of root, which would reach over some of the walls. Whoever has none has nothing to give up.
fn drop_powers() -> Result<(), String> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|cause| format!("powers cannot be given up: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::Walls;

    #[test]
    fn a_program_is_not_started_without_walls_that_were_asked_for() {
        let refused = Walls::default().around("true".as_ref(), &[]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "sandbox.unavailable: the sandbox needs `outlast::tools::shell::start()` as the first thing in `main`"
        );
    }
}

//! The namespaces of one program: users, mounts, processes and shared memory.
//!
//! All files are mounted read-only except those that the program may write. It therefore cannot change the metadata of
//! others: permissions, owners, times and attributes. Its own files are mounted without set-user-ID and devices.
//! Outside processes have no id inside, so they cannot be addressed. The system's shared memory and message queues are
//! replaced with empty ones.
//!
//! Root creates the namespaces directly. Other users need a user namespace, which some systems forbid.
use super::{SANDBOX_ERROR, SandboxRole};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind_recursive, mount_change, mount_remount};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Moves this process into its own namespaces. Its child processes are in a new PID namespace; the process itself is
/// not.
pub(super) fn enter(write: &[PathBuf]) -> Result<(), String> {
    let here = std::env::current_dir();
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let mounts = capabilities(None).is_ok_and(|has| has.effective.contains(CapabilitySet::SYS_ADMIN));
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    if mounts {
        unshare(flags)?;
    } else {
        unshare(flags | UnshareFlags::NEWUSER)?;
        let write = |file: &str, text: String| {
            fs::write(file, text).map_err(|cause| format!("{file} cannot be written: {cause}"))
        };
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|cause| format!("mounts cannot be kept private: {cause}"))?;
    let write: Vec<PathBuf> = write.iter().filter_map(|path| path.canonicalize().ok()).collect();
    for path in &write {
        mount_bind_recursive(path, path)
            .map_err(|cause| format!("{} cannot be mounted: {cause}", path.display()))?;
    }
    protect(&write)?;
    // Re-enter the directory through the new mount. If that fails, the old one stays, read-only.
    if let Ok(here) = here {
        let _changed = std::env::set_current_dir(here);
    }
    Ok(())
}

/// Tries everything in this process, which was started only for this.
pub(super) fn probe() -> Result<Infallible, String> {
    enter(&[std::env::temp_dir()])?;
    let mut first = SandboxRole::Init.command();
    first.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = first.status().map_err(|cause| format!("{SANDBOX_ERROR}: {cause}"))?;
    std::process::exit(if ended.success() { 0 } else { super::NOT_STARTED_EXIT_CODE })
}

#[expect(deprecated, reason = "it is unsafe only for file descriptors, which are not unshared here")]
fn unshare(flags: UnshareFlags) -> Result<(), String> {
    rustix::thread::unshare(flags).map_err(|cause| format!("the kernel does not allow namespaces: {cause}"))
}

/// Makes every mount read-only except the program's own, which get neither set-user-ID nor devices.
fn protect(write: &[PathBuf]) -> Result<(), String> {
    let mounts =
        fs::read("/proc/self/mountinfo").map_err(|cause| format!("mounts cannot be listed: {cause}"))?;
    for line in mounts.split(|byte| *byte == b'\n') {
        let Some((place, flags)) = mount(line) else { continue };
        let own = write.iter().any(|path| place.starts_with(path));
        let more = if own { MountFlags::NOSUID | MountFlags::NODEV } else { MountFlags::RDONLY };
        match mount_remount(&place, MountFlags::BIND | flags | more, "") {
            // The mount is not reachable: it is hidden by another mount, was removed, or this user may not access it.
            Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::INVAL | Errno::NOTDIR) => {}
            Err(cause) => return Err(format!("{} cannot be made read-only: {cause}", place.display())),
        }
    }
    Ok(())
}

/// Parses the mount point and options of a line of `mountinfo`.
fn mount(line: &[u8]) -> Option<(PathBuf, MountFlags)> {
    let mut words = line.split(|byte| *byte == b' ').skip(4);
    let (place, options) = (words.next()?, words.next()?);
    let flags = options.split(|byte| *byte == b',').map(|option| match option {
        b"ro" => MountFlags::RDONLY,
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"noatime" => MountFlags::NOATIME,
        b"nodiratime" => MountFlags::NODIRATIME,
        b"relatime" => MountFlags::RELATIME,
        b"nosymfollow" => MountFlags::NOSYMFOLLOW,
        _ => MountFlags::empty(),
    });
    let flags = flags.fold(MountFlags::empty(), |all, flag| all | flag);
    let times = MountFlags::NOATIME | MountFlags::RELATIME;
    let flags = if flags.intersects(times) { flags } else { flags | MountFlags::STRICTATIME };
    Some((Path::new(OsStr::from_bytes(&unescaped(place))).to_owned(), flags))
}

/// Unescapes a path of `mountinfo`, which writes some characters as a backslash and three octal digits.
fn unescaped(place: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(place.len());
    let mut rest = place;
    while let Some((first, behind)) = rest.split_first() {
        let code = (*first == b'\\').then(|| std::str::from_utf8(behind.get(..3)?).ok()).flatten();
        let byte = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_read_with_their_flags() {
        let line = b"36 35 98:0 / /mnt/a\\040b\\134 rw,nosuid,relatime shared:1 - ext4 /dev/root rw";
        let (place, flags) = mount(line).unwrap();
        assert_eq!(place, Path::new("/mnt/a b\\"));
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::RELATIME);
        assert_eq!(mount(b"1 2 0:3 / /a ro").unwrap().1, MountFlags::RDONLY | MountFlags::STRICTATIME);
        assert_eq!(mount(b""), None);
    }
}

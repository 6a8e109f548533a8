//! Opens files below a directory without following symbolic links.
//!
//! A path is resolved and opened in one step: by the kernel (`openat2`), or name by name with `O_NOFOLLOW` if the
//! kernel lacks that call. A link that another process swaps in is refused and never redirects the operation.
#[cfg(target_os = "linux")]
use rustix::fs::ResolveFlags;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The flags for opening a directory that is only needed to reach something below it.
#[cfg(target_os = "linux")]
const TRAVERSE_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const TRAVERSE_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// How the kernel resolves a path.
#[cfg(target_os = "linux")]
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The number of attempts of the kernel's resolution while directories are being renamed.
#[cfg(target_os = "linux")]
const RESOLVE_ATTEMPTS: usize = 16;

/// The method of resolving a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathResolver {
    /// The kernel, falling back to walking if it refuses.
    #[cfg(target_os = "linux")]
    Kernel,
    /// This program, name by name.
    Walk,
}

impl PathResolver {
    /// Returns the kernel's resolution if it is available.
    pub(super) fn detect() -> Self {
        #[cfg(target_os = "linux")]
        if openat(CWD, "/", TRAVERSE_FLAGS, Mode::empty())
            .and_then(|root| rustix::fs::openat2(&root, ".", TRAVERSE_FLAGS, Mode::empty(), RESOLVE))
            .is_ok()
        {
            return Self::Kernel;
        }
        Self::Walk
    }
}

/// An open directory. Names are resolved in it even after it was moved.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    resolver: PathResolver,
}

/// An entry of a directory.
pub(super) struct DirectoryEntry {
    pub(super) name: Vec<u8>,
    pub(super) kind: FileType,
}

/// The metadata of a file before it is opened.
pub(super) struct FileStat {
    pub(super) kind: FileType,
    /// The permission bits, without set-user-ID and the like.
    pub(super) mode: Mode,
}

impl Directory {
    /// Opens the directory at an absolute path without links.
    pub(super) fn at(path: &Path, resolver: PathResolver) -> io::Result<Self> {
        let root = openat(CWD, "/", TRAVERSE_FLAGS, Mode::empty())?;
        let fd =
            open(&root, path.strip_prefix("/").unwrap_or(path), TRAVERSE_FLAGS, Mode::empty(), resolver)?;
        Ok(Self { fd, resolver })
    }

    /// Opens a directory below this one.
    pub(super) fn directory(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        let fd = self.open(path.as_ref(), TRAVERSE_FLAGS, Mode::empty())?;
        Ok(Self { fd, resolver: self.resolver })
    }

    /// Opens an entry of any kind for reading. Pipes and devices do not block.
    pub(super) fn file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        self.open(name.as_ref(), flags, Mode::empty()).map(File::from)
    }

    /// Creates a file with these permissions, narrowed by the umask. Fails if the name exists.
    pub(super) fn create(&self, name: &str, mode: Mode) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        self.open(Path::new(name), flags, mode).map(File::from)
    }

    /// Creates a directory below this one.
    pub(super) fn make_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(mkdirat(&self.fd, name, Mode::from_raw_mode(0o777))?)
    }

    /// Renames an entry. If `to` is a link, it is replaced, not followed.
    pub(super) fn rename(&self, from: &str, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Removes a file or a link.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Returns the metadata of an entry without following a link.
    pub(super) fn stat(&self, name: impl AsRef<Path>) -> io::Result<FileStat> {
        let found = statat(&self.fd, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = Mode::from_raw_mode(found.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
        Ok(FileStat { kind: FileType::from_raw_mode(found.st_mode), mode })
    }

    /// Returns up to this number of entries, in no particular order. There may be more if all of them are returned.
    pub(super) fn entries(&self, most: usize) -> io::Result<Vec<DirectoryEntry>> {
        let readable =
            self.open(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut entries = Vec::new();
        for entry in Dir::new(readable)? {
            if entries.len() == most {
                break;
            }
            let entry = entry?;
            let name = entry.file_name().to_bytes().to_owned();
            if name == b"." || name == b".." {
                continue;
            }
            // Some file systems do not report the kind of an entry.
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    self.stat(OsStr::from_bytes(&name)).map_or(FileType::Unknown, |found| found.kind)
                }
                kind => kind,
            };
            entries.push(DirectoryEntry { name, kind });
        }
        Ok(entries)
    }

    /// Makes renames and removals durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file("")?.sync_all()
    }

    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        Ok(open(&self.fd, path, flags, mode, self.resolver)?)
    }
}

/// Opens a file that a person names, without following links on its path. Anyone who can write to its directory could
/// have placed a link.
///
/// The streams of this process are links by nature and are followed: `/dev/stdin`, `/dev/fd/N` and `/proc/self/fd/N`.
///
/// # Errors
///
/// The error of the kernel; `ELOOP` if a part of the path is a link.
pub fn open_without_links(path: &Path) -> io::Result<File> {
    if is_own_stream(path) {
        return File::open(path);
    }
    let path = std::path::absolute(path)?;
    let root = openat(CWD, "/", TRAVERSE_FLAGS, Mode::empty())?;
    let below = path.strip_prefix("/").unwrap_or(&path);
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(&root, below, flags, Mode::empty(), PathResolver::detect()).map(File::from)?)
}

/// Returns whether a path names a stream that this process has open. A shell passes such a path for `<(command)`.
fn is_own_stream(path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let number = ["/dev/fd/", "/proc/self/fd/"].into_iter().find_map(|dir| path.strip_prefix(dir));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    path == "/dev/stdin" || number.is_some_and(is_number)
}

/// Returns whether an operation failed because a part of its path is a link.
pub fn is_link_refusal(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Opens a path below a directory. An empty path is the directory itself.
fn open(
    dir: &OwnedFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    resolver: PathResolver,
) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match resolver {
        #[cfg(target_os = "linux")]
        PathResolver::Kernel => resolve(dir, path, flags, mode),
        PathResolver::Walk => walk(dir, path, flags, mode),
    }
}

/// Resolves a path with the kernel.
#[cfg(target_os = "linux")]
fn resolve(dir: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    for _ in 0..RESOLVE_ATTEMPTS {
        match rustix::fs::openat2(dir, path, flags, mode, RESOLVE) {
            // The call is missing or blocked by a filter. If the file itself is refused, the walk reports it.
            Err(Errno::NOSYS | Errno::PERM) => return walk(dir, path, flags, mode),
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a path name by name and refuses links.
fn walk(dir: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let mut names: Vec<&OsStr> = path
        .components()
        .map(|part| match part {
            Component::RootDir | Component::Prefix(_) => Err(Errno::XDEV),
            part => Ok(part.as_os_str()),
        })
        .collect::<Result<_, _>>()?;
    let last = names.pop().unwrap_or(OsStr::new("."));
    let mut reached: Option<OwnedFd> = None;
    for name in names {
        let here = reached.as_ref().unwrap_or(dir);
        reached = Some(open_name(here, name, TRAVERSE_FLAGS, Mode::empty())?);
    }
    open_name(reached.as_ref().unwrap_or(dir), last, flags, mode)
}

fn open_name(dir: &OwnedFd, name: &OsStr, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    openat(dir.as_fd(), name, flags | OFlags::NOFOLLOW, mode).map_err(|cause| {
        // A link in place of a directory is reported as `ENOTDIR`.
        let is_link = || {
            statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
        };
        if cause == Errno::NOTDIR && is_link() { Errno::LOOP } else { cause }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn only_own_process_streams_may_be_links() {
        for path in ["/dev/stdin", "/dev/fd/0", "/dev/fd/63", "/proc/self/fd/63"] {
            assert!(is_own_stream(Path::new(path)), "{path}");
        }
        for path in [
            "/dev/shm/report.txt",
            "/dev/../etc/passwd",
            "/dev/fd",
            "/dev/fd/",
            "/dev/fd/-1",
            "/dev/fd/6x",
            "/dev/fd/63/report.txt",
            "/dev/fd/../shm/report.txt",
            "/dev/stdin/report.txt",
            "/proc/1/fd/63",
            "/proc/self/cwd/report.txt",
            "/proc/self/fd/63/report.txt",
            "dev/fd/63",
        ] {
            assert!(!is_own_stream(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn links_below_device_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        fs::write(place.join("secret"), "secret").unwrap();
        symlink(place.join("secret"), place.join("link")).unwrap();
        let through = |name: &str| PathBuf::from(format!("/dev/..{}/{name}", place.display()));
        assert!(open_without_links(&through("secret")).is_ok());
        assert!(is_link_refusal(&open_without_links(&through("link")).unwrap_err()));
        // A world-writable directory, if it exists.
        if let Ok(shared) = tempfile::tempdir_in("/dev/shm") {
            symlink(place.join("secret"), shared.path().join("link")).unwrap();
            let refused = open_without_links(&shared.path().join("link")).unwrap_err();
            assert!(is_link_refusal(&refused), "{refused}");
        }
    }

    #[test]
    fn stream_of_this_process_is_opened() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"report").unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let mut read = String::new();
        open_without_links(&path).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, "report");
    }
}

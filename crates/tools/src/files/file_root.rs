//! A directory that confines the file tools.
//!
//! Paths are relative and contain no `..`. A path is opened below the directory in one step that follows no symbolic
//! link ([`link_free_open`]). The checks apply to the opened file, so swapping links in the directory redirects nothing.
//!
//! Databases, including our own, can be in such a directory. Tools cannot touch databases, the files that belong to
//! them, or the files that define the agent.
//!
//! [`link_free_open`]: super::link_free_open
use super::link_free_open::{Directory, FileStat, PathResolver, is_link_refusal};
use super::protected_files::{FileProtection, ProtectedFiles};
use outlast_ports::tool::failed;
use outlast_vocab::message::shown;
use outlast_vocab::{CallId, Error, Kind, limits};
use rustix::fs::{FileType, Mode, fchmod};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum size of a file in bytes, for reading and writing.
pub const FILE_BYTES: usize = 1 << 20;

/// The maximum length of a path in bytes.
pub const PATH_BYTES: usize = 1_024;

/// The maximum number of names listed per directory.
pub const LISTED_MOST: usize = 1_000;

/// The maximum number of directory entries that one call reads.
const ENTRIES_READ_MOST: usize = 100_000;

/// The prefix of temporary files. Such names are not listed.
const TEMPORARY_PREFIX: &str = ".outlast-";

/// The permissions of a file that only its owner can read and write.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The permissions of a new file, which the umask of this process narrows.
const SHARED: Mode = PRIVATE.union(Mode::RGRP).union(Mode::WGRP).union(Mode::ROTH).union(Mode::WOTH);

/// The first bytes of an SQLite database.
const DATABASE: &[u8] = b"SQLite format 3\0";

/// The directory that confines the file tools.
#[derive(Debug)]
pub struct FileRoot {
    dir: PathBuf,
    denied: Vec<PathBuf>,
    protected: ProtectedFiles,
    dot_files: DotFiles,
    resolver: PathResolver,
}

/// Whether tools see names that start with a dot, such as `.env`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DotFiles {
    Shown,
    Hidden,
}

/// The sorted names in a directory, up to the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DirectoryListing {
    pub(super) names: BTreeSet<String>,
    pub(super) left_out: usize,
}

/// The files below a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilePaths {
    pub(super) paths: Vec<String>,
    /// Whether some were left out.
    pub(super) left_out: bool,
}

/// A path below the root whose parent directory is open.
struct LocatedPath<'a> {
    dir: Directory,
    /// The name in that directory; `None` for the root itself.
    name: Option<&'a OsStr>,
}

impl FileRoot {
    /// Opens a root at this directory, which must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let root = path.canonicalize().and_then(|root| fs::read_dir(&root).map(|_| root));
        let dir = root.map_err(|cause| {
            let detail = format!("the directory {} for files cannot be used: {cause}", path.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        let resolver = PathResolver::detect();
        let protected = ProtectedFiles::default();
        Ok(Self { dir, denied: Vec::new(), protected, dot_files: DotFiles::Shown, resolver })
    }

    /// Denies tools these paths and everything below them.
    #[must_use]
    pub fn deny_paths(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.denied.extend(paths.into_iter().map(resolve_links));
        self
    }

    /// Protects the files of this list, which may grow later. It replaces the list before.
    #[must_use]
    pub fn protecting(mut self, files: ProtectedFiles) -> Self {
        self.protected = files;
        self
    }

    /// Hides files and directories whose names start with a dot, such as `.env` and `.git`.
    #[must_use]
    pub fn hiding_dot_files(mut self) -> Self {
        self.dot_files = DotFiles::Hidden;
        self
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub(super) fn read(&self, path: &str) -> Result<String, Error> {
        let LocatedPath { dir, name } = self.locate(path)?;
        let file = dir.file(name.unwrap_or_default()).map_err(|cause| file_error(path, cause))?;
        let found = file.metadata().map_err(|cause| file_error(path, cause))?;
        check_regular(path, FileType::from_raw_mode(mode_of(&found)))?;
        let mut bytes = Vec::new();
        let most = FILE_BYTES as u64 + 1;
        let read = (&file).take(most).read_to_end(&mut bytes);
        read.map_err(|cause| file_error(path, cause))?;
        if bytes.starts_with(DATABASE) {
            return Err(not_for_tools(path));
        }
        let size = usize::try_from(found.len()).unwrap_or(usize::MAX).max(bytes.len());
        limits::check("file_bytes", size, FILE_BYTES)?;
        String::from_utf8(bytes).map_err(|_| failed(format!("`{}` is not UTF-8 text", shown(path))))
    }

    /// Writes a file atomically: after a crash it has the old text or the new text. The temporary file is named after
    /// `call`, so the next attempt of an interrupted call replaces it.
    pub(super) fn write(&self, path: &str, content: &str, call: CallId) -> Result<(), Error> {
        limits::check("file_bytes", content.len(), FILE_BYTES)?;
        let (dir, name) = self.create_parent(path)?;
        let old = match dir.stat(name) {
            Ok(found) => Some(found),
            Err(cause) if cause.kind() == ErrorKind::NotFound => None,
            Err(cause) => return Err(file_error(path, cause)),
        };
        if let Some(FileStat { kind, mode }) = old {
            check_regular(path, kind)?;
            if !mode.intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH) {
                return Err(failed(format!("`{}` is read-only", shown(path))));
            }
        }
        let unfinished = format!("{TEMPORARY_PREFIX}{call}");
        let write = || {
            // Left by an interrupted attempt, or planted so that the write goes through it.
            match dir.remove(&unfinished) {
                Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
                _ => {}
            }
            let mut file = match &old {
                // It is never more widely readable than the file that it replaces.
                Some(FileStat { mode, .. }) => {
                    let file = dir.create(&unfinished, PRIVATE)?;
                    fchmod(&file, *mode)?;
                    file
                }
                None => dir.create(&unfinished, SHARED)?,
            };
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            dir.rename(&unfinished, name)?;
            dir.sync()
        };
        write().map_err(|cause| {
            // Best effort: report the error of the write instead.
            drop(dir.remove(&unfinished));
            file_error(path, cause)
        })
    }

    pub(super) fn list(&self, path: &str) -> Result<DirectoryListing, Error> {
        let dir = self.directory(path)?;
        let mut listing = DirectoryListing { names: BTreeSet::new(), left_out: 0 };
        for entry in dir.entries(ENTRIES_READ_MOST).map_err(|cause| file_error(path, cause))? {
            let mut name = String::from_utf8_lossy(&entry.name).into_owned();
            if name.starts_with(TEMPORARY_PREFIX) || self.hides(&entry.name) {
                continue;
            }
            if entry.kind == FileType::Directory {
                name.push('/');
            }
            listing.names.insert(name);
            if listing.names.len() > LISTED_MOST {
                listing.names.pop_last();
                listing.left_out += 1;
            }
        }
        Ok(listing)
    }

    /// Returns the sorted paths of the files below a directory, up to the limit. Links are not followed. Returns what it
    /// has found if it is stopped or has read too many directory entries.
    pub(super) fn files_below(
        &self,
        path: &str,
        most: usize,
        stopped: &AtomicBool,
    ) -> Result<FilePaths, Error> {
        let mut files = FilePaths { paths: Vec::new(), left_out: false };
        let top: PathBuf = parts(path)?.into_iter().collect();
        let LocatedPath { dir, name } = self.locate(path)?;
        if let Some(name) = name {
            let kind = dir.stat(name).map_err(|cause| file_error(path, cause))?.kind;
            if kind != FileType::Directory && kind != FileType::Symlink {
                files.paths.extend(top.to_str().map(str::to_owned));
                return Ok(files);
            }
        }
        let first = self.directory(path)?;
        let root = self.top().map_err(|cause| file_error(path, cause))?;
        let mut open = vec![(top, Some(first))];
        let mut entries_left = ENTRIES_READ_MOST;
        while let Some((place, dir)) = open.pop() {
            // Skip a directory that cannot be read or has become a link.
            let dir = dir.map_or_else(|| root.directory(&place), Ok);
            let Ok(mut entries) = dir.and_then(|dir| dir.entries(entries_left)) else { continue };
            entries_left -= entries.len();
            // The stack pops the last one first.
            entries.sort_by(|one, other| other.name.cmp(&one.name));
            for entry in entries {
                let Ok(name) = std::str::from_utf8(&entry.name) else { continue };
                match entry.kind {
                    _ if self.hides(&entry.name) => {}
                    FileType::Directory => open.push((place.join(name), None)),
                    FileType::RegularFile if !name.starts_with(TEMPORARY_PREFIX) => {
                        files.paths.extend(place.join(name).to_str().map(str::to_owned));
                    }
                    _ => {}
                }
            }
            if files.paths.len() > most || entries_left == 0 || stopped.load(Ordering::Relaxed) {
                files.left_out = true;
                break;
            }
        }
        files.paths.sort();
        files.paths.truncate(most);
        Ok(files)
    }

    /// Opens the root itself.
    fn top(&self) -> io::Result<Directory> {
        Directory::at(&self.dir, self.resolver)
    }

    /// Opens a directory that tools may see.
    fn directory(&self, path: &str) -> Result<Directory, Error> {
        let LocatedPath { dir, name } = self.locate(path)?;
        match name {
            Some(name) => dir.directory(name).map_err(|cause| file_error(path, cause)),
            None => Ok(dir),
        }
    }

    /// Opens the parent directory of a path, and rejects paths that are denied to tools.
    fn locate<'a>(&self, path: &'a str) -> Result<LocatedPath<'a>, Error> {
        let mut names = parts(path)?;
        let name = names.pop();
        let mut dir = self.top().map_err(|cause| file_error(path, cause))?;
        let mut place = self.dir.clone();
        for part in names {
            place.push(part);
            self.check_allowed(path, &dir, part, &place)?;
            dir = dir.directory(part).map_err(|cause| file_error(path, cause))?;
        }
        if let Some(name) = name {
            place.push(name);
            self.check_allowed(path, &dir, name, &place)?;
        }
        Ok(LocatedPath { dir, name })
    }

    /// Rejects paths that are denied to tools. No part of `place` is a link, so it is the real location of the file.
    fn check_allowed(&self, path: &str, dir: &Directory, name: &OsStr, place: &Path) -> Result<(), Error> {
        if self.hides(name.as_encoded_bytes()) {
            let detail =
                format!("`{}` is hidden: tools may not use names that begin with a dot", shown(path));
            return Err(failed(detail));
        }
        let is_denied = self.denied.iter().any(|kept_out| place.starts_with(kept_out))
            || self.protected.protection(&self.dir, place) == Some(FileProtection::Denied);
        if is_denied || is_database_file(dir, name) { Err(not_for_tools(path)) } else { Ok(()) }
    }

    fn hides(&self, name: &[u8]) -> bool {
        self.dot_files == DotFiles::Hidden && name.starts_with(b".")
    }

    /// Returns the parent directory of a file, which is created if missing, and the file's name.
    fn create_parent<'a>(&self, path: &'a str) -> Result<(Directory, &'a OsStr), Error> {
        let mut names = parts(path)?;
        let name = names.pop().ok_or_else(|| not_a_path(path))?;
        let mut dir = self.top().map_err(|cause| file_error(path, cause))?;
        let mut place = self.dir.clone();
        for part in names {
            place.push(part);
            self.check_allowed(path, &dir, part, &place)?;
            self.check_writable(path, &place)?;
            match dir.make_directory(part) {
                Ok(()) => dir.sync().map_err(|cause| file_error(path, cause))?,
                Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(file_error(path, cause)),
            }
            dir = dir.directory(part).map_err(|cause| file_error(path, cause))?;
        }
        place.push(name);
        self.check_allowed(path, &dir, name, &place)?;
        self.check_writable(path, &place)?;
        Ok((dir, name))
    }

    fn check_writable(&self, path: &str, place: &Path) -> Result<(), Error> {
        if self.protected.protection(&self.dir, place).is_some() {
            let detail =
                format!("`{}` is a document of an agent, which tools may read but not write", shown(path));
            return Err(failed(detail));
        }
        Ok(())
    }
}

/// Resolves links in a path and makes it absolute. If the file does not exist yet, resolves its directory.
pub(super) fn resolve_links(path: PathBuf) -> PathBuf {
    let path = std::path::absolute(&path).unwrap_or(path);
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(dir), Some(name)) => dir.canonicalize().map_or(path.clone(), |dir| dir.join(name)),
        (Err(_), ..) => path,
    }
}

/// Returns whether a file is a database or belongs to one, such as its log or locks.
fn is_database_file(dir: &Directory, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let beside = name.match_indices('-').map(|(end, _)| &name[..end]);
    std::iter::once(name).chain(beside).any(|name| is_database(dir, name))
}

fn is_database(dir: &Directory, name: &str) -> bool {
    // Pipes and devices are not even opened.
    let is_file = !name.is_empty() && dir.stat(name).is_ok_and(|found| found.kind == FileType::RegularFile);
    let mut begins = [0; DATABASE.len()];
    is_file && dir.file(name).and_then(|mut file| file.read_exact(&mut begins)).is_ok() && begins == DATABASE
}

fn not_for_tools(path: &str) -> Error {
    failed(format!("`{}` is not available to tools: Outlast or another program uses it", shown(path)))
}

/// Splits a path into names. The root itself has no names.
fn parts(path: &str) -> Result<Vec<&OsStr>, Error> {
    limits::check("path_bytes", path.len(), PATH_BYTES)?;
    let part = |component| match component {
        Component::Normal(name) => Some(Ok(name)),
        Component::CurDir => None,
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => Some(Err(not_a_path(path))),
    };
    if path.contains('\0') {
        return Err(not_a_path(path));
    }
    Path::new(path).components().filter_map(part).collect()
}

fn not_a_path(path: &str) -> Error {
    let detail = format!("expected a path like `notes/today.txt`, without `..`, got {:?}", shown(path));
    Error::new(Kind::ToolArgsInvalid, detail)
}

/// Rejects directories, links, pipes and devices. Reading a pipe might never end.
fn check_regular(path: &str, kind: FileType) -> Result<(), Error> {
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a link",
        _ => "no ordinary file",
    };
    Err(failed(format!("expected a file, but `{}` is {what}", shown(path))))
}

fn mode_of(found: &fs::Metadata) -> rustix::fs::RawMode {
    use std::os::unix::fs::MetadataExt;
    found.mode()
}

fn file_error(path: &str, cause: io::Error) -> Error {
    let path = shown(path);
    let detail = match cause.kind() {
        ErrorKind::NotFound => format!("`{path}` does not exist"),
        _ if is_link_refusal(&cause) => {
            format!("`{path}` is a symbolic link or goes through one; file tools do not follow links")
        }
        ErrorKind::NotADirectory => format!("`{path}` is not a directory, or goes through a file"),
        _ => format!("`{path}` cannot be used: {cause}"),
    };
    failed(detail).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use rustix::fs::{CWD, RenameFlags};
    use std::os::unix::fs::{PermissionsExt, symlink};

    const CALL: CallId = CallId::from_u128(1);

    struct Dirs {
        _dir: tempfile::TempDir,
        inside: PathBuf,
        outside: PathBuf,
        root: FileRoot,
    }

    fn dirs() -> Dirs {
        let dir = tempfile::tempdir().unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| dir.path().join(name));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        let root = FileRoot::open(&inside).unwrap();
        Dirs { _dir: dir, inside, outside, root }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_path_cannot_leave_the_root() {
        let dirs = dirs();
        let Dirs { root, inside, outside, .. } = &dirs;
        let over_long = "a".repeat(PATH_BYTES + 1);
        let absolute = outside.join("secret");
        let paths = ["../outside/secret", "a/../../outside/secret", "..", "/", "", ".", "a\0b", &over_long];
        let refused = paths.map(|path| {
            let (read, written) = (root.read(path).unwrap_err(), root.write(path, "x", CALL).unwrap_err());
            format!("{read}\n{written}\n")
        });
        expect![[r#"
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "../outside/secret"
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "../outside/secret"
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "a/../../outside/secret"
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "a/../../outside/secret"
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got ".."
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got ".."
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "/"
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "/"
            tool.failed: expected a file, but `` is a directory
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got ""
            tool.failed: expected a file, but `.` is a directory
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "."
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "a\0b"
            tool.args_invalid: expected a path like `notes/today.txt`, without `..`, got "a\0b"
            limit.exceeded: path_bytes is limited to 1024, but this needs 1025
            limit.exceeded: path_bytes is limited to 1024, but this needs 1025
        "#]].assert_eq(&refused.concat());
        assert_eq!(root.read(absolute.to_str().unwrap()).unwrap_err().kind(), Kind::ToolArgsInvalid);
        assert_eq!(names(inside), [""; 0]);
        assert_eq!(names(outside), ["secret"]);
    }

    #[test]
    fn database_files_and_denied_paths_are_refused() {
        let Dirs { inside, root, .. } = &dirs();
        fs::create_dir_all(inside.join("outlast.db-workers")).unwrap();
        fs::write(inside.join("outlast.db"), [DATABASE, b"and more"].concat()).unwrap();
        for name in ["outlast.db-wal", "outlast.db-workers/1", "agent.toml", "agent.md", "a-b"] {
            fs::write(inside.join(name), "old").unwrap();
        }
        symlink("outlast.db", inside.join("link")).unwrap();
        let root = FileRoot::open(&root.dir).unwrap();
        let root = root.deny_paths([inside.join("agent.toml"), inside.join("later.toml")]);
        let before = fs::read(inside.join("outlast.db")).unwrap();
        assert!(root.read("link").is_err());
        for path in ["outlast.db", "outlast.db-wal", "outlast.db-workers/1", "agent.toml"] {
            let refused = root.read(path).unwrap_err();
            assert!(refused.detail().contains("is not available to tools"), "{path}: {refused}");
        }
        let new = ["outlast.db-shm", "outlast.db-workers/2", "outlast.db-new/3", "later.toml"];
        for path in
            ["outlast.db", "outlast.db-wal", "outlast.db-workers/1", "agent.toml"].into_iter().chain(new)
        {
            let refused = root.write(path, "new", CALL).unwrap_err();
            assert!(refused.detail().contains("is not available to tools"), "{path}: {refused}");
        }
        assert!(root.write("link", "new", CALL).is_err());
        assert_eq!(fs::read(inside.join("outlast.db")).unwrap(), before);
        assert!(
            new.iter().all(|path| !inside.join(path).exists()) && !inside.join("outlast.db-new").exists()
        );
        for path in ["agent.md", "a-b", "outlast.txt"] {
            root.write(path, "new", CALL).unwrap();
            assert_eq!(root.read(path).unwrap(), "new");
        }
    }

    #[test]
    fn link_to_outside_is_refused() {
        let dirs = dirs();
        let Dirs { root, inside, outside, .. } = &dirs;
        symlink(outside, inside.join("dir")).unwrap();
        symlink(outside.join("secret"), inside.join("file")).unwrap();
        symlink(outside.join("new"), inside.join("dangling")).unwrap();
        let log = [
            root.read("dir/secret").unwrap_err(),
            root.read("file").unwrap_err(),
            root.list("dir").map(drop).unwrap_err(),
            root.write("dir/secret", "x", CALL).unwrap_err(),
            root.write("dir/new/file", "x", CALL).unwrap_err(),
            root.write("file", "x", CALL).unwrap_err(),
            root.write("dangling", "x", CALL).unwrap_err(),
        ];
        expect![[r"
            tool.failed: `dir/secret` is a symbolic link or goes through one; file tools do not follow links
            tool.failed: `file` is a symbolic link or goes through one; file tools do not follow links
            tool.failed: `dir` is a symbolic link or goes through one; file tools do not follow links
            tool.failed: `dir/secret` is a symbolic link or goes through one; file tools do not follow links
            tool.failed: `dir/new/file` is a symbolic link or goes through one; file tools do not follow links
            tool.failed: expected a file, but `file` is a link
            tool.failed: expected a file, but `dangling` is a link
        "]]
        .assert_eq(&log.map(|error| format!("{error}\n")).concat());
        assert_eq!(names(outside), ["secret"]);
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    }

    #[test]
    fn link_inside_the_root_is_refused() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        root.write("docs/a.txt", "a", CALL).unwrap();
        symlink("docs", inside.join("link")).unwrap();
        let refused = "tool.failed: `link/a.txt` is a symbolic link or goes through one; file tools do not follow links";
        assert_eq!(root.read("link/a.txt").unwrap_err().to_string(), refused);
        assert_eq!(root.write("link/a.txt", "b", CALL).unwrap_err().to_string(), refused);
        assert_eq!(root.read("docs/a.txt").unwrap(), "a");
    }

    #[test]
    fn root_that_became_a_link_is_refused() {
        let dirs = dirs();
        let Dirs { root, inside, outside, .. } = &dirs;
        fs::remove_dir(inside).unwrap();
        symlink(outside, inside).unwrap();
        assert!(
            root.read("secret").is_err() && root.list("").is_err() && root.write("new", "x", CALL).is_err()
        );
        assert_eq!(names(outside), ["secret"]);
    }

    #[test]
    fn write_replaces_link_planted_at_temporary_name() {
        let dirs = dirs();
        let Dirs { root, inside, outside, .. } = &dirs;
        symlink(outside.join("secret"), inside.join(format!("{TEMPORARY_PREFIX}{CALL}"))).unwrap();
        root.write("a.txt", "mine", CALL).unwrap();
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
        assert_eq!(
            (names(inside), root.read("a.txt").unwrap()),
            (vec!["a.txt".to_owned()], "mine".to_owned())
        );
    }

    #[test]
    fn write_drops_the_set_user_id_bit() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        root.write("run.sh", "1", CALL).unwrap();
        fs::set_permissions(inside.join("run.sh"), fs::Permissions::from_mode(0o6755)).unwrap();
        root.write("run.sh", "2", CALL).unwrap();
        assert_eq!(fs::metadata(inside.join("run.sh")).unwrap().permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn reading_a_pipe_does_not_block() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, inside.join("pipe"), FileType::Fifo, mode, 0).unwrap();
        let refused = "tool.failed: expected a file, but `pipe` is no ordinary file";
        assert_eq!(root.read("pipe").unwrap_err().to_string(), refused);
    }

    #[test]
    fn documents_are_readable_but_not_writable() {
        let Dirs { inside, root, .. } = &dirs();
        fs::create_dir(inside.join("docs")).unwrap();
        fs::write(inside.join("docs/terms.md"), "old").unwrap();
        let protected = ProtectedFiles::default();
        let root = FileRoot::open(&root.dir).unwrap().protecting(protected.clone());
        protected.make_read_only([inside.join("docs/terms.md")]);
        assert_eq!(root.read("docs/terms.md").unwrap(), "old");
        let refused =
            "tool.failed: `docs/terms.md` is a document of an agent, which tools may read but not write";
        assert_eq!(root.write("docs/terms.md", "new", CALL).unwrap_err().to_string(), refused);
        root.write("docs/other.md", "new", CALL).unwrap();
        assert_eq!(root.read("docs/terms.md").unwrap(), "old");
    }

    #[test]
    fn hidden_dot_files_are_neither_listed_nor_opened() {
        let Dirs { inside, root, .. } = &dirs();
        fs::create_dir(inside.join(".git")).unwrap();
        for name in [".env", ".git/config", "notes.txt"] {
            fs::write(inside.join(name), "KEY=secret").unwrap();
        }
        let open = FileRoot::open(&root.dir).unwrap();
        assert_eq!(open.read(".env").unwrap(), "KEY=secret");
        let root = open.hiding_dot_files();
        assert_eq!(root.list("").unwrap().names, BTreeSet::from(["notes.txt".to_owned()]));
        assert_eq!(root.files_below("", 10, &AtomicBool::new(false)).unwrap().paths, ["notes.txt"]);
        for path in [".env", ".git/config", "sub/.env"] {
            let refused =
                format!("tool.failed: `{path}` is hidden: tools may not use names that begin with a dot");
            let written = root.write(path, "x", CALL).unwrap_err().to_string();
            assert_eq!(written, refused);
            if !path.starts_with("sub") {
                assert_eq!(root.read(path).unwrap_err().to_string(), refused);
            }
        }
        assert_eq!(fs::read_to_string(inside.join(".env")).unwrap(), "KEY=secret");
    }

    #[test]
    fn files_must_be_text_of_bounded_size() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        fs::write(inside.join("binary"), [0xff, 0xfe]).unwrap();
        fs::write(inside.join("large"), vec![b'a'; FILE_BYTES + 1]).unwrap();
        let log = [
            root.read("binary").unwrap_err(),
            root.read("large").unwrap_err(),
            root.write("new", &"a".repeat(FILE_BYTES + 1), CALL).unwrap_err(),
        ];
        expect![[r"
            tool.failed: `binary` is not UTF-8 text
            limit.exceeded: file_bytes is limited to 1048576, but this needs 1048577
            limit.exceeded: file_bytes is limited to 1048576, but this needs 1048577
        "]]
        .assert_eq(&log.map(|error| format!("{error}\n")).concat());
        root.write("full", &"a".repeat(FILE_BYTES), CALL).unwrap();
        assert_eq!(root.read("full").unwrap().len(), FILE_BYTES);
    }

    #[test]
    fn write_replaces_leftovers_of_an_interrupted_attempt() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        fs::write(inside.join(format!("{TEMPORARY_PREFIX}{CALL}")), "half").unwrap();
        assert_eq!(root.list("").unwrap().names, BTreeSet::new());
        root.write("a.txt", "whole", CALL).unwrap();
        assert_eq!(names(inside), ["a.txt"]);
        assert_eq!(root.read("a.txt").unwrap(), "whole");
    }

    #[test]
    fn a_write_keeps_permissions_and_respects_read_only() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        let place = inside.join("run.sh");
        root.write("run.sh", "1", CALL).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o750)).unwrap();
        root.write("run.sh", "2", CALL).unwrap();
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o750);
        fs::set_permissions(&place, fs::Permissions::from_mode(0o440)).unwrap();
        assert_eq!(
            root.write("run.sh", "3", CALL).unwrap_err().to_string(),
            "tool.failed: `run.sh` is read-only"
        );
        assert_eq!(root.read("run.sh").unwrap(), "2");
    }

    #[test]
    fn private_text_is_never_readable_by_others() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        root.write("key", "old", CALL).unwrap();
        fs::set_permissions(inside.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let unfinished = inside.join(format!("{TEMPORARY_PREFIX}{CALL}"));
        let done = AtomicBool::new(false);
        let exposed = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let is_open =
                    |found: fs::Metadata| found.len() > 0 && found.permissions().mode() & 0o077 != 0;
                let mut exposed = false;
                while !done.load(Ordering::Relaxed) {
                    exposed |= fs::metadata(&unfinished).is_ok_and(is_open);
                }
                exposed
            });
            for _ in 0..20 {
                root.write("key", &"a".repeat(FILE_BYTES), CALL).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        assert!(!exposed);
    }

    #[test]
    fn search_stops_when_asked_or_after_many_entries() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        for number in 0..3 {
            fs::create_dir(inside.join(number.to_string())).unwrap();
            fs::write(inside.join(format!("{number}/file")), "").unwrap();
        }
        let whole = root.files_below("", 10, &AtomicBool::new(false)).unwrap();
        assert_eq!((whole.paths.len(), whole.left_out), (3, false));
        let stopped = root.files_below("", 10, &AtomicBool::new(true)).unwrap();
        assert_eq!((stopped.paths, stopped.left_out), (Vec::new(), true));
        assert_eq!(Directory::at(inside, root.resolver).unwrap().entries(2).unwrap().len(), 2);
    }

    #[test]
    fn long_listing_is_cut_in_name_order() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        for number in 0..LISTED_MOST + 2 {
            fs::write(inside.join(format!("{number:05}")), "").unwrap();
        }
        let listing = root.list("").unwrap();
        assert_eq!((listing.names.len(), listing.left_out), (LISTED_MOST, 2));
        assert_eq!(listing.names.last().unwrap(), "00999");
    }

    #[test]
    fn root_must_be_an_existing_directory() {
        let dirs = dirs();
        let Dirs { outside, .. } = &dirs;
        assert_eq!(FileRoot::open(outside.join("none")).unwrap_err().kind(), Kind::IoFailed);
        assert_eq!(FileRoot::open(outside.join("secret")).unwrap_err().kind(), Kind::IoFailed);
    }

    #[test]
    fn swapped_symlink_never_redirects_reads_or_writes() {
        for resolver in [PathResolver::Kernel, PathResolver::Walk] {
            race_with_a_symlink(resolver);
        }
    }

    fn race_with_a_symlink(resolver: PathResolver) {
        const ROUNDS: usize = 2_000;
        let mut dirs = dirs();
        dirs.root.resolver = resolver;
        let Dirs { root, inside, outside, .. } = &dirs;
        fs::create_dir(inside.join("dir")).unwrap();
        fs::write(inside.join("dir/secret"), "harmless").unwrap();
        fs::write(outside.join("only-outside"), "secret").unwrap();
        symlink(outside, inside.join("parked")).unwrap();
        let done = AtomicBool::new(false);
        let leaks = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Swap the directory and the link, as a shell command could.
                while !done.load(Ordering::Relaxed) {
                    let (one, other) = (inside.join("dir"), inside.join("parked"));
                    rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let mut leaks = Vec::new();
            for round in 0..ROUNDS {
                if root.read("dir/secret").is_ok_and(|text| text == "secret") {
                    leaks.push("read");
                }
                if root.list("dir").is_ok_and(|listing| listing.names.contains("only-outside")) {
                    leaks.push("list");
                }
                let found = root.files_below("dir", 10, &done);
                if found.is_ok_and(|found| found.paths.iter().any(|path| path.ends_with("only-outside"))) {
                    leaks.push("files_below");
                }
                let _written = root.write(&format!("dir/new-{}", round % 8), "mine", CALL);
                let _made = root.write(&format!("dir/sub-{}/file", round % 8), "mine", CALL);
            }
            done.store(true, Ordering::Relaxed);
            leaks
        });
        assert_eq!(leaks, [""; 0], "{resolver:?}");
        assert_eq!(names(outside), ["only-outside", "secret"]);
    }
}

//! A directory that file tools cannot leave.
//!
//! A path is relative, has no `..`, and after following links still lies below the directory. The check and the use
//! are two steps: whoever can put links into the directory while a tool runs can get between them, and the tools
//! themselves cannot make links.
//!
//! Databases lie in such directories too, our own among them: they and what lies beside them for them are left alone, and so is
//! whatever the agent itself is made of.
use outlast_ports::tool::failed;
use outlast_vocab::message::shown;
use outlast_vocab::{CallId, Error, Kind, limits};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};

/// The largest file that is read or written, in bytes.
pub const FILE_BYTES: usize = 1 << 20;

/// The longest path in bytes.
pub const PATH_BYTES: usize = 1_024;

/// The most names that are listed of one directory.
pub const LISTED_MOST: usize = 1_000;

/// What a file is called until it is whole; such names are not listed.
const UNFINISHED: &str = ".outlast-";

/// How a database of SQLite begins.
const DATABASE: &[u8] = b"SQLite format 3\0";

/// The directory below which file tools work.
#[derive(Debug)]
pub struct FileRoot {
    dir: PathBuf,
    kept_out: Vec<PathBuf>,
}

/// The names in a directory, in order, as far as they are listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) names: BTreeSet<String>,
    pub(super) left_out: usize,
}

/// Files below a directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) paths: Vec<String>,
    /// Whether there are more.
    pub(super) left_out: bool,
}

impl FileRoot {
    /// A root at this directory, which must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let root = path.canonicalize().and_then(|root| fs::read_dir(&root).map(|_| root));
        root.map(|dir| Self { dir, kept_out: Vec::new() }).map_err(|cause| {
            let detail = format!("the directory {} for files cannot be used: {cause}", path.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })
    }

    /// Keeps tools away from these files and from what is below them, should they lie in the directory.
    #[must_use]
    pub fn keeping_out(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        // As it is found by its links; what is not there yet is found by its directory.
        let real = |path: PathBuf| match (path.canonicalize(), path.parent(), path.file_name()) {
            (Ok(real), ..) => real,
            (Err(_), Some(dir), Some(name)) => dir.canonicalize().map_or(path.clone(), |dir| dir.join(name)),
            (Err(_), ..) => path,
        };
        self.kept_out.extend(paths.into_iter().map(real));
        self
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    pub(super) fn read(&self, path: &str) -> Result<String, Error> {
        let place = self.existing(path)?;
        let found = fs::metadata(&place).map_err(|cause| trouble(path, cause))?;
        regular(path, &found)?;
        let mut bytes = Vec::new();
        let most = FILE_BYTES as u64 + 1;
        let read = File::open(&place).and_then(|file| file.take(most).read_to_end(&mut bytes));
        read.map_err(|cause| trouble(path, cause))?;
        let size = usize::try_from(found.len()).unwrap_or(usize::MAX).max(bytes.len());
        limits::check("file_bytes", size, FILE_BYTES)?;
        String::from_utf8(bytes).map_err(|_| failed(format!("`{}` is not UTF-8 text", shown(path))))
    }

    /// Writes a file so that a crash leaves the old text or the new. `call` names the file until it is whole, so an
    /// interrupted call leaves nothing that its next attempt does not replace.
    pub(super) fn write(&self, path: &str, content: &str, call: CallId) -> Result<(), Error> {
        limits::check("file_bytes", content.len(), FILE_BYTES)?;
        let (dir, name) = self.place_for(path)?;
        let place = dir.join(name);
        let old = match fs::symlink_metadata(&place) {
            Ok(found) => Some(found),
            Err(cause) if cause.kind() == ErrorKind::NotFound => None,
            Err(cause) => return Err(trouble(path, cause)),
        };
        if let Some(old) = &old {
            regular(path, old)?;
            if old.permissions().readonly() {
                return Err(failed(format!("`{}` is read-only", shown(path))));
            }
        }
        let unfinished = dir.join(format!("{UNFINISHED}{call}"));
        let write = || {
            let mut file = File::create(&unfinished)?;
            file.write_all(content.as_bytes())?;
            if let Some(old) = &old {
                file.set_permissions(old.permissions())?;
            }
            file.sync_all()?;
            fs::rename(&unfinished, &place)?;
            sync_directory(&dir)
        };
        write().map_err(|cause| {
            // Best effort: the write's own error is the one to report.
            drop(fs::remove_file(&unfinished));
            trouble(path, cause)
        })
    }

    pub(super) fn list(&self, path: &str) -> Result<Listing, Error> {
        let place = self.existing(path)?;
        let mut listing = Listing { names: BTreeSet::new(), left_out: 0 };
        for entry in fs::read_dir(place).map_err(|cause| trouble(path, cause))? {
            let entry = entry.map_err(|cause| trouble(path, cause))?;
            let mut name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
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

    /// The files below a directory, by path, in order, as far as they are wanted. Links are not followed.
    pub(super) fn files_below(&self, path: &str, most: usize) -> Result<Files, Error> {
        let top = self.existing(path)?;
        let mut files = Files { paths: Vec::new(), left_out: false };
        let mut open = vec![top.clone()];
        if !top.is_dir() {
            files.paths.extend(self.relative(&top));
            return Ok(files);
        }
        while let Some(place) = open.pop() {
            // A directory that cannot be read has no files for us; the top one was read to be found.
            let Ok(entries) = fs::read_dir(&place) else { continue };
            let mut entries: Vec<_> = entries.flatten().collect();
            // The last is taken first.
            entries.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
            for entry in entries {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => open.push(entry.path()),
                    Ok(kind) if kind.is_file() && !is_unfinished(&entry.file_name()) => {
                        files.paths.extend(self.relative(&entry.path()));
                    }
                    _ => {}
                }
            }
            if files.paths.len() > most {
                files.left_out = true;
                break;
            }
        }
        files.paths.sort();
        files.paths.truncate(most);
        Ok(files)
    }

    fn relative(&self, place: &Path) -> Option<String> {
        place.strip_prefix(&self.dir).ok()?.to_str().map(str::to_owned)
    }

    /// Where something is that must be there.
    fn existing(&self, path: &str) -> Result<PathBuf, Error> {
        let place: PathBuf = std::iter::once(self.dir.as_os_str()).chain(parts(path)?).collect();
        let place = self.inside(path, &place)?;
        self.let_in(path, &place)?;
        Ok(place)
    }

    /// Refuses what tools are kept away from.
    fn let_in(&self, path: &str, place: &Path) -> Result<(), Error> {
        let own = self.kept_out.iter().any(|kept_out| place.starts_with(kept_out));
        if own || place.ancestors().take_while(|above| **above != *self.dir).any(is_of_a_database) {
            let detail =
                format!("`{}` is not for tools: Outlast itself lives on it, or another program", shown(path));
            return Err(failed(detail));
        }
        Ok(())
    }

    /// The directory a file is to be in, made if it is not there, and the file's name.
    fn place_for<'a>(&self, path: &'a str) -> Result<(PathBuf, &'a OsStr), Error> {
        let mut parts = parts(path)?;
        let name = parts.pop().ok_or_else(|| not_a_path(path))?;
        let mut dir = self.dir.clone();
        for part in parts {
            let next = dir.join(part);
            self.let_in(path, &next)?;
            match fs::create_dir(&next) {
                Ok(()) => sync_directory(&dir).map_err(|cause| trouble(path, cause))?,
                Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
                Err(cause) => return Err(trouble(path, cause)),
            }
            dir = self.inside(path, &next)?;
        }
        self.let_in(path, &dir.join(name))?;
        Ok((dir, name))
    }

    /// Follows links; what they lead to must be inside.
    fn inside(&self, path: &str, place: &Path) -> Result<PathBuf, Error> {
        let real = place.canonicalize().map_err(|cause| trouble(path, cause))?;
        if real.starts_with(&self.dir) {
            return Ok(real);
        }
        Err(failed(format!("`{}` leads out of the directory for files", shown(path))))
    }
}

/// Whether a file is a database, or lies beside one for it: its log, its locks.
fn is_of_a_database(place: &Path) -> bool {
    let Some(name) = place.file_name().and_then(OsStr::to_str) else { return false };
    let beside = name.match_indices('-').map(|(end, _)| place.with_file_name(&name[..end]));
    is_database(place) || beside.into_iter().any(|base| is_database(&base))
}

fn is_database(place: &Path) -> bool {
    let mut begins = [0; DATABASE.len()];
    let is_file = fs::metadata(place).is_ok_and(|found| found.is_file());
    is_file
        && File::open(place).and_then(|mut file| file.read_exact(&mut begins)).is_ok()
        && begins == DATABASE
}

/// The names a path is made of; none for the root itself.
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

fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

/// Refuses directories, links, pipes and devices: reading a pipe would never end.
fn regular(path: &str, found: &fs::Metadata) -> Result<(), Error> {
    let what = match found.file_type() {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a link",
        _ => "no ordinary file",
    };
    Err(failed(format!("expected a file, but `{}` is {what}", shown(path))))
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn trouble(path: &str, cause: io::Error) -> Error {
    let path = shown(path);
    let detail = match cause.kind() {
        ErrorKind::NotFound => format!("nothing is called `{path}`"),
        ErrorKind::NotADirectory => format!("`{path}` is not a directory, or goes through a file"),
        _ => format!("`{path}` cannot be used: {cause}"),
    };
    failed(detail).because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
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
    fn a_database_what_lies_beside_it_and_what_is_kept_out_are_left_alone() {
        let Dirs { inside, root, .. } = &dirs();
        fs::create_dir_all(inside.join("outlast.db-workers")).unwrap();
        fs::write(inside.join("outlast.db"), [DATABASE, b"and more"].concat()).unwrap();
        for name in ["outlast.db-wal", "outlast.db-workers/1", "agent.toml", "agent.md", "a-b"] {
            fs::write(inside.join(name), "old").unwrap();
        }
        symlink("outlast.db", inside.join("link")).unwrap();
        let root = FileRoot { dir: root.dir.clone(), kept_out: Vec::new() };
        let root = root.keeping_out([inside.join("agent.toml"), inside.join("later.toml")]);
        let before = fs::read(inside.join("outlast.db")).unwrap();
        for path in ["outlast.db", "outlast.db-wal", "outlast.db-workers/1", "agent.toml", "link"] {
            let refused = root.read(path).unwrap_err();
            assert!(refused.detail().contains("is not for tools"), "{path}: {refused}");
        }
        let new = ["outlast.db-shm", "outlast.db-workers/2", "outlast.db-new/3", "later.toml"];
        for path in
            ["outlast.db", "outlast.db-wal", "outlast.db-workers/1", "agent.toml"].into_iter().chain(new)
        {
            let refused = root.write(path, "new", CALL).unwrap_err();
            assert!(refused.detail().contains("is not for tools"), "{path}: {refused}");
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
    fn a_link_that_leads_outside_is_refused() {
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
            tool.failed: `dir/secret` leads out of the directory for files
            tool.failed: `file` leads out of the directory for files
            tool.failed: `dir` leads out of the directory for files
            tool.failed: `dir/secret` leads out of the directory for files
            tool.failed: `dir/new/file` leads out of the directory for files
            tool.failed: expected a file, but `file` is a link
            tool.failed: expected a file, but `dangling` is a link
        "]]
        .assert_eq(&log.map(|error| format!("{error}\n")).concat());
        assert_eq!(names(outside), ["secret"]);
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    }

    #[test]
    fn a_link_that_stays_inside_is_followed_for_reading() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        root.write("docs/a.txt", "a", CALL).unwrap();
        symlink("docs", inside.join("link")).unwrap();
        assert_eq!(root.read("link/a.txt").unwrap(), "a");
        root.write("link/a.txt", "b", CALL).unwrap();
        assert_eq!(root.read("docs/a.txt").unwrap(), "b");
    }

    #[test]
    fn only_text_of_bounded_size_is_read_and_written() {
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
    fn a_write_replaces_what_an_interrupted_attempt_left_and_leaves_nothing_behind() {
        let dirs = dirs();
        let Dirs { root, inside, .. } = &dirs;
        fs::write(inside.join(format!("{UNFINISHED}{CALL}")), "half").unwrap();
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
    fn a_long_listing_is_cut_in_the_order_of_names() {
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
    fn a_root_must_be_a_directory_that_is_there() {
        let dirs = dirs();
        let Dirs { outside, .. } = &dirs;
        assert_eq!(FileRoot::open(outside.join("none")).unwrap_err().kind(), Kind::IoFailed);
        assert_eq!(FileRoot::open(outside.join("secret")).unwrap_err().kind(), Kind::IoFailed);
    }
}

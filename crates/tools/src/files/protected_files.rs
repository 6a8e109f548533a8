//! The files that no tool of a server may change.
use super::file_root::resolve_links;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The files that no tool of a server may change: its configuration, and the programs and documents of its agents.
///
/// Clones share one list. A file that is added later is also protected from roots that exist already.
#[derive(Clone, Debug, Default)]
pub struct ProtectedFiles(Arc<RwLock<BTreeMap<PathBuf, FileProtection>>>);

/// What tools may not do with a file. The later one is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileProtection {
    /// Tools may read it.
    ReadOnly,
    /// Tools may neither read nor write it.
    Denied,
}

impl ProtectedFiles {
    /// Denies tools these files, and directories with everything below them.
    ///
    /// A directory stays open to tools whose own root is this directory or is below it.
    pub fn deny(&self, paths: impl IntoIterator<Item = PathBuf>) {
        self.add(paths, FileProtection::Denied);
    }

    /// Lets tools read these files, but not write them.
    pub fn make_read_only(&self, paths: impl IntoIterator<Item = PathBuf>) {
        self.add(paths, FileProtection::ReadOnly);
    }

    /// Returns a protected file that a program could change if it may write to this file or directory.
    pub fn inside(&self, place: &Path) -> Option<PathBuf> {
        let place = resolve_links(place.to_owned());
        let files = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_inside = |file: &PathBuf| file.starts_with(&place) && (*file != place || !file.is_dir());
        files.keys().find(|file| is_inside(file)).cloned()
    }

    /// Returns how a file below a root is protected. Both paths contain no links.
    pub(super) fn protection(&self, root: &Path, file: &Path) -> Option<FileProtection> {
        let files = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let above = file.ancestors().take_while(|above| *above != root);
        above.filter_map(|path| files.get(path)).max().copied()
    }

    fn add(&self, paths: impl IntoIterator<Item = PathBuf>, protection: FileProtection) {
        let mut files = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A link is protected too, because replacing it changes the file.
        for path in paths.into_iter().flat_map(|path| [link_itself(&path), resolve_links(path)]) {
            let current = files.entry(path).or_insert(protection);
            *current = protection.max(*current);
        }
    }
}

/// Resolves the directory of a path, but not a link at its end.
fn link_itself(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent(), absolute.file_name()) {
        (Some(dir), Some(name)) => dir.canonicalize().map_or(absolute.clone(), |dir| dir.join(name)),
        _ => absolute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Creates files and directories in a temporary directory, and returns its path without links.
    fn files() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("work/app")).unwrap();
        fs::write(path.join("work/pay.sh"), "").unwrap();
        (dir, path)
    }

    #[test]
    fn protected_file_is_found_inside_its_directories() {
        let (_dir, path) = files();
        let protected = ProtectedFiles::default();
        protected.deny([path.join("work/./pay.sh"), path.join("new.toml")]);
        for (place, inside) in
            [("", true), ("work", true), ("work/pay.sh", true), ("new.toml", true), ("work/app", false)]
        {
            assert_eq!(protected.inside(&path.join(place)).is_some(), inside, "{place}");
        }
    }

    #[test]
    fn directory_protects_only_from_roots_above() {
        let (_dir, path) = files();
        let protected = ProtectedFiles::default();
        protected.deny([path.join("work/app")]);
        let file = path.join("work/app/main.py");
        for (root, denied) in [("", true), ("work", true), ("work/app", false)] {
            let root = path.join(root);
            assert_eq!(protected.protection(&root, &file).is_some(), denied, "{}", root.display());
            assert_eq!(protected.inside(&root).is_some(), denied, "{}", root.display());
        }
    }

    #[test]
    fn link_to_protected_file_is_protected_too() {
        let (_dir, path) = files();
        fs::create_dir(path.join("shed")).unwrap();
        symlink(path.join("work/pay.sh"), path.join("shed/pay")).unwrap();
        let protected = ProtectedFiles::default();
        protected.deny([path.join("shed/pay")]);
        assert_eq!(protected.inside(&path.join("shed")), Some(path.join("shed/pay")));
        assert_eq!(protected.inside(&path.join("work")), Some(path.join("work/pay.sh")));
    }

    #[test]
    fn stricter_protection_of_a_file_wins() {
        let (_dir, path) = files();
        let file = path.join("work/pay.sh");
        let protected = ProtectedFiles::default();
        protected.make_read_only([file.clone()]);
        assert_eq!(protected.protection(&path, &file), Some(FileProtection::ReadOnly));
        protected.deny([file.clone()]);
        protected.make_read_only([file.clone()]);
        assert_eq!(protected.protection(&path, &file), Some(FileProtection::Denied));
    }
}

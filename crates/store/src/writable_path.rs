//! Keeps the files of a database away from the paths that programs of an agent may write to.
use outlast_vocab::{Error, Kind};
use std::path::{Path, PathBuf};

/// Returns an error if a program that may write to `path` could change a file of the database. `program` names it in
/// the error, such as "the shell of the agent `clerk`".
pub fn check_writable_path(program: &str, path: &Path, database: &Path) -> Result<(), Error> {
    let place = resolve_links(path);
    if !contains_database(&place, database) {
        return Ok(());
    }
    let detail = format!(
        "{program} may change everything in {}, which contains the database {}; use separate directories",
        place.display(),
        database.display()
    );
    Err(Error::new(Kind::ConfigInvalid, detail))
}

/// Returns a path without symbolic links and relative parts, for the part of it that exists.
fn resolve_links(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolve_links(parent).join(name),
        _ => path,
    }
}

/// Returns whether a place contains a file of the database, or would after the database is created.
fn contains_database(place: &Path, database: &Path) -> bool {
    let database = std::path::absolute(database).unwrap_or_else(|_| database.to_owned());
    // If the database is opened through a symbolic link, the link needs the same protection as the file.
    let link = match (database.parent(), database.file_name()) {
        (Some(dir), Some(name)) => resolve_links(dir).join(name),
        _ => database.clone(),
    };
    [resolve_links(&database), link]
        .iter()
        .any(|file| file.starts_with(place) || is_database_sidecar(place, file))
}

/// Returns whether a place is, or is inside, a file or directory beside a database, such as `NAME-wal` or
/// `NAME-workers`.
fn is_database_sidecar(place: &Path, database: &Path) -> bool {
    let (Some(dir), Some(name)) = (database.parent(), database.file_name()) else { return false };
    let first = place.strip_prefix(dir).ok().and_then(|below| below.components().next());
    let ending =
        first.and_then(|first| first.as_os_str().as_encoded_bytes().strip_prefix(name.as_encoded_bytes()));
    ending.is_some_and(|ending| ending.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn writable_paths_that_hold_the_database_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("data")).unwrap();
        std::os::unix::fs::symlink("data/real.db", root.join("link.db")).unwrap();
        fs::write(root.join("data/real.db"), "").unwrap();
        for (place, database, holds) in [
            ("", "data/outlast.db", true),
            ("data", "data/outlast.db", true),
            ("data/outlast.db", "data/outlast.db", true),
            ("data/outlast.db-wal", "data/outlast.db", true),
            ("data/outlast.db-workers/x", "data/outlast.db", true),
            ("data", "link.db", true),
            ("link.db", "link.db", true),
            ("data/../data", "data/outlast.db", true),
            ("new", "new/outlast.db", true),
            ("data/notes", "data/outlast.db", false),
            ("data/outlast.dbx", "data/outlast.db", false),
            ("dat", "data/outlast.db", false),
        ] {
            let refused = check_writable_path("the shell", &root.join(place), &root.join(database)).is_err();
            assert_eq!(refused, holds, "{place} {database}");
        }
    }
}

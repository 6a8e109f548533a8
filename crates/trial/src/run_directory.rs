//! The directory of one run, which is deleted with its contents unless it is kept.
use outlast_ports::clock::Entropy;
use outlast_runtime::worker::system::SystemEntropy;
use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};

/// A directory that only this user can read. Dropping it deletes it.
pub(crate) struct RunDirectory {
    path: PathBuf,
    is_kept: bool,
}

impl RunDirectory {
    /// Creates a directory with a random name below another, which is created if it does not exist.
    pub(crate) fn create(below: &Path) -> io::Result<Self> {
        fs::create_dir_all(below)?;
        // Absolute, because the report shows it to people who may be in another directory.
        let below = std::path::absolute(below)?;
        let random = u128::from_le_bytes(SystemEntropy.random());
        let path = below.join(format!("outlast-trial-{random:032x}"));
        let mut directory = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
        // Fails if the path exists, so no other user can have prepared it.
        directory.create(&path)?;
        Ok(Self { path, is_kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory and returns its path.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        self.path.clone()
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if !self.is_kept {
            // Files that cannot be deleted are left to the operating system, as every temporary file is.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_directory_is_deleted_unless_kept() {
        let below = tempfile::tempdir().unwrap();
        let deleted = RunDirectory::create(below.path()).unwrap();
        fs::write(deleted.path().join("file"), "x").unwrap();
        drop(deleted);
        let is_kept = RunDirectory::create(&below.path().join("new")).unwrap().keep();
        let left: Vec<PathBuf> =
            fs::read_dir(below.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!((left, is_kept.is_dir()), (vec![below.path().join("new")], true));
    }
}

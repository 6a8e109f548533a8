//! `cargo xtask planted`: plants one bug at a time and checks that the test which guards against it fails.
//!
//! A bug is a patch in `xtask/planted`. Above the patch are a line that describes the bug and a line
//! `fails: PACKAGE TEST`. Bugs are planted in a separate working tree of the last commit.
use crate::command::{self, print_step};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The exit code of nextest if tests ran and some failed, as opposed to a failed build.
const TESTS_FAILED: i32 = 100;

/// Plants the requested bugs, or all.
pub(crate) fn run(root: &Path, args: &[String]) -> ExitCode {
    match PlantedBug::all(root)
        .and_then(|all| select_bugs(all, args))
        .and_then(|bugs| check_bugs(root, &bugs))
    {
        Ok(0) => ExitCode::SUCCESS,
        Ok(unseen) => {
            println!("\n{unseen} bugs were not seen by the check that should see them");
            ExitCode::FAILURE
        }
        Err(what) => {
            eprintln!("xtask planted: {what}");
            ExitCode::FAILURE
        }
    }
}

/// A bug to plant, and the test that must find it.
#[derive(Debug)]
struct PlantedBug {
    name: String,
    patch: PathBuf,
    what: String,
    package: String,
    test: String,
}

impl PlantedBug {
    fn all(root: &Path) -> Result<Vec<Self>, String> {
        let folder = root.join("xtask/planted");
        let found = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut bugs: Vec<Self> =
            found.flatten().map(|file| Self::read(file.path())).collect::<Result<_, _>>()?;
        bugs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(bugs)
    }

    fn read(patch: PathBuf) -> Result<Self, String> {
        let said = fs::read_to_string(&patch).map_err(|error| format!("{}: {error}", patch.display()))?;
        let mut lines = said.lines();
        let what = lines.next().unwrap_or_default().to_owned();
        let check = lines.next().and_then(|line| line.strip_prefix("fails: ")?.split_once(' '));
        let (package, test) = check.ok_or_else(|| {
            format!("{}: expected `fails: PACKAGE TEST` in its second line", patch.display())
        })?;
        let (package, test) = (package.to_owned(), test.to_owned());
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, patch, what, package, test })
    }
}

fn select_bugs(all: Vec<PlantedBug>, names: &[String]) -> Result<Vec<PlantedBug>, String> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|bug| bug.name != **name)) {
        let known: Vec<&str> = all.iter().map(|bug| bug.name.as_str()).collect();
        return Err(format!("expected one of {}, found `{unknown}`", known.join(", ")));
    }
    Ok(all.into_iter().filter(|bug| names.is_empty() || names.contains(&bug.name)).collect())
}

/// Plants the bugs. Returns how many were not found.
fn check_bugs(root: &Path, bugs: &[PlantedBug]) -> Result<usize, String> {
    let metadata = command::metadata(root)?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    let tree = BugWorktree::create(root, &Path::new(target).join("planted"))?;
    for bug in bugs {
        if tree.check(bug)? != Some(0) {
            return Err(format!("`{}` fails without the bug, so it would show nothing", bug.test));
        }
    }
    let mut unseen = 0;
    for bug in bugs {
        print_step(&format!("{}: {}", bug.name, bug.what));
        tree.git(&["apply", &bug.patch.to_string_lossy()])?;
        let checked = tree.check(bug)?;
        tree.git(&["checkout", "--quiet", "."])?;
        let seen = checked == Some(TESTS_FAILED);
        unseen += usize::from(!seen);
        println!("{:26} {} by {}", bug.name, if seen { "seen" } else { "NOT SEEN" }, bug.test);
    }
    Ok(unseen)
}

/// A working tree of the last commit for planting bugs. Dropping it removes it.
struct BugWorktree<'a> {
    root: &'a Path,
    files: PathBuf,
    built: PathBuf,
}

impl<'a> BugWorktree<'a> {
    fn create(root: &'a Path, place: &Path) -> Result<Self, String> {
        let tree = Self { root, files: place.join("tree"), built: place.join("target") };
        tree.remove();
        command::output(
            Command::new("git")
                .current_dir(root)
                .args(["worktree", "add", "--quiet", "--detach"])
                .arg(&tree.files)
                .arg("HEAD"),
        )?;
        Ok(tree)
    }

    fn git(&self, args: &[&str]) -> Result<String, String> {
        command::output(Command::new("git").current_dir(&self.files).args(args))
    }

    /// Returns the exit code of the bug's test.
    fn check(&self, bug: &PlantedBug) -> Result<Option<i32>, String> {
        let only = format!("test(/(^|::){}$/)", bug.test);
        let mut nextest = command::cargo(&self.files);
        nextest.args(["nextest", "run", "--locked", "--package", &bug.package, "-E", &only]);
        nextest.env("CARGO_TARGET_DIR", &self.built);
        let done = nextest.output().map_err(|error| format!("cargo nextest: {error}"))?;
        Ok(done.status.code())
    }

    fn remove(&self) {
        // Fails if there is nothing to remove, which is fine.
        let remove = ["worktree", "remove", "--force"];
        let _ = Command::new("git").current_dir(self.root).args(remove).arg(&self.files).output();
    }
}

impl Drop for BugWorktree<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // `tidy` checks the same without git, on each run; this test asks git itself.
    #[test]
    fn git_applies_every_bug() {
        let root = crate::root();
        for bug in PlantedBug::all(&root).unwrap() {
            let patch = bug.patch.to_string_lossy();
            let applies =
                command::output(Command::new("git").current_dir(&root).args(["apply", "--check", &patch]));
            assert_eq!(applies, Ok(String::new()), "{}", bug.name);
        }
    }

    #[test]
    fn unknown_bug_is_named() {
        let all = PlantedBug::all(&crate::root()).unwrap();
        let error = select_bugs(all, &["no-such-bug".to_owned()]).unwrap_err();
        assert!(error.ends_with("found `no-such-bug`"), "{error}");
    }
}

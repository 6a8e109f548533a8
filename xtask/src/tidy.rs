//! `cargo xtask tidy`: checks the rules of the repository.
//!
//! A rule is a function from texts to findings, so that its test can pass any text. Only this module reads the disk.
//! The rules: [`crates`] (allowed dependencies), [`features`], [`purity`], [`source`], [`sql`], [`pages`] (errors, decisions),
//! [`coverage`], [`links`], [`leaks`].
mod coverage;
mod crates;
mod features;
mod leaks;
mod links;
mod pages;
mod planted;
mod purity;
mod rust_source;
mod source;
mod sql;
mod summary;

use crate::command::{RELEASE_PROGRAMS, cargo, metadata, output};
use crates::WorkspacePackage;
use std::{
    fmt, fs,
    io::ErrorKind,
    path::Path,
    process::{Command, ExitCode},
};

/// Prints the violations.
pub(crate) fn run(root: &Path) -> ExitCode {
    match findings(root) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: every rule holds");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns every violation in the repository.
pub(crate) fn findings(root: &Path) -> Result<Vec<TidyFinding>, String> {
    let files = read_files(root)?;
    let packages = read_packages(root)?;
    let manifest =
        fs::read_to_string(root.join("Cargo.toml")).map_err(|error| format!("Cargo.toml: {error}"))?;
    let facade = read_manifest(root, "crates/outlast/Cargo.toml")?;
    let binary = read_manifest(root, "crates/cli/Cargo.toml")?;
    let tree = |packages: &[&str]| output(cargo(root).args(features::FEATURE_TREE).args(packages));
    Ok([
        crates::dependencies_are_allowed(&packages),
        crates::outside_crates_are_listed(&packages),
        crates::lints_are_shared(&packages, &manifest),
        features::default_crates_are_few(&facade, &output(cargo(root).args(features::DEFAULT_TREE))?),
        features::programs_share_features(&binary, &tree(&RELEASE_PROGRAMS[..1])?, &tree(&RELEASE_PROGRAMS)?),
        purity::pure_crates_are_pure(&files),
        source::modules_say_what_they_are_for(&files),
        source::nothing_is_left_undone(&files),
        source::other_systems_have_same_names(&files),
        sql::statements_are_written_whole(&files),
        pages::every_error_has_its_page(&files),
        pages::every_limit_is_in_the_guide(&files),
        pages::merges_are_finished(&files),
        pages::decisions_are_numbered(&files),
        pages::every_page_is_linked(&files),
        coverage::named_tests_exist(&files),
        planted::planted_bugs_apply(&files),
        links::links_lead_somewhere(&files),
        summary::every_page_is_in_the_summary(&files),
        summary::next_links_follow_the_summary(&files),
        leaks::no_machine_is_named(&files),
        leaks::crates_come_from_the_public_index(&files),
    ]
    .concat())
}

/// A violation: its location, what was expected and found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TidyFinding {
    file: String,
    line: usize,
    what: String,
}

impl TidyFinding {
    fn new(file: &RepoFile, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// A file of the repository, by its path from the root. The text of a binary file is empty.
#[derive(Clone, Debug)]
struct RepoFile {
    path: String,
    text: String,
}

impl RepoFile {
    fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    fn is_markdown(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "md")
    }

    /// Returns the lines, counted from one as in an editor.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// Reads every file that is in the repository or about to be added to it.
fn read_files(root: &Path) -> Result<Vec<RepoFile>, String> {
    // In a container the clone often belongs to another user, which git would refuse to read.
    let list = ["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = output(Command::new("git").current_dir(root).args(list))?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        match fs::read_to_string(root.join(path)) {
            Ok(text) => files.push(RepoFile { path: path.to_owned(), text }),
            // A binary file such as an image: links may point to it, but it has no text.
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                files.push(RepoFile { path: path.to_owned(), text: String::new() });
            }
            // Deleted, and not yet committed.
            Err(_) => {}
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}

fn read_manifest(root: &Path, path: &str) -> Result<RepoFile, String> {
    let text = fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
    Ok(RepoFile { path: path.to_owned(), text })
}

fn read_packages(root: &Path) -> Result<Vec<WorkspacePackage>, String> {
    crates::packages(&metadata(root)?, |path| {
        let below = Path::new(path).strip_prefix(root).map_err(|error| format!("{path}: {error}"))?;
        read_manifest(root, &below.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_its_rules() {
        let findings = findings(&crate::root()).unwrap();
        let lines: Vec<String> = findings.iter().map(TidyFinding::to_string).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }

    #[test]
    fn the_files_of_the_repository_are_found() {
        let files = read_files(&crate::root()).unwrap();
        assert!(files.iter().any(|file| file.path == "xtask/src/tidy.rs" && file.is_rust()));
    }

    #[test]
    fn finding_prints_file_and_line() {
        let file = RepoFile { path: "a.rs".into(), text: String::new() };
        assert_eq!(TidyFinding::new(&file, 3, "expected less").to_string(), "a.rs:3: expected less");
    }

    /// Creates files for a test.
    pub(super) fn files(texts: &[(&str, &str)]) -> Vec<RepoFile> {
        texts.iter().map(|(path, text)| RepoFile { path: (*path).into(), text: (*text).into() }).collect()
    }

    /// Checks the findings of a rule, one per line.
    #[track_caller]
    pub(super) fn expect(findings: &[TidyFinding], lines: &[&str]) {
        let found: Vec<String> = findings.iter().map(TidyFinding::to_string).collect();
        assert_eq!(found, lines);
    }
}

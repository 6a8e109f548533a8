//! `cargo xtask console`: builds the console, or checks that the committed build matches its sources.
//!
//! `console/dist` is part of the repository, so that `cargo build` needs no Node. Everything here needs Node, and
//! installs what is missing ([`crate::required_tools`]).
use crate::command::{self, run};
use crate::required_tools;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Builds `console/dist`. `--check` compares it with a fresh build, `--browser` runs the browser tests, and
/// `--pictures` retakes the pictures of the guide.
pub(crate) fn run_command(root: &Path, args: &[String]) -> ExitCode {
    if let Some(missing) = required_tools::install_for_console().into_iter().next() {
        eprintln!("console: {missing}");
        return ExitCode::FAILURE;
    }
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run_checked(&mut npm(root, "build")),
        ["--check"] => run_checked(&mut types(root)).and_then(|()| check(root)),
        ["--browser"] => browser(root).and_then(|mut tests| run_checked(&mut tests)),
        ["--pictures"] => with_binary(root, "pictures").and_then(|mut pictures| run_checked(&mut pictures)),
        _ => Err(format!("expected nothing, --check, --browser or --pictures; found `{}`", args.join(" "))),
    };
    done.map_or_else(
        |error| {
            eprintln!("console: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run_checked(command: &mut Command) -> Result<(), String> {
    if run(command).succeeded { Ok(()) } else { Err(format!("{} failed", command::command_line(command))) }
}

fn npm(root: &Path, script: &str) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(root.join("console")).args(["run", "--silent", script]);
    command
}

/// Returns the type check of the sources.
pub(crate) fn types(root: &Path) -> Command {
    npm(root, "check")
}

/// Returns the tests without a browser.
pub(crate) fn tests(root: &Path) -> Command {
    npm(root, "test")
}

/// Returns the browser tests.
pub(crate) fn browser(root: &Path) -> Result<Command, String> {
    with_binary(root, "browser")
}

/// Returns a script that tests the current binary in a browser.
fn with_binary(root: &Path, script: &str) -> Result<Command, String> {
    // With the features of the whole workspace, as the tests build it: they have compiled all of it already.
    run_checked(command::cargo(root).args(["build", "--locked", "--workspace", "--bin", "outlast"]))?;
    let target = command::target(root)?;
    let mut command = npm(root, script);
    command.env("OUTLAST_BINARY", target.join("debug/outlast"));
    Ok(command)
}

/// Builds the console and compares it with the committed build, byte by byte. Compressed files are compared by their
/// content, because another version of Node may compress differently.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let fresh = root.join("console/target/dist");
    let mut build = Command::new("node");
    build.current_dir(root.join("console")).arg("build.mjs").arg(&fresh);
    run_checked(&mut build)?;
    let differing = differing(&files(&root.join("console/dist"))?, &files(&fresh)?);
    if differing.is_empty() {
        return Ok(());
    }
    let names = differing.join(", ");
    Err(format!(
        "console/dist is not what its sources give ({names}); run `cargo xtask console` and commit it"
    ))
}

/// Returns the files of a directory by name. Compressed ones are decompressed.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        files.insert(name, content(&path)?);
    }
    Ok(files)
}

fn content(path: &PathBuf) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    if path.extension().is_none_or(|extension| extension != "gz") {
        return fs::read(path).map_err(wrong);
    }
    let unpacked =
        Command::new("gzip").args(["--decompress", "--stdout"]).arg(path).output().map_err(wrong)?;
    if unpacked.status.success() {
        Ok(unpacked.stdout)
    } else {
        Err(format!("{} cannot be unpacked", path.display()))
    }
}

/// Returns the names of files that differ.
fn differing(checked_in: &BTreeMap<String, Vec<u8>>, fresh: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut names: Vec<&String> = checked_in.keys().chain(fresh.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter(|name| checked_in.get(*name) != fresh.get(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_missing_and_stale_files_are_named() {
        let of = |files: &[(&str, &str)]| {
            files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
        };
        let checked_in = of(&[("a.js", "1"), ("b.js", "2"), ("old.js", "3")]);
        let fresh = of(&[("a.js", "1"), ("b.js", "4"), ("new.js", "5")]);
        assert_eq!(differing(&checked_in, &fresh), ["b.js", "new.js", "old.js"]);
        assert_eq!(differing(&checked_in, &checked_in), Vec::<String>::new());
    }
}

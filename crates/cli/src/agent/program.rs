//! A command as a list of words, the first of which is a program.
//!
//! No shell parses the words. Relative paths refer to the directory of the file that contains the command,
//! not to the working directory. A path is a program name with a slash, or a word that starts with `./` or
//! `../`.
use outlast::tools::command::Program;
use outlast::vocab::{Hash, canonical_json};
use std::path::{Path, PathBuf};

/// A command whose program was found.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedCommand {
    program: PathBuf,
    args: Vec<PathBuf>,
    passed_on: Vec<String>,
}

impl ResolvedCommand {
    /// Finds the program of a command. Relative paths refer to `home`.
    pub(crate) fn find(words: &[String], home: &Path) -> Result<Self, String> {
        let resolved = |word: &String| {
            let is_path = word.starts_with("./") || word.starts_with("../");
            if is_path { home.join(word) } else { PathBuf::from(word) }
        };
        let [name, args @ ..] = words else {
            return Err("expected a command of at least one word, got an empty one".to_owned());
        };
        let program = if name.contains('/') { home.join(name) } else { PathBuf::from(name) };
        if !is_there(&program) {
            let hint = if home.join(name).is_file() && !name.contains('/') {
                format!("; for the file next to the configuration, write `./{name}`")
            } else {
                String::new()
            };
            return Err(format!(
                "expected an executable program, but `{name}` is missing or not executable{hint}"
            ));
        }
        Ok(Self { program, args: args.iter().map(resolved).collect(), passed_on: Vec::new() })
    }

    /// Passes environment variables on to the program. Fails if one of them is not set.
    pub(crate) fn passing_on(mut self, names: &[String]) -> Result<Self, String> {
        if let Some(missing) = names.iter().find(|name| std::env::var_os(name).is_none()) {
            return Err(format!(
                "the environment variable `{missing}`, which is passed to the program, is not set"
            ));
        }
        self.passed_on.extend_from_slice(names);
        Ok(self)
    }

    /// Passes the whole environment on to the program.
    pub(crate) fn passing_on_all(mut self) -> Self {
        self.passed_on.extend(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()));
        self
    }

    /// Returns the files that the command names: its program and all arguments that are paths.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let named = std::iter::once(&self.program).chain(&self.args);
        named.filter(|path| path.components().count() > 1).cloned()
    }

    /// Returns the program, to be run in `dir`.
    pub(crate) fn in_dir(&self, dir: &Path) -> Program {
        Program {
            program: self.program.clone().into(),
            args: self.args.iter().map(|arg| arg.clone().into()).collect(),
            dir: dir.to_owned(),
            passed_env: self.passed_on.clone(),
        }
    }
}

/// Returns the files that a command names, even if its program does not exist. Relative paths refer to `home`.
pub(crate) fn named_files(words: &[String], home: &Path) -> Vec<PathBuf> {
    let files = whole(words, home).into_iter().map(PathBuf::from);
    files.filter(|path| path.components().count() > 1).collect()
}

/// Returns the words with absolute paths, which mean the same in every directory.
pub(crate) fn whole(words: &[String], home: &Path) -> Vec<String> {
    let made = |(at, word): (usize, &String)| {
        let is_path = word.starts_with("./") || word.starts_with("../") || (at == 0 && word.contains('/'));
        if is_path { home.join(word).display().to_string() } else { word.clone() }
    };
    words.iter().enumerate().map(made).collect()
}

/// Returns the fingerprint of a command with absolute paths and the names of its environment variables,
/// without their values.
pub(crate) fn made_of(words: &[String], env: &[String]) -> Hash {
    canonical_json::fingerprint(&(words, env))
}

/// Returns whether a program exists and is executable. A bare name is searched in `PATH`.
pub(crate) fn is_there(program: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let runs = |place: &Path| {
        std::fs::metadata(place).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.components().count() > 1 {
        return runs(program);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| runs(&dir.join(program)))
}

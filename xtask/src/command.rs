//! Runs other programs: prints the command, shows its output, and captures it.
use serde_json::Value;
use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

/// The binary, and the programs that measure and torture it. Each is built together with the binary, so that all of them
/// have the same features and no crate is compiled twice (`tidy` checks that the binary alone has them, too).
pub(crate) const RELEASE_PROGRAMS: [&str; 3] =
    ["--package=outlast-cli", "--package=outlast-bench", "--package=outlast-torture"];

/// Returns the cargo that started us, in the directory of the workspace, with the environment of a shell.
///
/// `cargo run` describes xtask in variables. The build script of `ring` runs again if these change, and everything above
/// it would be compiled again whenever xtask and a shell take turns.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        let describes_xtask = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
        });
        if describes_xtask {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the command for a program of the workspace, built in a profile; arguments may follow.
pub(crate) fn program(root: &Path, package: &str, profile: &str) -> Command {
    let mut command = cargo(root);
    command.args(["run", "--profile", profile, "--locked", "--package", package, "--"]);
    command
}

/// The combined output of a program, and whether it succeeded.
pub(crate) struct CommandOutcome {
    pub(crate) succeeded: bool,
    pub(crate) output: String,
}

/// Runs a program to its end. If it cannot be started, it counts as failed, and its output says why.
pub(crate) fn run(command: &mut Command) -> CommandOutcome {
    print_step(&command_line(command));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let output = format!("cannot start {}: {error}", command.get_program().to_string_lossy());
            eprintln!("{output}");
            return CommandOutcome { succeeded: false, output };
        }
    };
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let out = thread::spawn(move || forward_lines(stdout, &mut io::stdout()));
    let mut output = forward_lines(stderr, &mut io::stderr());
    output.push_str(&out.join().expect("passing on lines does not panic"));
    CommandOutcome { succeeded: child.wait().is_ok_and(|status| status.success()), output }
}

/// Returns the metadata of the workspace.
pub(crate) fn metadata(root: &Path) -> Result<Value, String> {
    let metadata = output(cargo(root).args(["metadata", "--no-deps", "--format-version", "1"]))?;
    serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))
}

/// Returns cargo's target directory.
pub(crate) fn target(root: &Path) -> Result<PathBuf, String> {
    let metadata = metadata(root)?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(target.into())
}

/// Returns the output of a program that succeeded.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command_line(command);
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{name}: {error}"))
}

/// Prints the next step.
pub(crate) fn print_step(what: &str) {
    println!("==> {what}");
}

/// Formats the command as a person would type it.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut line = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// Shows each line as it arrives and returns them all. Stops at the first one that cannot be read.
fn forward_lines(from: impl Read, to: &mut impl Write) -> String {
    let mut from = BufReader::new(from);
    let mut all = String::new();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        // Our own reader may be gone; the program still has to run to its end.
        let _ = to.write_all(&line);
        all.push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn stdout_and_stderr_are_captured() {
        let finished = run(Command::new("sh").args(["-c", "echo one; echo two >&2; exit 3"]));
        assert_eq!((finished.succeeded, finished.output.as_str()), (false, "two\none\n"));
    }

    #[test]
    fn missing_program_counts_as_failed() {
        let finished = run(&mut Command::new("no-such-program-anywhere"));
        assert!(!finished.succeeded);
    }

    #[test]
    fn cargo_gets_no_variables_about_xtask() {
        assert_eq!(env::var("CARGO_PKG_NAME").as_deref(), Ok("xtask"), "cargo describes the tested crate");
        let cargo = cargo(Path::new("."));
        let removed = |name| cargo.get_envs().any(|variable| variable == (OsStr::new(name), None));
        assert!(removed("CARGO_PKG_NAME") && removed("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn command_prints_as_it_would_be_typed() {
        assert_eq!(command_line(Command::new("/usr/bin/cargo").args(["fmt", "--all"])), "cargo fmt --all");
    }
}

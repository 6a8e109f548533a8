//! `cargo xtask fuzz`: runs each fuzz target under libFuzzer for a while, on the stable toolchain.
//!
//! The targets are in `testing/fuzz`, their seeds in `fuzz/corpus/TARGET`. libFuzzer needs branch coverage. LLVM's
//! coverage pass provides it, and stable rustc runs that pass if the right flags are set.
use crate::{
    command::{self, print_step},
    required_tools,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The flags that make rustc record coverage for libFuzzer: edge counters, a table of their locations, and compared
/// values.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The default seconds per target.
const SECONDS: u64 = 60;

/// A fault that a guided search finds quickly, and an unguided one never.
const PLANTED: &str = "planted";
const PLANTED_SECONDS: u64 = 120;

/// Further seeds outside the corpus.
const MORE_SEEDS: &[(&str, &str)] = &[("record", "crates/vocab/tests/fixtures/v1")];

/// Builds the targets, proves that the search is guided, and runs the requested targets, or all.
pub(crate) fn run(root: &Path, args: &[String]) -> ExitCode {
    let outcome = targets(root).and_then(|all| FuzzRequest::read(args, &all));
    let request = match outcome {
        Ok(request) => request,
        Err(what) => {
            eprintln!("xtask fuzz: {what}");
            return ExitCode::from(2);
        }
    };
    match fuzz(root, &request) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(found) => {
            println!("\n{found} of {} targets found something", request.targets.len());
            ExitCode::FAILURE
        }
        Err(what) => {
            eprintln!("xtask fuzz: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Returns every target except the planted one, from the programs in `fuzz/src/bin`.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/src/bin");
    let found = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let stems = found.flatten().filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = stems.filter(|name| name != PLANTED).collect();
    names.sort();
    Ok(names)
}

/// The targets to run, and for how long.
#[derive(Debug, PartialEq, Eq)]
struct FuzzRequest {
    seconds: u64,
    targets: Vec<String>,
}

impl FuzzRequest {
    fn read(args: &[String], all: &[String]) -> Result<Self, String> {
        let mut request = Self { seconds: SECONDS, targets: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--seconds" {
                let number = args.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                request.seconds = number.ok_or("expected a number of seconds after `--seconds`, like 60")?;
            } else if all.contains(arg) {
                request.targets.push(arg.clone());
            } else {
                return Err(format!("expected one of {}, found `{arg}`", all.join(", ")));
            }
        }
        if request.targets.is_empty() {
            request.targets = all.to_vec();
        }
        Ok(request)
    }
}

/// Runs the targets. Returns how many found something.
fn fuzz(root: &Path, request: &FuzzRequest) -> Result<usize, String> {
    if let Some(missing) = required_tools::install_for_fuzzing().into_iter().next() {
        return Err(missing);
    }
    let made =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("fuzz");
    let programs = build(root, &made)?;
    let laid = FuzzRun { root, programs, generated: made.join("corpus") };
    laid.check_guided(&made)?;
    let mut found = 0;
    for target in &request.targets {
        let crashes = root.join("fuzz/crashes");
        let outcome = laid.run_target(target, request.seconds, &crashes)?;
        println!("{target:16} {}", outcome.summary);
        if outcome.failed {
            found += 1;
            println!("{}\n{}", outcome.tail, next_steps(target, outcome.crash_file.as_deref()));
        }
    }
    Ok(found)
}

/// Builds every program and returns their directory.
fn build(root: &Path, made: &Path) -> Result<PathBuf, String> {
    let host = host()?;
    let mut cargo = command::cargo(&root.join("fuzz"));
    // Not `--locked`: when a crate of the main workspace needs a new dependency, this lock file follows here.
    // With `--target`, cargo does not apply the flags to build scripts.
    cargo.args(["build", "--release", "--bins", "--target", &host, "--target-dir"]).arg(made);
    cargo.env("RUSTFLAGS", COVERAGE.join(" ")).env_remove("CARGO_ENCODED_RUSTFLAGS");
    if command::run(&mut cargo).succeeded {
        Ok(made.join(host).join("release"))
    } else {
        Err("the targets do not build; what cargo says is above".to_owned())
    }
}

fn host() -> Result<String, String> {
    let rustc = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc -vV: {error}"))?;
    let said = String::from_utf8_lossy(&rustc.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| format!("rustc -vV: expected a line `host: …`, found:\n{said}"))
}

/// The paths of a run.
struct FuzzRun<'a> {
    root: &'a Path,
    programs: PathBuf,
    generated: PathBuf,
}

impl FuzzRun<'_> {
    /// Fails unless the planted fault is found. Otherwise an unguided search would look like a clean run.
    fn check_guided(&self, made: &Path) -> Result<(), String> {
        let outcome = self.run_target(PLANTED, PLANTED_SECONDS, &made.join("planted"))?;
        println!("{PLANTED:16} {}", outcome.summary);
        if outcome.failed && outcome.tail.contains("found what was hidden") {
            return Ok(());
        }
        let what = "the planted fault was not found, so the search is not guided by coverage; does this toolchain take \
                    the flags in xtask/src/fuzz.rs?";
        Err(format!("{}\n{what}", outcome.tail))
    }

    /// Runs a target for this many seconds, or until it finds something, which is written to `crashes`.
    fn run_target(&self, target: &str, seconds: u64, crashes: &Path) -> Result<FuzzOutcome, String> {
        // The inputs that the planted target generates would let the next run find it without searching.
        let generated = self.generated.join(target);
        if target == PLANTED && generated.exists() {
            fs::remove_dir_all(&generated).map_err(|error| format!("{}: {error}", generated.display()))?;
        }
        for folder in [&generated, crashes] {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let mut program = Command::new(self.programs.join(target));
        program.current_dir(self.root).env("RUST_BACKTRACE", "0");
        program.args(["-print_final_stats=1", "-timeout=10"]);
        program.arg(format!("-max_total_time={seconds}"));
        // The planted input has eight bytes; longer inputs only make it harder to find.
        program.arg(format!("-max_len={}", if target == PLANTED { 16 } else { 4_096 }));
        // Relative to the root, so that printed commands work there.
        let crashes = crashes.strip_prefix(self.root).unwrap_or(crashes);
        program.arg(format!("-artifact_prefix={}/{target}-", crashes.display()));
        // New inputs go to the first of these, which is not in git.
        program.arg(&generated).arg(Path::new("fuzz/corpus").join(target));
        program.args(MORE_SEEDS.iter().filter(|(of, _)| *of == target).map(|(_, folder)| folder));
        print_step(&format!("{target} for {seconds} s"));
        let output = program.output().map_err(|error| format!("{target} does not start: {error}"))?;
        Ok(FuzzOutcome::read(&String::from_utf8_lossy(&output.stderr), output.status.success()))
    }
}

/// The result of a run.
struct FuzzOutcome {
    failed: bool,
    summary: String,
    /// The last lines of the output.
    tail: String,
    /// The file with the failing input.
    crash_file: Option<String>,
}

impl FuzzOutcome {
    /// Parses the output of libFuzzer.
    fn read(said: &str, succeeded: bool) -> Self {
        let stat = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map_or("?", str::trim);
        let mut grown = said.lines().filter(|line| line.contains(" cov: "));
        let first = grown.next().unwrap_or_default();
        let last = grown.next_back().unwrap_or(first);
        let summary = format!(
            "{} runs, {}/s, cov {} to {}, {} inputs",
            stat("stat::number_of_executed_units:"),
            stat("stat::average_exec_per_sec:"),
            word_after(first, "cov:"),
            word_after(last, "cov:"),
            word_after(last, "corp:").split('/').next().unwrap_or("?"),
        );
        let lines: Vec<&str> = said.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        let written = said.lines().find_map(|line| line.split_once("Test unit written to "));
        Self { failed: !succeeded, summary, tail, crash_file: written.map(|(_, path)| path.to_owned()) }
    }
}

fn word_after<'a>(line: &'a str, word: &str) -> &'a str {
    let mut words = line.split_whitespace();
    words.find(|found| *found == word).and_then(|_| words.next()).unwrap_or("?")
}

fn next_steps(target: &str, written: Option<&str>) -> String {
    let file = written.unwrap_or("FILE");
    format!(
        "to see it again: cargo run -p outlast-fuzz -- {target} {file}\nonce it is mended, keep it as a test: \
         mv {file} fuzz/corpus/{target}/WHAT_IT_WAS"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<FuzzRequest, String> {
        let all = ["id", "record"].map(str::to_owned);
        FuzzRequest::read(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>(), &all)
    }

    #[track_caller]
    fn check(args: &[&str], seconds: u64, targets: &[&str]) {
        let targets = targets.iter().map(|target| (*target).to_owned()).collect();
        assert_eq!(read(args), Ok(FuzzRequest { seconds, targets }));
    }

    #[test]
    fn without_a_name_every_target_runs() {
        check(&[], 60, &["id", "record"]);
        check(&["--seconds", "3"], 3, &["id", "record"]);
        check(&["record", "--seconds", "3"], 3, &["record"]);
    }

    #[test]
    fn invalid_fuzz_arguments_name_what_was_expected() {
        assert_eq!(read(&["recrod"]), Err("expected one of id, record, found `recrod`".to_owned()));
        for args in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "soon"]] {
            let expected = "expected a number of seconds after `--seconds`, like 60";
            assert_eq!(read(args), Err(expected.to_owned()));
        }
    }

    #[test]
    fn target_list_omits_the_planted_program() {
        let all = targets(&crate::root()).unwrap();
        assert!(all.contains(&"record".to_owned()) && !all.contains(&PLANTED.to_owned()));
    }

    #[test]
    fn fuzz_output_is_summarised() {
        let said = "\
#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb
#77\tNEW    cov: 42 ft: 50 corp: 7/90b lim: 4 exec/s: 0 rss: 31Mb L: 3/3 MS: 1 ChangeByte-
stat::number_of_executed_units: 77
stat::average_exec_per_sec:     38
";
        let outcome = FuzzOutcome::read(said, true);
        assert_eq!((outcome.failed, outcome.crash_file), (false, None));
        assert_eq!(outcome.summary, "77 runs, 38/s, cov 10 to 42, 7 inputs");
    }

    #[test]
    fn finding_names_its_file_and_reproduction_command() {
        let said = "artifact_prefix='/r/fuzz/crashes/id-'; Test unit written to /r/fuzz/crashes/id-crash-1\n";
        let outcome = FuzzOutcome::read(said, false);
        assert_eq!(
            (outcome.failed, outcome.crash_file.as_deref()),
            (true, Some("/r/fuzz/crashes/id-crash-1"))
        );
        assert_eq!(
            next_steps("id", outcome.crash_file.as_deref()),
            "to see it again: cargo run -p outlast-fuzz -- id /r/fuzz/crashes/id-crash-1\nonce it is mended, keep it as \
             a test: mv /r/fuzz/crashes/id-crash-1 fuzz/corpus/id/WHAT_IT_WAS"
        );
    }
}

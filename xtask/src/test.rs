//! `cargo xtask test`: every check and every test, on a machine that has only Rust.
//!
//! The last line counts tests. A failed step without tests (format, lints, tidy, a build) counts as one failure, so the
//! line never says `0 failed` if something failed.
use crate::{
    command::{self, CommandOutcome, print_step},
    console, required_tools, tidy,
};
use std::{
    fmt,
    ops::AddAssign,
    path::Path,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

/// The time for crash points in `cargo xtask test`. `cargo xtask sim` tries all of them.
const SIMULATOR_SECONDS: &str = "120";

/// What the tests need built. Examples are left out: a test contains them, and linking each takes seconds.
const TEST_TARGETS: &[&str] = &["--workspace", "--locked", "--lib", "--bins", "--tests"];

/// Tests that run at the same time, for each core. Most of them wait for a disk, a timer or another program.
const TESTS_PER_CORE: usize = 4;

/// Runs everything. With `--quick`, runs the lints and the quick tests. With filters, runs only the tests whose names
/// contain one of them.
pub(crate) fn run(root: &Path, filters: &[String]) -> ExitCode {
    let mut report = StepReport::default();
    if filters == ["--quick"] {
        // Installs nothing: these tests need only Rust.
        if !has_nextest() {
            report.failed_step("--quick needs cargo-nextest: cargo install cargo-nextest --locked");
            return report.print_summary();
        }
        report.lints(root);
        report.rust_tests(root, &["--profile".to_owned(), "quick".to_owned()]);
        return report.print_summary();
    }
    report.install("install what the build needs", required_tools::install_for_build);
    if filters.is_empty() {
        everything(root, &mut report);
    } else {
        report.install("install what the tests need", required_tools::install_for_tests);
        report.rust_tests(root, filters);
    }
    report.print_summary()
}

/// Runs every check and every test. Steps that do not need cargo run beside those that compile.
fn everything(root: &Path, report: &mut StepReport) {
    let beside = |report: &mut StepReport| {
        report.install("install what the tests need", required_tools::install_for_tests);
        report.console_sources(root);
    };
    report.beside(beside, |report| {
        report.lints(root);
        if has_nextest() {
            report.check(command::cargo(root).args(["nextest", "run", "--no-run"]).args(TEST_TARGETS));
        }
    });
    report.rust_tests(root, &[]);
    let browser = console::browser(root);
    let browser = |report: &mut StepReport| match browser {
        Ok(mut tests) => report.tests(Runner::Node, &mut tests),
        Err(error) => report.failed_step(&error),
    };
    report.beside(browser, |report| {
        let doc_tests = ["test", "--workspace", "--doc", "--locked", "--no-fail-fast"];
        report.tests(Runner::CargoTest, command::cargo(root).args(doc_tests));
        // Cedar is off by default, so its feature is checked and tested separately. It makes the JSON objects and the
        // futures of all crates larger, so only its own crate is linted.
        let on = ["check", "-p", "outlast-cli", "--all-targets", "--locked", "--features", "cedar"];
        report.check(command::cargo(root).args(on));
        let lints = ["clippy", "--no-deps", "-p", "outlast-cedar", "--all-targets", "--locked"];
        report.check(command::cargo(root).args(lints).args(["--features", "engine", "--", "-D", "warnings"]));
        let cedar = ["test", "-p", "outlast-cedar", "--features", "engine", "--locked", "--no-fail-fast"];
        report.tests(Runner::CargoTest, command::cargo(root).args(cedar));
        // Kills every scenario at as many points as the time allows, then plays 2,000 seeds. Points around
        // transactions are always tried; the others rotate each day.
        let limit = ["--exhaustive-seconds", SIMULATOR_SECONDS];
        report.check(command::program(root, "outlast-sim", "sim").args(limit));
    });
}

/// Whether nextest is installed. It is not installed for the tests, because building it would take longer than they do.
fn has_nextest() -> bool {
    required_tools::is_installed(&["cargo", "nextest", "--version"])
}

/// Returns the command for the tests of the workspace. The arguments are filters, or options of nextest.
fn test_command(root: &Path, arguments: &[String]) -> (Runner, Command) {
    let mut command = command::cargo(root);
    if has_nextest() {
        let threads = thread::available_parallelism().map_or(1, usize::from) * TESTS_PER_CORE;
        command.args(["nextest", "run"]).args(TEST_TARGETS);
        command.arg("--no-fail-fast").arg(format!("--test-threads={threads}")).args(arguments);
        return (Runner::Nextest, command);
    }
    print_step("cargo-nextest is not installed; using cargo test");
    command.arg("test").args(TEST_TARGETS).args(["--no-fail-fast", "--"]).args(arguments);
    (Runner::CargoTest, command)
}

/// A test runner. Each has its own summary format. Nextest also shows the other's summary if a test fails.
#[derive(Clone, Copy)]
enum Runner {
    Nextest,
    CargoTest,
    Node,
}

/// The steps so far, their durations, and the failures.
#[derive(Default)]
struct StepReport {
    count: TestCount,
    failed_steps: Vec<String>,
    times: Vec<(String, Duration)>,
}

impl StepReport {
    /// Runs a step and records its duration.
    fn timed<T>(&mut self, step: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let began = Instant::now();
        let outcome = run(self);
        self.times.push((step.to_owned(), began.elapsed()));
        outcome
    }

    fn run(&mut self, command: &mut Command) -> CommandOutcome {
        self.timed(&command::command_line(command), |_| command::run(command))
    }

    /// Runs two groups of steps at the same time.
    fn beside(&mut self, beside: impl FnOnce(&mut Self) + Send, steps: impl FnOnce(&mut Self)) {
        let other = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut report = Self::default();
                beside(&mut report);
                report
            });
            steps(self);
            other.join().expect("steps do not panic")
        });
        self.count += other.count;
        self.failed_steps.extend(other.failed_steps);
        let times = other.times.into_iter();
        self.times.extend(times.map(|(step, time)| (format!("{step} (beside the steps above)"), time)));
    }

    fn install(&mut self, step: &str, install: impl FnOnce() -> Vec<String>) {
        for missing in self.timed(step, |_| install()) {
            self.failed_step(&missing);
        }
    }

    fn rust_tests(&mut self, root: &Path, arguments: &[String]) {
        let (runner, mut tests) = test_command(root, arguments);
        self.tests(runner, &mut tests);
    }

    /// Runs a step that succeeds or fails.
    fn check(&mut self, command: &mut Command) {
        if !self.run(command).succeeded {
            self.failed_step(&command::command_line(command));
        }
    }

    /// Format, clippy and the rules of the repository.
    fn lints(&mut self, root: &Path) {
        self.check(command::cargo(root).args(["fmt", "--all", "--", "--check"]));
        self.check(command::cargo(&root.join("fuzz")).args(["fmt", "--", "--check"]));
        let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        self.check(command::cargo(root).args(clippy));
        // The façade without features, and with those of a program that only names it. All other steps have all of them.
        let facade = ["clippy", "--locked", "--package=outlast"];
        for features in [&["--no-default-features"][..], &[]] {
            self.check(command::cargo(root).args(facade).args(features).args(["--", "-D", "warnings"]));
        }
        self.tidy(root);
    }

    fn tidy(&mut self, root: &Path) {
        print_step("tidy");
        match self.timed("tidy", |_| tidy::findings(root)) {
            Ok(findings) if findings.is_empty() => {}
            Ok(findings) => {
                for finding in &findings {
                    println!("{finding}");
                }
                self.failed_step("tidy: the findings above");
            }
            Err(error) => self.failed_step(&format!("tidy: {error}")),
        }
    }

    /// Checks the console without a browser: its types, its tests, and its committed build.
    fn console_sources(&mut self, root: &Path) {
        self.check(&mut console::types(root));
        self.tests(Runner::Node, &mut console::tests(root));
        let checked = self.timed("compare console/dist with its sources", |_| console::check(root));
        if let Err(error) = checked {
            self.failed_step(&error);
        }
    }

    /// Runs a step that contains tests.
    fn tests(&mut self, runner: Runner, command: &mut Command) {
        let finished = self.run(command);
        self.add(runner, &finished, &command::command_line(command));
    }

    fn add(&mut self, runner: Runner, finished: &CommandOutcome, step: &str) {
        let count = TestCount::read(runner, &finished.output);
        self.count += count;
        // A failed build, or a filter that matches no test.
        if !finished.succeeded && count.failed == 0 {
            self.failed_step(step);
        }
    }

    fn failed_step(&mut self, step: &str) {
        self.count.failed += 1;
        self.failed_steps.push(step.to_owned());
    }

    fn print_summary(self) -> ExitCode {
        println!();
        for (step, time) in &self.times {
            println!("{:>5} s  {step}", time.as_secs());
        }
        for step in &self.failed_steps {
            println!("failed: {step}");
        }
        println!("{}", self.count);
        if self.count.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The number of passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TestCount {
    passed: usize,
    failed: usize,
}

impl TestCount {
    /// Adds up the summaries in the runner's output.
    fn read(runner: Runner, output: &str) -> Self {
        let mut all = Self::default();
        for line in output.lines().map(without_colour) {
            let (begins, ends) = match runner {
                Runner::Nextest => ("Summary [", " run: "),
                Runner::CargoTest => ("test result: ", ". "),
                Runner::Node => {
                    all += Self::read_tap(&line);
                    continue;
                }
            };
            let summary = line.trim_start().strip_prefix(begins).and_then(|rest| rest.split_once(ends));
            if let Some((_, summary)) = summary {
                all += Self::read_summary(summary);
            }
        }
        all
    }

    /// Parses `# pass 3` or `# fail 1`, the last lines of Node's test output.
    fn read_tap(line: &str) -> Self {
        let number =
            |word| line.strip_prefix(word).and_then(|number| number.trim().parse().ok()).unwrap_or(0);
        Self { passed: number("# pass "), failed: number("# fail ") + number("# cancelled ") }
    }

    /// Parses `3 passed (1 slow), 1 failed, 1 timed out, 0 skipped` or `3 passed; 1 failed; 0 ignored`.
    fn read_summary(summary: &str) -> Self {
        let mut count = Self::default();
        for part in summary.split([',', ';']) {
            let Some((number, what)) = part.trim().split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            if what.starts_with("passed") {
                count.passed += number;
            } else if ["failed", "timed out", "exec failed"].iter().any(|way| what.starts_with(way)) {
                count.failed += number;
            }
        }
        count
    }
}

impl AddAssign for TestCount {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
    }
}

impl fmt::Display for TestCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Returns the line without escape sequences from a terminal or `CARGO_TERM_COLOR=always`.
fn without_colour(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push_str(piece.split_once('m').map_or("", |(_, text)| text));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(runner: Runner, output: &str, expected: &str) {
        assert_eq!(TestCount::read(runner, output).to_string(), expected);
    }

    #[test]
    fn nextest_summary_is_counted() {
        let output = "------------\n     Summary [   0.016s] 3 tests run: 3 passed, 1 skipped\n";
        check(Runner::Nextest, output, "3 passed, 0 failed");
        let output = "     Summary [   0.016s] 1 test run: 1 passed (1 slow), 0 skipped\n";
        check(Runner::Nextest, output, "1 passed, 0 failed");
        let output =
            "Summary [   9s] 7/9 tests run: 3 passed, 2 failed, 1 timed out, 1 exec failed, 4 skipped\n";
        check(Runner::Nextest, output, "3 passed, 4 failed");
    }

    #[test]
    fn coloured_summary_is_counted() {
        let output = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m2\u{1b}[0m tests run: \u{1b}[1m2\u{1b}[0m passed";
        check(Runner::Nextest, output, "2 passed, 0 failed");
    }

    #[test]
    fn cargo_test_summaries_are_summed() {
        let output = "\
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";
        check(Runner::CargoTest, output, "3 passed, 3 failed");
    }

    #[test]
    fn failed_nextest_with_full_output_counts_once() {
        let output = "\
    test result: FAILED. 0 passed; 1 failed; 0 ignored
     Summary [   0.016s] 2 tests run: 1 passed, 1 failed, 0 skipped
";
        check(Runner::Nextest, output, "1 passed, 1 failed");
    }

    #[test]
    fn node_test_summary_is_counted() {
        let output =
            "# Subtest: a # pass 7\nok 1 - a\n# tests 4\n# pass 2\n# fail 1\n# cancelled 1\n# skipped 0\n";
        check(Runner::Node, output, "2 passed, 2 failed");
    }

    fn failed(output: &str) -> CommandOutcome {
        CommandOutcome { succeeded: false, output: output.to_owned() }
    }

    #[test]
    fn failed_build_counts_as_one_failure() {
        let mut report = StepReport::default();
        report.add(Runner::Nextest, &failed("error: could not compile"), "the tests");
        assert_eq!((report.count.failed, report.failed_steps), (1, vec!["the tests".to_owned()]));
    }

    #[test]
    fn step_with_failed_tests_adds_no_failure() {
        let mut report = StepReport::default();
        report.add(
            Runner::CargoTest,
            &failed("test result: FAILED. 1 passed; 2 failed; 0 ignored"),
            "the tests",
        );
        assert_eq!((report.count, report.failed_steps), (TestCount { passed: 1, failed: 2 }, vec![]));
    }
}

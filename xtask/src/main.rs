//! The project's commands: `cargo xtask test`, `tidy`, `fuzz`, `bench`, `sim`, `torture`, `proof`, `planted`,
//! `console`, `book`.
//!
//! Uses no crate of the workspace, so that it still builds and reports errors if they do not build.
mod book;
mod command;
mod console;
mod fuzz;
mod markdown;
mod planted;
mod required_tools;
mod test;
mod tidy;

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [FILTER…]   runs every check and every test, and installs what they need; prints the time of
                   each step; with a FILTER only the tests whose names contain it
  test --quick     runs the lints and the fast tests
  tidy             checks the rules of the repository: dependencies, purity, pages, links
  fuzz [--seconds N] [TARGET…]
                   searches for inputs that make a decoder or parser panic: each target for
                   N seconds (60); needs a C++ compiler and installs one
  bench [--dist] [ARGS…]
                   measures Outlast as `cargo build --release` builds it, or with --dist as it ships; ARGS go to the
                   benchmark (--quick)
  sim [ARGS…]      crashes the whole system on a simulated machine: every scenario at every point, then
                   2,000 seeds; ARGS go to the simulator (--seeds N, --minutes M, --scenario S, --seed S)
  torture [--kills N] [--minutes M] [--seed S] [--round R] [--json FILE] [--dir DIR]
                   kills the real binary at random times (1000 by default) and compares its journal with an
                   independent witness; see docs/guide/torture.md
  proof [KILLS]    runs torture (1000 kills by default) and the simulator, and writes the results to
                   docs/proof.md
  planted [BUG…]   adds one known bug at a time to a copy of the source, and checks that the test
                   that guards it fails; the bugs are in xtask/planted
  console [--check | --browser | --pictures]
                   builds the console into console/dist; --check compares it with a fresh build,
                   --browser runs the browser tests, --pictures takes the images of the guide
  book             builds the documentation as a web site with search, in target/book; installs mdBook the first time
  help             prints this text
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map_or("", String::as_str) {
        "test" => test::run(&root(), rest),
        "tidy" if rest.is_empty() => tidy::run(&root()),
        "bench" => bench(rest),
        "sim" => program("outlast-sim", "sim", rest),
        "torture" => torture(rest),
        "proof" => proof(rest),
        "fuzz" => fuzz::run(&root(), rest),
        "planted" => planted::run(&root(), rest),
        "console" => console::run_command(&root(), rest),
        "book" if rest.is_empty() => book::run_command(&root()),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!(
                "xtask: expected one of test, tidy, fuzz, bench, sim, torture, proof, planted, console, book, help; found `{}`\n\n{USAGE}",
                args.join(" ")
            );
            ExitCode::from(2)
        }
    }
}

/// Runs a program of the workspace.
fn program(package: &str, profile: &str, args: &[String]) -> ExitCode {
    exit_code(hand_over(command::program(&root(), package, profile).args(args)))
}

/// Runs the benchmark with the current binary. With `--dist`, measures what ships.
fn bench(args: &[String]) -> ExitCode {
    match args.split_first() {
        Some((dist, args)) if dist == "--dist" => exit_code(built_program("outlast-bench", "dist", args)),
        _ => exit_code(built_program("outlast-bench", "release", args)),
    }
}

/// Runs the torture test, which finds the binary beside itself.
fn torture(args: &[String]) -> ExitCode {
    exit_code(built_program("outlast-torture", "release", args))
}

/// Builds the binary and the programs that use it from the same state, and runs one of them.
fn built_program(name: &str, profile: &str, args: &[String]) -> Result<(), String> {
    let root = root();
    let build = ["build", "--profile", profile, "--locked"];
    hand_over(command::cargo(&root).args(build).args(command::RELEASE_PROGRAMS))?;
    let programs = command::target(&root)?.join(profile);
    let mut program = Command::new(programs.join(name));
    hand_over(program.current_dir(&root).env("OUTLAST_BINARY", programs.join("outlast")).args(args))
}

/// Runs both and writes the page with the results. Only this command writes the page.
fn proof(args: &[String]) -> ExitCode {
    let figures = "target/torture.json";
    let kills = args.first().map_or("1000", String::as_str);
    let tortured = torture(&["--kills", kills, "--json", figures].map(String::from));
    let page = ["--proof", "docs/proof.md", "--torture", figures].map(String::from);
    let simulated = program("outlast-sim", "sim", &page);
    if tortured == ExitCode::SUCCESS { simulated } else { tortured }
}

/// Runs a program to its end at this terminal.
fn hand_over(command: &mut Command) -> Result<(), String> {
    let name = command::command_line(command);
    let status = command.status().map_err(|error| format!("cannot start {name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

fn exit_code(done: Result<(), String>) -> ExitCode {
    done.map_or_else(
        |error| {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Returns the directory of the workspace, independent of the current directory.
fn root() -> PathBuf {
    // Not `env!`: two clones that share a target directory share this binary.
    let xtask = env::var_os("CARGO_MANIFEST_DIR").expect("cargo starts xtask and says where it lies");
    Path::new(&xtask).parent().expect("xtask lies in the workspace").to_path_buf()
}

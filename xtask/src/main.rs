//! The project's own chores: `cargo xtask test`, `tidy`, `bench`, `sim`, `torture`.
//!
//! Uses no crate of the workspace, so that it builds and says what is wrong when they do not.
mod command;
mod needs;
mod test;
mod tidy;

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [FILTER…]   runs every check and every test, and installs what they need;
                   with a FILTER only the tests whose names contain it
  tidy             checks the rules of the repository: who may use whom, purity, pages, links
  bench [ARGS…]    measures Outlast in release mode; ARGS go to the benchmark
  sim [ARGS…]      crashes the whole system on a simulated machine: every scenario at every point, then
                   2,000 seeds; ARGS go to the simulator (--seeds N, --minutes M, --scenario S, --seed S)
  torture [--kills N] [--minutes M] [--seed S] [--round R] [--json FILE] [--dir DIR]
                   kills the real binary at random, 1000 times if nothing else is said, and holds its
                   journal against what an outside witness saw; see docs/guide/torture.md
  help             prints this text
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    match args.first().map_or("", String::as_str) {
        "test" => test::run(&root(), rest),
        "tidy" if rest.is_empty() => tidy::run(&root()),
        "bench" => program("outlast-bench", "release", rest),
        "sim" => program("outlast-sim", "sim", rest),
        "torture" => torture(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!(
                "xtask: expected one of test, tidy, bench, sim, torture, help; found `{}`\n\n{USAGE}",
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

/// Builds the binary and its torturer together, so that both are of one state, and runs the torturer, which finds the
/// binary beside itself.
fn torture(args: &[String]) -> ExitCode {
    let build =
        ["build", "--release", "--locked", "--package", "outlast-cli", "--package", "outlast-torture"];
    let root = root();
    let tortured = hand_over(command::cargo(&root).args(build)).and_then(|()| {
        let metadata = command::metadata(&root)?;
        let target =
            metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
        hand_over(
            Command::new(Path::new(target).join("release/outlast-torture")).current_dir(&root).args(args),
        )
    });
    exit_code(tortured)
}

/// Runs a program to its end at this terminal.
fn hand_over(command: &mut Command) -> Result<(), String> {
    let name = command::line(command);
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

/// The directory of the workspace, wherever cargo was called.
fn root() -> PathBuf {
    // Not `env!`: two clones that share a target directory share this binary.
    let xtask = env::var_os("CARGO_MANIFEST_DIR").expect("cargo starts xtask and says where it lies");
    Path::new(&xtask).parent().expect("xtask lies in the workspace").to_path_buf()
}

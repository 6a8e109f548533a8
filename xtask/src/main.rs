//! The project's own chores: `cargo xtask test`, `tidy`, `bench`, `sim`.
//!
//! Uses no crate of the workspace, so that it builds and says what is wrong when they do not.
mod command;
mod needs;
mod test;
mod tidy;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [FILTER…]   runs every check and every test, and installs what they need;
                   with a FILTER only the tests whose names contain it
  tidy             checks the rules of the repository: who may use whom, purity, pages, links
  bench [ARGS…]    measures Outlast in release mode; ARGS go to the benchmark
  sim [ARGS…]      crashes the whole system on a simulated machine: every scenario at every point, then
                   2,000 seeds; ARGS go to the simulator (--seeds N, --minutes M, --scenario S, --seed S)
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
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!(
                "xtask: expected one of test, tidy, bench, sim, help; found `{}`\n\n{USAGE}",
                args.join(" ")
            );
            ExitCode::from(2)
        }
    }
}

/// Runs a program of the workspace.
fn program(package: &str, profile: &str, args: &[String]) -> ExitCode {
    let ran = command::program(&root(), package, profile).args(args).status();
    match ran {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The directory of the workspace, wherever cargo was called.
fn root() -> PathBuf {
    // Not `env!`: two clones that share a target directory share this binary.
    let xtask = env::var_os("CARGO_MANIFEST_DIR").expect("cargo starts xtask and says where it lies");
    Path::new(&xtask).parent().expect("xtask lies in the workspace").to_path_buf()
}

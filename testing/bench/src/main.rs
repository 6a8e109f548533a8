//! Measures Outlast against two limits of the same run: the sync rate of the disk, and a bare writer of the same rows.
//!
//! Usage: `cargo xtask bench [--quick] [--only turns|models|http] [--store sqlite|memory] [--json FILE]`. Times are
//! medians, and the ratios matter more than the absolute values.
mod bench_rig;
mod disk;
mod growth;
mod http;
mod inline;
mod models;
mod parked_sessions;
mod policy_bench;
mod report;
mod turns;

use report::BenchReport;
use std::path::PathBuf;
use std::process::ExitCode;

/// The parsed command line.
struct BenchArgs {
    quick: bool,
    /// The part to run; all if absent.
    only: Option<BenchPart>,
    store: BenchStore,
    json: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BenchPart {
    /// The two limits and the durable turns.
    Turns,
    /// Models over HTTP.
    Models,
    /// Our own HTTP API, and the binary that serves it.
    Http,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BenchStore {
    Sqlite,
    Memory,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if std::env::args().nth(1).as_deref() == Some(parked_sessions::IDLE) {
        return parked_sessions::run_idle_process(args.nth(1).as_deref());
    }
    let asked = match parse(&mut args) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!(
                "{message}\nusage: bench [--quick] [--only turns|models|http] [--store sqlite|memory] [--json FILE]"
            );
            return ExitCode::from(2);
        }
    };
    match measure(&asked) {
        Ok(report) => {
            println!("{}", report.table());
            let written = asked.json.as_ref().map(|path| std::fs::write(path, report.json()));
            match written.transpose() {
                Ok(_) => ExitCode::SUCCESS,
                Err(error) => fail(&error),
            }
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("the benchmark failed: {error}");
    ExitCode::FAILURE
}

fn parse(args: &mut impl Iterator<Item = String>) -> Result<BenchArgs, String> {
    let mut asked = BenchArgs { quick: false, only: None, store: BenchStore::Sqlite, json: None };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => asked.quick = true,
            "--only" => match args.next().as_deref() {
                Some("turns") => asked.only = Some(BenchPart::Turns),
                Some("models") => asked.only = Some(BenchPart::Models),
                Some("http") => asked.only = Some(BenchPart::Http),
                other => return Err(format!("--only takes turns, models or http, not {other:?}")),
            },
            "--json" => asked.json = Some(args.next().ok_or("--json needs a file")?.into()),
            "--store" => {
                asked.store = match args.next().as_deref() {
                    Some("sqlite") => BenchStore::Sqlite,
                    Some("memory") => BenchStore::Memory,
                    other => return Err(format!("--store takes sqlite or memory, not {other:?}")),
                }
            }
            other => return Err(format!("unknown argument `{other}`")),
        }
    }
    Ok(asked)
}

fn measure(asked: &BenchArgs) -> Result<BenchReport, Box<dyn std::error::Error>> {
    let mut report = BenchReport::default();
    // Below the working directory, so that the disk is a real one and not a memory disk.
    std::fs::create_dir_all("target/bench")?;
    let dir = tempfile::tempdir_in("target/bench")?;
    if asked.only == Some(BenchPart::Models) {
        models::measure(&mut report, dir.path(), asked.quick)?;
        return Ok(report);
    }
    if asked.only == Some(BenchPart::Http) {
        http::measure(&mut report, dir.path(), asked.quick)?;
        return Ok(report);
    }
    if asked.only.is_none() {
        inline::measure(&mut report)?;
        policy_bench::measure(&mut report)?;
    }
    if asked.store == BenchStore::Sqlite {
        disk::measure(&mut report, dir.path(), asked.quick)?;
    }
    turns::measure(&mut report, dir.path(), asked)?;
    if asked.store == BenchStore::Sqlite && asked.only.is_none() {
        growth::measure(&mut report, dir.path(), asked.quick)?;
        parked_sessions::measure(&mut report, dir.path(), asked.quick)?;
        models::measure(&mut report, dir.path(), asked.quick)?;
        http::measure(&mut report, dir.path(), asked.quick)?;
    }
    Ok(report)
}

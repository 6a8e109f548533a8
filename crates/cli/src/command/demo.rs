//! `outlast demo`: kills the process of a turn with SIGKILL again and again, and shows that nothing happens
//! twice.
//!
//! This process watches, kills, and simulates the outside world. [`worker`] is a separate process that drives
//! the turn on an SQLite file and prints its [`progress`] as lines. The [`tools`] count their own executions
//! in the [`execution_log`] file, independent of the journal.
mod demo_rng;
mod demo_run;
mod execution_log;
mod progress;
mod report;
mod screen;
mod tools;
mod worker;

use super::complete_alone;
use clap::Args;
use outlast::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Demonstrates durability.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Seed that repeats the kills of the run that printed it
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Directory for the files of the demo, which must be new or empty
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Run as the process that is killed
    #[arg(long, hide = true, value_name = "DIR", conflicts_with_all = ["seed", "dir"])]
    worker: Option<PathBuf>,
    #[command(flatten)]
    stage: worker::DemoWorkerArgs,
}

impl DemoArgs {
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        if let Some(dir) = self.worker {
            complete_alone(self.stage.work(&dir))?;
        } else {
            demo_run::play(self.dir, self.seed)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

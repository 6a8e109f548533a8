//! `outlast demo`: a turn whose process is killed with SIGKILL again and again, and nothing happens twice.
//!
//! This process only watches, kills and acts as the outside world. The turn is driven by [`worker`], a process of its
//! own on an SQLite file; it tells its [`progress`] in lines. What really happened is counted by the [`tools`]
//! themselves in the [`witness`] file, not by the journal.
mod dice;
mod play;
mod progress;
mod report;
mod screen;
mod tools;
mod witness;
mod worker;

use super::complete_alone;
use clap::Args;
use outlast::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows what durability means.
#[derive(Args)]
pub(crate) struct Demo {
    /// Choose where to kill like the run that printed this number
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Keep everything in this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Be the process that is killed
    #[arg(long, hide = true, value_name = "DIR", conflicts_with_all = ["seed", "dir"])]
    worker: Option<PathBuf>,
    #[command(flatten)]
    stage: worker::Stage,
}

impl Demo {
    /// Does it.
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        if let Some(dir) = self.worker {
            complete_alone(self.stage.work(&dir))?;
        } else {
            play::play(self.dir, self.seed)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

//! `outlast replay`: replays the turns of exported sessions with the recorded outcomes.
use crate::agent::AgentArgs;
use crate::archive_reader::ArchiveReader;
use crate::global_args::GlobalArgs;
use crate::terminal::{self, OutputLine, TextStyle};
use clap::Args;
use outlast::replay::{Divergence, Replay as Replayed, ReplayedTurn, replay};
use outlast::vocab::package::PinnedPackage;
use outlast::{Error, Limits};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Replays recorded sessions offline, with the recorded agent or with a current one.
#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// Files from `outlast sessions export`; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    recordings: Vec<PathBuf>,
    #[command(flatten)]
    agent: AgentArgs,
    /// Print one line of JSON per file
    #[arg(long)]
    json: bool,
}

/// The JSON output for one file.
#[derive(Serialize)]
struct ReplayOutput<'a> {
    file: &'a Path,
    same: bool,
    #[serde(flatten)]
    replayed: &'a Replayed,
}

impl ReplayArgs {
    /// Runs the command. A divergence sets the exit code, and the other files are still replayed.
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<ExitCode, Error> {
        let agent = self.agent.pinned(data).await?;
        let mut first = None;
        for file in &self.recordings {
            let replayed = one(file, agent.as_ref()).await?;
            if self.json {
                terminal::json(&ReplayOutput {
                    file,
                    same: replayed.divergence().is_none(),
                    replayed: &replayed,
                });
            } else {
                show(file, &replayed);
            }
            first = first.or(replayed.error());
        }
        let Some(error) = first else { return Ok(ExitCode::SUCCESS) };
        terminal::print_error(&error);
        Ok(ExitCode::FAILURE)
    }
}

async fn one(file: &Path, agent: Option<&PinnedPackage>) -> Result<Replayed, Error> {
    let replayed = replay(ArchiveReader::open(file)?, agent, &Limits::default()).await;
    replayed.map_err(|error| {
        Error::new(error.kind(), format!("{}: {}", file.display(), error.detail())).because(error)
    })
}

fn show(file: &Path, replayed: &Replayed) {
    OutputLine::new()
        .ink(TextStyle::Bold, &file.display().to_string())
        .text(&format!(" {}", replayed.session))
        .say();
    for turn in &replayed.turns {
        show_turn(turn);
    }
}

fn show_turn(turn: &ReplayedTurn) {
    let ReplayedTurn { index, effects, end, divergence, .. } = turn;
    let line = OutputLine::new().text(&format!("turn {index} "));
    let Some(Divergence { effect, recorded, asked, differences }) = divergence else {
        let end = end.map_or(String::new(), |end| format!(", {end}"));
        line.ink(TextStyle::Good, "same").text(&format!(" {effects} effects{end}")).say();
        return;
    };
    line.ink(TextStyle::Bad, "diverges")
        .text(&format!(" at {effect}: recorded {recorded}, asked {asked}"))
        .say();
    for difference in differences {
        terminal::say(&format!("  {difference}"));
    }
}

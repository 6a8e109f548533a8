//! `outlast test`: runs a script with an agent, kills it at every effect, and reports broken promises.
use super::complete_alone;
use crate::agent::here;
use crate::agent::program::ResolvedCommand;
use crate::agent::sources::AgentSources;
use crate::terminal::{self, OutputLine, TextStyle};
use clap::Args;
use outlast::providers::Script;
use outlast::trial::{Crash, GuaranteeViolation, ObservedRun, Trial, TrialReport};
use outlast::{Error, Kind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Plays a script with an agent and checks the result, without a crash or with one at every effect.
#[derive(Args)]
pub(crate) struct TestArgs {
    /// Agent, as a TOML file
    agent: PathBuf,
    /// Script for the model
    script: PathBuf,
    /// Kill the agent before and after each write and while each tool runs, and let another process finish
    #[arg(long)]
    kill_every_effect: bool,
    /// Also kill the second process at each of its effects
    #[arg(long, requires = "kill_every_effect", conflicts_with = "points")]
    twice: bool,
    /// Kill only at this point, as a report names it: `3:after`; repeatable
    #[arg(long = "point", value_name = "POINT")]
    points: Vec<Crash>,
    /// Input for the agent; repeatable, inputs are sent one after the other
    #[arg(long = "input", value_name = "TEXT", default_value = "go")]
    inputs: Vec<String>,
    /// Command that reads the run as JSON from standard input, and fails if the run is wrong; split at spaces
    #[arg(long, value_name = "COMMAND")]
    invariant: Option<String>,
    /// Time limit of one process
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    patience: u32,
    /// Directory to keep the databases of broken runs in
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl TestArgs {
    /// Runs the command. A broken promise sets the exit code.
    pub(crate) async fn run(self) -> Result<ExitCode, Error> {
        let kills = self.kill_every_effect || !self.points.is_empty();
        let trial = self.trial()?;
        let report = if kills { trial.kill_every_effect().await } else { trial.run_once().await };
        terminal::progress(None);
        let report = report?;
        if self.json {
            terminal::json(&report);
        } else {
            show(&report);
        }
        Ok(if report.all_guarantees_hold() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn trial(&self) -> Result<Trial<PathBuf>, Error> {
        let agent = AgentSources::of(None)?.in_file(&self.agent, None)?.agent;
        // Parsed only for errors that name the file. Every process of the trial parses the text again.
        Script::read(&self.script)?;
        let script = std::fs::read_to_string(&self.script).map_err(|cause| {
            let detail = format!("the script {} cannot be read: {cause}", self.script.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        let patience = Duration::from_secs(self.patience.into());
        // The directory of the run is the outside world: tools work in it, and the invariant checks it.
        let mut trial = Trial::new(Path::to_owned, move |outlast, dir| agent.build(outlast, dir))
            .script(script)
            .timeout(patience)
            .on_progress(|progress| {
                terminal::progress(Some(&format!("{} of {} runs", progress.done, progress.of)));
            });
        trial = self.inputs.iter().fold(trial, Trial::say);
        trial = self.points.iter().cloned().fold(trial, Trial::only_crash_at);
        if let Some(command) = &self.invariant {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            let words = ResolvedCommand::find(&words, &here()?)
                .map_err(|detail| Error::new(Kind::InputInvalid, format!("`--invariant`: {detail}")))?
                .passing_on_all();
            trial = trial.invariant(move |seen, dir| holds(&words, seen, dir, patience));
        }
        if self.twice {
            trial = trial.crash_twice();
        }
        if let Some(below) = &self.keep {
            trial = trial.keep_failed_runs(below);
        }
        Ok(trial)
    }
}

/// Runs the command of the invariant, on a separate thread because this thread drives the trial.
fn holds(words: &ResolvedCommand, seen: &ObservedRun, dir: &Path, patience: Duration) -> Result<(), String> {
    let seen = serde_json::to_vec(seen).map_err(|cause| cause.to_string())?;
    let program = words.in_dir(dir);
    let asked = std::thread::scope(|scope| {
        let ask =
            || complete_alone(async { Ok(tokio::time::timeout(patience, program.run(seen, &[])).await) });
        scope.spawn(ask).join()
    });
    let finished = match asked {
        Ok(Ok(Ok(finished))) => finished.map_err(|error| error.detail().to_owned())?,
        Ok(Ok(Err(_))) => return Err(format!("its command did not end within {} s", patience.as_secs())),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("its command could not be run".to_owned()),
    };
    match (finished.status.success(), finished.stderr_tail) {
        (true, _) => Ok(()),
        (false, said) if said.is_empty() => Err(format!("its command ended with {}", finished.status)),
        (false, said) => Err(said),
    }
}

fn show(report: &TrialReport) {
    if !report.tried.is_empty() {
        terminal::say(&report.table());
    }
    for broken in &report.broken {
        show_broken(broken);
    }
    let ink = if report.all_guarantees_hold() { TextStyle::Good } else { TextStyle::Bad };
    OutputLine::new().ink(ink, &report.summary()).say();
}

fn show_broken(broken: &GuaranteeViolation) {
    OutputLine::new().ink(TextStyle::Bad, "broken").text(&format!(" {}", broken.crash_location())).say();
    terminal::say(&format!("  {}: {}", broken.promise, broken.detail));
    if let Some(database) = broken.database() {
        terminal::say(&format!("  inspect it: outlast --data {} events trial", database.display()));
    }
    if !broken.crash.points().is_empty() {
        terminal::say(&format!("  run only this one: --point {}", broken.crash));
    }
    terminal::say("");
}

//! A run: rounds until enough processes were killed, the time is up, or a promise was broken.
use crate::journal_checker::{PlantedError, PromiseViolation};
use crate::round::{self, RoundLimits};
use crate::torture_stats::TortureStats;
use crate::witness::WitnessPlacement;
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct TorturePlan {
    /// The binary `outlast`.
    pub outlast: PathBuf,
    /// Where the witness runs.
    pub witness_placement: WitnessPlacement,
    /// The parent directory of the rounds.
    pub dir: PathBuf,
    /// The random seed.
    pub seed: u64,
    /// Stop after this many kills.
    pub kills: Option<u64>,
    /// Stop after this time.
    pub time: Option<Duration>,
    /// Play only this round, with all its kills.
    pub round: Option<u64>,
    /// Also grow the write-ahead log so far that it is checkpointed without a write. Takes seconds in a debug build.
    pub ballast: bool,
    /// Plant an error in the evidence.
    pub planted: Option<PlantedError>,
}

/// The result of a run.
#[derive(Debug)]
pub struct TortureReport {
    /// The random seed.
    pub seed: u64,
    /// The statistics.
    pub figures: TortureStats,
    /// The broken promises. The run stops after the first round that breaks one.
    pub broken: Vec<PromiseViolation>,
    /// The failed round and its directory, which is kept.
    pub failed: Option<(u64, PathBuf)>,
}

impl TortureReport {
    /// Returns the report as JSON. The names are stable.
    pub fn json(&self) -> Value {
        let mut json = self.figures.json();
        json["seed"] = self.seed.into();
        json["broken"] = self.broken.iter().map(|broken| broken.violation_text.clone()).collect();
        json["outlast"] = json!(env!("CARGO_PKG_VERSION"));
        json
    }
}

/// Plays rounds and reports each.
pub fn run(plan: &TorturePlan, mut tell: impl FnMut(&str)) -> Result<TortureReport, Box<dyn Error>> {
    let begun = Instant::now();
    let until = plan.time.and_then(|time| begun.checked_add(time));
    let mut report =
        TortureReport { seed: plan.seed, figures: TortureStats::default(), broken: Vec::new(), failed: None };
    let first = plan.round.unwrap_or(1);
    for number in first.. {
        let kills = plan.kills.map_or(u64::MAX, |kills| kills.saturating_sub(report.figures.kills()));
        let dir = plan.dir.join(format!("seed-{}-round-{number}", plan.seed));
        fs::create_dir_all(&plan.dir)?;
        fs::create_dir(&dir).map_err(|error| {
            format!("{}: {error}; a round that broke a promise is kept there, move it away", dir.display())
        })?;
        let round::RoundOutcome { figures, broken } =
            round::play(plan, number, &dir, RoundLimits { kills, until })?;
        tell(&format!("round {number}: {}", figures.line()));
        report.figures += figures;
        if !broken.is_empty() {
            report.broken = broken;
            report.failed = Some((number, dir));
            break;
        }
        fs::remove_dir_all(&dir)?;
        let enough = plan.kills.is_some_and(|kills| report.figures.kills() >= kills);
        let late = until.is_some_and(|until| Instant::now() >= until);
        if enough || late || plan.round.is_some() {
            break;
        }
    }
    report.figures.time = begun.elapsed();
    Ok(report)
}

//! The results: for a terminal, as JSON, and as the page `docs/proof.md`.
use crate::exhaustive::CrashCoverage;
use crate::seed_search::SeedSearchResults;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// All faults of drawn runs. With enough seeds each must have happened, or the hunt proves less than it claims.
const FAULTS: &[&str] = &[
    "checkpoint of the log",
    "clock jump",
    "crash after a transaction, unheard",
    "crash before a transaction",
    "crash between two steps",
    "crash during recovery",
    "crash inside a transaction",
    "failed fsync",
    "failed write",
    "full disk",
    "graceful shutdown",
    "model: 429 with retry-after",
    "model: 5xx",
    "model: duplicated piece",
    "model: reordered pieces",
    "model: slow stream",
    "model: stalled stream",
    "model: truncated stream",
    "newer schema found",
    "outage of a fallback provider",
    "outage of a provider",
    "power loss",
    "power loss inside a transaction, torn pages",
    "process paused beyond its lease",
];

/// The number of seeds after which every fault must have happened.
const ENOUGH_SEEDS: u64 = 1_000;

/// The results of all runs.
pub(crate) struct SimReport {
    pub(crate) covered: Vec<CrashCoverage>,
    /// Crashes that the time limit left out.
    pub(crate) skipped_crashes: usize,
    /// The seed that chose the crashes within the time limit.
    pub(crate) rotation: u64,
    pub(crate) seed_results: SeedSearchResults,
    pub(crate) first_seed: u64,
    pub(crate) exhaustive_time: Duration,
    pub(crate) hunted_for: Duration,
    pub(crate) cores: usize,
}

/// The sums over all scenarios.
struct CrashTotals {
    points: u64,
    died: u64,
    pairs: u64,
    runs: u64,
}

impl SimReport {
    /// Returns whether every promise was kept, every point was reached and every fault happened.
    pub(crate) fn holds(&self) -> bool {
        let CrashTotals { points, died, .. } = self.sums();
        self.failures().is_empty() && points == died && self.missing().is_empty()
    }

    fn sums(&self) -> CrashTotals {
        let sum = |of: fn(&CrashCoverage) -> u64| self.covered.iter().map(of).sum();
        CrashTotals {
            points: sum(|one| one.points),
            died: sum(|one| one.died),
            pairs: sum(|one| one.pairs),
            runs: sum(|one| one.runs),
        }
    }

    fn failures(&self) -> Vec<&String> {
        self.covered.iter().flat_map(|one| &one.broken).chain(&self.seed_results.failures).collect()
    }

    fn missing(&self) -> Vec<&'static str> {
        if self.seed_results.seeds < ENOUGH_SEEDS {
            return Vec::new();
        }
        FAULTS.iter().filter(|name| !self.seed_results.hits.contains_key(*name)).copied().collect()
    }

    /// Returns the rate of turns of the seeds. Runs of the exhaustive mode are mostly opening the database, so they are
    /// counted as runs.
    fn turns_per_second(&self) -> f64 {
        rate(self.seed_results.turns, self.hunted_for, self.cores)
    }

    fn runs_per_second(&self) -> f64 {
        rate(self.sums().runs, self.exhaustive_time, self.cores)
    }

    /// Formats the report for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = self.table();
        for (name, times) in &self.seed_results.hits {
            line(&mut text, format_args!("{times:>8} × {name}"));
        }
        for name in self.missing() {
            line(&mut text, format_args!("MISSING: {name} never happened"));
        }
        for failure in self.failures().iter().take(6) {
            line(&mut text, format_args!("\nBROKEN: {failure}"));
        }
        let CrashTotals { points, died, pairs, runs } = self.sums();
        if self.skipped_crashes > 0 {
            line(
                &mut text,
                format_args!(
                    "\nthe time limit left out {} crashes; repeat this choice with --rotation {}",
                    self.skipped_crashes, self.rotation
                ),
            );
        }
        line(
            &mut text,
            format_args!(
                "\n{} scenarios died at {died} of {points} points and twice at {pairs} pairs of them ({runs} runs, {:.0} s); \
                 {} seeds played twice, {} lives ({:.0} s)\n{:.0} crashes and {:.0} simulated turns of seeds per second and core, {} broken \
                 promises",
                self.covered.len(),
                self.exhaustive_time.as_secs_f64(),
                self.seed_results.seeds,
                self.seed_results.lives,
                self.hunted_for.as_secs_f64(),
                self.runs_per_second(),
                self.turns_per_second(),
                self.failures().len(),
            ),
        );
        text
    }

    fn table(&self) -> String {
        let mut text = String::new();
        line(
            &mut text,
            format_args!(
                "| scenario | transactions | changes of the disk | crash points | died there | died twice | broken |"
            ),
        );
        line(&mut text, format_args!("|---|---:|---:|---:|---:|---:|---:|"));
        for one in &self.covered {
            let CrashCoverage { scenario, writes, changes, points, died, pairs, broken, .. } = one;
            line(
                &mut text,
                format_args!(
                    "| {scenario} | {writes} | {changes} | {points} | {died} | {pairs} | {} |",
                    broken.len()
                ),
            );
        }
        text
    }

    /// Formats the report as JSON.
    pub(crate) fn json(&self) -> String {
        let value = json!({
            "scenarios": self.covered,
            "left_out": self.skipped_crashes,
            "seeds": self.seed_results.seeds,
            "first_seed": self.first_seed,
            "seed_runs": self.seed_results.runs,
            "lives": self.seed_results.lives,
            "faults": self.seed_results.hits,
            "faults_missing": self.missing(),
            "failures": self.seed_results.failures,
            "turns_per_s_and_core": self.turns_per_second(),
            "runs_per_s_and_core": self.runs_per_second(),
            "exhaustive_s": self.exhaustive_time.as_secs_f64(),
            "seeds_s": self.hunted_for.as_secs_f64(),
        });
        format!("{value:#}\n")
    }

    /// Formats the report as a page of the documentation.
    pub(crate) fn page(&self, torture: Option<&Path>) -> String {
        let CrashTotals { points, died, pairs, runs } = self.sums();
        let mut page = String::from(
            "# Proof\n\nThis page is written by `cargo xtask proof`, never by hand. What is promised, and which test holds it, is in \
             [guarantees](guarantees.md).\n\n## Every crash there is\n\n",
        );
        line(
            &mut page,
            format_args!(
                "{} scenarios were run on the simulator, and each was killed between any two of its steps, before and after each of its \
                 transactions, and at each change of the disk inside them, by the death of the process and by the loss of power: \
                 **{died} of {points} crash points**. The short ones died a second time at every later transaction: {pairs} pairs. \
                 Each of the {runs} runs had to end as the uninterrupted one, with {} broken promises.\n",
                self.covered.len(),
                self.covered.iter().map(|one| one.broken.len()).sum::<usize>(),
            ),
        );
        page += &self.table();
        line(
            &mut page,
            format_args!(
                "\n## Seeds\n\nSeeds {:#x} to {:#x} ({} of them) drew sessions, workers and faults. Each was played twice, and both had to be \
                 the same step by step. {} processes lived in them; {} promises were broken.\n\n| fault | times |\n|---|---:|",
                self.first_seed,
                self.first_seed + self.seed_results.seeds.saturating_sub(1),
                self.seed_results.seeds,
                self.seed_results.lives,
                self.seed_results.failures.len(),
            ),
        );
        for name in FAULTS {
            line(&mut page, format_args!("| {name} | {} |", self.seed_results.hits.get(name).unwrap_or(&0)));
        }
        line(
            &mut page,
            format_args!(
                "\n{:.0} simulated turns of seeds and {:.0} crashes of the exhaustive mode per second and core.",
                self.turns_per_second(),
                self.runs_per_second(),
            ),
        );
        page += &torture_section(torture);
        page
    }
}

/// Formats the results of the torture test of the real binary, if it was run.
fn torture_section(file: Option<&Path>) -> String {
    let read = file.and_then(|file| std::fs::read_to_string(file).ok());
    let figures: Option<Value> = read.and_then(|text| serde_json::from_str(&text).ok());
    let Some(Value::Object(figures)) = figures else {
        return "\n## The real binary\n\nNot part of this run: `cargo xtask torture`.\n".into();
    };
    let mut text = String::from(
        "\n## The real binary\n\n`cargo xtask torture` on a real SQLite file, counted by a witness process.\n\n| | |\n|---|---:|\n",
    );
    for (name, value) in figures.iter().filter(|(_, value)| value.is_number()) {
        line(&mut text, format_args!("| {} | {value} |", name.replace('_', " ")));
    }
    text
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a string takes everything");
}

fn rate(count: u64, time: Duration, cores: usize) -> f64 {
    #[expect(clippy::cast_precision_loss)] // shown as a whole number
    let (count, cores) = (count as f64, cores as f64);
    count / time.as_secs_f64().max(0.001) / cores
}

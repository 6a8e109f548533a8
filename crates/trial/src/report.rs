//! The report of a trial.
use crate::crash_point::{Crash, TrialCrashPoint};
use crate::guarantee::Guarantee;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::PathBuf;

/// The report of a trial: every crash that was tried, and every promise that was broken.
#[derive(Debug, Default, Serialize)]
pub struct TrialReport {
    /// The runs with a crash, in order.
    pub tried: Vec<CrashRun>,
    /// The number of runs, including those without a crash.
    pub runs: usize,
    /// The broken promises.
    pub broken: Vec<GuaranteeViolation>,
}

/// One run with a crash.
#[derive(Clone, Debug, Serialize)]
pub struct CrashRun {
    /// The point of the crash.
    pub crash: Crash,
    /// The write or the tool run during which it crashed.
    pub what: String,
    /// The result of the run.
    pub outcome: CrashRunOutcome,
}

/// The result of a run with a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashRunOutcome {
    /// It kept every promise.
    Kept,
    /// It broke a promise.
    Broken,
    /// It ended before it reached the point of the crash.
    NotReached,
}

impl CrashRunOutcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Broken => "BROKEN",
            Self::NotReached => "not reached",
        }
    }
}

/// A promise that a run broke.
#[derive(Clone, Debug, Serialize)]
pub struct GuaranteeViolation {
    /// The point of the crash. Pass it to [`Trial::only_crash`](crate::Trial::only_crash) to repeat the run.
    pub crash: Crash,
    /// The write or the tool run during which it crashed.
    pub what: String,
    /// The promise.
    pub promise: Guarantee,
    /// What the check found.
    pub detail: String,
    /// The directory of the run, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
}

impl TrialReport {
    /// Returns whether no promise was broken.
    pub fn all_guarantees_hold(&self) -> bool {
        self.broken.is_empty()
    }

    /// Panics with the whole report if a promise was broken. Use it as the last line of a test.
    ///
    /// # Panics
    /// If a promise was broken.
    #[track_caller]
    pub fn assert_guarantees(&self) {
        assert!(self.all_guarantees_hold(), "\n{self}");
    }

    /// Formats the crashes as tables: one of writes, with `before` and `after`, and one of tool runs.
    pub fn table(&self) -> String {
        let mut writes: BTreeMap<u64, [String; 3]> = BTreeMap::new();
        let mut calls: BTreeMap<(u64, u64), [String; 2]> = BTreeMap::new();
        for tried in &self.tried {
            let [first, ..] = tried.crash.points() else { continue };
            let outcome = || self.outcome(*first).word().to_owned();
            match first {
                TrialCrashPoint::Before(write) | TrialCrashPoint::After(write) => {
                    let row = writes.entry(*write).or_default();
                    row[usize::from(matches!(first, TrialCrashPoint::After(_))) + 1] = outcome();
                    if tried.crash.points().len() == 1 {
                        row[0].clone_from(&tried.what);
                    }
                }
                TrialCrashPoint::During { call, pause } => {
                    let row = calls.entry((*call, *pause)).or_default();
                    row[1] = outcome();
                    if tried.crash.points().len() == 1 {
                        row[0].clone_from(&tried.what);
                    }
                }
            }
        }
        let writes = writes
            .into_iter()
            .map(|(write, [what, before, after])| vec![write.to_string(), what, before, after]);
        let calls = calls.into_iter().map(|((call, pause), [what, during])| {
            let place = TrialCrashPoint::During { call, pause }.to_string();
            vec![place, what, during]
        });
        let tables = [
            format_table(&["write", "what is written", "before", "after"], writes.collect()),
            format_table(&["while a tool runs", "which", "during"], calls.collect()),
        ];
        tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// Returns the worst outcome of all crashes that start at this point.
    fn outcome(&self, first: TrialCrashPoint) -> CrashRunOutcome {
        let here = || self.tried.iter().filter(|tried| tried.crash.points().first() == Some(&first));
        let [broken, reached] = [CrashRunOutcome::Broken, CrashRunOutcome::Kept]
            .map(|outcome| here().any(|tried| tried.outcome == outcome));
        match (broken, reached) {
            (true, _) => CrashRunOutcome::Broken,
            (false, true) => CrashRunOutcome::Kept,
            (false, false) => CrashRunOutcome::NotReached,
        }
    }

    /// Returns the summary line.
    pub fn summary(&self) -> String {
        let counted = |number: usize, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        let missed = self.tried.iter().filter(|tried| tried.outcome == CrashRunOutcome::NotReached).count();
        let missed = if missed == 0 { String::new() } else { format!(" ({missed} not reached)") };
        format!(
            "{}{missed}, {}, {}",
            counted(self.tried.len(), "crash point", "crash points"),
            counted(self.runs, "run", "runs"),
            counted(self.broken.len(), "broken promise", "broken promises"),
        )
    }
}

impl GuaranteeViolation {
    /// Describes the crash in one line.
    pub fn crash_location(&self) -> String {
        if self.crash.points().is_empty() {
            return "without a crash".to_owned();
        }
        format!("at {} ({})", self.crash, self.what)
    }

    /// Returns the path of the run's database, if it was kept.
    pub fn database(&self) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.join(crate::DATABASE))
    }
}

impl fmt::Display for TrialReport {
    /// Writes the tables, the broken promises with a way to repeat each, and the summary line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tried.is_empty() {
            writeln!(f, "{}", self.table())?;
        }
        for broken in &self.broken {
            writeln!(f, "broken {}\n  {}: {}", broken.crash_location(), broken.promise, broken.detail)?;
            if let Some(database) = broken.database() {
                writeln!(f, "  its database: {}", database.display())?;
            }
            if !broken.crash.points().is_empty() {
                writeln!(f, "  run only this one: .only(\"{}\")", broken.crash)?;
            }
            writeln!(f)?;
        }
        f.write_str(&self.summary())
    }
}

/// Formats rows under a header in aligned columns. Returns an empty string if there are no rows.
fn format_table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut table = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:width$}  ").expect("a String takes every write");
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

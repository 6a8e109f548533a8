//! What came of a trial.
use super::point::{Crash, Point};
use super::promise::Promise;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::PathBuf;

/// What came of a trial: every crash that was tried, and every promise that was broken.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The runs with a crash, in the order they were made.
    pub tried: Vec<Tried>,
    /// How many runs there were, those without a crash among them.
    pub runs: usize,
    /// What did not hold.
    pub broken: Vec<BrokenPromise>,
}

/// One run with a crash.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// Where its process died.
    pub crash: Crash,
    /// What was being written there, or which tool ran.
    pub what: String,
    /// How it ended.
    pub outcome: Outcome,
}

/// Whether a run kept every promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did.
    Kept,
    /// It did not.
    Broken,
    /// It ended before it came to the place where it was to die.
    NotReached,
}

impl Outcome {
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
pub struct BrokenPromise {
    /// Where its process died; this is what repeats it.
    pub crash: Crash,
    /// What was being written there, or which tool ran.
    pub what: String,
    /// Which promise.
    pub promise: Promise,
    /// What was found.
    pub detail: String,
    /// The directory of the run, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
}

impl Report {
    /// Whether nothing was broken.
    pub fn is_kept(&self) -> bool {
        self.broken.is_empty()
    }

    /// Panics with the whole report if a promise was broken: for the last line of a test.
    ///
    /// # Panics
    /// If a promise was broken.
    #[track_caller]
    pub fn assert_kept(&self) {
        assert!(self.is_kept(), "\n{self}");
    }

    /// The crashes as tables: one of writes, with `before` and `after`, and one of the runs of tools.
    pub fn table(&self) -> String {
        let mut writes: BTreeMap<u64, [String; 3]> = BTreeMap::new();
        let mut calls: BTreeMap<(u64, u64), [String; 2]> = BTreeMap::new();
        for tried in &self.tried {
            let [first, ..] = tried.crash.points() else { continue };
            let outcome = || self.outcome(*first).word().to_owned();
            match first {
                Point::Before(write) | Point::After(write) => {
                    let row = writes.entry(*write).or_default();
                    row[usize::from(matches!(first, Point::After(_))) + 1] = outcome();
                    if tried.crash.points().len() == 1 {
                        row[0].clone_from(&tried.what);
                    }
                }
                Point::During { call, pause } => {
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
            let place = Point::During { call, pause }.to_string();
            vec![place, what, during]
        });
        let tables = [
            aligned(&["write", "what is written", "before", "after"], writes.collect()),
            aligned(&["while a tool runs", "which", "during"], calls.collect()),
        ];
        tables.into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// The worst that came of all crashes that begin here.
    fn outcome(&self, first: Point) -> Outcome {
        let here = || self.tried.iter().filter(|tried| tried.crash.points().first() == Some(&first));
        let [broken, reached] =
            [Outcome::Broken, Outcome::Kept].map(|outcome| here().any(|tried| tried.outcome == outcome));
        match (broken, reached) {
            (true, _) => Outcome::Broken,
            (false, true) => Outcome::Kept,
            (false, false) => Outcome::NotReached,
        }
    }

    /// The last line.
    pub fn summary(&self) -> String {
        let counted = |number: usize, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        let missed = self.tried.iter().filter(|tried| tried.outcome == Outcome::NotReached).count();
        let missed = if missed == 0 { String::new() } else { format!(" ({missed} not reached)") };
        format!(
            "{}{missed}, {}, {}",
            counted(self.tried.len(), "crash point", "crash points"),
            counted(self.runs, "run", "runs"),
            counted(self.broken.len(), "broken promise", "broken promises"),
        )
    }
}

impl BrokenPromise {
    /// Where it was, in one line.
    pub fn place(&self) -> String {
        if self.crash.points().is_empty() {
            return "without a crash".to_owned();
        }
        format!("at {} ({})", self.crash, self.what)
    }

    /// The run's database, if it was kept.
    pub fn database(&self) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.join(super::DATABASE))
    }
}

impl fmt::Display for Report {
    /// The tables, what was broken and how to repeat it, and the last line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.tried.is_empty() {
            writeln!(f, "{}", self.table())?;
        }
        for broken in &self.broken {
            writeln!(f, "broken {}\n  {}: {}", broken.place(), broken.promise, broken.detail)?;
            if let Some(database) = broken.database() {
                writeln!(f, "  its database: {}", database.display())?;
            }
            if !broken.crash.points().is_empty() {
                writeln!(f, "  only this one: .only(\"{}\")", broken.crash)?;
            }
            writeln!(f)?;
        }
        f.write_str(&self.summary())
    }
}

/// Rows under a head, each column as wide as it has to be; nothing without rows.
fn aligned(head: &[&str], rows: Vec<Vec<String>>) -> String {
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

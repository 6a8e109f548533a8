//! Tries every crash: each scenario dies at each action, and before, inside and after each transaction. Short scenarios
//! die a second time at every later transaction. Each run must end as if no crash had happened.
use crate::on_every_core;
use crate::plan::{Fault, FaultKind, FaultTime, SimPlan};
use crate::scenario::catalogue;
use crate::simulation::{SimOutcome, run};
use outlast_random::SeededRandom;
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Scenarios with more transactions than this die only once.
const SHORT: usize = 14;

/// The number of crash points for a scenario whose worker dies on its own. Its turn is held back for minutes of virtual
/// time, so a run is long, and most of its points fall into identical pauses.
const POINTS_OF_DEADLY: usize = 400;

/// The result for one scenario.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CrashCoverage {
    pub(crate) scenario: &'static str,
    /// Transactions of the run without faults.
    pub(crate) writes: u64,
    /// Disk changes in them.
    pub(crate) changes: u64,
    /// Crash points that were tried: between two actions, and before, inside and after transactions. Only a sample if
    /// the worker dies on its own or if the search has a time limit.
    pub(crate) points: u64,
    /// Crash points that were reached.
    pub(crate) died: u64,
    /// Pairs of crash points that were reached.
    pub(crate) pairs: u64,
    /// Runs.
    pub(crate) runs: u64,
    /// Turns that were played.
    pub(crate) turns: u64,
    /// The failures, each with its plan.
    pub(crate) broken: Vec<String>,
}

/// Plays a scenario twice without faults. Both runs must be identical and break nothing.
pub(crate) fn run_without_faults(play: usize) -> Result<SimOutcome, String> {
    let (first, second) = (run(&SimPlan::of(play)), run(&SimPlan::of(play)));
    let name = catalogue()[play].name;
    if let Some(broken) = first.broken.first() {
        return Err(format!("`{name}` without faults: {broken}"));
    }
    if first.trace != second.trace {
        return Err(format!("`{name}` is not the same twice: the world is not deterministic"));
    }
    Ok(first)
}

/// How much of the search runs.
#[derive(Clone, Copy, Default)]
pub(crate) struct SearchLimit {
    /// The time after which no further crash is tried. Crashes before and after a transaction are always tried.
    pub(crate) time: Option<Duration>,
    /// Decides which of the other crashes are tried first, so that runs with different seeds try different ones.
    pub(crate) rotation: u64,
}

/// Kills each of these scenarios at every point that the limit allows, on all cores. Returns the results, and the number
/// of crashes that were left out.
pub(crate) fn kill_everywhere(plays: &[usize], limit: SearchLimit) -> (Vec<CrashCoverage>, usize) {
    let begun = Instant::now();
    let searches: Vec<CrashSearch> = plays.iter().map(|play| CrashSearch::new(*play)).collect();
    let mut tasks: Vec<(&CrashSearch, CrashTask)> = searches
        .iter()
        .flat_map(|search| search.tasks().into_iter().map(move |task| (search, task)))
        .collect();
    tasks.sort_by_key(|(_, task)| !task.required());
    let required = tasks.iter().filter(|(_, task)| task.required()).count();
    if limit.time.is_some() {
        shuffle(&mut tasks[required..], limit.rotation);
    }
    let next = AtomicUsize::new(0);
    on_every_core(|| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((search, task)) = tasks.get(number) else { break };
            if number >= required && limit.time.is_some_and(|time| begun.elapsed() >= time) {
                next.fetch_sub(1, Ordering::Relaxed);
                break;
            }
            search.run(*task);
        }
    });
    let left = tasks.len().saturating_sub(next.into_inner());
    (searches.into_iter().map(CrashSearch::finish).collect(), left)
}

fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut random = SeededRandom::new(seed, 0);
    for last in (1..list.len()).rev() {
        list.swap(last, random.index(last + 1));
    }
}

/// One crash, or one crash that is followed by each possible second one.
#[derive(Clone, Copy)]
enum CrashTask {
    Once(Fault),
    Twice(Fault),
}

impl CrashTask {
    /// Returns whether the task runs within every limit: one kill before or after a transaction.
    fn required(&self) -> bool {
        matches!(
            self,
            Self::Once(Fault {
                at: FaultTime::BeforeWrite(_) | FaultTime::AfterWrite(_),
                fault_kind: FaultKind::Kill(_)
            })
        )
    }
}

/// The search for crashes that one scenario does not survive.
struct CrashSearch {
    play: usize,
    /// The run without faults; `None` if it is broken.
    whole: Option<SimOutcome>,
    covered: Mutex<CrashCoverage>,
}

impl CrashSearch {
    fn new(play: usize) -> Self {
        let mut covered = CrashCoverage { scenario: catalogue()[play].name, ..CrashCoverage::default() };
        let whole = match run_without_faults(play) {
            Ok(whole) => Some(whole),
            Err(broken) => {
                covered.broken.push(broken);
                None
            }
        };
        if let Some(whole) = &whole {
            covered.writes = whole.writes.iter().filter(|changes| **changes > 0).count() as u64;
            covered.changes = whole.writes.iter().sum();
        }
        Self { play, whole, covered: Mutex::new(covered) }
    }

    fn tasks(&self) -> Vec<CrashTask> {
        let Some(whole) = &self.whole else { return Vec::new() };
        let points = points(whole);
        let apart = if catalogue()[self.play].kills_worker {
            points.len().div_ceil(POINTS_OF_DEADLY).max(1)
        } else {
            1
        };
        let mut tasks: Vec<CrashTask> = points.into_iter().step_by(apart).map(CrashTask::Once).collect();
        if whole.writes.len() <= SHORT {
            tasks.extend(around(0..whole.writes.len() as u64).map(CrashTask::Twice));
        }
        tasks
    }

    fn run(&self, task: CrashTask) {
        let Some(whole) = &self.whole else { return };
        let mut found = CrashCoverage::default();
        match task {
            CrashTask::Once(fault) => {
                found.points += 1;
                found.died += u64::from(found.try_out(self.play, vec![fault], whole) >= 1);
            }
            CrashTask::Twice(first) => {
                let (FaultTime::BeforeWrite(write) | FaultTime::AfterWrite(write)) = first.at else { return };
                // The second life makes its own transactions. Continue until none is left to die at.
                for second in around(write + 1..) {
                    if found.try_out(self.play, vec![first, second], whole) < 2 {
                        break;
                    }
                    found.pairs += 1;
                }
            }
        }
        self.covered.lock().expect("nobody panics with it").add(found);
    }

    fn finish(self) -> CrashCoverage {
        self.covered.into_inner().expect("nobody panicked with it")
    }
}

/// Returns the points before and after each of these transactions.
fn around(writes: impl Iterator<Item = u64>) -> impl Iterator<Item = Fault> {
    writes.flat_map(|write| {
        [FaultTime::BeforeWrite(write), FaultTime::AfterWrite(write)]
            .map(|at| Fault { at, fault_kind: FaultKind::Kill(0) })
    })
}

/// Returns every single crash of a run.
fn points(whole: &SimOutcome) -> Vec<Fault> {
    let kill = |at| Fault { at, fault_kind: FaultKind::Kill(0) };
    let mut points: Vec<Fault> =
        whole.killable_actions.iter().map(|action| kill(FaultTime::Action(*action, 0))).collect();
    for (write, changes) in (0..).zip(&whole.writes) {
        points.extend([kill(FaultTime::BeforeWrite(write)), kill(FaultTime::AfterWrite(write))]);
        points.push(Fault { at: FaultTime::AfterWrite(write), fault_kind: FaultKind::PowerLoss(write) });
        for change in 0..*changes {
            points.push(kill(FaultTime::InWrite(write, change)));
            points.push(Fault {
                at: FaultTime::InWrite(write, change),
                fault_kind: FaultKind::PowerLoss(change),
            });
        }
    }
    points
}

impl CrashCoverage {
    fn add(&mut self, more: Self) {
        self.points += more.points;
        self.died += more.died;
        self.pairs += more.pairs;
        self.runs += more.runs;
        self.turns += more.turns;
        self.broken.extend(more.broken);
    }

    /// Plays a scenario with these faults. Returns how many of them happened.
    fn try_out(&mut self, scenario: usize, faults: Vec<Fault>, whole: &SimOutcome) -> u64 {
        let plan = SimPlan { faults, ..SimPlan::of(scenario) };
        let outcome = run(&plan);
        self.runs += 1;
        self.turns += outcome.turns;
        for broken in &outcome.broken {
            self.broken.push(format!("{broken}\n{plan}"));
        }
        if catalogue()[scenario].is_deterministic
            && outcome.broken.is_empty()
            && outcome.end_states != whole.end_states
        {
            self.broken.push(format!("{}\n{plan}", difference(&outcome, whole)));
        }
        outcome.hits.values().sum()
    }
}

/// Describes how the end state differs from the expected one.
pub(crate) fn difference(found: &SimOutcome, expected: &SimOutcome) -> String {
    format!(
        "it ended otherwise than without faults: expected {:?}, found {:?}",
        expected.end_states, found.end_states
    )
}

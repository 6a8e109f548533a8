//! Tries every crash: each scenario dies at each action, and before, inside and after each transaction. Short scenarios
//! die a second time at every later transaction. Each run must end as if no crash had happened.
use crate::plan::{At, Blow, Fault, Plan};
use crate::scenario::catalogue;
use crate::world::{Outcome, run};
use serde::Serialize;

/// Scenarios with more transactions than this die only once.
const SHORT: usize = 14;

/// The number of crash points for a scenario whose worker dies on its own. Its turn is held back for minutes of virtual
/// time, so a run is long, and most of its points fall into identical pauses.
const POINTS_OF_DEADLY: usize = 400;

/// The result for one scenario.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Covered {
    pub(crate) scenario: &'static str,
    /// Transactions of the run without faults.
    pub(crate) writes: u64,
    /// Disk changes in them.
    pub(crate) changes: u64,
    /// Planned crash points: between two actions, and before, inside and after transactions. Only a sample of them if
    /// the worker dies on its own.
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
pub(crate) fn whole(play: usize) -> Result<Outcome, String> {
    let (first, second) = (run(&Plan::of(play)), run(&Plan::of(play)));
    let name = catalogue()[play].name;
    if let Some(broken) = first.broken.first() {
        return Err(format!("`{name}` without faults: {broken}"));
    }
    if first.trace != second.trace {
        return Err(format!("`{name}` is not the same twice: the world is not deterministic"));
    }
    Ok(first)
}

/// Kills one scenario at every point.
pub(crate) fn kill_everywhere(play: usize) -> Covered {
    let scenario = &catalogue()[play];
    let mut covered = Covered { scenario: scenario.name, ..Covered::default() };
    let whole = match whole(play) {
        Ok(whole) => whole,
        Err(broken) => {
            covered.broken.push(broken);
            return covered;
        }
    };
    covered.writes = whole.writes.iter().filter(|changes| **changes > 0).count() as u64;
    covered.changes = whole.writes.iter().sum();
    let points = points(&whole);
    let apart = if scenario.deadly { points.len().div_ceil(POINTS_OF_DEADLY) } else { 1 };
    for fault in points.into_iter().step_by(apart.max(1)) {
        covered.points += 1;
        covered.died += u64::from(covered.try_out(play, vec![fault], &whole) >= 1);
    }
    if whole.writes.len() <= SHORT {
        for first in around(0..whole.writes.len() as u64) {
            let at = |fault: &Fault| match fault.at {
                At::BeforeWrite(write) | At::AfterWrite(write) => write,
                _ => 0,
            };
            // The second life makes its own transactions. Continue until none is left to die at.
            for second in around(at(&first) + 1..) {
                if covered.try_out(play, vec![first, second], &whole) < 2 {
                    break;
                }
                covered.pairs += 1;
            }
        }
    }
    covered
}

/// Returns the points before and after each of these transactions.
fn around(writes: impl Iterator<Item = u64>) -> impl Iterator<Item = Fault> {
    writes.flat_map(|write| {
        [At::BeforeWrite(write), At::AfterWrite(write)].map(|at| Fault { at, blow: Blow::Kill(0) })
    })
}

/// Returns every single crash of a run.
fn points(whole: &Outcome) -> Vec<Fault> {
    let kill = |at| Fault { at, blow: Blow::Kill(0) };
    let mut points: Vec<Fault> = whole.mortal.iter().map(|action| kill(At::Action(*action, 0))).collect();
    for (write, changes) in (0..).zip(&whole.writes) {
        points.extend([kill(At::BeforeWrite(write)), kill(At::AfterWrite(write))]);
        points.push(Fault { at: At::AfterWrite(write), blow: Blow::PowerLoss(write) });
        for change in 0..*changes {
            points.push(kill(At::InWrite(write, change)));
            points.push(Fault { at: At::InWrite(write, change), blow: Blow::PowerLoss(change) });
        }
    }
    points
}

impl Covered {
    /// Plays a scenario with these faults. Returns how many of them happened.
    fn try_out(&mut self, scenario: usize, faults: Vec<Fault>, whole: &Outcome) -> u64 {
        let plan = Plan { faults, ..Plan::of(scenario) };
        let outcome = run(&plan);
        self.runs += 1;
        self.turns += outcome.turns;
        for broken in &outcome.broken {
            self.broken.push(format!("{broken}\n{plan}"));
        }
        if catalogue()[scenario].settled && outcome.broken.is_empty() && outcome.left != whole.left {
            self.broken.push(format!("{}\n{plan}", difference(&outcome, whole)));
        }
        outcome.hits.values().sum()
    }
}

/// Describes how the end state differs from the expected one.
pub(crate) fn difference(found: &Outcome, expected: &Outcome) -> String {
    format!("it ended otherwise than without faults: expected {:?}, found {:?}", expected.left, found.left)
}

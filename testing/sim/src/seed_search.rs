//! Plays seeds. Each seed draws a run with several sessions, workers and faults. The run is played twice and must keep
//! every promise. A failing plan is reduced to the parts that matter.
use crate::exhaustive;
use crate::plan::SimPlan;
use crate::scenario::catalogue;
use crate::simulation::{SimOutcome, run, run_again};
use std::collections::BTreeMap;

/// The results of many seeds.
#[derive(Debug, Default)]
pub(crate) struct SeedSearchResults {
    pub(crate) seeds: u64,
    pub(crate) runs: u64,
    pub(crate) turns: u64,
    pub(crate) lives: u64,
    pub(crate) hits: BTreeMap<&'static str, u64>,
    pub(crate) failures: Vec<String>,
}

/// The end state of each scenario without faults.
pub(crate) struct FaultFreeOutcomes(Vec<Option<SimOutcome>>);

impl FaultFreeOutcomes {
    /// Plays every scenario without faults.
    pub(crate) fn new() -> Self {
        Self((0..catalogue().len()).map(|play| exhaustive::run_without_faults(play).ok()).collect())
    }
}

/// The parts of a drawn plan to play: all, or those selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanSelection {
    pub(crate) faults: Option<Vec<usize>>,
    pub(crate) sessions: Option<Vec<usize>>,
    pub(crate) requests: Option<Vec<u64>>,
    pub(crate) outages: Option<Vec<usize>>,
}

impl PlanSelection {
    /// Returns the plan with only these parts.
    pub(crate) fn select_from(&self, plan: &SimPlan) -> SimPlan {
        fn only<T: Clone>(all: &[T], keep: &[usize]) -> Vec<T> {
            keep.iter().filter_map(|no| all.get(*no).cloned()).collect()
        }
        let mut smaller = plan.clone();
        if let Some(keep) = &self.faults {
            smaller.faults = only(&plan.faults, keep);
        }
        if let Some(keep) = &self.sessions {
            smaller.session_scenarios = only(&plan.session_scenarios, keep);
        }
        if let Some(keep) = &self.outages {
            smaller.outages = only(&plan.outages, keep);
        }
        if let Some(keep) = &self.requests {
            smaller.model_faults.retain(|request, _| keep.contains(request));
        }
        smaller
    }

    fn arguments(&self) -> String {
        fn list<T: ToString>(name: &str, keep: Option<&Vec<T>>) -> String {
            keep.map_or_else(String::new, |keep| {
                let list: Vec<String> = keep.iter().map(ToString::to_string).collect();
                format!(" --{name} {}", if list.is_empty() { "none".into() } else { list.join(",") })
            })
        }
        list("faults", self.faults.as_ref())
            + &list("sessions", self.sessions.as_ref())
            + &list("requests", self.requests.as_ref())
            + &list("outages", self.outages.as_ref())
    }
}

/// Plays a plan twice and judges it.
pub(crate) fn verdict(plan: &SimPlan, expected: &FaultFreeOutcomes) -> (SimOutcome, Option<String>) {
    let first = run(plan);
    let mut broken = first.broken.first().cloned();
    if broken.is_none() && run_again(plan) != first.trace {
        broken = Some("the same plan ran in two ways: the world is not deterministic".into());
    }
    if broken.is_none() && plan.is_strict() {
        for (session, left) in first.end_states.iter().enumerate() {
            let whole = expected.0[plan.session_scenarios[session]].as_ref();
            if plan.scenario(session).is_deterministic
                && whole.is_some_and(|whole| whole.end_states[0] != *left)
            {
                let whole = whole.map(|whole| &whole.end_states[0]);
                broken = Some(format!(
                    "session {session} ended otherwise than without faults: expected {whole:?}, found {left:?}"
                ));
            }
        }
    }
    (first, broken)
}

impl SeedSearchResults {
    /// Plays one seed.
    pub(crate) fn hunt(&mut self, seed: u64, only: Option<usize>, expected: &FaultFreeOutcomes) {
        let plan = SimPlan::draw_from_seed(seed, only);
        let (outcome, broken) = verdict(&plan, expected);
        self.seeds += 1;
        self.runs += 2;
        self.turns += 2 * outcome.turns;
        self.lives += u64::from(outcome.lives);
        for (name, times) in outcome.hits {
            *self.hits.entry(name).or_default() += times;
        }
        for mood in plan.model_faults.values() {
            *self.hits.entry(mood.name()).or_default() += 1;
        }
        for outage in &plan.outages {
            *self.hits.entry(outage.name()).or_default() += 1;
        }
        if let Some(broken) = broken {
            self.failures.push(report(seed, only, &plan, &broken, expected));
        }
    }

    /// Adds the results of another core.
    pub(crate) fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.runs += other.runs;
        self.turns += other.turns;
        self.lives += other.lives;
        for (name, times) in other.hits {
            *self.hits.entry(name).or_default() += times;
        }
        self.failures.extend(other.failures);
    }
}

/// Returns the report of a failed seed.
fn report(
    seed: u64,
    only: Option<usize>,
    plan: &SimPlan,
    broken: &str,
    expected: &FaultFreeOutcomes,
) -> String {
    let keep = shrink(plan, expected);
    let scenario = only.map_or_else(String::new, |play| format!(" --scenario '{}'", catalogue()[play].name));
    let small = keep.select_from(plan);
    let still = verdict(&small, expected).1.unwrap_or_default();
    format!(
        "seed {seed:#x}: {broken}\nREPRO: cargo xtask sim --seed {seed:#x}{scenario}\n\
         cut down: {still}\nREPRO: cargo xtask sim --seed {seed:#x}{scenario}{}\n{small}",
        keep.arguments()
    )
}

/// Removes everything that is not needed to fail.
fn shrink(plan: &SimPlan, expected: &FaultFreeOutcomes) -> PlanSelection {
    let mut keep = PlanSelection {
        faults: Some((0..plan.faults.len()).collect()),
        sessions: Some((0..plan.session_scenarios.len()).collect()),
        requests: Some(plan.model_faults.keys().copied().collect()),
        outages: Some((0..plan.outages.len()).collect()),
    };
    let fails = |keep: &PlanSelection| verdict(&keep.select_from(plan), expected).1.is_some();
    loop {
        let before = keep.clone();
        for no in 0..plan.faults.len() {
            let without = smaller(&keep, |keep| keep.faults = without(keep.faults.as_ref(), &no));
            keep = if without != keep && fails(&without) { without } else { keep };
        }
        for request in plan.model_faults.keys() {
            let without = smaller(&keep, |keep| keep.requests = without(keep.requests.as_ref(), request));
            keep = if without != keep && fails(&without) { without } else { keep };
        }
        for no in 0..plan.outages.len() {
            let without = smaller(&keep, |keep| keep.outages = without(keep.outages.as_ref(), &no));
            keep = if without != keep && fails(&without) { without } else { keep };
        }
        for no in 0..plan.session_scenarios.len() {
            let without = smaller(&keep, |keep| keep.sessions = without(keep.sessions.as_ref(), &no));
            let empty = without.sessions.as_ref().is_some_and(Vec::is_empty);
            keep = if !empty && without != keep && fails(&without) { without } else { keep };
        }
        if keep == before {
            return keep;
        }
    }
}

/// Returns a copy of a selection with one change.
fn smaller(keep: &PlanSelection, change: impl FnOnce(&mut PlanSelection)) -> PlanSelection {
    let mut smaller = keep.clone();
    change(&mut smaller);
    smaller
}

fn without<T: PartialEq + Clone>(list: Option<&Vec<T>>, one: &T) -> Option<Vec<T>> {
    list.map(|list| list.iter().filter(|other| *other != one).cloned().collect())
}

//! Simulates the whole system on one thread, with virtual time and seeded faults: `cargo xtask sim`.
//!
//! The kernel, the runtime and the store, including SQLite, are the real ones. Only the machine is simulated:
//!
//! - its disk (`outlast-disk`), its clock (`sim_time`) and its task scheduler (`task_scheduler`),
//! - its model, tools, MCP server and users (`model`, `tools`, `sim_mcp_server`, and `sim_user` playing a `scenario`).
//!
//! A `plan` defines the events and faults of a run, a `simulation` plays it, and the `oracle` judges the end state.
//! `exhaustive` kills every scenario at every point, `seed_search` plays seeds, and `report` prints the results.
mod effect_recorder;
mod exhaustive;
mod hooks;
mod limit_checks;
mod limit_scenarios;
mod model;
mod oracle;
mod outage_checks;
mod plan;
mod report;
mod scenario;
mod seed_search;
mod sim_args;
mod sim_mcp_server;
mod sim_process;
mod sim_time;
mod sim_user;
mod simulation;
mod task_scheduler;
#[cfg(test)]
mod tests;
mod tools;

use plan::SimPlan;
use report::SimReport;
use scenario::catalogue;
use seed_search::{FaultFreeOutcomes, PlanSelection, SeedSearchResults};
use sim_args::{SimArgs, USAGE};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments = match SimArgs::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("{wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // One of the simulated tools panics on purpose. Every other panic is reported.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<String>().is_none_or(|said| !said.starts_with(tools::ON_PURPOSE)) {
            usual(panic);
        }
    }));
    if let Some(seed) = arguments.seed {
        return one(seed, arguments.scenario, &arguments.keep);
    }
    let report = all(&arguments);
    println!("{}", report.text());
    let files =
        [(&arguments.json, report.json()), (&arguments.proof, report.page(arguments.torture.as_deref()))];
    for (path, text) in files {
        if let Some(path) = path
            && let Err(error) = std::fs::write(path, text)
        {
            eprintln!("{} cannot be written: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays one seed and reports the result.
fn one(seed: u64, only: Option<usize>, keep: &PlanSelection) -> ExitCode {
    let plan = keep.select_from(&SimPlan::draw_from_seed(seed, only));
    print!("{plan}");
    let (outcome, broken) = seed_search::verdict(&plan, &FaultFreeOutcomes::new());
    println!(
        "{} actions, {} lives, {} turns, trace {:#x}",
        outcome.actions, outcome.lives, outcome.turns, outcome.trace
    );
    for (name, times) in &outcome.hits {
        println!("  {times} × {name}");
    }
    let Some(broken) = broken else {
        println!("every promise was kept");
        return ExitCode::SUCCESS;
    };
    println!("BROKEN: {broken}");
    ExitCode::FAILURE
}

/// Kills every scenario at every point, then plays the seeds, on all cores.
fn all(arguments: &SimArgs) -> SimReport {
    let begun = Instant::now();
    let plays: Vec<usize> = match arguments.scenario {
        Some(play) => vec![play],
        None => (0..catalogue().len()).collect(),
    };
    let (covered, left) = if arguments.exhaustive {
        exhaustive::kill_everywhere(&plays, arguments.limit)
    } else {
        (Vec::new(), 0)
    };
    let killed = begun.elapsed();
    let hunting = Instant::now();
    let until = arguments.minutes.map(|minutes| hunting + Duration::from_secs(60 * minutes));
    let expected = FaultFreeOutcomes::new();
    let (hunted, next) = (Mutex::new(SeedSearchResults::default()), AtomicU64::new(arguments.from));
    on_every_core(|| {
        let mut own = SeedSearchResults::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let over = match until {
                Some(until) => Instant::now() >= until,
                None => seed >= arguments.from + arguments.seeds,
            };
            if over || own.failures.len() >= sim_args::FAILURES_SHOWN {
                break;
            }
            own.hunt(seed, arguments.scenario, &expected);
        }
        hunted.lock().expect("nobody panics with it").add(own);
    });
    SimReport {
        covered,
        skipped_crashes: left,
        rotation: arguments.limit.rotation,
        seed_results: hunted.into_inner().expect("nobody panicked with it"),
        first_seed: arguments.from,
        exhaustive_time: killed,
        hunted_for: hunting.elapsed(),
        cores: cores(),
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn on_every_core(work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(&work);
        }
    });
}

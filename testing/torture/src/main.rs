//! `outlast-torture`, the program behind `cargo xtask torture`.
use outlast_torture::{PlantedError, TorturePlan, WitnessPlacement, run, serve_if_asked};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

const USAGE: &str = "\
usage: outlast-torture [--kills N] [--minutes M] [--seed S] [--round R] [--json FILE] [--dir DIR]

  --kills N     stop after N kills; 1000 if neither this nor --minutes is given
  --minutes M   stop after M minutes
  --seed S      choose as the run that printed S
  --round R     play only round R of that run
  --json FILE   write the figures there
  --dir DIR     play below DIR, a directory on a real disk; target/torture if not given
";

/// The default number of kills.
const KILLS: u64 = 1_000;

/// The parsed command line.
struct TortureArgs {
    plan: TorturePlan,
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(served) = serve_if_asked(&arguments) {
        return served.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS);
    }
    match parse(&arguments).and_then(prepared) {
        Ok(asked) => torture(&asked).unwrap_or_else(|error| fail(&*error)),
        Err(message) => {
            eprint!("{message}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn fail(error: &(impl std::fmt::Display + ?Sized)) -> ExitCode {
    eprintln!("the torture could not go on: {error}");
    ExitCode::FAILURE
}

fn torture(asked: &TortureArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let TortureArgs { plan, json } = asked;
    println!("seed {}, in {}", plan.seed, plan.dir.display());
    let report = run(plan, |line| println!("{line}"))?;
    print!("\n{}", report.figures.table());
    if let Some(path) = json {
        std::fs::write(path, format!("{:#}\n", report.json()))?;
    }
    let Some((round, dir)) = &report.failed else { return Ok(ExitCode::SUCCESS) };
    println!("\na promise was broken:");
    for broken in &report.broken {
        println!("  {:?}: {}", broken.promise, broken.violation_text);
    }
    println!("everything is kept in {}", dir.display());
    println!("again: cargo xtask torture --seed {} --round {round}", plan.seed);
    Ok(ExitCode::FAILURE)
}

/// Checks that the binary exists, and makes the paths absolute.
fn prepared(mut asked: TortureArgs) -> Result<TortureArgs, String> {
    let TorturePlan { outlast, dir, .. } = &mut asked.plan;
    if !outlast.is_file() {
        return Err(format!("expected the binary at {}; `cargo xtask torture` builds it", outlast.display()));
    }
    // The binary runs in another directory, so paths must be absolute.
    *dir = std::path::absolute(&*dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(asked)
}

fn parse(arguments: &[String]) -> Result<TortureArgs, String> {
    let here =
        std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut plan = TorturePlan {
        outlast: here.with_file_name("outlast"),
        witness_placement: WitnessPlacement::Process(here),
        dir: PathBuf::from("target/torture"),
        seed: now,
        kills: None,
        time: None,
        round: None,
        ballast: true,
        planted: None,
    };
    let mut json = None;
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--kills" => plan.kills = Some(number(name, value()?)?),
            "--minutes" => plan.time = Some(Duration::from_secs(number(name, value()?)?.saturating_mul(60))),
            "--seed" => plan.seed = number(name, value()?)?,
            "--round" => plan.round = Some(number(name, value()?)?),
            "--json" => json = Some(value()?.into()),
            "--dir" => plan.dir = value()?.into(),
            // Hidden: plants an error in the evidence, and the run must fail.
            "--plant" => plan.planted = Some(planted(value()?)?),
            _ => return Err(format!("unknown argument `{name}`")),
        }
    }
    if plan.kills.is_none() && plan.time.is_none() && plan.round.is_none() {
        plan.kills = Some(KILLS);
    }
    Ok(TortureArgs { plan, json })
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} takes a whole number, not `{value}`"))
}

fn planted(value: &str) -> Result<PlantedError, String> {
    match value {
        "lost" => Ok(PlantedError::Lost),
        "repeated" => Ok(PlantedError::Repeated),
        _ => Err(format!("--plant takes lost or repeated, not `{value}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<TortureArgs, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn default_run_kills_a_thousand_times() {
        let bounds = |line| parsed(line).map(|TortureArgs { plan, .. }| (plan.kills, plan.time, plan.round));
        assert_eq!(bounds(""), Ok((Some(1_000), None, None)));
        assert_eq!(bounds("--minutes 2"), Ok((None, Some(Duration::from_mins(2)), None)));
        assert_eq!(bounds("--seed 7 --round 3"), Ok((None, None, Some(3))));
        assert_eq!(bounds("--kills 5 --minutes 1"), Ok((Some(5), Some(Duration::from_mins(1)), None)));
    }

    #[test]
    fn invalid_arguments_name_what_was_expected() {
        let refused = |line| parsed(line).map(drop).unwrap_err();
        assert_eq!(refused("--kills many"), "--kills takes a whole number, not `many`");
        assert_eq!(refused("--seed"), "--seed needs a value");
        assert_eq!(refused("--plant doubt"), "--plant takes lost or repeated, not `doubt`");
        assert_eq!(refused("--kill 3"), "unknown argument `--kill`");
    }
}

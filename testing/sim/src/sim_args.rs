//! Parses the command line.
use crate::exhaustive::SearchLimit;
use crate::scenario::catalogue;
use crate::seed_search::PlanSelection;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The usage text.
pub(crate) const USAGE: &str = "\
usage: cargo xtask sim [--seeds N] [--from SEED] [--minutes M] [--scenario NAME]
                       [--no-exhaustive | --exhaustive-seconds N [--rotation SEED]]
                       [--json FILE] [--proof FILE [--torture FILE]]
       cargo xtask sim --seed SEED [--scenario NAME] [--faults LIST] [--sessions LIST] [--requests LIST]
                       [--outages LIST]";

/// The number of failing seeds after which each core stops.
pub(crate) const FAILURES_SHOWN: usize = 3;

/// The parsed command line.
pub(crate) struct SimArgs {
    pub(crate) seeds: u64,
    pub(crate) from: u64,
    pub(crate) minutes: Option<u64>,
    pub(crate) scenario: Option<usize>,
    pub(crate) exhaustive: bool,
    pub(crate) limit: SearchLimit,
    pub(crate) seed: Option<u64>,
    pub(crate) keep: PlanSelection,
    pub(crate) json: Option<PathBuf>,
    pub(crate) proof: Option<PathBuf>,
    pub(crate) torture: Option<PathBuf>,
}

impl SimArgs {
    /// Parses the arguments.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut found = Self {
            seeds: 2_000,
            from: 0,
            minutes: None,
            scenario: None,
            exhaustive: true,
            limit: SearchLimit { time: None, rotation: days_since_1970() },
            seed: None,
            keep: PlanSelection::default(),
            json: None,
            proof: None,
            torture: None,
        };
        while let Some(word) = words.next() {
            if word == "--no-exhaustive" {
                found.exhaustive = false;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            match word.as_str() {
                "--seeds" => found.seeds = number(&word, &value)?,
                "--from" => found.from = number(&word, &value)?,
                "--minutes" => found.minutes = Some(number(&word, &value)?),
                "--exhaustive-seconds" => {
                    found.limit.time = Some(Duration::from_secs(number(&word, &value)?));
                }
                "--rotation" => found.limit.rotation = number(&word, &value)?,
                "--seed" => found.seed = Some(number(&word, &value)?),
                "--scenario" => found.scenario = Some(scenario(&value)?),
                "--faults" => found.keep.faults = Some(list(&word, &value)?),
                "--sessions" => found.keep.sessions = Some(list(&word, &value)?),
                "--requests" => found.keep.requests = Some(list(&word, &value)?),
                "--outages" => found.keep.outages = Some(list(&word, &value)?),
                "--json" => found.json = Some(value.into()),
                "--proof" => found.proof = Some(value.into()),
                "--torture" => found.torture = Some(value.into()),
                _ => return Err(format!("unknown argument `{word}`")),
            }
        }
        Ok(found)
    }
}

/// Returns the default rotation: each day tries other crashes.
fn days_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / (24 * 60 * 60))
}

fn number(word: &str, value: &str) -> Result<u64, String> {
    let parsed = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => value.parse(),
    };
    parsed.map_err(|_| format!("{word} takes a number, such as 42 or 0x2a, but found `{value}`"))
}

fn list<T: TryFrom<u64>>(word: &str, value: &str) -> Result<Vec<T>, String> {
    if value == "none" {
        return Ok(Vec::new());
    }
    let wrong = || format!("{word} takes numbers, such as 0,3, or none, but found `{value}`");
    value.split(',').map(|one| T::try_from(number(word, one)?).map_err(|_| wrong())).collect()
}

fn scenario(name: &str) -> Result<usize, String> {
    catalogue().iter().position(|scenario| scenario.name == name).ok_or_else(|| {
        let names: Vec<&str> = catalogue().iter().map(|scenario| scenario.name).collect();
        format!("there is no scenario `{name}`; there are: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<SimArgs, String> {
        SimArgs::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn printed_seed_parses_back() {
        let found = parse("--seed 0x2a --faults 0,2 --requests none").unwrap();
        assert_eq!(found.seed, Some(42));
        assert_eq!(found.keep.faults, Some(vec![0, 2]));
        assert_eq!((found.keep.requests, found.keep.sessions), (Some(vec![]), None));
    }

    #[test]
    fn search_time_can_be_limited() {
        let found = parse("--exhaustive-seconds 90 --rotation 7").unwrap().limit;
        assert_eq!((found.time, found.rotation), (Some(Duration::from_secs(90)), 7));
        assert_eq!(parse("").unwrap().limit.time, None);
    }

    #[test]
    fn unknown_argument_is_named() {
        let wrong = |line| parse(line).err().unwrap();
        assert_eq!(wrong("--sead 1"), "unknown argument `--sead`");
        assert_eq!(wrong("--seeds"), "`--seeds` needs a value");
        assert_eq!(wrong("--seeds many"), "--seeds takes a number, such as 42 or 0x2a, but found `many`");
        assert!(wrong("--scenario nothing").starts_with("there is no scenario `nothing`; there are: plain,"));
    }
}

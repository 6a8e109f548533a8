//! Compares the answers of two stores under the same random operations.
//!
//! An operation is a number. It determines one request, or several simultaneous writes, together with the current
//! knowledge (`known_ids`, `request_generator`) and the emphasis of the run (`run_profile`). A run is therefore a list of numbers, and every
//! shorter list is a run too. Shrinking removes numbers from a list that made two stores differ. Both stores get the
//! same requests (`store_request`). Their answers are compared one by one, and all readable data (`look`) at intervals.
mod commit_generator;
mod known_ids;
mod request_generator;
mod run_profile;
mod store_request;
mod store_snapshot;
mod value_generators;

use super::Fixture;
use known_ids::KnownIds;
use outlast_random::SeededRandom;
use run_profile::RunProfile;
use std::collections::BTreeMap;
use std::fmt;
use store_request::StoreRequest;

/// The number of operations between two comparisons of all data.
const LOOK_EVERY: usize = 75;

/// The maximum number of runs to shrink a failing list.
const SHRINK_RUNS: usize = 300;

/// Counts the answers by operation and result. The result is `ok` or an error code.
pub type AnswerCounts = BTreeMap<(&'static str, &'static str), u64>;

/// Two stores that gave different answers, or answers that no store may give.
#[derive(Debug)]
pub struct Difference {
    seed: u64,
    operations: usize,
    requests: Vec<Vec<StoreRequest>>,
    one: String,
    other: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, operations, requests: asked, one, other } = self;
        writeln!(
            f,
            "seed {seed} with {operations} operations makes the stores differ; these {} are enough:",
            asked.len()
        )?;
        for (n, asks) in (1..).zip(asked) {
            for ask in asks {
                writeln!(f, "{n:4} {}", value_generators::abridged(&format!("{ask:?}")))?;
            }
        }
        let differs = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        writeln!(f, "one:   {}", excerpt(one, differs))?;
        write!(f, "other: {}", excerpt(other, differs))
    }
}

impl std::error::Error for Difference {}

/// Returns the part of a text around a position.
fn excerpt(text: &str, around: usize) -> String {
    const BEFORE: usize = 200;
    const MOST: usize = 600;
    let from = text.floor_char_boundary(around.saturating_sub(BEFORE));
    let to = text.floor_char_boundary(from.saturating_add(MOST));
    let (left, right) = (if from > 0 { "…" } else { "" }, if to < text.len() { "…" } else { "" });
    format!("{left}{}{right}", &text[from..to])
}

/// Draws this many operations from a seed and compares two fresh stores under them.
///
/// `make` creates a fresh pair. It is called again to shrink a failing list.
pub fn differential<A: Fixture, B: Fixture>(
    seed: u64,
    operations: usize,
    make: impl Fn() -> (A, B),
) -> Result<AnswerCounts, Difference> {
    let mut random = SeededRandom::new(seed, 0);
    let numbers: Vec<u64> = (0..operations).map(|_| random.number()).collect();
    let play = |numbers: &[u64], look_every| {
        let (one, other) = make();
        let known = KnownIds::new(RunProfile::draw(&mut SeededRandom::new(seed, 0)));
        play(
            numbers,
            look_every,
            ComparedStores {
                one: &one,
                other: &other,
                known,
                tally: AnswerCounts::new(),
                requests: Vec::new(),
            },
        )
    };
    play(&numbers, LOOK_EVERY).map_err(|found| {
        let StoreDivergence { requests: asked, one, other } =
            shrink(&numbers, found, |fewer| play(fewer, usize::MAX).err());
        Difference { seed, operations, requests: asked, one, other }
    })
}

/// The requests until two stores differed, and their last answers.
struct StoreDivergence {
    requests: Vec<Vec<StoreRequest>>,
    one: String,
    other: String,
}

fn play(
    numbers: &[u64],
    look_every: usize,
    mut race: ComparedStores<'_>,
) -> Result<AnswerCounts, StoreDivergence> {
    for (n, number) in (1..).zip(numbers) {
        let asks = request_generator::draw_requests(&mut race.known, &mut SeededRandom::new(*number, 0));
        race.ask(&asks)?;
        if n % look_every == 0 {
            race.compare_snapshots()?;
        }
    }
    race.compare_snapshots()?;
    // Only this shows when each lease expires.
    for ask in request_generator::claims_until_nothing_is_left(&race.known) {
        race.ask(&[ask])?;
        // Only the failing request should be in the report.
        race.requests.pop();
    }
    Ok(race.tally)
}

/// Two stores that get the same requests.
struct ComparedStores<'a> {
    one: &'a dyn Fixture,
    other: &'a dyn Fixture,
    known: KnownIds,
    tally: AnswerCounts,
    requests: Vec<Vec<StoreRequest>>,
}

impl ComparedStores<'_> {
    fn ask(&mut self, asks: &[StoreRequest]) -> Result<(), StoreDivergence> {
        let [first, second] = [self.one, self.other].map(|on| store_request::send_all(on, asks));
        self.requests.push(asks.to_vec());
        for (ask, (first, second)) in asks.iter().zip(first.into_iter().zip(second)) {
            // An answer that the store is broken is wrong, even if both give it.
            if first.text != second.text || first.is_broken() {
                return Err(self.divergence(first.text, second.text));
            }
            *self.tally.entry((first.name, first.result_code)).or_default() += 1;
            self.known.learn(ask, first);
        }
        Ok(())
    }

    fn compare_snapshots(&mut self) -> Result<(), StoreDivergence> {
        let [first, second] =
            [self.one, self.other].map(|on| store_snapshot::store_snapshot_of(on, &self.known));
        // These reads always succeed, so an error is wrong, even if both give it.
        if first.is_ok() && first == second {
            return Ok(());
        }
        let [first, second] = [first, second].map(|look| look.unwrap_or_else(|error| error));
        Err(self.divergence(first, second))
    }

    fn divergence(&mut self, one: String, other: String) -> StoreDivergence {
        StoreDivergence { requests: std::mem::take(&mut self.requests), one, other }
    }
}

/// Removes as many numbers as possible while the stores still differ: large pieces first, then single numbers.
fn shrink(
    numbers: &[u64],
    found: StoreDivergence,
    mut play: impl FnMut(&[u64]) -> Option<StoreDivergence>,
) -> StoreDivergence {
    let mut numbers = numbers.to_vec();
    numbers.truncate(found.requests.len());
    let mut shortest = found;
    let mut runs = 0;
    let mut piece = numbers.len();
    while piece > 0 && runs < SHRINK_RUNS {
        let mut from = 0;
        while from < numbers.len() && runs < SHRINK_RUNS {
            let mut fewer = numbers.clone();
            fewer.drain(from..numbers.len().min(from + piece));
            runs += 1;
            match play(&fewer) {
                Some(again) => {
                    fewer.truncate(again.requests.len());
                    (numbers, shortest) = (fewer, again);
                }
                None => from += piece,
            }
        }
        piece /= 2;
    }
    shortest
}

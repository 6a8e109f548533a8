//! Compares the answers of two stores under the same random operations.
//!
//! An operation is a number. It determines one request, or several simultaneous writes, together with the current
//! knowledge (`known`, `draw`) and the emphasis of the run (`mood`). A run is therefore a list of numbers, and every
//! shorter list is a run too. Shrinking removes numbers from a list that made two stores differ. Both stores get the
//! same requests (`ask`). Their answers are compared one by one, and all readable data (`look`) at intervals.
mod ask;
mod commit;
mod dice;
mod draw;
mod known;
mod look;
mod mood;
mod things;

use super::Fixture;
use ask::Ask;
use dice::Dice;
use known::Known;
use mood::Mood;
use std::collections::BTreeMap;
use std::fmt;

/// The number of operations between two comparisons of all data.
const LOOK_EVERY: usize = 75;

/// The maximum number of runs to shrink a failing list.
const SHRINKING: usize = 300;

/// Counts the answers by operation and result. The result is `ok` or an error code.
pub type Tally = BTreeMap<(&'static str, &'static str), u64>;

/// Two stores that gave different answers, or answers that no store may give.
#[derive(Debug)]
pub struct Difference {
    seed: u64,
    operations: usize,
    asked: Vec<Vec<Ask>>,
    one: String,
    other: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, operations, asked, one, other } = self;
        writeln!(
            f,
            "seed {seed} with {operations} operations makes the stores differ; these {} are enough:",
            asked.len()
        )?;
        for (n, asks) in (1..).zip(asked) {
            for ask in asks {
                writeln!(f, "{n:4} {}", things::abridged(&format!("{ask:?}")))?;
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
) -> Result<Tally, Difference> {
    let mut dice = Dice::new(seed);
    let numbers: Vec<u64> = (0..operations).map(|_| dice.number()).collect();
    let play = |numbers: &[u64], look_every| {
        let (one, other) = make();
        let known = Known::new(Mood::draw(&mut Dice::new(seed)));
        play(
            numbers,
            look_every,
            Race { one: &one, other: &other, known, tally: Tally::new(), asked: Vec::new() },
        )
    };
    play(&numbers, LOOK_EVERY).map_err(|found| {
        let Found { asked, one, other } = shrink(&numbers, found, |fewer| play(fewer, usize::MAX).err());
        Difference { seed, operations, asked, one, other }
    })
}

/// The requests until two stores differed, and their last answers.
struct Found {
    asked: Vec<Vec<Ask>>,
    one: String,
    other: String,
}

fn play(numbers: &[u64], look_every: usize, mut race: Race<'_>) -> Result<Tally, Found> {
    for (n, number) in (1..).zip(numbers) {
        let asks = draw::asks(&mut race.known, &mut Dice::new(*number));
        race.ask(&asks)?;
        if n % look_every == 0 {
            race.look()?;
        }
    }
    race.look()?;
    // Only this shows when each lease expires.
    for ask in draw::claims_until_nothing_is_left(&race.known) {
        race.ask(&[ask])?;
        // Only the failing request should be in the report.
        race.asked.pop();
    }
    Ok(race.tally)
}

/// Two stores that get the same requests.
struct Race<'a> {
    one: &'a dyn Fixture,
    other: &'a dyn Fixture,
    known: Known,
    tally: Tally,
    asked: Vec<Vec<Ask>>,
}

impl Race<'_> {
    fn ask(&mut self, asks: &[Ask]) -> Result<(), Found> {
        let [first, second] = [self.one, self.other].map(|on| ask::put(on, asks));
        self.asked.push(asks.to_vec());
        for (ask, (first, second)) in asks.iter().zip(first.into_iter().zip(second)) {
            // An answer that the store is broken is wrong, even if both give it.
            if first.said != second.said || first.is_broken() {
                return Err(self.found(first.said, second.said));
            }
            *self.tally.entry((first.name, first.how)).or_default() += 1;
            self.known.learn(ask, first);
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), Found> {
        let [first, second] = [self.one, self.other].map(|on| look::at(on, &self.known));
        // These reads always succeed, so an error is wrong, even if both give it.
        if first.is_ok() && first == second {
            return Ok(());
        }
        let [first, second] = [first, second].map(|look| look.unwrap_or_else(|error| error));
        Err(self.found(first, second))
    }

    fn found(&mut self, one: String, other: String) -> Found {
        Found { asked: std::mem::take(&mut self.asked), one, other }
    }
}

/// Removes as many numbers as possible while the stores still differ: large pieces first, then single numbers.
fn shrink(numbers: &[u64], found: Found, mut play: impl FnMut(&[u64]) -> Option<Found>) -> Found {
    let mut numbers = numbers.to_vec();
    numbers.truncate(found.asked.len());
    let mut shortest = found;
    let mut runs = 0;
    let mut piece = numbers.len();
    while piece > 0 && runs < SHRINKING {
        let mut from = 0;
        while from < numbers.len() && runs < SHRINKING {
            let mut fewer = numbers.clone();
            fewer.drain(from..numbers.len().min(from + piece));
            runs += 1;
            match play(&fewer) {
                Some(again) => {
                    fewer.truncate(again.asked.len());
                    (numbers, shortest) = (fewer, again);
                }
                None => from += piece,
            }
        }
        piece /= 2;
    }
    shortest
}

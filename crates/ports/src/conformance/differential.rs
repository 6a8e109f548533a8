//! The same random operations on two stores must give the same answers.
//!
//! An operation is a number: what it asks for, alone or several writes at the same moment, follows from the number, from
//! what is known by then (`draw`) and from what the run is mostly about (`mood`). So a run is a list of numbers, a shorter list is a run too, and what made two
//! stores differ is shrunk by leaving numbers out. Both are asked the same (`ask`); their answers are compared one by one,
//! and everything that can be read of them (`look`) at intervals.
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

/// Operations between two looks at everything.
const LOOK_EVERY: usize = 75;

/// Runs that are spent on making a failing list shorter.
const SHRINKING: usize = 300;

/// How often each operation was answered in each way: its name, and `ok` or the code of the error.
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

/// As much of a text around a place as a person wants to read.
fn excerpt(text: &str, around: usize) -> String {
    const BEFORE: usize = 200;
    const MOST: usize = 600;
    let from = text.floor_char_boundary(around.saturating_sub(BEFORE));
    let to = text.floor_char_boundary(from.saturating_add(MOST));
    let (left, right) = (if from > 0 { "…" } else { "" }, if to < text.len() { "…" } else { "" });
    format!("{left}{}{right}", &text[from..to])
}

/// Draws this many operations from a seed and compares two fresh stores under them. `make` gives a fresh pair, and is
/// called again to shrink what made them differ.
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

/// What was asked until two stores differed, and what they said then.
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
    // Only this shows until when each lease lasts.
    for ask in draw::claims_until_nothing_is_left(&race.known) {
        race.ask(&[ask])?;
        // The one that fails is enough to read.
        race.asked.pop();
    }
    Ok(race.tally)
}

/// Two stores that get the same asks.
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
            // An answer that says that the store is broken is wrong even when both give it.
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
        // Every question of a look has an answer, so an error is wrong even when both give it.
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

/// Leaves out as many numbers as the difference can do without: large pieces first, then one by one.
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

//! What a run is mostly about.
//!
//! Where everything is equally likely, what takes many of a kind hardly ever comes about: ten turns that park, or ten
//! calls of unknown outcome. So each run draws first what it does often and what it never does.
use super::dice::Dice;
use super::draw::WRITES;

/// How likely things are in one run.
#[derive(Default)]
pub(super) struct Mood {
    /// The weight of each write.
    pub(super) writes: Vec<u64>,
    /// Milliseconds that may pass before an operation.
    pub(super) pace: u64,
    /// How many of a hundred writes of a turn park it.
    pub(super) parks: u64,
    /// How many of a hundred outcomes are unknown.
    pub(super) unknown: u64,
    /// How many of a hundred texts are long.
    pub(super) long: u64,
}

impl Mood {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        // Without the first two, inputs and commits, there would be nothing to look at.
        let weight =
            |(n, (usual, _)): (usize, &(u64, _))| usual * if n < 2 { 1 } else { dice.one_of(&[0, 1, 1, 3]) };
        Self {
            writes: WRITES.iter().enumerate().map(weight).collect(),
            pace: dice.one_of(&[20, 300, 300, 1_500]),
            parks: dice.one_of(&[0, 20, 20, 60]),
            unknown: dice.one_of(&[20, 20, 70]),
            long: dice.one_of(&[1, 3, 3, 25]),
        }
    }
}

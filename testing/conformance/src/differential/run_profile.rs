//! The emphasis of a run.
//!
//! If all operations are equally likely, situations that need many of a kind are rare, such as ten parked turns or ten
//! calls of unknown outcome. Each run therefore first draws what it does often and what it never does.
use super::request_generator::WRITES;
use outlast_random::SeededRandom;

/// The probabilities of one run.
#[derive(Default)]
pub(super) struct RunProfile {
    /// The weight of each write.
    pub(super) writes: Vec<u64>,
    /// The maximum number of milliseconds between two operations.
    pub(super) step_ms_max: u64,
    /// The percentage of a turn's writes that park it.
    pub(super) parks: u64,
    /// The percentage of outcomes that are unknown.
    pub(super) unknown: u64,
    /// The percentage of texts that are long.
    pub(super) long: u64,
}

impl RunProfile {
    pub(super) fn draw(random: &mut SeededRandom) -> Self {
        // The first two writes, inputs and commits, are always possible. Without them, there would be no data.
        let weight = |(n, (usual, _)): (usize, &(u64, _))| {
            usual * if n < 2 { 1 } else { random.one_of(&[0, 1, 1, 3]) }
        };
        Self {
            writes: WRITES.iter().enumerate().map(weight).collect(),
            step_ms_max: random.one_of(&[20, 300, 300, 1_500]),
            parks: random.one_of(&[0, 20, 20, 60]),
            unknown: random.one_of(&[20, 20, 70]),
            long: random.one_of(&[1, 3, 3, 25]),
        }
    }
}

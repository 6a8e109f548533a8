//! Seeded random numbers: the same seed gives the same numbers in every version and on every machine.
//!
//! All tests that need random numbers draw from it. Regression tests pin seeds of the simulator, so the algorithm must
//! not change.
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::Duration;

/// A stream of random numbers from a seed (`ChaCha8`).
#[derive(Debug)]
pub struct SeededRandom(ChaCha8Rng);

impl SeededRandom {
    /// Creates the stream with this number of a seed. Streams are independent: drawing more from one does not change
    /// what another returns.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 up to `end`, exclusive, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// Returns an index into a list of this length, or 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    /// Returns `true` with this probability in percent.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Returns a time below `most`.
    pub fn time_below(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(most.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns one of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<T: Clone>(&mut self, things: &[T]) -> T {
        self.one_if_any(things).expect("there is something to choose from")
    }

    /// Returns one of these, if there are any.
    pub fn one_if_any<T: Clone>(&mut self, things: &[T]) -> Option<T> {
        things.get(self.index(things.len())).cloned()
    }

    /// Returns up to `most` things.
    pub fn up_to<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    /// Returns mostly one of the last few of these. Most operations use recent things, and the choice stays the same if
    /// much earlier operations are removed.
    pub fn recent<T: Clone>(&mut self, things: &[T]) -> Option<T> {
        let few = if self.percent(85) { 4 } else { things.len() };
        self.one_if_any(&things[things.len().saturating_sub(few)..])
    }

    /// Returns mostly one of the likely things, preferring recent ones, and otherwise one of the others.
    pub fn likely_or_other<T: Clone>(&mut self, likely: &[T], others: &[T]) -> Option<T> {
        let (first, second) = if self.percent(85) { (likely, others) } else { (others, likely) };
        self.recent(first).or_else(|| self.recent(second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, stream: u64) -> Vec<u64> {
        let mut random = SeededRandom::new(seed, stream);
        (0..4).map(|_| random.below(1_000)).collect()
    }

    #[test]
    fn seeds_keep_their_numbers() {
        assert_eq!(drawn(56, 1), [726, 947, 169, 80]);
    }

    #[test]
    fn streams_of_a_seed_differ() {
        assert_ne!(drawn(7, 0), drawn(7, 1));
        assert_ne!(drawn(7, 0), drawn(8, 0));
    }
}

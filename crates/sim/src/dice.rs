//! Chance that a seed decides: the same seed throws the same numbers for ever.
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of throws.
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of a seed for one purpose. Streams for different purposes have nothing to do with each other, so that
    /// taking a fault out of a plan does not throw the schedule over.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose);
        Self(rng)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// An index into a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below a usize")
    }

    /// Whether something of this many in a hundred happens.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

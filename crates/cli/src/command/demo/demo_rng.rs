//! A seeded random number generator, so that a demo can be repeated.
//!
//! Tests use `outlast-random`. The binary does not, because it does not depend on crates of `testing/`, and a generator
//! of four lines needs no dependency.

/// A `SplitMix64` generator. Good enough to choose where to kill, and for nothing else.
#[derive(Debug)]
pub(super) struct DemoRng(u64);

impl DemoRng {
    /// Creates a generator from a seed.
    pub(super) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Returns `many` distinct numbers below `bound`.
    pub(super) fn distinct(&mut self, many: usize, bound: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..bound).collect();
        let mut drawn = Vec::with_capacity(many);
        while drawn.len() < many && !all.is_empty() {
            let at = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
            drawn.push(all.swap_remove(at));
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        let mut drawn = DemoRng::of(7).distinct(5, 12);
        assert_eq!(drawn, DemoRng::of(7).distinct(5, 12));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 5);
        assert!(drawn.iter().all(|number| *number < 12));
    }
}

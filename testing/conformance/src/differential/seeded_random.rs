//! Deterministic random numbers: the same seed gives the same numbers in every version and on every machine.

/// A stream of numbers from a seed (`SplitMix64`).
pub(super) struct SeededRandom(u64);

impl SeededRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to `end`, exclusive, or 0 if `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// Returns `true` this many times out of a hundred.
    pub(super) fn percent(&mut self, times: u64) -> bool {
        self.below(100) < times
    }

    /// Returns one of these.
    pub(super) fn one_of<T: Clone>(&mut self, things: &[T]) -> T {
        self.one_if_any(things).expect("there is something to choose from")
    }

    /// Returns one of these, if there are any.
    pub(super) fn one_if_any<T: Clone>(&mut self, things: &[T]) -> Option<T> {
        let at = self.below(things.len() as u64);
        things.get(usize::try_from(at).unwrap_or(usize::MAX)).cloned()
    }

    /// Returns mostly one of the last few of these. Most operations use recent things, and the choice stays the same if
    /// much earlier operations are removed.
    pub(super) fn recent<T: Clone>(&mut self, things: &[T]) -> Option<T> {
        let few = if self.percent(85) { 4 } else { things.len() };
        self.one_if_any(&things[things.len().saturating_sub(few)..])
    }

    /// Returns mostly one of the likely things, preferring recent ones, and otherwise one of the others.
    pub(super) fn likely_or_other<T: Clone>(&mut self, likely: &[T], others: &[T]) -> Option<T> {
        let (first, second) = if self.percent(85) { (likely, others) } else { (others, likely) };
        self.recent(first).or_else(|| self.recent(second))
    }

    /// Returns up to `most` things.
    pub(super) fn up_to<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }
}

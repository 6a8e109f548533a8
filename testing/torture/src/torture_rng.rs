//! Repeatable random numbers: the same seed gives the same numbers.
use std::time::Duration;

/// The purpose of a random stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RngPurpose {
    /// The length of the round.
    Round,
    /// The behaviour of the users.
    Client,
    /// The faults in this scene.
    Scene(u64),
}

/// A seeded generator (`SplitMix64`), which is good enough to choose where to kill.
#[derive(Debug)]
pub(crate) struct TortureRng(u64);

impl TortureRng {
    /// Creates the stream for one purpose of one round. Streams are independent: a round can be played alone, and its
    /// scenes do not depend on how long each takes.
    pub(crate) fn of(seed: u64, round: u64, purpose: RngPurpose) -> Self {
        let purpose = match purpose {
            RngPurpose::Round => 0,
            RngPurpose::Client => 1,
            RngPurpose::Scene(number) => 2 + number,
        };
        let mut dice = Self(seed);
        for part in [round, purpose] {
            dice.0 = dice.next() ^ part;
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true with this probability in percent.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Returns a time below `most`.
    pub(crate) fn within(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(most.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns a time between 50 µs and 200 ms. Short times are as likely as long ones: each doubling has the same
    /// chance.
    pub(crate) fn log_uniform_delay(&mut self) -> Duration {
        let shortest = Duration::from_micros(50) * (1 << self.below(11));
        shortest + self.within(shortest)
    }

    /// Picks one of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(from.len().max(1) as u64);
        from.get(usize::try_from(at).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rng_depends_on_seed_round_and_scene() {
        let throw = |seed, round, scene| {
            let mut dice = TortureRng::of(seed, round, RngPurpose::Scene(scene));
            (0..5).map(|_| dice.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(throw(7, 1, 1), throw(7, 1, 1));
        assert_ne!(throw(7, 1, 1), throw(7, 1, 2));
        assert_ne!(throw(7, 1, 1), throw(7, 2, 1));
        assert_ne!(throw(7, 1, 1), throw(8, 1, 1));
    }

    #[test]
    fn log_uniform_delay_stays_within_its_bounds() {
        let mut dice = TortureRng::of(1, 1, RngPurpose::Client);
        let times: Vec<Duration> = (0..1_000).map(|_| dice.log_uniform_delay()).collect();
        let bounds = Duration::from_micros(50)..Duration::from_millis(205);
        assert!(times.iter().all(|time| bounds.contains(time)));
        assert!(times.iter().any(|time| *time < Duration::from_micros(200)));
        assert!(times.iter().any(|time| *time > Duration::from_millis(60)));
    }
}

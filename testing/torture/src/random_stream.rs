//! The random streams of a round, and the times that faults wait.
use outlast_random::SeededRandom;
use std::time::Duration;

/// The purpose of a random stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RandomPurpose {
    /// The length of the round.
    Round,
    /// The behaviour of the users.
    Client,
    /// The faults in this scene.
    Scene(u64),
}

impl RandomPurpose {
    /// Returns the stream for this purpose in one round. Streams are independent: a round can be played alone, and its
    /// scenes do not depend on how long each takes.
    pub(crate) fn stream(self, seed: u64, round: u64) -> SeededRandom {
        let number = match self {
            Self::Round => 0,
            Self::Client => 1,
            Self::Scene(number) => 2 + number,
        };
        SeededRandom::new(seed, (round << 32) | number)
    }
}

/// Returns a time between 50 µs and 200 ms. Short times are as likely as long ones: each doubling has the same chance.
pub(crate) fn log_uniform_delay(random: &mut SeededRandom) -> Duration {
    let shortest = Duration::from_micros(50) * (1 << random.below(11));
    shortest + random.time_below(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_and_scene_has_its_own_numbers() {
        let draw = |seed, round, scene| {
            let mut random = RandomPurpose::Scene(scene).stream(seed, round);
            (0..5).map(|_| random.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1, 1), draw(7, 1, 1));
        assert_ne!(draw(7, 1, 1), draw(7, 1, 2));
        assert_ne!(draw(7, 1, 1), draw(7, 2, 1));
        assert_ne!(draw(7, 1, 1), draw(8, 1, 1));
    }

    #[test]
    fn delays_are_between_50_us_and_200_ms() {
        let mut random = RandomPurpose::Client.stream(1, 1);
        let times: Vec<Duration> = (0..1_000).map(|_| log_uniform_delay(&mut random)).collect();
        let bounds = Duration::from_micros(50)..Duration::from_millis(205);
        assert!(times.iter().all(|time| bounds.contains(time)));
        assert!(times.iter().any(|time| *time < Duration::from_micros(200)));
        assert!(times.iter().any(|time| *time > Duration::from_millis(60)));
    }
}

//! Remembers how long turns waited for writes, until a later write stores it.
//!
//! The row of a turn counts its writes, and each write adds the wait of those before it. The wait of the last write is
//! therefore never stored. It stays here for a while.
use outlast_vocab::TurnId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many turns are remembered.
const REMEMBERED: usize = 4_096;

/// Waits for writes that no later write has stored yet, by turn.
#[derive(Debug, Default)]
pub(crate) struct UnreportedWriteTime(Mutex<WriteTimesByTurn>);

#[derive(Debug, Default)]
struct WriteTimesByTurn {
    turns: HashMap<TurnId, Duration>,
    oldest: VecDeque<TurnId>,
}

impl UnreportedWriteTime {
    fn known(&self) -> MutexGuard<'_, WriteTimesByTurn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the time that a turn waited for a write.
    pub(crate) fn waited(&self, turn: TurnId, time: Duration) {
        let WriteTimesByTurn { turns, oldest } = &mut *self.known();
        let waited = turns.entry(turn).or_insert_with(|| {
            oldest.push_back(turn);
            Duration::ZERO
        });
        *waited += time;
        if oldest.len() > REMEMBERED
            && let Some(oldest) = oldest.pop_front()
        {
            turns.remove(&oldest);
        }
    }

    /// Takes the wait of a turn, for a write that stores it.
    pub(crate) fn take(&self, turn: TurnId) -> Duration {
        self.known().turns.get_mut(&turn).map(std::mem::take).unwrap_or_default()
    }

    /// Returns the wait of a turn without taking it.
    pub(crate) fn of(&self, turn: TurnId) -> Duration {
        self.known().turns.get(&turn).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_write_time_accumulates_and_forgets_old_turns() {
        let unreported = UnreportedWriteTime::default();
        let turn = |n: usize| TurnId::from_u128(n as u128);
        let millis = Duration::from_millis;
        unreported.waited(turn(0), millis(2));
        unreported.waited(turn(0), millis(3));
        assert_eq!((unreported.of(turn(0)), unreported.take(turn(0))), (millis(5), millis(5)));
        unreported.waited(turn(0), millis(4));
        assert_eq!(unreported.of(turn(0)), millis(4));
        for n in 1..=REMEMBERED {
            unreported.waited(turn(n), millis(1));
        }
        assert_eq!((unreported.of(turn(0)), unreported.take(turn(0))), (Duration::ZERO, Duration::ZERO));
        assert_eq!(unreported.of(turn(REMEMBERED)), millis(1));
    }
}

//! What the durability of a turn costs: records, bytes, writes, and the time it waited for them (R14.8).
//!
//! Records and bytes are in the journal. Writes are counted in the turn's row, each with the time that those before it took. What no
//! write has said yet is remembered here for a while: of the last one nobody else will know.
use outlast_ports::store::Writes;
use outlast_vocab::TurnId;
use outlast_vocab::record::Record;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Turns that are remembered.
const REMEMBERED: usize = 4_096;

/// What the durability of a turn cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// Records that were written.
    pub records: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// What is known of the writes.
    pub writes: Option<Writes>,
}

impl Durability {
    /// Of a turn with these records and these writes.
    pub fn of(records: &[Record], writes: Option<Writes>) -> Self {
        let bytes = records.iter().map(|record| record.fact.encode().len()).sum();
        Self { records: records.len(), bytes, writes }
    }
}

/// How long turns waited for writes here, as far as no later write says so.
#[derive(Debug, Default)]
pub(crate) struct Unsaid(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    turns: HashMap<TurnId, Duration>,
    oldest: VecDeque<TurnId>,
}

impl Unsaid {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn has waited so long for a write.
    pub(crate) fn waited(&self, turn: TurnId, time: Duration) {
        let Known { turns, oldest } = &mut *self.known();
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

    /// How long a turn has waited, for a write that says so.
    pub(crate) fn take(&self, turn: TurnId) -> Duration {
        self.known().turns.get_mut(&turn).map(std::mem::take).unwrap_or_default()
    }

    /// How long a turn has waited, for those who look.
    pub(crate) fn of(&self, turn: TurnId) -> Duration {
        self.known().turns.get(&turn).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_turn_waited_adds_up_until_a_write_says_so_and_that_of_long_ago_is_forgotten() {
        let unsaid = Unsaid::default();
        let turn = |n: usize| TurnId::from_u128(n as u128);
        let millis = Duration::from_millis;
        unsaid.waited(turn(0), millis(2));
        unsaid.waited(turn(0), millis(3));
        assert_eq!((unsaid.of(turn(0)), unsaid.take(turn(0))), (millis(5), millis(5)));
        unsaid.waited(turn(0), millis(4));
        assert_eq!(unsaid.of(turn(0)), millis(4));
        for n in 1..=REMEMBERED {
            unsaid.waited(turn(n), millis(1));
        }
        assert_eq!((unsaid.of(turn(0)), unsaid.take(turn(0))), (Duration::ZERO, Duration::ZERO));
        assert_eq!(unsaid.of(turn(REMEMBERED)), millis(1));
    }
}

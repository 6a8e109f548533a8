//! What the durability of a turn costs: records, bytes, writes, and the time it waited for them (R14.8).
//!
//! Records and bytes are in the journal. Writes and waiting are measured where the turn is driven and remembered for a while;
//! they are nobody's truth, so a process that was not there does not know them.
use outlast_vocab::TurnId;
use outlast_vocab::record::Record;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Turns whose writes are remembered.
const REMEMBERED: usize = 4_096;

/// What the durability of a turn cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// Records that were written.
    pub records: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
    /// What is known of the writes; nothing where another process drove the turn, or this one long ago.
    pub writes: Option<Writes>,
}

/// The writes of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// How many there were.
    pub commits: u64,
    /// How long the turn waited for them.
    pub waited: Duration,
}

impl Durability {
    /// Of a turn with these records and these writes.
    pub fn of(records: &[Record], writes: Option<Writes>) -> Self {
        let bytes = records.iter().map(|record| record.fact.encode().len()).sum();
        Self { records: records.len(), bytes, writes }
    }
}

/// The writes of turns that were driven here a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Measured(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    turns: HashMap<TurnId, Writes>,
    oldest: VecDeque<TurnId>,
}

impl Measured {
    /// A turn has waited so long for a write.
    pub(crate) fn wrote(&self, turn: TurnId, waited: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.turns.contains_key(&turn) {
            known.oldest.push_back(turn);
            if known.oldest.len() > REMEMBERED
                && let Some(oldest) = known.oldest.pop_front()
            {
                known.turns.remove(&oldest);
            }
        }
        let writes = known.turns.entry(turn).or_default();
        writes.commits += 1;
        writes.waited += waited;
    }

    /// The writes of a turn, if they are known.
    pub(crate) fn of(&self, turn: TurnId) -> Option<Writes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).turns.get(&turn).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writes_of_a_turn_add_up_and_those_of_long_ago_are_forgotten() {
        let measured = Measured::default();
        let turn = |n: usize| TurnId::from_u128(n as u128);
        let millis = Duration::from_millis;
        measured.wrote(turn(0), millis(2));
        measured.wrote(turn(0), millis(3));
        assert_eq!(measured.of(turn(0)), Some(Writes { commits: 2, waited: millis(5) }));
        for n in 1..=REMEMBERED {
            measured.wrote(turn(n), millis(1));
        }
        assert_eq!(measured.of(turn(0)), None);
        assert_eq!(measured.of(turn(REMEMBERED)), Some(Writes { commits: 1, waited: millis(1) }));
    }
}

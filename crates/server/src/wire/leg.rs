//! Legs of turns, and calls of clients, under the ids that wires give them.
use outlast_vocab::record::Seq;
use outlast_vocab::{Millis, TurnId};
use std::fmt;

/// A leg of a turn: from its input, or from the results of its client's tools, to the next calls for the client or to its end.
/// A wire answers one leg to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) turn: TurnId,
    /// Counted from 0.
    pub(crate) number: u32,
}

impl Leg {
    /// The first leg of a turn.
    pub(crate) fn first(turn: TurnId) -> Self {
        Self { turn, number: 0 }
    }

    /// When its turn got its id, which says so itself: the same in every answer that tells of it.
    pub(crate) fn made(&self) -> Millis {
        Millis(u64::try_from(self.turn.to_u128() >> 80).unwrap_or_default())
    }

    /// The id that a wire knows it by.
    pub(crate) fn id(&self, prefix: &str) -> String {
        let turn = self.turn.to_u128();
        match self.number {
            0 => format!("{prefix}{turn:032x}"),
            number => format!("{prefix}{turn:032x}_{number}"),
        }
    }

    /// The leg of an id. There is one spelling.
    pub(crate) fn of(id: &str, prefix: &str) -> Option<Self> {
        let (turn, rest) = id.strip_prefix(prefix)?.split_at_checked(32)?;
        let turn = turn_of(turn)?;
        let number = match rest.strip_prefix('_') {
            Some(number) => number.parse().ok()?,
            None => 0,
        };
        let leg = Self { turn, number };
        (leg.id(prefix) == id).then_some(leg)
    }
}

fn turn_of(hex: &str) -> Option<TurnId> {
    format!("{}_{hex}", TurnId::NOUN.prefix).parse().ok()
}

/// A call that a client runs, by its place: the record that asked, and the call in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallRef {
    pub(crate) turn: TurnId,
    pub(crate) asked: Seq,
    pub(crate) child: u32,
}

impl CallRef {
    /// The call of an id. There is one spelling.
    pub(crate) fn of(id: &str) -> Option<Self> {
        let (turn, rest) = id.strip_prefix("call_")?.split_at_checked(32)?;
        let (asked, child) = rest.strip_prefix('_')?.split_once('_')?;
        let call = Self { turn: turn_of(turn)?, asked: Seq(asked.parse().ok()?), child: child.parse().ok()? };
        (call.to_string() == id).then_some(call)
    }
}

impl fmt::Display for CallRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call_{:032x}_{}_{}", self.turn.to_u128(), self.asked, self.child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_wire_has_one_spelling_and_names_its_turn() {
        let turn = TurnId::from_u128(0xabc);
        for number in [0, 1, 12] {
            let leg = Leg { turn, number };
            assert_eq!(Leg::of(&leg.id("resp_"), "resp_"), Some(leg));
        }
        let fresh = Leg::first(TurnId::fresh(Millis(1_700_000_000_123), [7; 10]));
        assert_eq!(fresh.made(), Millis(1_700_000_000_123));
        let call = CallRef { turn, asked: Seq(7), child: 2 };
        assert_eq!(CallRef::of(&call.to_string()), Some(call));
        let id = Leg::first(turn).id("resp_");
        for wrong in [format!("{id}_0"), format!("{id}_01"), id.to_uppercase(), id.replace("resp", "msg")] {
            assert_eq!(Leg::of(&wrong, "resp_"), None, "{wrong}");
        }
        assert_eq!(CallRef::of(&format!("{call}0").replace("_2", "_+2")), None);
    }
}

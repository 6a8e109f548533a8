//! Segments of turns and calls of client tools, and their ids in the compatible APIs.
use outlast_vocab::record::Seq;
use outlast_vocab::{Millis, TurnId};
use std::fmt;

/// A segment of a turn. It starts with the input, or with the results of the client's tools. It ends with the
/// next calls for the client, or with the turn. Each request gets the answer of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseSegment {
    pub(crate) turn: TurnId,
    /// The index in the turn, starting at 0.
    pub(crate) number: u32,
}

impl ResponseSegment {
    /// Returns the first segment of a turn.
    pub(crate) fn first(turn: TurnId) -> Self {
        Self { turn, number: 0 }
    }

    /// Returns the time in the id of the turn, which is the same in every answer about it.
    pub(crate) fn created(&self) -> Millis {
        Millis(u64::try_from(self.turn.to_u128() >> 80).unwrap_or_default())
    }

    /// Returns the id of this segment in a compatible API.
    pub(crate) fn id(&self, prefix: &str) -> String {
        let turn = self.turn.to_u128();
        match self.number {
            0 => format!("{prefix}{turn:032x}"),
            number => format!("{prefix}{turn:032x}_{number}"),
        }
    }

    /// Parses an id. Accepts only the exact spelling of [`ResponseSegment::id`].
    pub(crate) fn from_id(id: &str, prefix: &str) -> Option<Self> {
        let (turn, rest) = id.strip_prefix(prefix)?.split_at_checked(32)?;
        let turn = turn_of(turn)?;
        let number = match rest.strip_prefix('_') {
            Some(number) => number.parse().ok()?,
            None => 0,
        };
        let segment = Self { turn, number };
        (segment.id(prefix) == id).then_some(segment)
    }
}

/// The kind of the items for calls of the agent's own tools.
pub(crate) const OWN_CALL: &str = "mcp";

/// Returns whether this is the id of an item for a call of the agent's own tools.
pub(crate) fn is_own_call(id: &str) -> bool {
    let digits = id.strip_prefix(OWN_CALL).and_then(|id| id.strip_prefix('_')?.split_once('_'));
    digits.is_some_and(|(turn, _)| turn_of(turn).is_some())
}

fn turn_of(hex: &str) -> Option<TurnId> {
    format!("{}_{hex}", TurnId::NOUN.prefix).parse().ok()
}

/// A call that a client runs: the record that requested it, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientCallId {
    pub(crate) turn: TurnId,
    pub(crate) asked: Seq,
    pub(crate) child: u32,
}

impl ClientCallId {
    /// Parses an id. Accepts only one spelling for each call.
    pub(crate) fn from_id(id: &str) -> Option<Self> {
        let (turn, rest) = id.strip_prefix("call_")?.split_at_checked(32)?;
        let (asked, child) = rest.strip_prefix('_')?.split_once('_')?;
        let call = Self { turn: turn_of(turn)?, asked: Seq(asked.parse().ok()?), child: child.parse().ok()? };
        (call.to_string() == id).then_some(call)
    }
}

impl fmt::Display for ClientCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call_{:032x}_{}_{}", self.turn.to_u128(), self.asked, self.child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_id_round_trips_and_names_its_turn() {
        let turn = TurnId::from_u128(0xabc);
        for number in [0, 1, 12] {
            let segment = ResponseSegment { turn, number };
            assert_eq!(ResponseSegment::from_id(&segment.id("resp_"), "resp_"), Some(segment));
        }
        let fresh = ResponseSegment::first(TurnId::fresh(Millis(1_700_000_000_123), [7; 10]));
        assert_eq!(fresh.created(), Millis(1_700_000_000_123));
        let call = ClientCallId { turn, asked: Seq(7), child: 2 };
        assert_eq!(ClientCallId::from_id(&call.to_string()), Some(call));
        let id = ResponseSegment::first(turn).id("resp_");
        for wrong in [format!("{id}_0"), format!("{id}_01"), id.to_uppercase(), id.replace("resp", "msg")] {
            assert_eq!(ResponseSegment::from_id(&wrong, "resp_"), None, "{wrong}");
        }
        assert_eq!(ClientCallId::from_id(&format!("{call}0").replace("_2", "_+2")), None);
    }
}

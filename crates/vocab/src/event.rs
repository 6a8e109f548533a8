//! Events: what observers see. Durable ones are records; live ones are gone when nobody listened.
//!
//! A durable event's cursor is its record's sequence number, so reading after the fact and following live give the
//! same frames (R3.13, R14.1). Live frames have no number of their own: they never make a gap.
use crate::Millis;
use crate::effect::Place;
use crate::error::Failure;
use crate::id::{SessionId, TurnId};
use crate::key::ReplayKey;
use crate::record::{Fact, Record, Seq};
use serde::Serialize;
use serde_json::Value;

/// What an observer of a session sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something became true.
    Durable(Box<Record>),
    /// Something happens right now.
    Live(Live),
    /// The reader was too slow for live frames; what is durable is not affected and can be read again.
    Missed {
        /// How many live frames were dropped.
        frames: u64,
    },
}

/// What happens right now in a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Live {
    /// The turn.
    pub turn: TurnId,
    /// What happens.
    #[serde(flatten)]
    pub what: LiveKind,
}

/// The kinds of live frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LiveKind {
    /// New text of a reply. Only what is new: bytes grow with the text (R14.3).
    Text {
        /// Which model call.
        key: ReplayKey,
        /// Which attempt; text of an earlier attempt is void.
        attempt: u32,
        /// How many bytes of text came before.
        offset: usize,
        /// The text.
        text: String,
    },
    /// Text streamed so far under this attempt is void; another attempt follows.
    Retracted {
        /// Which model call.
        key: ReplayKey,
        /// Which attempt is void.
        attempt: u32,
    },
    /// The prompt of a model call does not begin as the one before did: the provider's cache serves it only up to there.
    PromptChanged {
        /// Which model call.
        key: ReplayKey,
        /// Where it changed: the tools, the system prompt, or a message by its number.
        at: String,
    },
    /// A tool call begins to run now; replayed ones do not.
    Running {
        /// Which call.
        key: ReplayKey,
        /// Which attempt, counted from 1.
        attempt: u32,
    },
    /// A tool says how far it is.
    Progress {
        /// Which call.
        key: ReplayKey,
        /// What it says.
        note: String,
    },
    /// A tool shows what it puts out, piece by piece.
    Output {
        /// Which call.
        key: ReplayKey,
        /// The piece.
        text: String,
    },
    /// An effect was answered from the journal.
    Replayed {
        /// Which effect.
        key: ReplayKey,
    },
    /// A call was found begun and not answered.
    Interrupted {
        /// Which call.
        key: ReplayKey,
    },
    /// Little is left of a budget.
    BudgetLow {
        /// Of which, and what of it.
        budget: String,
    },
    /// The turn cannot be written now. It holds what it knows and writes it when that is possible.
    Held {
        /// Why.
        failure: Failure,
    },
}

/// An event as JSON readers get it. Readers ignore what they do not know.
#[derive(Clone, Debug, Serialize)]
pub struct Frame<'a> {
    /// The form of this frame.
    pub v: u8,
    /// The session.
    pub session: SessionId,
    /// The cursor to read on from; live frames have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// When it became durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// What it is.
    #[serde(rename = "type")]
    pub name: &'a str,
    /// Its content.
    pub data: Value,
}

impl Event {
    /// The cursor to read on from.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Self::Durable(record) => Some(record.seq),
            Self::Live(_) | Self::Missed { .. } => None,
        }
    }

    /// The event as JSON readers get it.
    ///
    /// # Panics
    /// Never: facts are plain data.
    pub fn frame(&self, session: SessionId) -> Frame<'_> {
        let bare = Frame { v: 1, session, seq: None, turn: None, at: None, name: "", data: Value::Null };
        match self {
            Self::Durable(record) => Frame {
                seq: Some(record.seq),
                turn: record.turn,
                at: Some(record.at),
                name: record.fact.name(),
                data: content(&record.fact),
                ..bare
            },
            Self::Live(live) => {
                let data = serde_json::to_value(&live.what).expect("live frames are plain data");
                Frame { turn: Some(live.turn), name: "live", data, ..bare }
            }
            Self::Missed { frames } => {
                Frame { name: "missed", data: serde_json::json!({ "frames": frames }), ..bare }
            }
        }
    }

    /// Where a durable event stands.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Durable(record) => Some(record.place()),
            Self::Live(_) | Self::Missed { .. } => None,
        }
    }
}

fn content(fact: &Fact) -> Value {
    let tagged = serde_json::to_value(fact).expect("facts are plain data");
    match tagged {
        Value::Object(members) => members.into_iter().next().map_or(Value::Null, |(_, content)| content),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hash;

    #[test]
    fn a_durable_event_is_its_record_and_a_live_one_has_no_number() {
        let fact = Fact::CancelRequested { reason: "enough".into(), undo: false };
        let record = Record { seq: Seq(4), turn: None, at: Millis(7), hash: Hash::ZERO, fact };
        let session = SessionId::from_u128(1);
        let frame = serde_json::to_string(&Event::Durable(Box::new(record)).frame(session)).unwrap();
        assert_eq!(
            frame,
            r#"{"v":1,"session":"ses_00000000000000000000000000000001","seq":4,"at":7,"type":"turn.cancel_requested","data":{"reason":"enough"}}"#
        );
        assert_eq!(Event::Missed { frames: 2 }.frame(session).seq, None);
    }
}

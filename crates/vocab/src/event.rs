//! Events: what observers of a session see. Durable events are records; live events are lost if no observer
//! listens.
//!
//! The cursor of a durable event is the sequence number of its record, so reading later and following live
//! give the same frames. Live frames have no number, so they never cause a gap.
use crate::Millis;
use crate::effect::JournalPosition;
use crate::error::Failure;
use crate::hash::Hash;
use crate::id::{SessionId, TurnId};
use crate::key::ReplayKey;
use crate::record::{Fact, Record, Seq};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;

/// An event that an observer of a session sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A fact became durable.
    Durable(Box<Record>),
    /// Something happens right now.
    Live(LiveEvent),
    /// The reader was too slow for live frames. Durable events are not affected and can be read again.
    Missed {
        /// The number of live frames that were dropped.
        frames: u64,
    },
}

/// Something that happens right now in a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveEvent {
    /// The turn.
    pub turn: TurnId,
    /// What happens.
    #[serde(flatten)]
    pub what: LiveEventKind,
}

/// The kinds of live frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LiveEventKind {
    /// New text of a reply. Contains only the new part, so the total size grows with the text.
    Text {
        /// The model call.
        key: ReplayKey,
        /// The attempt. Text of earlier attempts is void.
        attempt: u32,
        /// The number of bytes of text before this part.
        offset: usize,
        /// The text.
        text: String,
    },
    /// The text streamed under this attempt is void. Another attempt follows.
    Retracted {
        /// The model call.
        key: ReplayKey,
        /// The attempt that is void.
        attempt: u32,
    },
    /// The prompt of a model call begins differently from the previous one. The provider's cache covers only
    /// the part before the difference.
    PromptChanged {
        /// The model call.
        key: ReplayKey,
        /// The first difference: the tools, the system prompt, or a message by its number.
        at: String,
    },
    /// A tool call starts to run. Replayed calls cause no such event.
    Running {
        /// The call.
        key: ReplayKey,
        /// The attempt, counted from 1.
        attempt: u32,
    },
    /// A tool reports its progress.
    Progress {
        /// The call.
        key: ReplayKey,
        /// The report.
        note: String,
    },
    /// A tool streams its output.
    Output {
        /// The call.
        key: ReplayKey,
        /// The new part of the output.
        text: String,
    },
    /// An effect was answered from the journal.
    Replayed {
        /// The effect.
        key: ReplayKey,
    },
    /// A call was started earlier and has no answer.
    Interrupted {
        /// The call.
        key: ReplayKey,
    },
    /// A budget is low.
    BudgetLow {
        /// The budget, and the measure that is low.
        budget: String,
    },
    /// The turn cannot be written now. The worker keeps its state in memory and writes it as soon as
    /// possible.
    Held {
        /// The reason.
        failure: Failure,
    },
}

/// An event in the JSON form that readers receive. Readers ignore unknown fields.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventFrame {
    /// The version of the frame format.
    pub v: u8,
    /// The session.
    pub session: SessionId,
    /// The cursor after which to continue reading. Live frames have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// When it became durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// The name of the event.
    #[serde(rename = "type")]
    pub name: Cow<'static, str>,
    /// Its content.
    pub data: Value,
}

impl EventFrame {
    /// Returns the event, or `None` if this version does not know it. The hash of a durable event is zero, because
    /// frames do not contain it.
    pub fn into_event(self) -> Option<Event> {
        let Self { seq, turn, at, name, data, .. } = self;
        match (name.as_ref(), seq, turn) {
            ("live", _, Some(turn)) => {
                serde_json::from_value(data).ok().map(|what| Event::Live(LiveEvent { turn, what }))
            }
            ("missed", ..) => Some(Event::Missed { frames: data["frames"].as_u64().unwrap_or_default() }),
            (name, Some(seq), turn) => {
                // The name of a fact ends with its tag.
                let tag = name.rsplit('.').next().unwrap_or_default();
                let fact: Option<Fact> = serde_json::from_value(json!({ tag: data })).ok();
                let record = |fact| Record { seq, turn, at: at.unwrap_or(Millis(0)), hash: Hash::ZERO, fact };
                fact.filter(|fact| fact.name() == name).map(|fact| Event::Durable(Box::new(record(fact))))
            }
            _ => None,
        }
    }
}

impl Event {
    /// Returns the cursor after which to continue reading.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Self::Durable(record) => Some(record.seq),
            Self::Live(_) | Self::Missed { .. } => None,
        }
    }

    /// Returns the name of the event: the name of its fact, `live` or `missed`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Durable(record) => record.fact.name(),
            Self::Live(_) => "live",
            Self::Missed { .. } => "missed",
        }
    }

    /// Returns the event in the JSON form that readers receive.
    ///
    /// # Panics
    /// Never panics: facts are plain data.
    pub fn frame(&self, session: SessionId) -> EventFrame {
        let name = self.name().into();
        let bare = EventFrame { v: 1, session, seq: None, turn: None, at: None, name, data: Value::Null };
        match self {
            Self::Durable(record) => EventFrame {
                seq: Some(record.seq),
                turn: record.turn,
                at: Some(record.at),
                data: content(&record.fact),
                ..bare
            },
            Self::Live(live) => {
                let data = serde_json::to_value(&live.what).expect("live frames are plain data");
                EventFrame { turn: Some(live.turn), data, ..bare }
            }
            Self::Missed { frames } => EventFrame { data: json!({ "frames": frames }), ..bare },
        }
    }

    /// Returns the place of a durable event.
    pub fn place(&self) -> Option<JournalPosition> {
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
    use crate::Kind;

    fn received(json: Value) -> (SessionId, Option<Event>) {
        let frame: EventFrame = serde_json::from_value(json).unwrap();
        (frame.session, frame.into_event())
    }

    #[test]
    fn only_durable_events_have_sequence_numbers() {
        let fact = Fact::CancelRequested { reason: "enough".into(), undo: false, abandon: false };
        let record = Record { seq: Seq(4), turn: None, at: Millis(7), hash: Hash::ZERO, fact };
        let session = SessionId::from_u128(1);
        let frame = serde_json::to_string(&Event::Durable(Box::new(record)).frame(session)).unwrap();
        assert_eq!(
            frame,
            r#"{"v":1,"session":"ses_00000000000000000000000000000001","seq":4,"at":7,"type":"turn.cancel_requested","data":{"reason":"enough"}}"#
        );
        assert_eq!(Event::Missed { frames: 2 }.frame(session).seq, None);
    }

    #[test]
    fn live_frame_round_trips_and_unknown_is_skipped() {
        let (session, turn) = (SessionId::from_u128(1), TurnId::from_u128(2));
        let key = || ReplayKey::turn(0).model(0);
        let text = LiveEventKind::Text { key: key(), attempt: 2, offset: 3, text: "ü".into() };
        let held = LiveEventKind::Held { failure: Failure::new(Kind::StoreFull, "no room") };
        for what in [text, held, LiveEventKind::Retracted { key: key(), attempt: 1 }] {
            let event = Event::Live(LiveEvent { turn, what });
            let frame = serde_json::to_value(event.frame(session)).unwrap();
            assert_eq!(received(frame), (session, Some(event)));
        }
        let frame = serde_json::to_value(Event::Missed { frames: 2 }.frame(session)).unwrap();
        assert_eq!(received(frame), (session, Some(Event::Missed { frames: 2 })));
        let newer =
            json!({ "v": 1, "session": session, "seq": 4, "at": 1, "type": "turn.dreamt", "data": {} });
        assert_eq!(received(newer), (session, None));
    }
}

//! Events of sessions.
use outlast_vocab::event::EventFrame;
use outlast_vocab::record::Seq;
use outlast_vocab::{Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// Parameters that filter events.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    /// Return events after the event with this number. Defaults to the beginning of a session. For all
    /// sessions, defaults to the newest event.
    pub after: Option<u64>,
    /// Only return events of this session.
    #[param(value_type = Option<String>)]
    pub session: Option<SessionId>,
    /// Only return events of this turn.
    #[param(value_type = Option<String>)]
    pub turn: Option<TurnId>,
    /// Only return events of turns that this agent answers.
    pub agent: Option<String>,
    /// Only return events of these types, separated by commas. `turn.*` matches every type that starts with
    /// `turn.`.
    #[serde(rename = "type")]
    #[param(example = "turn.*,effect.performed")]
    pub types: Option<String>,
    /// Whether the stream of one session includes live events: text while it is generated, and progress of
    /// tools. Live events have no number. Defaults to `true`.
    pub live: Option<bool>,
    /// The time that a page waits for its first event, in seconds, at most 60. Defaults to 0.
    #[param(maximum = 60)]
    pub wait: Option<u64>,
    /// The maximum number of events on a page. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
}

/// A page of events.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// The events, in order.
    pub items: Vec<EventResource>,
    /// The `after` value of the next page. It also advances past events that the filter left out.
    pub next: u64,
}

/// An event of a session. Clients must ignore fields and event types that they do not know.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Event)]
pub struct EventResource {
    /// The version of the event format.
    pub v: u8,
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The sequence number of the event's record in the session, without gaps. Absent for `live` and `missed`
    /// events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub seq: Option<Seq>,
    /// The id of the turn. Absent if the event belongs to no turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub turn: Option<TurnId>,
    /// When the event became durable, as a Unix timestamp in milliseconds. Absent for `live` and `missed`
    /// events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub at: Option<Millis>,
    /// The type of the event: `turn.accepted`, `effect.performed`, … `live` is an event that is not stored,
    /// such as text while it is generated. `missed` means that the client was too slow and missed live
    /// events.
    #[serde(rename = "type")]
    pub name: Cow<'static, str>,
    /// The content of the event. Its fields depend on the type.
    #[schema(value_type = Object)]
    pub data: Value,
}

impl From<EventFrame> for EventResource {
    fn from(EventFrame { v, session, seq, turn, at, name, data }: EventFrame) -> Self {
        Self { v, session, seq, turn, at, name, data }
    }
}

impl From<EventResource> for EventFrame {
    fn from(EventResource { v, session, seq, turn, at, name, data }: EventResource) -> Self {
        Self { v, session, seq, turn, at, name, data }
    }
}

/// The last event of a stream that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamError {
    /// The class of the error.
    pub class: Cow<'static, str>,
    /// The error code.
    pub code: Cow<'static, str>,
}

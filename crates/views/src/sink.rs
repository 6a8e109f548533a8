//! Sinks, and the deliveries to them.
use outlast_vocab::id::{DeliveryId, SessionId, TurnId};
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Failure, Kind, Millis};
use std::str::FromStr;

/// A kind of event that a sink can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SinkTopic {
    /// A turn ended.
    TurnEnded,
    /// A call waits for an approval.
    ApprovalRequested,
    /// A reminder of a call that waits for an approval.
    ApprovalReminded,
    /// More people may approve the call.
    ApprovalEscalated,
}

impl SinkTopic {
    /// All topics.
    pub const ALL: [Self; 4] =
        [Self::TurnEnded, Self::ApprovalRequested, Self::ApprovalReminded, Self::ApprovalEscalated];

    /// Returns its name: the `type` of a message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TurnEnded => "turn.ended",
            Self::ApprovalRequested => "approval.requested",
            Self::ApprovalReminded => "approval.reminded",
            Self::ApprovalEscalated => "approval.escalated",
        }
    }
}

impl FromStr for SinkTopic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|topic| topic.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let detail = format!("expected an event to deliver ({names}), got `{}`", shown(text));
            Error::new(Kind::ConfigInvalid, detail)
        })
    }
}

/// A sink, as queries return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkView {
    /// Its name.
    pub name: String,
    /// When the sink was first registered.
    pub since: Millis,
    /// The number of records that were not yet scanned for it.
    pub behind: u64,
    /// The number of outputs that are pending.
    pub due: u64,
    /// The number of outputs that were given up.
    pub dead: u64,
    /// The number of outputs delivered so far.
    pub delivered: u64,
}

/// A delivery, as queries return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryView {
    /// Its id.
    pub id: DeliveryId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The topic of the output.
    pub topic: SinkTopic,
    /// The number of attempts.
    pub attempts: u32,
    /// When it is due. `None` if it was given up.
    pub due_at: Option<Millis>,
    /// Why the last attempt failed.
    pub failure: Option<Failure>,
}

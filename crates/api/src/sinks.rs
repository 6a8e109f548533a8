//! Sinks, and their pending and failed deliveries.
use outlast_views::{DeliveryView, SinkView};
use outlast_vocab::id::DeliveryId;
use outlast_vocab::{Error, Failure, Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// A sink and its state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Sink)]
pub struct SinkResource {
    /// The name of the sink.
    pub name: String,
    /// The destination of the outputs. Absent if the sink is not configured on this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// When the sink was first registered, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub since: Millis,
    /// The number of records that were not yet scanned for outputs.
    pub behind: u64,
    /// The number of pending outputs.
    pub due: u64,
    /// The number of outputs whose delivery was given up.
    pub dead: u64,
    /// The number of outputs delivered so far.
    pub delivered: u64,
}

impl SinkResource {
    /// Adds the destination to the state of a sink.
    pub fn new(view: SinkView, place: Option<String>) -> Self {
        let SinkView { name, since, behind, due, dead, delivered } = view;
        Self { name, place, since, behind, due, dead, delivered }
    }

    /// Returns the state and the destination.
    pub fn into_parts(self) -> (SinkView, Option<String>) {
        let Self { name, place, since, behind, due, dead, delivered } = self;
        (SinkView { name, since, behind, due, dead, delivered }, place)
    }
}

/// An output that has not been delivered yet.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Delivery)]
pub struct DeliveryResource {
    /// The id of the delivery.
    #[schema(value_type = String)]
    pub id: DeliveryId,
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// The topic of the output: `turn.ended`, `approval.requested`, …
    pub topic: Cow<'static, str>,
    /// The number of attempts so far.
    pub attempts: u32,
    /// When the next attempt is due, as a Unix timestamp in milliseconds. Absent if the delivery was given
    /// up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub due: Option<Millis>,
    /// Why the last attempt failed. Absent if no attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub failure: Option<Failure>,
}

impl From<DeliveryView> for DeliveryResource {
    fn from(view: DeliveryView) -> Self {
        let DeliveryView { id, session, turn, topic, attempts, due_at, failure } = view;
        Self { id, session, turn, topic: topic.name().into(), attempts, due: due_at, failure }
    }
}

impl TryFrom<DeliveryResource> for DeliveryView {
    type Error = Error;

    fn try_from(delivery: DeliveryResource) -> Result<Self, Error> {
        let DeliveryResource { id, session, turn, topic, attempts, due, failure } = delivery;
        Ok(Self { id, session, turn, topic: topic.parse()?, attempts, due_at: due, failure })
    }
}

/// Parameters that select deliveries.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RetryDeliveryParams {
    /// The id of the delivery to retry, which may also be waiting for its next attempt. Defaults to all
    /// deliveries that were given up.
    #[param(value_type = Option<String>)]
    pub delivery: Option<DeliveryId>,
}

/// The result of a retry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RetryDeliveryResult {
    /// The number of outputs that will be delivered again.
    pub revived: u64,
}

/// The result of a test.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SinkTestResult {
    /// Whether the receiver would have accepted an output.
    pub taken: bool,
    /// The status and the start of the receiver's response, or why it did not respond.
    pub answered: String,
}

//! Sinks, and the outputs that are not delivered to them yet.
use super::RowAccess;
use outlast_ports::outbox::DeliveryPosition;
use outlast_ports::sink::OutputPosition;
use outlast_ports::turns::TurnNo;
use outlast_vocab::id::WorkerId;
use outlast_vocab::{Error, Failure, Millis};

/// A sink: a subscriber to outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkRow {
    /// Its name.
    pub name: String,
    /// When the sink was first registered.
    pub since: Millis,
    /// The last position of the feed that was scanned for it.
    pub cursor: u64,
    /// The number of outputs delivered so far.
    pub delivered: u64,
}

/// An output that is not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The sink.
    pub sink: String,
    /// The turn.
    pub turn: TurnNo,
    /// The event of the turn that is delivered.
    pub position: OutputPosition,
    /// How many attempts were started.
    pub attempts: u32,
    /// How many of these attempts are no longer counted, because the delivery was retried manually.
    pub attempts_forgiven: u32,
    /// When a worker may take it. `None` if it was given up.
    pub due_at: Option<Millis>,
    /// The worker that is delivering it until it is due again.
    pub worker: Option<WorkerId>,
    /// Why the last attempt failed.
    pub failure: Option<Failure>,
}

impl DeliveryRow {
    /// Returns its position among the deliveries of its sink.
    pub const fn place(&self) -> DeliveryPosition {
        DeliveryPosition { turn: self.turn, moment: self.position }
    }
}

/// Reads sinks and deliveries.
pub trait SinkRows: RowAccess {
    /// Returns one sink.
    fn sink(&self, name: &str) -> Result<Option<SinkRow>, Error>;
    /// Returns the delivery of one output of a turn to a sink.
    fn delivery(
        &self,
        sink: &str,
        turn: TurnNo,
        moment: OutputPosition,
    ) -> Result<Option<DeliveryRow>, Error>;
}

/// Finds deliveries of a sink, in all sessions.
pub trait DeliveryQueue: RowAccess {
    /// Returns the deliveries to a sink after a given one, by ascending turn and moment.
    fn deliveries(
        &self,
        sink: &str,
        after: Option<DeliveryPosition>,
        limit: usize,
    ) -> Result<Vec<DeliveryRow>, Error>;
    /// Returns deliveries that are due, earliest due time first.
    fn deliveries_due(&self, sink: &str, now: Millis, limit: usize) -> Result<Vec<DeliveryRow>, Error>;
    /// Returns deliveries that a worker has taken, by ascending turn.
    fn deliveries_taken(&self, sink: &str, limit: usize) -> Result<Vec<DeliveryRow>, Error>;
    /// Returns when the next delivery to a sink is due.
    fn next_delivery(&self, sink: &str) -> Result<Option<Millis>, Error>;
}

/// Lists sinks, and counts deliveries.
pub trait SinkQueries: SinkRows {
    /// Returns all sinks by ascending name.
    fn sinks(&self) -> Result<Vec<SinkRow>, Error>;
    /// Returns how many deliveries to a sink are pending, and how many were given up.
    fn count_deliveries(&self, sink: &str) -> Result<(u64, u64), Error>;
}

/// Writes sinks and deliveries.
pub trait SinkWrites: SinkRows {
    /// Inserts or replaces a sink.
    fn put_sink(&mut self, row: &SinkRow) -> Result<(), Error>;
    /// Inserts or replaces a delivery.
    fn put_delivery(&mut self, row: &DeliveryRow) -> Result<(), Error>;
    /// Deletes a delivery.
    fn delete_delivery(&mut self, sink: &str, turn: TurnNo, moment: OutputPosition) -> Result<(), Error>;
}

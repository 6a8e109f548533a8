//! The outbox: rows for outputs that are to be delivered to sinks.
//!
//! Each sink has a cursor into the feed. In one transaction, `collect` adds a row for every wanted output after the
//! cursor, moves the cursor, and takes the deliveries that are due for a worker. The worker holds a delivery for a
//! limited time. When that time is over, or the worker is known to be dead, the delivery is due again. `delivered`
//! deletes the row. `undelivered` sets when it is due again, or marks it as dead.
//!
//! Delivery is at least once, even if a process dies at any point. Before `collect`, the cursor has not moved. After
//! it, the row exists until the delivery is confirmed. A process that dies between delivery and confirmation causes a
//! second delivery under the same id.
//!
//! This module does not know how a sink is reached: see [`crate::sink`]. The rules are in `outlast-ledger`.
use crate::ResultFuture;
use crate::page::Page;
use crate::sink::{OutputPosition, SinkOutput};
use crate::turns::TurnNo;
use outlast_views::{DeliveryView, SinkTopic, SinkView};
use outlast_vocab::id::{DeliveryId, TurnId, WorkerId};
use outlast_vocab::{Failure, Millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The outputs that a sink subscribes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSubscription {
    /// The sink's name.
    pub name: String,
    /// The topics it subscribes to.
    pub on: BTreeSet<SinkTopic>,
    /// How turns must have ended. `None` accepts every end.
    pub ends: Option<Vec<String>>,
    /// Where a new sink starts in the feed.
    pub begins: FeedStart,
}

/// Where a new sink starts in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedStart {
    /// At the current end: only later events are delivered.
    Now,
    /// At the first turn in the database.
    Beginning,
}

/// A worker's request to collect deliveries.
#[derive(Clone, Debug)]
pub struct CollectRequest {
    /// The sink and what it subscribes to.
    pub subscription: SinkSubscription,
    /// The worker.
    pub worker: WorkerId,
    /// The current time.
    pub now: Millis,
    /// Until when the worker holds what it takes.
    pub until: Millis,
    /// The maximum number of deliveries to take.
    pub limit: usize,
    /// The number of attempts after which a delivery is given up.
    pub attempts: u32,
}

/// An output that a worker took for delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    /// The output.
    pub output: SinkOutput,
    /// The number of this attempt since the last manual retry, counted from 1.
    pub attempts_since_retry: u32,
}

/// A finished attempt to deliver an output.
#[derive(Clone, Debug)]
pub struct DeliveryAttempt {
    /// The sink.
    pub sink: String,
    /// The turn.
    pub turn: TurnId,
    /// The event of the turn that was delivered.
    pub position: OutputPosition,
    /// The number of the attempt.
    pub attempt: u32,
}

/// The delivery schedule of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliverySchedule {
    /// Whether there is something to collect now.
    pub is_due: bool,
    /// When the next delivery is due.
    pub next: Option<Millis>,
}

/// The position of a delivery among those of its sink. Turns are numbered in the order they are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryPosition {
    /// The turn.
    pub turn: TurnNo,
    /// The event of the turn that is delivered.
    pub moment: OutputPosition,
}

/// The outbox of a store.
pub trait SinkOutbox: Send + Sync {
    /// Registers new sinks. Known sinks keep their cursor.
    fn subscribe(&self, subscriptions: Vec<SinkSubscription>, now: Millis) -> ResultFuture<'_, ()>;

    /// Returns whether there is something to deliver to a sink, and when. Cheap.
    fn delivery_schedule(&self, sink: String, now: Millis) -> ResultFuture<'_, DeliverySchedule>;

    /// Scans the feed since the last call, and takes the deliveries that are due.
    fn collect(&self, collect: CollectRequest) -> ResultFuture<'_, Vec<DueDelivery>>;

    /// Confirms that an output was delivered, even if another worker holds it by now.
    fn delivered(&self, attempt: DeliveryAttempt) -> ResultFuture<'_, ()>;

    /// Records why an attempt failed, and when the delivery is due again. Without a time it is given up. Changes
    /// nothing if another attempt has begun since.
    fn undelivered(
        &self,
        attempt: DeliveryAttempt,
        failure: Failure,
        again: Option<Millis>,
    ) -> ResultFuture<'_, ()>;

    /// Returns all registered sinks, by name.
    fn sinks(&self) -> ResultFuture<'_, Vec<SinkView>>;

    /// Returns the outputs that are not yet delivered to a sink, oldest first.
    fn deliveries(&self, sink: String, limit: usize) -> ResultFuture<'_, Vec<DeliveryView>>;

    /// Returns a page of these deliveries, after a given one.
    fn deliveries_after(
        &self,
        sink: String,
        after: Option<DeliveryPosition>,
        limit: usize,
    ) -> ResultFuture<'_, Page<DeliveryView, DeliveryPosition>>;

    /// Retries one delivery of a sink, or all that were given up, with all attempts again. Returns how many are
    /// retried.
    fn redeliver(&self, sink: String, only: Option<DeliveryId>, now: Millis) -> ResultFuture<'_, u64>;
}

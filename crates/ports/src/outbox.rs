//! The books on outputs that are to be delivered: what is due, who hands it over, what was given up.
//!
//! Rows, not memory. Each sink has a cursor into the feed; **collect** makes a row of everything behind the cursor that it wants,
//! moves the cursor, and takes what is due for a worker, in one transaction. Whoever takes a delivery has it for a time;
//! when that is over, or the worker is known to be dead, it is due again. **Delivered** removes the row and
//! **undelivered** says when it is due again, or that it is dead.
//!
//! So nothing is lost wherever a process dies: before the collect the cursor stands where it stood, after it the row is
//! there until somebody says that it was delivered. A process that dies between handing over and saying so hands over
//! twice, under the same id.
use crate::Answer;
use crate::page::Page;
use crate::rows::TurnNo;
use crate::sink::{Moment, Output, Topic};
use outlast_vocab::id::{DeliveryId, SessionId, TurnId, WorkerId};
use outlast_vocab::{Failure, Millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which outputs a sink wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The sink's name.
    pub name: String,
    /// What it is told of.
    pub on: BTreeSet<Topic>,
    /// How turns must have ended; in any way if it says nothing.
    pub ends: Option<Vec<String>>,
    /// Where it begins when it is new.
    pub begins: Begins,
}

/// Where a new sink begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// With what ends from now on.
    Now,
    /// With the first turn there is.
    Beginning,
}

/// A worker that wants to deliver.
#[derive(Clone, Debug)]
pub struct Collect {
    /// For which sink.
    pub subscription: Subscription,
    /// Who.
    pub worker: WorkerId,
    /// Now.
    pub now: Millis,
    /// Until when it has what it takes.
    pub until: Millis,
    /// How many it takes at most.
    pub limit: usize,
    /// After how many attempts a delivery is given up.
    pub attempts: u32,
}

/// An output that a worker took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The output.
    pub output: Output,
    /// Which attempt it is since somebody last gave it all of them, counted from 1.
    pub tries: u32,
}

/// An attempt that is over.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The sink.
    pub sink: String,
    /// The turn.
    pub turn: TurnId,
    /// What of it was told.
    pub moment: Moment,
    /// Which attempt.
    pub attempt: u32,
}

/// What there is to deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Whether there is something to collect now.
    pub is_due: bool,
    /// When the next delivery is due.
    pub next: Option<Millis>,
}

/// A sink as people look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkView {
    /// Its name.
    pub name: String,
    /// Since when the database knows it.
    pub since: Millis,
    /// Records that it has not looked at.
    pub behind: u64,
    /// Outputs that are to be delivered.
    pub due: u64,
    /// Outputs that were given up.
    pub dead: u64,
    /// Outputs that were delivered so far.
    pub delivered: u64,
}

/// A delivery as people look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryView {
    /// Its id.
    pub id: DeliveryId,
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// What is told of it.
    pub topic: Topic,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is due; a dead one never is.
    pub due_at: Option<Millis>,
    /// Why it was not taken the last time.
    pub failure: Option<Failure>,
}

/// Where a delivery stands among those of its sink: turns are numbered as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryPlace {
    /// The turn.
    pub turn: TurnNo,
    /// What of it is told.
    pub moment: Moment,
}

/// The books on outputs that are to be delivered.
pub trait Outbox: Send + Sync {
    /// Notes sinks that are new. The others stay where they are.
    fn subscribe(&self, subscriptions: Vec<Subscription>, now: Millis) -> Answer<'_, ()>;

    /// What there is to deliver to a sink. Cheap.
    fn outlook(&self, sink: String, now: Millis) -> Answer<'_, Outlook>;

    /// Looks at what happened since, and takes what is due.
    fn collect(&self, collect: Collect) -> Answer<'_, Vec<Due>>;

    /// Says that an output was taken, whoever has it by now.
    fn delivered(&self, attempt: Attempt) -> Answer<'_, ()>;

    /// Says why an output was not taken, and when it is due again; without a time it is given up. Changes nothing if
    /// somebody has begun another attempt since.
    fn undelivered(&self, attempt: Attempt, failure: Failure, again: Option<Millis>) -> Answer<'_, ()>;

    /// All sinks that the database knows, by name.
    fn sinks(&self) -> Answer<'_, Vec<SinkView>>;

    /// What is not delivered to a sink yet, the oldest first.
    fn deliveries(&self, sink: String, limit: usize) -> Answer<'_, Vec<DeliveryView>>;

    /// A page of them, behind one.
    fn deliveries_after(
        &self,
        sink: String,
        after: Option<DeliveryPlace>,
        limit: usize,
    ) -> Answer<'_, Page<DeliveryView, DeliveryPlace>>;

    /// Gives one delivery of a sink, or all that are dead, all attempts anew, from now on; says how many.
    fn redeliver(&self, sink: String, only: Option<DeliveryId>, now: Millis) -> Answer<'_, u64>;
}

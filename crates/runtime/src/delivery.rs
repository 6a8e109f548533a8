//! Tells others what happened: live events, event streams, the feed of records, and sinks.

pub mod events;
pub mod feed;
pub mod live;
pub(crate) mod sink_delivery;

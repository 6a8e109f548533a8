//! Tells others what happened: live events, event streams, the feed of records, and sinks.
//!
//! Each layer between a turn and a client adds one thing:
//!
//! 1. [`live`]: one bounded queue per listener, so that a slow one never delays a turn. In this process only.
//! 2. [`events`]: the records of one session from the store, in order with its live events.
//! 3. [`feed`]: the records of all visible sessions, without live events.
//! 4. `session_broadcast` in the server: one reader and one encoding for all streams of a session.
//! 5. `event_reader` in the server: the cursor and the filter of one stream.
//! 6. `sse` in the server: heartbeats, and the end at a shutdown.

pub mod events;
pub mod feed;
pub mod live;
pub(crate) mod sink_delivery;

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
//!
//! Removing one of 1, 2 and 4 would cost what it adds: a bounded queue for the turn, records of other processes in order,
//! or one encoding for two thousand streams (ADR 0028).
//!
//! The text of a reply that is still streaming is buffered in 1 and in 4, at two different positions. A reader that joins
//! the hub needs the text up to the last frame of the turn. A stream that joins a broadcast needs the text up to the last
//! event that the broadcast has read. The text of the hub would contain frames that the stream gets once more.

pub mod events;
pub mod feed;
pub mod live;
pub(crate) mod sink_delivery;

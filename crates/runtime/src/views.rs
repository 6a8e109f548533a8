//! Answers questions about sessions and turns: lists, messages, timelines, costs, metrics, and why a turn waits.

pub mod context_usage;
pub mod costs;
pub mod difference;
pub mod messages;
pub mod metrics;
pub mod session_list;
pub mod timeline;
pub(crate) mod unreported_write_time;
pub mod wait_explanation;

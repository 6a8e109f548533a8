//! Decides what a turn does next, from data alone.
//!
//! The kernel is pure: no clock, no randomness, no I/O, no async. The runtime performs the effects that the
//! kernel asks for and returns their outcomes.
//!
//! Start with [`step`], which models a turn as owned steps. [`replay`] answers effects from the journal.
//! [`transcript`] turns records back into messages, and [`conversation`] decides which of them a model sees.
//! [`overlay`] folds layers of configuration.

pub mod call_batch;
pub mod conversation;
pub mod label;
pub mod overlay;
pub mod policy;
pub mod provenance;
pub mod rate;
pub mod replay;
pub mod reply_builder;
pub mod retry;
pub mod step;
pub mod transcript;
pub mod tree;
pub mod turn_cost;

/// The version of the decisions made in this crate. The first work record of a turn names it. A change of
/// decisions raises the version and keeps the old decisions for turns that began under them.
pub const VERSION: u32 = 1;

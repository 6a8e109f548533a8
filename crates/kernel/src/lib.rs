//! Decides what a turn does next, from data alone.
//!
//! Pure: no clock, no randomness, no I/O, no async. The runtime performs what the kernel asks for and tells it what came
//! of it. Start with [`step`], the turn as owned steps; [`replay`] answers from the journal; [`transcript`] turns
//! records back into messages, [`conversation`] is what a model is shown of them; [`overlay`] folds configuration.

pub mod batch;
pub mod conversation;
pub mod label;
pub mod overlay;
pub mod policy;
pub mod provenance;
pub mod rate;
pub mod replay;
pub mod reply;
pub mod retry;
pub mod spending;
pub mod step;
pub mod transcript;
pub mod tree;

/// The version of the decisions made here. A turn's first record of work names it; a change of decisions raises it and
/// keeps the old ones for turns that began under them (R3.16).
pub const VERSION: u32 = 1;

//! Speaks to models. For now there is one: the built-in [`rehearsal`] model, which needs no key and no network.
//!
//! A provider turns a request into a stream of pieces. It does not know turns, journals or retries; those are the
//! runtime's business.

pub mod rehearsal;

pub use rehearsal::Rehearsal;
pub use rehearsal::script::Script;

//! Validates values against external JSON Schemas and regular expressions, with a limit on the work.
//!
//! A schema of a few kilobytes can demand 2^39 validation steps, and a regular expression of thirty bytes can
//! compile to gigabytes. Therefore, [`Schema::new`] measures a schema before it compiles it, and
//! [`Schema::check`] computes an upper bound of the work before it validates a value. Both give the same
//! result in every process and at every time, so that a replay decides like the first run. See
//! `docs/adr/0034-bounded-validation.md`.
//!
//! This crate starts no threads. The runtime decides where validation runs.
mod pattern;
mod schema;
mod schema_graph;
mod unique_items;
mod work_estimate;

pub use pattern::{ReplaceError, compile_regex, expanded_size, replace_all};
pub use schema::{Schema, SchemaError, SchemaVerdict};

//! Reads and checks configuration files.
//!
//! - [`document`] reads a TOML file and knows the line of every value.
//! - [`schema`] defines the known keys.
//! - [`keys`] finds unknown keys.
//! - [`server`] is the `[server]` table.
pub(crate) mod document;
pub(crate) mod keys;
pub(crate) mod schema;
pub(crate) mod server;

//! Property tests: canonical JSON has one form per value, records read back as written, and scopes only
//! narrow.
mod canonical;
mod codec;
mod effects;
mod facts;
mod pieces;
mod scopes;

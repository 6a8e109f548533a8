//! What must hold for every value: canonical JSON has one spelling, a record reads back as it was written, and scopes
//! only ever narrow.
mod canonical;
mod codec;
mod effects;
mod facts;
mod pieces;
mod scopes;

//! What must hold for every value: canonical JSON has one spelling, and a record reads back as it was written.
mod canonical;
mod codec;
mod effects;
mod facts;
mod pieces;

//! Tests of the in-memory stores: the conformance suites, and what they do beyond them.
mod audit;
mod crashing_store;
mod differential;
mod outward;
mod rules;
mod shared;
mod verify;

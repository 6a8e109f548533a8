//! Tests of the runtime as a whole, in one program: what turns do, and what is left when they die.
mod asks;
mod budgets;
mod common;
mod costs;
mod crash;
mod full;
mod hooks;
mod inline;
mod outside;
mod ownership;
mod pinned;
mod policy;
mod projection;
mod room;
mod sinks;
mod turns;
mod undo;

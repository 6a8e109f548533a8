//! Tests of the provider in a real agent, with scripted servers in memory and over HTTP that record their messages.
mod attachments;
mod cancellation;
mod network;
mod questions;
mod stage;

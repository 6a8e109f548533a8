//! The provider in a real agent, with servers in memory and over HTTP that do what a test says and note what they hear.
mod attachments;
mod cancellation;
mod network;
mod questions;
mod stage;

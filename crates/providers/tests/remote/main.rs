//! Tests every provider over real sockets, against a server that plays byte scripts of its API.
mod cache;
mod dialect;
mod errors;
mod requests;
mod stage;
mod suite;
mod windows;

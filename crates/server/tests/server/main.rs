//! The server over real sockets, on a real file.
mod access;
mod client;
mod costs;
mod doors;
mod events;
mod routes;
mod stage;

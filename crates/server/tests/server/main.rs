//! The server over real sockets, on a real file.
mod access;
mod client;
mod console;
mod costs;
mod doors;
mod events;
mod routes;
mod stage;

//! The server over real sockets, on a real file.
mod access;
mod client;
mod conformance;
mod console;
mod costs;
mod doors;
mod events;
mod links;
mod mcp;
mod routes;
mod stage;
mod wires;

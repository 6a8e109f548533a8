//! The server over real sockets, on a real file.
mod access;
mod archive;
mod bypass;
mod client;
mod conformance;
mod console;
mod costs;
mod doors;
mod events;
mod links;
mod mcp;
mod overload;
mod quota;
mod routes;
mod search;
mod stage;
mod wires;

//! Tests of the real binary.
#![allow(clippy::needless_raw_string_hashes, reason = "expectations are written by a program")]

mod agent;
mod approvals;
mod attachments;
mod bad_input;
mod budgets;
mod builtin;
mod chat;
mod config;
mod demo;
mod document;
mod explain;
mod full;
#[cfg(target_os = "linux")]
mod guardian;
mod guide;
mod hooks;
mod import;
mod inbox;
mod injection;
mod json;
mod layers;
mod log;
mod manual;
mod mcp;
mod mcp_server;
mod models;
mod orgs;
mod output;
mod place;
mod points;
mod protected_files;
mod questions;
mod rates;
mod remote_commands;
mod replay;
mod run;
mod serve;
mod sessions;
#[cfg(target_os = "linux")]
mod shell;
mod sinks;
mod stored_agents;
mod telemetry;
mod trial;
mod unknown;
mod verify;
mod waits;
mod watch;
mod wires;

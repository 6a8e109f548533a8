//! The binary `outlast`: reads flags and configuration, connects the parts, and prints. It contains no rules
//! of turns.
//!
//! Each command is a module below [`command`]. They share:
//!
//! - [`global_args`] and [`backend`]: access to a database file or a server
//! - [`turn_backend`]: drives turns
//! - [`agent`]: chooses and builds agents
//! - [`config`], [`config_file`], [`cedar`], [`sinks`], [`telemetry`]: the tables of `outlast.toml`
//! - [`follow`], [`question`]: follow a turn and answer its questions
//! - [`archive_reader`], [`private_file`]: exported sessions, and files that only their owner can read
//! - [`terminal`], [`formatting`]: print to the terminal, and format values for it
//! - [`log`]: the log of the program itself
mod agent;
mod archive_reader;
mod attachment_file;
mod backend;
mod cedar;
mod command;
mod config;
mod config_file;
mod conversation_printer;
mod follow;
mod formatting;
mod global_args;
mod input;
mod log;
mod private_file;
mod question;
mod session_selector;
mod sinks;
mod socket_handover;
mod telemetry;
mod terminal;
mod turn_backend;

use clap::Parser;
use command::Command;
use std::process::ExitCode;

/// A durable agent runtime: an accepted turn is never lost, even if its process is killed.
#[derive(Parser)]
#[command(name = "outlast", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    data: global_args::GlobalArgs,
    #[command(flatten)]
    log: log::LogArgs,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    // Must come first: this process may have been started to become a command of the `shell` tool.
    #[cfg(target_os = "linux")]
    outlast::tools::shell::start();
    let Cli { data, log, command } = Cli::parse();
    log.start();
    if data.json {
        terminal::speak_json();
    }
    command.run(&data).unwrap_or_else(|error| {
        terminal::print_error(&error);
        ExitCode::FAILURE
    })
}

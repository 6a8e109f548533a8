//! The binary `outlast`: reads flags and configuration, connects the parts, and prints. It contains no rules
//! of turns.
//!
//! Each command is a module below [`command`]. They share:
//!
//! - [`data`] and [`desk`]: access to a database file or a server
//! - [`host`]: drives turns
//! - [`agent`]: chooses and builds agents
//! - [`config`], [`providers`], [`cedar`], [`sinks`], [`telemetry`]: the tables of `outlast.toml`
//! - [`follow`], [`question`]: follow a turn and answer its questions
//! - [`archived`], [`private_file`]: exported sessions, and files that only their owner can read
//! - [`terminal`], [`words`]: print to the terminal, and format values for it
//! - [`log`]: the log of the program itself
mod agent;
mod archived;
mod attached;
mod cedar;
mod command;
mod config;
mod data;
mod desk;
mod find;
mod follow;
mod handover;
mod host;
mod input;
mod log;
mod private_file;
mod prose;
mod providers;
mod question;
mod sinks;
mod telemetry;
mod terminal;
mod words;

use clap::Parser;
use command::Command;
use std::process::ExitCode;

/// A durable agent runtime: an accepted turn is never lost, even if its process is killed.
#[derive(Parser)]
#[command(name = "outlast", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    data: data::Data,
    #[command(flatten)]
    log: log::Log,
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
        terminal::complain(&error);
        ExitCode::FAILURE
    })
}

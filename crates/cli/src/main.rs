//! The binary `outlast`: reads flags, wires the parts, prints.
//!
//! One file per command below [`command`]. What they share: [`data`] (where everything is kept), [`desk`] (whom a command asks: a file or a server), [`host`] (who drives turns), [`agent`] (who answers),
//! [`config`] (files with the line of every value), [`providers`] (where models come from), [`cedar`] (policies beside the rules of agents), [`sinks`] (where outputs go), [`log`] (what it says of itself), [`telemetry`] (where traces go), [`follow`] (an input on its way to its end), [`question`] (what it asks on the
//! way), [`archived`] (files of sessions), [`private_file`] (files for nobody else to read), [`terminal`] (how text gets out), [`words`] (how things are said).
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

/// A durable agent runtime: a turn that was accepted is not lost, whatever happens to the process.
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
    // Before anything else: this process may have been started to become a command of the tool `shell`.
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

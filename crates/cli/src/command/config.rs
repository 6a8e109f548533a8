//! `outlast config`: what is wrong with a configuration, and which keys there are.
use crate::agent::staff::Staff;
use crate::config::document::Document;
use crate::config::{keys, schema};
use crate::providers::Configuration;
use crate::terminal;
use crate::words;
use clap::{Args, Subcommand};
use outlast::providers::{ProviderTable, Providers};
use outlast::{Error, Kind};
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks a configuration or prints its schema.
#[derive(Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Say everything that is wrong with a configuration, each with its file and line
    Check {
        /// The file; `./outlast.toml` without it
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of `outlast.toml`
    Schema,
}

impl Config {
    /// Does it. A mistake is a failure.
    pub(crate) fn run(self) -> Result<ExitCode, Error> {
        match self.what {
            What::Schema if terminal::is_json() => {
                terminal::json(&schema::configuration());
                Ok(ExitCode::SUCCESS)
            }
            What::Schema => {
                let schema = serde_json::to_string_pretty(&schema::configuration());
                terminal::say(&schema.map_err(|cause| Error::new(Kind::Internal, cause.to_string()))?);
                Ok(ExitCode::SUCCESS)
            }
            What::Check { file } => check(file),
        }
    }
}

fn check(file: Option<PathBuf>) -> Result<ExitCode, Error> {
    let configuration = Configuration::of(file);
    let Some(path) = configuration.file() else {
        let detail = "there is no `outlast.toml` here; name another file: `outlast config check FILE`";
        return Err(Error::new(Kind::IoFailed, detail));
    };
    let document = match Document::read(path, "configuration") {
        Ok(document) => document,
        Err(error) if error.kind() == Kind::ConfigInvalid => return Ok(told(&[error])),
        Err(error) => return Err(error),
    };
    let mistakes = mistakes(&configuration, &document)?;
    if mistakes.is_empty() {
        let count = |table: &str| Ok::<_, Error>(document.names(&[table])?.len());
        terminal::say(&format!(
            "{}: {}, {}, {}, {}, no mistakes",
            path.display(),
            words::count(count("providers")?, "provider", "providers"),
            words::count(count("agents")?, "agent", "agents"),
            words::count(count("harnesses")?, "harness", "harnesses"),
            words::count(count("capabilities")?, "capability", "capabilities"),
        ));
        return Ok(ExitCode::SUCCESS);
    }
    Ok(told(&mistakes))
}

fn told(mistakes: &[Error]) -> ExitCode {
    for mistake in mistakes {
        terminal::say(mistake.detail());
    }
    ExitCode::FAILURE
}

/// Everything that is wrong: first what cannot be read, then what does not hold.
fn mistakes(configuration: &Configuration, document: &Document) -> Result<Vec<Error>, Error> {
    let mut mistakes = keys::unknown(document, &schema::configuration())?;
    for name in document.names(&["providers"])? {
        mistakes.extend(document.value::<ProviderTable>(&["providers", &name]).err());
    }
    mistakes.extend(Staff::misread(document)?);
    if !mistakes.is_empty() {
        // A key that is not known is named once, and not again by what reads the table it is in.
        mistakes.retain(|mistake| !mistake.detail().contains(": unknown field `"));
        return Ok(mistakes);
    }
    mistakes.extend(Providers::from_file(document.path()).err());
    mistakes.extend(configuration.attachments().err());
    mistakes.extend(configuration.telemetry().err());
    match configuration.sinks() {
        Ok(sinks) => mistakes.extend(sinks.iter().filter_map(|sink| sink.outlet().err())),
        Err(error) => mistakes.push(error),
    }
    let staff = Staff::of(Some(document.clone()))?;
    for name in staff.names() {
        match staff.named(name, None) {
            Ok(_) => {}
            Err(error) if error.kind() == Kind::ConfigInvalid => mistakes.push(error),
            Err(error) => mistakes.push(document.invalid(&["agents", name], &error.to_string())),
        }
    }
    Ok(mistakes)
}

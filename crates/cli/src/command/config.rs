//! `outlast config`: what is wrong with a configuration, and which keys there are.
use crate::agent::fitted;
use crate::agent::staff::{Member, Staff};
use crate::cedar;
use crate::config::document::Document;
use crate::config::{keys, schema};
use crate::providers::Configuration;
use crate::terminal;
use crate::words;
use clap::{Args, Subcommand};
use outlast::providers::{ProviderTable, Providers};
use outlast::vocab::package::Pinned;
use outlast::{Error, Kind, Outlast};
use serde_json::{Map, Value};
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
    /// Say everything that is wrong with a configuration or an agent's file, each with its file and line
    Check {
        /// The file: a configuration, or an agent; `./outlast.toml` without it
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
    if is_agent(&document)? {
        return check_agent(&document);
    }
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

/// Whether a file is an agent and no configuration: it has keys of the one and none of the other.
fn is_agent(document: &Document) -> Result<bool, Error> {
    let keys = |schema: Value| schema["properties"].as_object().cloned().unwrap_or_default();
    let (of_agent, of_all) = (keys(schema::agent()), keys(schema::configuration()));
    let written = document.names(&[])?;
    let has = |these: &Map<String, Value>, others: &Map<String, Value>| {
        written.iter().any(|key| these.contains_key(key) && !others.contains_key(key))
    };
    Ok(has(&of_agent, &of_all) && !has(&of_all, &of_agent))
}

/// An agent in a file of its own. It may stand on what `./outlast.toml` has.
fn check_agent(document: &Document) -> Result<ExitCode, Error> {
    let mistakes = keys::unknown(document, &schema::agent())?;
    if !mistakes.is_empty() {
        return Ok(told(&mistakes));
    }
    let usual = Configuration::of(None);
    let path = document.path();
    let made = Staff::read(&usual)?.in_file(path, None).map_err(|error| placed(document, &[], &error));
    let made = made.and_then(|Member { agent, .. }| {
        fitted(&agent, &usual).map_err(|error| document.invalid(&[], &said(&error)))
    });
    let Pinned { package, .. } = match made {
        Ok(pinned) => pinned,
        Err(mistake) => return Ok(told(&[mistake])),
    };
    terminal::say(&format!(
        "{}: agent {}, {}, {}, no mistakes",
        path.display(),
        package.agent,
        words::count(package.tools.len(), "tool", "tools"),
        words::count(package.policy.rules.len(), "rule", "rules"),
    ));
    Ok(ExitCode::SUCCESS)
}

/// A mistake with its place, if it has none of its own.
fn placed(document: &Document, at: &[&str], error: &Error) -> Error {
    let has_place = error.kind() == Kind::ConfigInvalid;
    if has_place {
        Error::new(Kind::ConfigInvalid, error.detail())
    } else {
        document.invalid(at, &said(error))
    }
}

/// What is wrong, with its code unless that says no more than that something is.
fn said(error: &Error) -> String {
    if error.kind() == Kind::ConfigInvalid { error.detail().to_owned() } else { error.to_string() }
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
    let unserved = Providers::from_file(document.path()).err();
    let are_served = unserved.is_none();
    mistakes.extend(unserved);
    mistakes.extend(configuration.attachments().err());
    mistakes.extend(configuration.telemetry().err());
    match configuration.sinks() {
        Ok(sinks) => mistakes.extend(sinks.iter().filter_map(|sink| sink.outlet().err())),
        Err(error) => mistakes.push(error),
    }
    match configuration.server().map(|server| server.public_url()) {
        Ok(url) => {
            mistakes.extend(url.err().map(|error| document.invalid(&["server", "url"], error.detail())));
        }
        Err(error) => mistakes.push(error),
    }
    let engaged = cedar::under(Outlast::ephemeral(), Some(document)).map(drop);
    mistakes.extend(engaged.err().map(|error| placed(document, &["cedar"], &error)));
    let staff = Staff::of(Some(document.clone()))?;
    for name in staff.names() {
        let at = ["agents", name];
        let made = staff.named(name, None).map_err(|error| placed(document, &at, &error));
        let made = made.and_then(|Member { agent, .. }| {
            // Without any provider, every model would be one that nobody serves.
            let fitted = if are_served { fitted(&agent, configuration).map(drop) } else { Ok(()) };
            fitted.map_err(|error| document.invalid(&at, &said(&error)))
        });
        mistakes.extend(made.err());
    }
    Ok(mistakes)
}

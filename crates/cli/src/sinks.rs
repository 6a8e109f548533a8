//! The `[[sinks]]` tables of `outlast.toml`. Errors name the line of their table.
use crate::agent::program::{ResolvedCommand, named_files};
use crate::config::server::ServerTable;
use outlast::sink::{SinkTopic, SubscribedSink};
use outlast::sinks::{JsonLinesFile, ProcessSink, WebhookSecrets, WebhookSink};
use outlast::tools::egress::Network;
use outlast::{Error, Kind};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The tables that this module reads.
#[derive(Deserialize)]
struct SinksFile {
    #[serde(default)]
    sinks: Vec<Spanned<SinkTable>>,
    #[serde(default)]
    server: ServerTable,
}

/// Where outputs are delivered: one of `webhook`, `file` and `command`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[sinks]]")]
pub(crate) struct SinkTable {
    /// The name of the sink.
    name: String,
    /// The address for POST requests, or the environment variable that contains it.
    webhook: Option<WebhookAddress>,
    /// The environment variable that contains the signing secret.
    #[serde(default, deserialize_with = "secret")]
    secret: Option<SinkVariable>,
    /// Allows a webhook on this machine or in a private network.
    #[serde(default)]
    private: bool,
    /// A file that receives one line per output.
    file: Option<PathBuf>,
    /// A program that runs for each output, and its arguments.
    command: Option<Vec<String>>,
    /// Environment variables that the program may see.
    #[serde(default)]
    env: Vec<String>,
    /// The events to deliver, like `approval.requested`; default: `turn.ended`.
    on: Option<Vec<String>>,
    /// Adds links that decide an approval, on the server at `url` of `[server]`.
    #[serde(default)]
    links: bool,
    /// The outcomes of turns to deliver; default: all.
    ends: Option<Vec<String>>,
    /// Where a new sink starts: `now` (default) with the next turn that ends, `beginning` with the first turn.
    from: Option<SinkStart>,
}

/// An address, or the environment variable that contains it, because an address may be a secret.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected an address, or `{ env = \"VARIABLE\" }`, the variable that holds it")]
enum WebhookAddress {
    Here(String),
    Variable(SinkVariable),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SinkVariable {
    /// The name of the environment variable.
    env: String,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SinkStart {
    Now,
    Beginning,
}

/// Parses the reference to a secret. Errors do not show the value, because it may be a secret.
fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SinkVariable>, D::Error> {
    let table = toml::Table::deserialize(from).ok();
    let variable = table.and_then(|table| table.try_into().ok());
    let wrong = || D::Error::custom("expected `{ env = \"VARIABLE\" }`, the variable that holds the secret");
    variable.map(Some).ok_or_else(wrong)
}

/// A configured sink.
pub(crate) struct ConfiguredSink {
    table: SinkTable,
    /// The file and line of its table.
    line: String,
    /// The directory of the file.
    home: PathBuf,
    /// The public URL of the server.
    server: Option<String>,
}

/// Reads the sinks of a configuration, in order.
pub(crate) fn read(path: &Path, text: &str) -> Result<Vec<ConfiguredSink>, Error> {
    let line = |at: usize| {
        let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        format!("{}:{line}", path.display())
    };
    let table: SinksFile = toml::from_str(text).map_err(|error| {
        let what = error.message().trim().replace('\n', ", ");
        let at = line(error.span().map_or(0, |span| span.start));
        Error::new(Kind::ConfigInvalid, format!("{at}: {what}"))
    })?;
    let home = path.parent().unwrap_or(Path::new("")).to_owned();
    let server = table.server.url;
    let written = |table: Spanned<SinkTable>| ConfiguredSink {
        line: line(table.span().start),
        table: table.into_inner(),
        home: home.clone(),
        server: server.clone(),
    };
    let sinks: Vec<ConfiguredSink> = table.sinks.into_iter().map(written).collect();
    for (n, sink) in sinks.iter().enumerate() {
        if sinks[..n].iter().any(|other| other.name() == sink.name()) {
            let detail =
                format!("{}: two sinks are called `{}`; names must be unique", sink.line, sink.name());
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
    }
    Ok(sinks)
}

impl ConfiguredSink {
    pub(crate) fn name(&self) -> &str {
        &self.table.name
    }

    /// Returns the files that it appends to or runs.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let named = self.table.command.iter().flat_map(|words| named_files(words, &self.home));
        self.table.file.iter().map(|file| self.home.join(file)).chain(named).collect()
    }

    /// Creates the sink. Everything that it needs must exist.
    pub(crate) fn outlet(&self) -> Result<SubscribedSink, Error> {
        self.made().map_err(|error| {
            let detail = format!("{}: sink `{}`: {}", self.line, self.table.name, error.detail());
            Error::new(Kind::ConfigInvalid, detail)
        })
    }

    fn made(&self) -> Result<SubscribedSink, Error> {
        let SinkTable { name, webhook, secret, private, file, command, env, on, links, ends, from } =
            &self.table;
        let of_webhook = secret.is_some() || *private;
        let outlet = match (webhook, file, command) {
            (Some(place), None, None) if env.is_empty() => {
                let secret = secret.as_ref().ok_or_else(|| {
                    invalid("expected `secret = { env = \"VARIABLE\" }`, which signs what is sent")
                })?;
                let network = if *private { Network::Any } else { Network::Public };
                let secrets = WebhookSecrets::parse(&secret.value()?)
                    .map_err(|error| invalid(format!("{}: {}", secret.env, error.detail())))?;
                SubscribedSink::new(name, WebhookSink::new(&place.value()?, secrets, network)?)
            }
            (None, Some(file), None) if !of_webhook && env.is_empty() => {
                SubscribedSink::new(name, JsonLinesFile::new(self.home.join(file))?)
            }
            (None, None, Some(words)) if !of_webhook => {
                let words = ResolvedCommand::find(words, &self.home).and_then(|words| words.passing_on(env));
                let dir = if self.home.as_os_str().is_empty() { Path::new(".") } else { &self.home };
                SubscribedSink::new(name, ProcessSink::new(words.map_err(invalid)?.in_dir(dir)))
            }
            _ => Err(invalid(
                "expected one of `webhook` (with `secret`, `private`), `file` and `command` (with `env`)",
            )),
        }?;
        let outlet = match on {
            Some(on) => outlet.with_topics(on)?,
            None => outlet,
        };
        let outlet = match ends {
            Some(_) if !outlet.subscription.on.contains(&SinkTopic::TurnEnded) => {
                return Err(invalid("`ends` has no effect without `turn.ended` in `on`; remove it"));
            }
            Some(ends) => outlet.with_ends(ends)?,
            None => outlet,
        };
        let outlet = match (links, &self.server) {
            (false, _) => outlet,
            (true, Some(url)) => outlet.with_links_at(url.parse()?),
            (true, None) => {
                return Err(invalid(
                    "`links` requires `url` in `[server]`, the public address of `outlast serve`",
                ));
            }
        };
        Ok(match from {
            Some(SinkStart::Beginning) => outlet.from_the_beginning(),
            Some(SinkStart::Now) | None => outlet,
        })
    }
}

impl WebhookAddress {
    fn value(&self) -> Result<String, Error> {
        match self {
            Self::Here(text) => Ok(text.clone()),
            Self::Variable(variable) => variable.value(),
        }
    }
}

impl SinkVariable {
    fn value(&self) -> Result<String, Error> {
        let value = std::env::var(&self.env).ok().filter(|value| !value.trim().is_empty());
        value.ok_or_else(|| invalid(format!("set {}", self.env)))
    }
}

fn invalid(detail: impl Into<String>) -> Error {
    Error::new(Kind::ConfigInvalid, detail)
}

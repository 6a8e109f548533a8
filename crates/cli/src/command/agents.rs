//! `outlast agents`: lists, shows, compares, validates and audits agents.
mod audit;
mod delete;
mod import;
mod server_agents;

use crate::agent::sources::{AgentSources, LayeredAgent};
use crate::agent::{here, is_file, validated_package};
use crate::config_file::ConfigFile;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal::{self, one_line};
use clap::{Args, Subcommand};
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::runtime::agents::agent_registry;
use outlast::runtime::views::difference;
use outlast::vocab::Hash;
use outlast::vocab::package::PinnedPackage;
use outlast::{Error, Kind, Outlast, TurnId};
use outlast_kernel::overlay::{fold, origins};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// The maximum length of a value in a line, in characters.
const LETTERS: usize = 100;

/// The model of an agent that names none.
const RULES: &str = "rehearsal/agent";

/// Lists, shows, compares, validates, imports and deletes agents.
#[derive(Args)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    what: AgentsCommand,
    #[command(flatten)]
    configuration: ConfigFile,
}

#[derive(Subcommand)]
enum AgentsCommand {
    /// List the agents of the configuration and the database
    List,
    /// Show the resolved agent, and the layer that set each value
    Show {
        /// Name of the agent, or its file
        agent: String,
    },
    /// Compare two agents; each is a name, a version in the database (`NAME@2`), a file, a turn, or the fingerprint of
    /// a package
    Diff {
        /// First agent
        a: String,
        /// Second agent
        b: String,
    },
    /// Audit each tool of an agent: what it reads and changes, what happens after untrusted text was read, and what the
    /// configuration lacks
    Audit {
        /// Name of the agent, or its file
        agent: String,
    },
    /// Build every agent, and report errors
    Validate,
    /// List the versions of an agent in the database
    History {
        /// Name of the agent
        name: String,
    },
    /// Import agents and capabilities from AGENTS.md, Agent Skills or TOML, into the database or a file
    Import(import::AgentImportArgs),
    /// Delete an agent, a harness or a capability from the database; its versions and the packages of its turns stay
    Delete(delete::AgentDeleteArgs),
}

impl AgentsArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<ExitCode, Error> {
        if let AgentsCommand::Import(import) = &self.what {
            return import.run(data).await.map(|()| ExitCode::SUCCESS);
        }
        if let AgentsCommand::Delete(delete) = &self.what {
            return delete.run(&self.configuration, data).await.map(|()| ExitCode::SUCCESS);
        }
        if let AgentsCommand::History { name } = &self.what {
            return history(name, data).await.map(|()| ExitCode::SUCCESS);
        }
        if let Some(client) = data.client()? {
            return server_agents::run(&self.what, &client, data).await.map(|()| ExitCode::SUCCESS);
        }
        let sources = AgentSources::read(&self.configuration)?.with_stored(data).await?;
        match &self.what {
            AgentsCommand::List => list(&sources, data.json),
            AgentsCommand::Show { agent } => show(&member(&sources, agent)?, data.json)?,
            AgentsCommand::Audit { agent } => audit::print(&package(&member(&sources, agent)?)?, data.json),
            AgentsCommand::Diff { a, b } => {
                let (a, b) = (pinned(&sources, a, data).await?, pinned(&sources, b, data).await?);
                differ(&a, &b, data.json)?;
            }
            AgentsCommand::Validate => return Ok(self.validate(&sources, data.json)),
            AgentsCommand::History { .. } | AgentsCommand::Import(_) | AgentsCommand::Delete(_) => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Builds every agent as a starting worker would, and reports which ones fail.
    fn validate(&self, sources: &AgentSources, json: bool) -> ExitCode {
        let mut all = ExitCode::SUCCESS;
        for name in sources.names() {
            let made = sources
                .named(name, None)
                .and_then(|member| validated_package(&member.agent, &self.configuration));
            if json {
                let (fingerprint, error) = match &made {
                    Ok(pinned) => (Some(pinned.fingerprint()), None),
                    Err(error) => {
                        (None, Some(json!({ "code": error.kind().code(), "detail": error.detail() })))
                    }
                };
                terminal::json(&json!({ "agent": name, "package": fingerprint, "error": error }));
            }
            match made {
                Ok(_) if json => {}
                Err(_) if json => all = ExitCode::FAILURE,
                Ok(pinned) => terminal::say(&format!("{name} {}", pinned.fingerprint())),
                Err(error) => {
                    terminal::say(&format!("{name} cannot be built: {error}"));
                    all = ExitCode::FAILURE;
                }
            }
        }
        all
    }
}

/// Prints the differences between two packages.
fn differ(a: &PinnedPackage, b: &PinnedPackage, json: bool) -> Result<(), Error> {
    print_difference(&difference::between(&json_of(a)?, &json_of(b)?), json);
    Ok(())
}

fn print_difference(lines: &[String], json: bool) {
    if json {
        terminal::json(&json!({ "lines": lines }));
        return;
    }
    for line in lines {
        terminal::say(line);
    }
    if lines.is_empty() {
        terminal::note("· the two agents are identical");
    }
}

fn member(sources: &AgentSources, agent: &str) -> Result<LayeredAgent, Error> {
    if is_file(agent) { sources.in_file(Path::new(agent), None) } else { sources.named(agent, None) }
}

/// Returns the package that turns of the agent are pinned to.
fn package(member: &LayeredAgent) -> Result<PinnedPackage, Error> {
    let model = member.agent.model().map_or(RULES, |model| model.as_str());
    member.agent.build(Outlast::ephemeral().model(model), &here()?)?.pinned()
}

/// Returns the package of an agent, of a version, or of a turn, or the package with a fingerprint.
async fn pinned(sources: &AgentSources, which: &str, data: &GlobalArgs) -> Result<PinnedPackage, Error> {
    if let Some((name, version)) = which.rsplit_once('@') {
        return package(&version_of(sources, name, version, data).await?);
    }
    if let Ok(turn) = which.parse::<TurnId>() {
        return data.backend().await?.package(turn).await;
    }
    match which.parse::<Hash>() {
        Ok(fingerprint) => agent_registry::read(data.open_for_all_orgs().await?.as_ref(), fingerprint).await,
        Err(_) => package(&member(sources, which)?),
    }
}

/// Returns a version of an agent in the database.
async fn version_of(
    sources: &AgentSources,
    name: &str,
    version: &str,
    data: &GlobalArgs,
) -> Result<LayeredAgent, Error> {
    let versions = data.backend().await?.config_versions(ConfigKind::Agent, name).await?;
    let found = versions.iter().find(|stored| stored.version.to_string() == version).ok_or_else(|| {
        let newest = versions.first().map_or(0, |stored| stored.version);
        let detail =
            format!("the database has no version `{version}` of the agent `{name}`; the newest is {newest}");
        Error::new(Kind::AgentNotFound, detail)
    })?;
    if found.is_deleted() {
        let detail = format!("the agent `{name}` was deleted with version {version}");
        return Err(Error::new(Kind::AgentNotFound, detail));
    }
    sources.stored(found, None)
}

async fn history(name: &str, data: &GlobalArgs) -> Result<(), Error> {
    let versions = data.backend().await?.config_versions(ConfigKind::Agent, name).await?;
    if versions.is_empty() {
        let detail = format!("the database has no agent `{name}`; `outlast agents list` lists the agents");
        return Err(Error::new(Kind::AgentNotFound, detail));
    }
    if data.json {
        for StoredConfig { name, version, fingerprint, at, body, .. } in &versions {
            terminal::json(&json!({
                "agent": name, "version": version, "at": at, "fingerprint": fingerprint, "body": body,
            }));
        }
        return Ok(());
    }
    let row = |stored: &StoredConfig| {
        let fingerprint =
            if stored.is_deleted() { "deleted".to_owned() } else { stored.fingerprint.to_string() };
        vec![stored.version.to_string(), formatting::when(stored.at), fingerprint]
    };
    terminal::table(&["VERSION", "SINCE", "FINGERPRINT"], &versions.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn json_of(pinned: &PinnedPackage) -> Result<Value, Error> {
    serde_json::to_value(pinned).map_err(|cause| Error::new(Kind::Internal, cause.to_string()))
}

fn list(sources: &AgentSources, json: bool) {
    let (mut rows, mut is_empty) = (Vec::new(), true);
    for name in sources.names() {
        is_empty = false;
        let made = sources.named(name, None).and_then(|member| Ok((package(&member)?, member)));
        let (pinned, member) = match made {
            Ok(made) => made,
            // An agent that cannot be built does not hide the others.
            Err(error) if json => {
                let error = json!({ "code": error.kind().code(), "detail": error.detail() });
                terminal::json(&json!({ "agent": name, "in": sources.source(name), "error": error }));
                continue;
            }
            Err(error) => {
                terminal::note(&format!("· {name} cannot be built: {error}"));
                continue;
            }
        };
        let layers: Vec<&str> = member.layers.iter().map(|layer| layer.from.as_str()).collect();
        let fingerprint = pinned.fingerprint().to_string();
        let model = pinned.package.model.to_string();
        if json {
            terminal::json(&json!({
                "agent": name, "in": sources.source(name), "model": model, "layers": layers,
                "package": fingerprint,
            }));
            continue;
        }
        rows.push(vec![name.to_owned(), sources.source(name), model, layers.join(" → "), fingerprint]);
    }
    if json {
        return;
    }
    if is_empty {
        terminal::note("· there are no agents; define one as `[agents.NAME]` in `outlast.toml`");
        return;
    }
    if !rows.is_empty() {
        terminal::table(&["AGENT", "IN", "MODEL", "LAYERS", "PACKAGE"], &rows);
    }
}

fn show(member: &LayeredAgent, json: bool) -> Result<(), Error> {
    let pinned = package(member)?;
    if json {
        terminal::json(&pinned);
        return Ok(());
    }
    terminal::say(&format!("agent {}", member.agent.name()));
    terminal::say(&format!("package {}", pinned.fingerprint()));
    let layers: Vec<&str> = member.layers.iter().map(|layer| layer.from.as_str()).collect();
    terminal::say(&format!("layers {}", layers.join(" → ")));
    let folded = fold(member.layers.clone())?;
    let folded =
        serde_json::to_value(folded).map_err(|cause| Error::new(Kind::Internal, cause.to_string()))?;
    for (name, from) in origins(&member.layers) {
        let value = difference::at(&folded, &name).map_or_else(String::new, difference::shown);
        terminal::say(&format!("{name} = {} ({})", one_line(&value, LETTERS), from.join(" → ")));
    }
    Ok(())
}

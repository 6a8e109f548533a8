//! `outlast agents --server`: shows the agents of a server.
use super::{AgentsCommand, audit, differ, print_difference};
use crate::agent::is_file;
use crate::global_args::GlobalArgs;
use crate::terminal;
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::runtime::views::difference;
use outlast::vocab::Hash;
use outlast::vocab::package::PinnedPackage;
use outlast::{Error, Kind, TurnId};
use outlast_client::Client;
use outlast_client::api::agents::AgentResource;
use serde_json::{Value, json};

/// The source of an agent in the table.
const THERE: &str = "the server";

pub(super) async fn run(what: &AgentsCommand, client: &Client, data: &GlobalArgs) -> Result<(), Error> {
    match what {
        AgentsCommand::List => list(&client.agents().await?, data.json),
        AgentsCommand::Show { agent } => {
            let pinned = package(client, agent).await?;
            if data.json {
                terminal::json(&pinned);
            } else {
                show(&pinned);
            }
        }
        AgentsCommand::Audit { agent } => audit::print(&package(client, agent).await?, data.json),
        AgentsCommand::Diff { a, b } => match (versioned(a), versioned(b)) {
            ((name, of_a), (other, of_b)) if name == other && (of_a.is_some() || of_b.is_some()) => {
                let versions = client.config_versions(ConfigKind::Agent, name).await?;
                let (a, b) = (said(&versions, name, of_a)?, said(&versions, name, of_b)?);
                print_difference(&difference::between(a, b), data.json);
            }
            _ => differ(&pinned(client, a).await?, &pinned(client, b).await?, data.json)?,
        },
        AgentsCommand::Validate
        | AgentsCommand::History { .. }
        | AgentsCommand::Import(_)
        | AgentsCommand::Delete(_) => data.require_database_file()?,
    }
    Ok(())
}

fn list(agents: &[AgentResource], json: bool) {
    if json {
        for AgentResource { name, fingerprint, model, .. } in agents {
            terminal::json(&json!({
                "agent": name, "in": THERE, "model": model, "layers": null, "package": fingerprint,
            }));
        }
        return;
    }
    let row = |AgentResource { name, first, fingerprint, model, .. }: &AgentResource| {
        let answers = if *first { "answers first" } else { "" };
        vec![name.clone(), THERE.to_owned(), model.clone(), answers.to_owned(), fingerprint.to_string()]
    };
    terminal::table(&["AGENT", "IN", "MODEL", "", "PACKAGE"], &agents.iter().map(row).collect::<Vec<_>>());
}

fn show(pinned: &PinnedPackage) {
    terminal::say(&format!("agent {}", pinned.package.agent));
    terminal::say(&format!("package {}", pinned.fingerprint()));
    terminal::say(&format!("model {}", pinned.package.model));
    let tools: Vec<String> = pinned.package.tools.iter().map(ToString::to_string).collect();
    terminal::say(&format!("tools {}", tools.join(", ")));
}

/// Splits `NAME@VERSION` into the name and the version.
fn versioned(which: &str) -> (&str, Option<&str>) {
    which.rsplit_once('@').map_or((which, None), |(name, version)| (name, Some(version)))
}

/// Returns the content of a version in the server's database. Without a version, returns the newest.
fn said<'v>(versions: &'v [StoredConfig], name: &str, version: Option<&str>) -> Result<&'v Value, Error> {
    let is_meant =
        |stored: &&StoredConfig| version.is_none_or(|version| stored.version.to_string() == version);
    let found = versions.iter().find(is_meant).filter(|stored| !stored.is_deleted()).ok_or_else(|| {
        let which = version.map_or_else(|| "last version".to_owned(), |version| format!("version {version}"));
        let detail =
            format!("the database of the server has no {which} of the agent `{name}`, or it is deleted");
        Error::new(Kind::AgentNotFound, detail)
    })?;
    Ok(&found.body)
}

/// Returns the package of an agent or a turn, or the package with a fingerprint.
async fn pinned(client: &Client, which: &str) -> Result<PinnedPackage, Error> {
    if let Ok(turn) = which.parse::<TurnId>() {
        return client.package(turn).await;
    }
    match which.parse::<Hash>() {
        Ok(fingerprint) => client.package_by_fingerprint(fingerprint).await,
        Err(_) => package(client, which).await,
    }
}

async fn package(client: &Client, name: &str) -> Result<PinnedPackage, Error> {
    if is_file(name) || name.contains('@') {
        let detail =
            format!("`{name}` is a local agent; with `--server`, name an agent of the server, or a turn");
        return Err(Error::new(Kind::CommandLocal, detail));
    }
    client.agent(name).await?.package.ok_or_else(|| {
        Error::new(Kind::ServerAnswerInvalid, format!("the server's response lacks the package of `{name}`"))
    })
}

//! Rebuilds the agents that depend on the database whenever the stored configuration changes.
use super::definition::{AgentDefinition, WritablePlace};
use super::layers::TableLocation;
use super::sources::{AgentSources, LayeredAgent};
use super::{AgentArgs, here, is_file, other};
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::runtime::agents::agent_factory::{AgentFactory, AgentPlan};
use outlast::vocab::overlay::{Layer, Overlay};
use outlast::vocab::{Hash, canonical_json};
use outlast::{Builder, Error, Kind};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Plans the agents of the database, and the agents of the configuration that depend on it.
pub(super) struct StoredAgentFactory {
    agent: AgentArgs,
    /// The agents of the configuration.
    configured: AgentSources,
    /// The names of agents that do not depend on the database. They take precedence over stored agents.
    independent: BTreeSet<String>,
    /// The name of the first agent, if it depends on the database.
    first: Option<String>,
    /// The working directory of the agents.
    dir: PathBuf,
    /// The database file, which no agent may change.
    database: PathBuf,
}

impl StoredAgentFactory {
    pub(super) fn new(
        agent: AgentArgs,
        written: AgentSources,
        made: BTreeSet<String>,
        first: Option<String>,
        database: PathBuf,
    ) -> Result<Self, Error> {
        Ok(Self { agent, configured: written, independent: made, first, dir: here()?, database })
    }

    /// Returns whether the configuration has an agent with this name.
    fn is_written(&self, name: &str) -> bool {
        self.configured.names().any(|written| written == name)
    }

    /// Returns what the programs of all agents may change.
    fn writable_places(&self, sources: &AgentSources) -> Arc<[WritablePlace]> {
        let first = self.agent.found(sources).ok().flatten();
        let named = sources.names().filter_map(|name| sources.named(name, None).ok());
        first.into_iter().chain(named).flat_map(|member| member.agent.writable_places(&self.dir)).collect()
    }

    fn plan(
        &self,
        name: &str,
        is_kept: bool,
        member: Result<LayeredAgent, Error>,
        writable: Arc<[WritablePlace]>,
        make: impl FnOnce(&AgentDefinition) -> Result<Builder, Error> + Send + 'static,
    ) -> AgentPlan {
        let (name, database) = (name.to_owned(), self.database.clone());
        match member {
            Ok(LayeredAgent { agent, layers }) => {
                let said: Vec<&Overlay> = layers.iter().map(|placed| &placed.overlay).collect();
                let layers = canonical_json::fingerprint(&said);
                let make = move || {
                    // Agents that are built already cannot refuse the files of this one.
                    let others = writable.iter().filter(|place| place.agent != agent.name());
                    others.into_iter().try_for_each(|place| agent.check_outside(place))?;
                    let builder = make(&agent)?;
                    builder.check_database(&database)?;
                    builder.into_single_agent()
                };
                AgentPlan { name, is_kept, layers, make: Box::new(make) }
            }
            Err(error) => {
                let layers = Hash::of(error.to_string().as_bytes());
                AgentPlan { name, is_kept, layers, make: Box::new(|| Err(error)) }
            }
        }
    }
}

impl AgentFactory for StoredAgentFactory {
    fn plans(&self, stored: &[StoredConfig]) -> Result<Vec<AgentPlan>, Error> {
        let sources = self.configured.clone().with_configs(stored.to_vec());
        let mut plans = Vec::new();
        let writable = self.writable_places(&sources);
        if let (Some(name), Some(who)) = (&self.first, &self.agent.who) {
            let agent = self.agent.clone();
            let make =
                move |file: &AgentDefinition| agent.add_agent(super::Outlast::agent(file.name()), file);
            let is_kept = !is_file(who) && !self.is_written(name);
            plans.push(self.plan(name, is_kept, self.agent.member(&sources, who), writable.clone(), make));
        }
        let first = self.first.as_deref();
        for name in sources.names().filter(|name| !self.independent.contains(*name) && Some(*name) != first) {
            let dir = self.dir.clone();
            let is_kept = !self.is_written(name);
            let make = move |file: &AgentDefinition| other(file, &dir);
            plans.push(self.plan(name, is_kept, sources.named(name, None), writable.clone(), make));
        }
        Ok(plans)
    }

    fn check(&self, new: &StoredConfig, stored: &[StoredConfig]) -> Result<(), Error> {
        if new.body.get("name").is_some() {
            let detail = format!(
                "the configuration is already saved under the name `{}`; remove `name` from its body",
                new.name
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        let layer = match new.kind {
            // The runtime builds the agent, which finds its errors.
            ConfigKind::Agent => return Ok(()),
            ConfigKind::Harness => Layer { parent: Some(new.name.clone()), ..Layer::default() },
            ConfigKind::Capability => {
                let overlay = Overlay { capabilities: vec![new.name.clone()], ..Overlay::default() };
                Layer { overlay, ..Layer::default() }
            }
        };
        let sources = self.configured.clone().with_configs(stored.to_vec());
        let place = TableLocation::elsewhere(format!("{} {}", new.kind, new.name));
        match sources.member(new.name.clone(), layer, None, &place) {
            // An agent may provide the rest, or it may be stored later.
            Err(error) if error.kind() == Kind::ConfigInvalid => Err(error),
            _ => Ok(()),
        }
    }
}

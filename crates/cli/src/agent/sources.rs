//! Finds agents in `outlast.toml`, in the database, and in single agent files.
//!
//! All agents share the same harnesses and capabilities. If `outlast.toml` and the database use the same
//! name, `outlast.toml` wins.
use super::definition::{AgentDefinition, AgentTable, pins_of};
use super::layers::{CapabilityTable, TableLocation, folded};
use super::protected;
use super::rates::{RateTable, rates};
use crate::config::document::Document;
use crate::config::{keys, schema};
use crate::config_file::ConfigFile;
use crate::global_args::GlobalArgs;
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::store::Store;
use outlast::tools::ProtectedFiles;
use outlast::vocab::overlay::{CapabilityLayer, Layer, Overlay};
use outlast::vocab::rate::RateLimit;
use outlast::{Error, Kind};
use outlast_kernel::overlay::{LayerRegistry, OriginLayer};
use outlast_mcp::PinnedDefinitions;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// All agents, harnesses and capabilities of a configuration.
#[derive(Clone)]
pub(crate) struct AgentSources {
    document: Option<Document>,
    pub(crate) registry: LayerRegistry,
    agents: BTreeMap<String, AgentSource>,
    /// Rate limits that apply to all agents.
    rates: Vec<RateLimit>,
    pins: PinnedDefinitions,
    /// The files of everything that was loaded. Clones share the list.
    protected: ProtectedFiles,
}

/// The source of an agent.
#[derive(Clone)]
enum AgentSource {
    /// A table of the configuration.
    Here(Box<AgentTable>),
    /// A version in the database.
    Stored(StoredConfig),
}

/// A configuration that can be stored in a database.
pub(crate) struct ConfigDraft {
    pub(crate) kind: ConfigKind,
    pub(crate) name: String,
    pub(crate) body: Value,
}

/// Reads the agents, harnesses and capabilities of a file, ready to be stored. Their paths are absolute.
pub(crate) fn config_drafts(path: &Path) -> Result<Vec<ConfigDraft>, Error> {
    let document = Document::read(path, "agent")?;
    // In the file of a single agent, `capabilities` may be a list.
    let named = |table: &&str| document.names(&[table]).is_ok_and(|names| !names.is_empty());
    if !["agents", "harnesses", "capabilities"].iter().any(named) {
        let StandaloneAgent { name, layer, .. } = StandaloneAgent::read(&document)?;
        return Ok(vec![ConfigDraft { kind: ConfigKind::Agent, name, body: json(&layer)? }]);
    }
    keys::check(&document, &schema::configuration())?;
    let sources = AgentSources::of(Some(document.clone()))?;
    let LayerRegistry { harnesses, capabilities } = sources.registry;
    let mut configs = Vec::new();
    for (name, harness) in harnesses {
        configs.push(ConfigDraft { kind: ConfigKind::Harness, body: json(&harness)?, name });
    }
    for (name, capability) in capabilities {
        configs.push(ConfigDraft { kind: ConfigKind::Capability, body: json(&capability)?, name });
    }
    for name in document.names(&["agents"])? {
        let at = ["agents", name.as_str()];
        let place = TableLocation::within(&document, &at, format!("agent {name}"))?;
        let layer = table(&document, at)?.layer(&place)?;
        configs.push(ConfigDraft { kind: ConfigKind::Agent, body: json(&layer)?, name });
    }
    Ok(configs)
}

fn json(value: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|cause| Error::new(Kind::Internal, cause.to_string()))
}

/// An agent in a single agent file.
struct StandaloneAgent<'a> {
    name: String,
    layer: Layer,
    place: TableLocation<'a>,
}

impl<'a> StandaloneAgent<'a> {
    fn read(document: &'a Document) -> Result<Self, Error> {
        keys::check(document, &schema::agent())?;
        let table: AgentTable = document.value(&[])?.unwrap_or_default();
        let name = table.name.clone().ok_or_else(|| document.invalid(&[], "missing field `name`"))?;
        let place = TableLocation::within(document, &[], format!("agent {name}"))?;
        table.check_programs(&place)?;
        Ok(Self { name, layer: table.layer(&place)?, place })
    }
}

/// An agent with its layers.
pub(crate) struct LayeredAgent {
    pub(crate) agent: AgentDefinition,
    /// The layers, root first.
    pub(crate) layers: Vec<OriginLayer>,
}

impl AgentSources {
    /// Reads the agents, harnesses and capabilities of a configuration.
    pub(crate) fn read(configuration: &ConfigFile) -> Result<Self, Error> {
        Self::of(configuration.document()?)
    }

    /// Reads the agents, harnesses and capabilities of a file.
    pub(crate) fn of(document: Option<Document>) -> Result<Self, Error> {
        let (mut registry, mut agents, mut pins) =
            (LayerRegistry::default(), BTreeMap::new(), PinnedDefinitions::default());
        let rates = document.as_ref().map(everywhere).transpose()?.unwrap_or_default();
        let protected = ProtectedFiles::default();
        if let Some(document) = &document {
            protected::add_configuration(&protected, document)?;
            pins = read_pins(&pins_of(document.path()))?;
            for name in document.names(&["harnesses"])? {
                let at = ["harnesses", name.as_str()];
                let place = TableLocation::within(document, &at, format!("harness {name}"))?;
                let layer = table(document, at)?.layer(&place)?;
                protected::add_layer(&protected, &layer.overlay);
                registry.harnesses.insert(name, layer);
            }
            for name in document.names(&["agents"])? {
                let at = ["agents", name.as_str()];
                let table = table(document, at)?;
                let place = TableLocation::within(document, &at, format!("agent {name}"))?;
                // An invalid agent is left out when it is built.
                if let Ok(layer) = table.clone().layer(&place) {
                    protected::add_layer(&protected, &layer.overlay);
                }
                agents.insert(name, AgentSource::Here(Box::new(table)));
            }
            for name in document.names(&["capabilities"])? {
                let at = ["capabilities", name.as_str()];
                let table: CapabilityTable = document.value(&at)?.unwrap_or_default();
                let place = TableLocation::within(document, &at, format!("capability {name}"))?;
                let capability = table.capability(&place)?;
                protected::add_layer(&protected, &capability.overlay);
                registry.capabilities.insert(name, capability);
            }
        }
        Ok(Self { document, registry, agents, rates, pins, protected })
    }

    /// Returns the files that tools must not change.
    pub(crate) fn protected_files(&self) -> &ProtectedFiles {
        &self.protected
    }

    /// Adds the configurations of the database, if it exists.
    pub(crate) async fn with_stored(self, data: &GlobalArgs) -> Result<Self, Error> {
        if data.server.is_some() || !data.path.exists() {
            return Ok(self);
        }
        self.with_stored_in(data.open().await?.as_ref()).await
    }

    /// Adds the configurations of this database.
    pub(crate) async fn with_stored_in(self, store: &dyn Store) -> Result<Self, Error> {
        let mut configs = Vec::new();
        for kind in ConfigKind::ALL {
            configs.extend(store.configs(kind, usize::MAX).await?);
        }
        Ok(self.with_configs(configs))
    }

    /// Adds stored configurations. If the configuration has the same name, it wins.
    ///
    /// Versions that this program cannot read, such as those of a newer one, are left out. Only agents that
    /// depend on them cannot be built.
    pub(crate) fn with_configs(mut self, configs: Vec<StoredConfig>) -> Self {
        for stored in configs {
            match stored.kind {
                ConfigKind::Harness => {
                    if let Some(layer) = readable::<Layer>(&stored) {
                        protected::add_layer(&self.protected, &layer.overlay);
                        self.registry.harnesses.entry(stored.name).or_insert(layer);
                    }
                }
                ConfigKind::Capability => {
                    if let Some(capability) = readable::<CapabilityLayer>(&stored) {
                        protected::add_layer(&self.protected, &capability.overlay);
                        self.registry.capabilities.entry(stored.name).or_insert(capability);
                    }
                }
                ConfigKind::Agent => {
                    if let Some(layer) = readable::<Layer>(&stored) {
                        protected::add_layer(&self.protected, &layer.overlay);
                    }
                    self.agents.entry(stored.name.clone()).or_insert(AgentSource::Stored(stored));
                }
            }
        }
        self
    }

    /// Returns the source of an agent, for display.
    pub(crate) fn source(&self, name: &str) -> String {
        match (self.agents.get(name), &self.document) {
            (Some(AgentSource::Stored(stored)), _) => format!("database, version {}", stored.version),
            (_, Some(document)) => document.path().display().to_string(),
            (_, None) => String::new(),
        }
    }

    /// Returns an error for each table of agents, harnesses and capabilities that cannot be read.
    pub(crate) fn table_errors(document: &Document) -> Result<Vec<Error>, Error> {
        let mut wrong: Vec<Error> = everywhere(document).err().into_iter().collect();
        for kind in ["harnesses", "agents"] {
            for name in document.names(&[kind])? {
                let at = [kind, name.as_str()];
                let place = TableLocation::within(document, &at, name.clone())?;
                wrong.extend(table(document, at).and_then(|table| table.layer(&place)).err());
            }
        }
        for name in document.names(&["capabilities"])? {
            let at = ["capabilities", name.as_str()];
            let place = TableLocation::within(document, &at, name.clone())?;
            let table = document.value::<CapabilityTable>(&at);
            wrong.extend(table.and_then(|table| table.unwrap_or_default().capability(&place)).err());
        }
        Ok(wrong)
    }

    /// Returns the names of all agents.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Returns an agent of the configuration or the database, with an optional overlay.
    pub(crate) fn named(&self, name: &str, over: Option<&Path>) -> Result<LayeredAgent, Error> {
        let (document, table) = match (self.agents.get(name), &self.document) {
            (Some(AgentSource::Here(table)), Some(document)) => (document, table.as_ref()),
            (Some(AgentSource::Stored(stored)), _) => return self.stored(stored, over),
            _ => return Err(self.unknown(name)),
        };
        let place = TableLocation::within(document, &["agents", name], format!("agent {name}"))?;
        table.check_programs(&place)?;
        self.member(name.to_owned(), table.clone().layer(&place)?, over, &place)
    }

    /// Returns a stored version of an agent, with an optional overlay.
    pub(crate) fn stored(&self, stored: &StoredConfig, over: Option<&Path>) -> Result<LayeredAgent, Error> {
        let place = TableLocation::elsewhere(format!("agent {}", stored.name));
        self.member(stored.name.clone(), stored.parse()?, over, &place)
    }

    /// Returns the agent of a single agent file, with an optional overlay.
    pub(crate) fn in_file(&self, path: &Path, over: Option<&Path>) -> Result<LayeredAgent, Error> {
        let document = Document::read(path, "agent")?;
        let StandaloneAgent { name, layer, place } = StandaloneAgent::read(&document)?;
        protected::add_document(&self.protected, &document)?;
        let mut pins = read_pins(&pins_of(path))?;
        let LayeredAgent { agent, layers } = self.member(name, layer, over, &place)?;
        for server in layers.iter().flat_map(|placed| placed.overlay.mcp.keys()) {
            if pins.of(server).next().is_none() {
                pins.accept(server, self.pins.of(server).cloned().collect())?;
            }
        }
        Ok(LayeredAgent { agent: agent.accepted(pins), layers })
    }

    /// Builds an agent from its layer, with an optional overlay.
    pub(super) fn member(
        &self,
        name: String,
        layer: Layer,
        over: Option<&Path>,
        place: &TableLocation<'_>,
    ) -> Result<LayeredAgent, Error> {
        if let Some(path) = over {
            protected::add_document(&self.protected, &Document::read(path, "overlay")?)?;
        }
        let over = over.map(|path| {
            Ok::<_, Error>(OriginLayer::new(format!("overlay {}", path.display()), overlay(path)?))
        });
        let mut layers = self.registry.layers(place.what.clone(), layer, over.transpose()?)?;
        if !self.rates.is_empty() {
            let rates = Overlay { rates: self.rates.clone(), ..Overlay::default() };
            layers.insert(0, OriginLayer::new("outlast.toml", rates));
        }
        for layer in &layers {
            protected::add_layer(&self.protected, &layer.overlay);
        }
        let agent = folded(name, layers.clone(), &self.registry, place)?.accepted(self.pins.clone());
        Ok(LayeredAgent { agent: agent.protecting(self.protected.clone()), layers })
    }

    /// Returns the error for an unknown agent name, with a suggestion.
    pub(crate) fn unknown(&self, name: &str) -> Error {
        let names: Vec<&str> = self.names().collect();
        let meant = keys::nearest(name, &names).map(|meant| format!("; did you mean `{meant}`?"));
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let hint = meant.unwrap_or_else(|| format!("; there are: {there}"));
        Error::new(Kind::AgentNotFound, format!("no agent is called `{name}`{hint}"))
    }
}

/// Parses a stored configuration. Returns `None` if this program cannot read it.
fn readable<T: DeserializeOwned>(stored: &StoredConfig) -> Option<T> {
    let read = stored.parse();
    read.inspect_err(|error| tracing::warn!(%error, "skipping a stored configuration that cannot be read"))
        .ok()
}

/// Reads the rate limits that apply to all agents.
fn everywhere(document: &Document) -> Result<Vec<RateLimit>, Error> {
    let tables: Vec<RateTable> = document.value(&["rates"])?.unwrap_or_default();
    rates(tables, &TableLocation::within(document, &[], "outlast.toml".to_owned())?)
}

/// Reads an overlay from a file.
pub(super) fn overlay(path: &Path) -> Result<Overlay, Error> {
    let document = Document::read(path, "overlay")?;
    keys::check(&document, &schema::agent())?;
    let table: AgentTable = document.value(&[])?.unwrap_or_default();
    for (field, there) in [("name", table.name.is_some()), ("parent", table.parent.is_some())] {
        if there {
            return Err(document.invalid(&[field], &format!("an overlay cannot set `{field}`; remove it")));
        }
    }
    let place = TableLocation::within(&document, &[], format!("overlay {}", path.display()))?;
    table.check_programs(&place)?;
    Ok(table.layer(&place)?.overlay)
}

fn table(document: &Document, at: [&str; 2]) -> Result<AgentTable, Error> {
    let table: AgentTable = document.value(&at)?.unwrap_or_default();
    if table.name.is_some() {
        let what = format!("the name is `{}`, as the table's name says; remove `name`", at[1]);
        return Err(document.invalid(&[at[0], at[1], "name"], &what));
    }
    Ok(table)
}

fn read_pins(path: &Path) -> Result<PinnedDefinitions, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => PinnedDefinitions::parse(&text),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(PinnedDefinitions::default()),
        Err(cause) => {
            let detail = format!("{} cannot be read: {cause}", path.display());
            Err(Error::new(Kind::IoFailed, detail).because(cause))
        }
    }
}

//! Agents, harnesses and capabilities that are kept in the database, with every version they ever had.
//!
//! A turn does not read them: it is pinned to a package. They are what agents are made of (`runtime::tailor`); whoever writes here
//! directly is noticed by other processes, and not by this one.
use crate::Answer;
use crate::page::Page;
use outlast_vocab::overlay::{Capability, Layer};
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigKind {
    /// An agent.
    Agent,
    /// A layer that others stand on.
    Harness,
    /// A bundle that others switch on.
    Capability,
}

impl ConfigKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Agent, Self::Harness, Self::Capability];

    /// How it is written in columns and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Harness => "harness",
            Self::Capability => "capability",
        }
    }

    /// Whether a body is one of this kind. What does not parse is not kept.
    pub fn check(self, name: &str, body: &Value) -> Result<(), Error> {
        let parsed = match self {
            Self::Agent | Self::Harness => serde_json::from_value::<Layer>(body.clone()).map(drop),
            Self::Capability => serde_json::from_value::<Capability>(body.clone()).map(drop),
        };
        parsed.map_err(|cause| {
            let detail = format!("the {self} `{name}` cannot be kept as it is: {cause}");
            Error::new(Kind::ConfigInvalid, detail)
        })
    }
}

impl fmt::Display for ConfigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ConfigKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            Error::new(Kind::InputInvalid, format!("expected agent, harness or capability, got `{text}`"))
        })
    }
}

/// One version of an agent, a harness or a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredConfig {
    /// What it is.
    pub kind: ConfigKind,
    /// What it is called.
    pub name: String,
    /// Which version, counted from 1.
    pub version: u32,
    /// The fingerprint of the body.
    pub fingerprint: Hash,
    /// What it says: a [`Layer`], or a [`Capability`]; null where it was deleted.
    pub body: Value,
    /// Since when.
    pub at: Millis,
}

impl StoredConfig {
    /// Whether it was deleted with this version.
    pub fn is_gone(&self) -> bool {
        self.body.is_null()
    }

    /// What it says, typed. A body that does not parse is an error: nothing runs under half a configuration.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_value(self.body.clone()).map_err(|cause| {
            let Self { kind, name, version, .. } = self;
            let detail = format!("version {version} of the {kind} `{name}` does not decode: {cause}");
            Error::new(Kind::RecordCorrupt, detail)
        })
    }
}

/// Agents, harnesses and capabilities in a database.
pub trait Configs: Send + Sync {
    /// Keeps a new version. One that says the same as the last is not new.
    fn put_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
        now: Millis,
    ) -> Answer<'_, StoredConfig>;

    /// Keeps a new version in place of one that must be the last; 0 is none. Otherwise nothing is changed.
    fn replace_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
        last: u32,
        now: Millis,
    ) -> Answer<'_, StoredConfig>;

    /// Deletes one, whose last version must be this where that is said. Nothing is made of it any more; its versions stay, and the
    /// last of them says that it is gone.
    fn delete_config(
        &self,
        kind: ConfigKind,
        name: String,
        last: Option<u32>,
        now: Millis,
    ) -> Answer<'_, StoredConfig>;

    /// The last version, unless it is gone.
    fn config(&self, kind: ConfigKind, name: String) -> Answer<'_, Option<StoredConfig>>;

    /// The last version of each that is not gone, by name.
    fn configs(&self, kind: ConfigKind, limit: usize) -> Answer<'_, Vec<StoredConfig>>;

    /// A page of them, behind the one with this name.
    fn configs_after(
        &self,
        kind: ConfigKind,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Page<StoredConfig, String>>;

    /// Every version, the newest first.
    fn config_versions(&self, kind: ConfigKind, name: String, limit: usize) -> Answer<'_, Vec<StoredConfig>>;

    /// A page of them, below a version.
    fn config_versions_before(
        &self,
        kind: ConfigKind,
        name: String,
        before: Option<u32>,
        limit: usize,
    ) -> Answer<'_, Page<StoredConfig, u32>>;
}

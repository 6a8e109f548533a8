//! Agents, harnesses and capabilities that are stored in the database.
use outlast_vocab::overlay::{CapabilityLayer, Layer};
use outlast_vocab::{Error, Hash, Kind, Millis};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// The kind of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigKind {
    /// An agent.
    Agent,
    /// A layer that agents extend.
    Harness,
    /// A bundle that agents enable.
    Capability,
}

impl ConfigKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Agent, Self::Harness, Self::Capability];

    /// Returns its name in columns and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Harness => "harness",
            Self::Capability => "capability",
        }
    }

    /// Checks that a body parses as this kind. A body that does not parse is not stored.
    pub fn check(self, name: &str, body: &Value) -> Result<(), Error> {
        let parsed = match self {
            Self::Agent | Self::Harness => Layer::deserialize(body).map(drop),
            Self::Capability => CapabilityLayer::deserialize(body).map(drop),
        };
        parsed.map_err(|cause| {
            let detail = format!("the {self} `{name}` is invalid: {cause}");
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
    /// Its kind.
    pub kind: ConfigKind,
    /// Its name.
    pub name: String,
    /// The version number, starting at 1.
    pub version: u32,
    /// The fingerprint of the body.
    pub fingerprint: Hash,
    /// A [`Layer`] or a [`CapabilityLayer`] as JSON, or null if this version is a deletion.
    pub body: Value,
    /// When the version was written.
    pub at: Millis,
}

impl StoredConfig {
    /// Returns whether this version is a deletion.
    pub fn is_deleted(&self) -> bool {
        self.body.is_null()
    }

    /// Parses the body. Fails if it does not parse, because nothing may run with a partial configuration.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(&self.body).map_err(|cause| {
            let Self { kind, name, version, .. } = self;
            let detail = format!("version {version} of the {kind} `{name}` does not decode: {cause}");
            Error::new(Kind::RecordCorrupt, detail)
        })
    }
}

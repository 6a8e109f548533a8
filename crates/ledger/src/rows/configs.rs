//! Agents, harnesses and capabilities, with their versions.
use super::RowAccess;
use outlast_views::ConfigKind;
use outlast_vocab::id::OrgId;
use outlast_vocab::{Error, Hash, Millis};

/// One version of an agent, a harness or a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRow {
    /// The organisation that owns it.
    pub org: OrgId,
    /// Its kind.
    pub kind: ConfigKind,
    /// Its name.
    pub name: String,
    /// The version, counted from 1.
    pub version: u32,
    /// The fingerprint of the body.
    pub fingerprint: Hash,
    /// The body as JSON.
    pub body: String,
    /// When the version was stored.
    pub at: Millis,
}

/// Reads the latest version of a configuration.
pub trait ConfigRows: RowAccess {
    /// Returns the latest version of an agent, a harness or a capability.
    fn config(&self, org: OrgId, kind: ConfigKind, name: &str) -> Result<Option<ConfigRow>, Error>;
}

/// Lists configurations and their versions.
pub trait ConfigQueries: ConfigRows {
    /// Returns the latest version of each configuration of this kind after a given one, by ascending name.
    fn configs(
        &self,
        org: OrgId,
        kind: ConfigKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error>;
    /// Returns the versions of a configuration below `before`, by descending number.
    fn config_versions(
        &self,
        org: OrgId,
        kind: ConfigKind,
        name: &str,
        before: Option<u32>,
        limit: usize,
    ) -> Result<Vec<ConfigRow>, Error>;
}

/// Writes configurations.
pub trait ConfigWrites: ConfigRows {
    /// Inserts a version of a configuration, which must not exist yet.
    fn insert_config(&mut self, row: &ConfigRow) -> Result<(), Error>;
}

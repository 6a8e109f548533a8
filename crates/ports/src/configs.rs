//! Agents, harnesses and capabilities in the database, with their version history.
//!
//! A turn does not read them, because it is pinned to a package. The runtime builds agents from them
//! (`runtime::tailor`). After a direct write through this port, other processes reload the agents, but the writing
//! process does not.
use crate::ResultFuture;
use crate::page::Page;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::Millis;
use serde_json::Value;

/// The agents, harnesses and capabilities in a database.
pub trait ConfigStore: Send + Sync {
    /// Stores a new version. If the body equals the latest version, no version is added.
    fn put_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
        now: Millis,
    ) -> ResultFuture<'_, StoredConfig>;

    /// Stores a new version if `last` is the latest version; 0 means that none exists. Otherwise nothing changes.
    fn replace_config(
        &self,
        kind: ConfigKind,
        name: String,
        body: Value,
        last: u32,
        now: Millis,
    ) -> ResultFuture<'_, StoredConfig>;

    /// Deletes a configuration. If `last` is given, it must be the latest version.
    ///
    /// Its agents can no longer be built. The versions stay, and a new latest version marks the deletion.
    fn delete_config(
        &self,
        kind: ConfigKind,
        name: String,
        last: Option<u32>,
        now: Millis,
    ) -> ResultFuture<'_, StoredConfig>;

    /// Returns the latest version, unless it is deleted.
    fn config(&self, kind: ConfigKind, name: String) -> ResultFuture<'_, Option<StoredConfig>>;

    /// Returns the latest version of each configuration that is not deleted, ordered by name.
    fn configs(&self, kind: ConfigKind, limit: usize) -> ResultFuture<'_, Vec<StoredConfig>>;

    /// Returns a page of the latest versions after this name.
    fn configs_after(
        &self,
        kind: ConfigKind,
        after: Option<String>,
        limit: usize,
    ) -> ResultFuture<'_, Page<StoredConfig, String>>;

    /// Returns all versions, newest first.
    fn config_versions(
        &self,
        kind: ConfigKind,
        name: String,
        limit: usize,
    ) -> ResultFuture<'_, Vec<StoredConfig>>;

    /// Returns a page of the versions before this one, newest first.
    fn config_versions_before(
        &self,
        kind: ConfigKind,
        name: String,
        before: Option<u32>,
        limit: usize,
    ) -> ResultFuture<'_, Page<StoredConfig, u32>>;
}

//! The agents of a server, and the configurations in its database.
use crate::Client;
use crate::http::{parse_json, with_json};
use crate::page::PageJson;
use crate::sessions::unknown_value;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::{Error, Hash, Millis};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

/// An agent of a server.
#[derive(Clone, Debug, Deserialize)]
pub struct ServedAgent {
    /// The name of the agent.
    pub name: String,
    /// Whether it answers inputs that name no agent.
    pub first: bool,
    /// The fingerprint of its package.
    pub fingerprint: Hash,
    /// The model that it uses.
    pub model: String,
    /// The whole package; absent in lists.
    pub package: Option<PinnedPackage>,
}

#[derive(Deserialize)]
struct StoredConfigJson {
    kind: String,
    name: String,
    version: u32,
    fingerprint: Hash,
    at: Millis,
    /// Absent if the configuration was deleted.
    #[serde(default)]
    body: Value,
}

impl TryFrom<StoredConfigJson> for StoredConfig {
    type Error = Error;

    fn try_from(
        StoredConfigJson { kind, name, version, fingerprint, at, body }: StoredConfigJson,
    ) -> Result<Self, Error> {
        let kind = kind.parse().map_err(|_| unknown_value("kind of configuration", &kind))?;
        Ok(Self { kind, name, version, fingerprint, body, at })
    }
}

impl Client {
    /// Lists the agents.
    pub async fn agents(&self) -> Result<Vec<ServedAgent>, Error> {
        let page: PageJson<ServedAgent> = self.get(&["v1", "agents"], &[]).await?;
        Ok(page.items)
    }

    /// Returns an agent with its package.
    pub async fn agent(&self, name: &str) -> Result<ServedAgent, Error> {
        self.get(&["v1", "agents", name], &[]).await
    }

    /// Lists the versions of a configuration, newest first.
    pub async fn config_versions(&self, kind: ConfigKind, name: &str) -> Result<Vec<StoredConfig>, Error> {
        let path = ["v1", "configs", kind.name(), name, "versions"];
        let stored: Vec<StoredConfigJson> = self.list(&path, &[], usize::MAX).await?;
        stored.into_iter().map(StoredConfig::try_from).collect()
    }

    /// Stores a new version of a configuration.
    pub async fn put_config(
        &self,
        kind: ConfigKind,
        name: &str,
        body: &Value,
    ) -> Result<StoredConfig, Error> {
        let request = self.request(Method::PUT, &["v1", "configs", kind.name(), name], &[]);
        let stored: StoredConfigJson = parse_json(self.send(with_json(request, body)?).await?).await?;
        stored.try_into()
    }

    /// Deletes a configuration.
    pub async fn delete_config(&self, kind: ConfigKind, name: &str) -> Result<(), Error> {
        self.delete(&["v1", "configs", kind.name(), name]).await
    }
}

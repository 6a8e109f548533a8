//! Agents that answer on a server, and the configurations in its database.
use crate::Client;
use crate::http::{read, with_json};
use crate::page::Page;
use crate::sessions::unknown;
use outlast_ports::configs::{ConfigKind, StoredConfig};
use outlast_vocab::package::Pinned;
use outlast_vocab::{Error, Hash, Millis};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

/// An agent that answers.
#[derive(Clone, Debug, Deserialize)]
pub struct Agent {
    /// What it is called.
    pub name: String,
    /// Whether it answers when an input names none.
    pub first: bool,
    /// The fingerprint of its package.
    pub fingerprint: Hash,
    /// The model that it asks.
    pub model: String,
    /// The whole package; lists leave it away.
    pub package: Option<Pinned>,
}

#[derive(Deserialize)]
struct Stored {
    kind: String,
    name: String,
    version: u32,
    fingerprint: Hash,
    at: Millis,
    /// Absent where it was deleted.
    #[serde(default)]
    body: Value,
}

impl TryFrom<Stored> for StoredConfig {
    type Error = Error;

    fn try_from(Stored { kind, name, version, fingerprint, at, body }: Stored) -> Result<Self, Error> {
        let kind = kind.parse().map_err(|_| unknown("kind of configuration", &kind))?;
        Ok(Self { kind, name, version, fingerprint, body, at })
    }
}

impl Client {
    /// The agents that answer there.
    pub async fn agents(&self) -> Result<Vec<Agent>, Error> {
        let page: Page<Agent> = self.get(&["v1", "agents"], &[]).await?;
        Ok(page.items)
    }

    /// One of them, with its package.
    pub async fn agent(&self, name: &str) -> Result<Agent, Error> {
        self.get(&["v1", "agents", name], &[]).await
    }

    /// Every version of a configuration, the newest first.
    pub async fn config_versions(&self, kind: ConfigKind, name: &str) -> Result<Vec<StoredConfig>, Error> {
        let path = ["v1", "configs", kind.name(), name, "versions"];
        let stored: Vec<Stored> = self.list(&path, &[], usize::MAX).await?;
        stored.into_iter().map(StoredConfig::try_from).collect()
    }

    /// Keeps a new version of a configuration.
    pub async fn put_config(
        &self,
        kind: ConfigKind,
        name: &str,
        body: &Value,
    ) -> Result<StoredConfig, Error> {
        let request = self.request(Method::PUT, &["v1", "configs", kind.name(), name], &[]);
        let stored: Stored = read(self.send(with_json(request, body)?).await?).await?;
        stored.try_into()
    }

    /// Deletes a configuration.
    pub async fn delete_config(&self, kind: ConfigKind, name: &str) -> Result<(), Error> {
        self.delete(&["v1", "configs", kind.name(), name]).await
    }
}

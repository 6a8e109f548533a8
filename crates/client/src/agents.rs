//! The agents of a server, and the configurations in its database.
use crate::Client;
use crate::http::{parse_json, with_json};
use outlast_api::agents::{AgentResource, ConfigVersionResource};
use outlast_api::list_page::ListPage;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::Error;
use reqwest::Method;
use serde_json::Value;

impl Client {
    /// Lists the agents.
    pub async fn agents(&self) -> Result<Vec<AgentResource>, Error> {
        let page: ListPage<AgentResource> = self.get(&["v1", "agents"], &()).await?;
        Ok(page.items)
    }

    /// Returns an agent with its package.
    pub async fn agent(&self, name: &str) -> Result<AgentResource, Error> {
        self.get(&["v1", "agents", name], &()).await
    }

    /// Lists the versions of a configuration, newest first.
    pub async fn config_versions(&self, kind: ConfigKind, name: &str) -> Result<Vec<StoredConfig>, Error> {
        let path = ["v1", "configs", kind.name(), name, "versions"];
        let versions: Vec<ConfigVersionResource> = self.list(&path, &(), usize::MAX).await?;
        versions.into_iter().map(StoredConfig::try_from).collect()
    }

    /// Stores a new version of a configuration.
    pub async fn put_config(
        &self,
        kind: ConfigKind,
        name: &str,
        body: &Value,
    ) -> Result<StoredConfig, Error> {
        let request = self.request(Method::PUT, &["v1", "configs", kind.name(), name], &());
        let version: ConfigVersionResource = parse_json(self.send(with_json(request, body)?).await?).await?;
        version.try_into()
    }

    /// Deletes a configuration.
    pub async fn delete_config(&self, kind: ConfigKind, name: &str) -> Result<(), Error> {
        self.delete(&["v1", "configs", kind.name(), name]).await
    }
}

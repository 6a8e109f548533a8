//! Agents of the server, and configurations in its database.
use crate::unknown_value;
use outlast_views::{ConfigKind, StoredConfig};
use outlast_vocab::package::PinnedPackage;
use outlast_vocab::{Error, Hash, Millis};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// An agent of this server.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Agent)]
pub struct AgentResource {
    /// The name of the agent.
    pub name: String,
    /// Whether this is the default agent, which answers inputs that name no agent.
    pub first: bool,
    /// The fingerprint of the agent's package.
    #[schema(value_type = String)]
    pub fingerprint: Hash,
    /// The name of the model that the agent uses.
    pub model: String,
    /// The names of the agent's tools.
    pub tools: Vec<String>,
    /// The agent's package, with the contracts of its tools. Absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub package: Option<PinnedPackage>,
}

/// A version of an agent, a harness or a capability in the database.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ConfigVersion)]
pub struct ConfigVersionResource {
    /// `agent`, `harness` or `capability`.
    pub kind: Cow<'static, str>,
    /// The name of the configuration.
    pub name: String,
    /// The version number, counted from 1.
    pub version: u32,
    /// The fingerprint of the content.
    #[schema(value_type = String)]
    pub fingerprint: Hash,
    /// When this version was saved, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// The content, with the fields of an agent file. Absent if this version is a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub body: Option<Value>,
    /// A note about an unexpected effect, for example that the configuration is not used on this server.
    /// Absent if there is nothing to note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl From<StoredConfig> for ConfigVersionResource {
    fn from(config: StoredConfig) -> Self {
        let StoredConfig { kind, name, version, fingerprint, body, at } = config;
        let body = (!body.is_null()).then_some(body);
        Self { kind: kind.name().into(), name, version, fingerprint, at, body, note: None }
    }
}

impl TryFrom<ConfigVersionResource> for StoredConfig {
    type Error = Error;

    fn try_from(version: ConfigVersionResource) -> Result<Self, Error> {
        let ConfigVersionResource { kind, name, version, fingerprint, at, body, .. } = version;
        let kind: ConfigKind = kind.parse().map_err(|_| unknown_value("kind of configuration", &kind))?;
        Ok(Self { kind, name, version, fingerprint, body: body.unwrap_or_default(), at })
    }
}

/// The versions to compare.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffParams {
    /// The number of the older version.
    pub from: u32,
    /// The number of the newer version.
    pub to: u32,
}

/// The difference between two versions.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConfigDiff {
    /// The changed lines. Removed lines start with `-`, added lines with `+`.
    pub lines: Vec<String>,
}

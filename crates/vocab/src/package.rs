//! The configuration of a turn, as data that is stored by its fingerprint.
//!
//! A turn records the fingerprint of its configuration, so a later edit or deploy never changes a running or
//! replayed turn.
use crate::budget::Budgets;
use crate::hook::HookUse;
use crate::label::TrustGuard;
use crate::message::{ModelName, ToolName};
use crate::overlay::NetworkAllowList;
use crate::policy::Policy;
use crate::rate::RateLimit;
use crate::tool::{ClientTool, ToolContract};
use crate::{Error, Hash, Kind, canonical_json, limits};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The name of the tool that opens documents of a package.
pub const OPEN_DOCUMENT: &str = "open_document";

/// The resolved configuration of an agent: prompt, model, tools and policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The name of the agent.
    pub agent: String,
    /// The model that answers.
    pub model: ModelName,
    /// The models that answer if the first one cannot, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_models: Vec<ModelName>,
    /// Seconds that turns wait for a provider that is down. Defaults to the limit of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_wait_s: Option<u32>,
    /// Whether the sender of the input waits on an open connection. Its turn then fails if a provider refuses the key or
    /// the account, because no person can fix that in time.
    #[serde(default, skip_serializing_if = "crate::effect::is_default")]
    pub sender_waits: bool,
    /// The system prompt.
    pub system: String,
    /// The tools that the model may call.
    pub tools: Vec<ToolName>,
    /// The most model calls of one turn.
    pub model_calls: u32,
    /// The policy of its calls.
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub policy: Policy,
    /// The guard against calls that untrusted text may have caused.
    #[serde(default, skip_serializing_if = "TrustGuard::is_open")]
    pub guard: TrustGuard,
    /// The budgets of its turns.
    #[serde(default, skip_serializing_if = "Budgets::is_empty")]
    pub budgets: Budgets,
    /// The rate limits of its calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateLimit>,
    /// The hooks of its turns, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookUse>,
    /// The network allow-list.
    #[serde(default, skip_serializing_if = "NetworkAllowList::is_open")]
    pub network: NetworkAllowList,
    /// Texts that the model can open, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, String>,
    /// The enabled capabilities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Client-side tools, which the sender of the input runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ClientTool>,
}

impl Package {
    /// Returns the models that may answer, in the order in which they are tried.
    pub fn models(&self) -> impl Iterator<Item = &ModelName> {
        std::iter::once(&self.model).chain(&self.fallback_models)
    }

    /// Creates a package with defaults for everything else.
    pub fn new(agent: impl Into<String>, model: ModelName, system: impl Into<String>) -> Self {
        Self {
            agent: agent.into(),
            model,
            fallback_models: Vec::new(),
            provider_wait_s: None,
            sender_waits: false,
            system: system.into(),
            tools: Vec::new(),
            model_calls: limits::Limits::default().model_calls,
            policy: Policy::default(),
            guard: TrustGuard::default(),
            budgets: Budgets::default(),
            rates: Vec::new(),
            hooks: Vec::new(),
            network: NetworkAllowList::default(),
            documents: BTreeMap::new(),
            capabilities: Vec::new(),
            client_tools: Vec::new(),
        }
    }
}

/// The pinned configuration of a turn: a package, with the contracts of its tools at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedPackage {
    /// The package.
    #[serde(flatten)]
    pub package: Package,
    /// The contracts of its tools, in the same order. `None` in databases of versions that did not store
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contracts: Option<Vec<ToolContract>>,
}

/// The member of a stored package that lists its sidecars.
const SIDECARS: &str = "sidecars";

impl PinnedPackage {
    /// Returns the fingerprint under which it is stored.
    pub fn fingerprint(&self) -> Hash {
        Hash::of(&self.to_blobs()[0])
    }

    /// Encodes the package and then its sidecars. A member that is too large for a record becomes a separate
    /// blob, and the package stores its hash.
    pub fn to_blobs(&self) -> Vec<Vec<u8>> {
        let whole = canonical_json::to_string(self).into_bytes();
        if whole.len() <= limits::INLINE_BYTES {
            return vec![whole];
        }
        let Ok(Value::Object(members)) = serde_json::to_value(self) else { return vec![whole] };
        let (mut inline, mut hashes, mut sidecars) = (Map::new(), Map::new(), Vec::new());
        for (name, value) in members {
            let part = canonical_json::to_string(&value).into_bytes();
            if part.len() <= limits::INLINE_BYTES {
                inline.insert(name, value);
            } else {
                hashes.insert(name, Value::String(Hash::of(&part).to_string()));
                sidecars.push(part);
            }
        }
        if sidecars.is_empty() {
            return vec![whole];
        }
        inline.insert(SIDECARS.to_owned(), Value::Object(hashes));
        let mut blobs = vec![canonical_json::to_string(&Value::Object(inline)).into_bytes()];
        blobs.append(&mut sidecars);
        blobs
    }
}

/// A package that was read from its blob, without its sidecars.
#[derive(Clone, Debug)]
pub struct StoredPackage {
    members: Map<String, Value>,
    sidecars: BTreeMap<String, Hash>,
}

impl StoredPackage {
    /// Decodes a package. Returns an error if it does not parse: a turn never runs under a partial
    /// configuration.
    pub fn read(fingerprint: Hash, blob: &[u8]) -> Result<Self, Error> {
        let corrupt = |cause: String| {
            Error::new(Kind::RecordCorrupt, format!("the package {fingerprint} does not decode: {cause}"))
        };
        let mut members: Map<String, Value> =
            serde_json::from_slice(blob).map_err(|cause| corrupt(cause.to_string()))?;
        let sidecars = match members.remove(SIDECARS) {
            Some(sidecars) => serde_json::from_value(sidecars).map_err(|cause| corrupt(cause.to_string()))?,
            None => BTreeMap::new(),
        };
        Ok(Self { members, sidecars })
    }

    /// Returns the sidecars to read, with the names of their members.
    pub fn sidecars(&self) -> impl Iterator<Item = (&str, Hash)> {
        self.sidecars.iter().map(|(name, hash)| (name.as_str(), *hash))
    }

    /// Returns the package with its sidecars, given in the order of [`Self::sidecars`].
    pub fn with_sidecars(
        mut self,
        sidecars: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<PinnedPackage, Error> {
        let corrupt = |cause: serde_json::Error| {
            Error::new(Kind::RecordCorrupt, format!("a stored package does not decode: {cause}"))
        };
        for ((name, _), blob) in self.sidecars.into_iter().zip(sidecars) {
            self.members.insert(name, serde_json::from_slice(&blob).map_err(corrupt)?);
        }
        serde_json::from_value(Value::Object(self.members)).map_err(corrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(text: &str) -> PinnedPackage {
        let model = "rehearsal/agent".parse().unwrap();
        let documents = BTreeMap::from([("a.md".to_owned(), text.to_owned())]);
        PinnedPackage {
            package: Package { documents, ..Package::new("clerk", model, "Be kind.") },
            contracts: None,
        }
    }

    fn read_back(blobs: &[Vec<u8>]) -> PinnedPackage {
        let stored = StoredPackage::read(Hash::of(&blobs[0]), &blobs[0]).unwrap();
        let sidecars: Vec<Vec<u8>> = stored
            .sidecars()
            .map(|(_, hash)| blobs.iter().find(|blob| Hash::of(blob) == hash).unwrap().clone())
            .collect();
        stored.with_sidecars(sidecars).unwrap()
    }

    #[test]
    fn oversized_part_becomes_sidecar_referenced_by_hash() {
        for (bytes, blobs) in [(10, 1), (limits::INLINE_BYTES, 2)] {
            let pinned = pinned(&"x".repeat(bytes));
            let stored = pinned.to_blobs();
            assert_eq!(stored.len(), blobs);
            assert!(stored[0].len() <= limits::INLINE_BYTES);
            assert_eq!(read_back(&stored), pinned);
        }
    }

    #[test]
    fn unparsable_package_is_an_error() {
        let hash = Hash::of(b"x");
        assert_eq!(StoredPackage::read(hash, b"{").unwrap_err().kind(), Kind::RecordCorrupt);
        let stored = StoredPackage::read(hash, b"{\"agent\": 7}").unwrap();
        assert_eq!(stored.with_sidecars([]).unwrap_err().kind(), Kind::RecordCorrupt);
    }
}

//! The configuration a turn runs under, as data that is stored by its fingerprint.
//!
//! A turn names the fingerprint of what it is pinned to, so a later edit or deploy never changes a turn that is running or
//! replayed.
use crate::budget::Budgets;
use crate::hook::HookUse;
use crate::label::Guard;
use crate::message::{ModelName, ToolName};
use crate::overlay::Reach;
use crate::policy::Policy;
use crate::rate::Rate;
use crate::tool::{ClientTool, Contract};
use crate::{Error, Hash, Kind, canon, limits};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The tool that opens documents of a package.
pub const OPEN_DOCUMENT: &str = "open_document";

/// What a turn answers with: prompt, model, tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// What the agent is called.
    pub agent: String,
    /// Which model answers.
    pub model: ModelName,
    /// Models that answer where the first one cannot, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback_models: Vec<ModelName>,
    /// Seconds that its turns wait for a provider that is down; the runtime's default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_wait_s: Option<u32>,
    /// What the model is told before the first message.
    pub system: String,
    /// The tools the model may ask for.
    pub tools: Vec<ToolName>,
    /// Model calls in one turn.
    pub model_calls: u32,
    /// What its calls may do.
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub policy: Policy,
    /// What it does with calls that untrusted text may have asked for.
    #[serde(default, skip_serializing_if = "Guard::is_open")]
    pub guard: Guard,
    /// What its turns may use.
    #[serde(default, skip_serializing_if = "Budgets::is_empty")]
    pub budgets: Budgets,
    /// How often its calls may go out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<Rate>,
    /// What runs at points of its turns, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookUse>,
    /// What may be reached.
    #[serde(default, skip_serializing_if = "Reach::is_open")]
    pub network: Reach,
    /// Texts that the model can open, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, String>,
    /// The capabilities that are switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Tools that whoever sent the input runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ClientTool>,
}

impl Package {
    /// The models that may answer, in the order in which they are tried.
    pub fn models(&self) -> impl Iterator<Item = &ModelName> {
        std::iter::once(&self.model).chain(&self.fallback_models)
    }

    /// A package that says only what every package says.
    pub fn new(agent: impl Into<String>, model: ModelName, system: impl Into<String>) -> Self {
        Self {
            agent: agent.into(),
            model,
            fallback_models: Vec::new(),
            provider_wait_s: None,
            system: system.into(),
            tools: Vec::new(),
            model_calls: limits::Limits::default().model_calls,
            policy: Policy::default(),
            guard: Guard::default(),
            budgets: Budgets::default(),
            rates: Vec::new(),
            hooks: Vec::new(),
            network: Reach::default(),
            documents: BTreeMap::new(),
            capabilities: Vec::new(),
            client_tools: Vec::new(),
        }
    }
}

/// What a turn is pinned to: a package, with the contracts that its tools had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The package.
    #[serde(flatten)]
    pub package: Package,
    /// The contracts of its tools, in its order. None in databases from before they were stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contracts: Option<Vec<Contract>>,
}

/// The member of a stored package that names its sidecars.
const SIDECARS: &str = "sidecars";

impl Pinned {
    /// The name under which it is stored.
    pub fn fingerprint(&self) -> Hash {
        Hash::of(&self.to_blobs()[0])
    }

    /// The package as it is stored, then its sidecars: what is larger than a record may be is a blob of its own, and the
    /// package keeps its hash (R10.2).
    pub fn to_blobs(&self) -> Vec<Vec<u8>> {
        let whole = canon::to_string(self).into_bytes();
        if whole.len() <= limits::INLINE_BYTES {
            return vec![whole];
        }
        let Ok(Value::Object(members)) = serde_json::to_value(self) else { return vec![whole] };
        let (mut kept, mut hashes, mut sidecars) = (Map::new(), Map::new(), Vec::new());
        for (name, value) in members {
            let part = canon::to_string(&value).into_bytes();
            if part.len() <= limits::INLINE_BYTES {
                kept.insert(name, value);
            } else {
                hashes.insert(name, Value::String(Hash::of(&part).to_string()));
                sidecars.push(part);
            }
        }
        if sidecars.is_empty() {
            return vec![whole];
        }
        kept.insert(SIDECARS.to_owned(), Value::Object(hashes));
        let mut blobs = vec![canon::to_string(&Value::Object(kept)).into_bytes()];
        blobs.append(&mut sidecars);
        blobs
    }
}

/// A package that was read from its blob, before its sidecars are.
#[derive(Clone, Debug)]
pub struct StoredPackage {
    members: Map<String, Value>,
    sidecars: BTreeMap<String, Hash>,
}

impl StoredPackage {
    /// Reads a package. One that does not parse is an error: nothing runs under half a configuration.
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

    /// The sidecars that are to be read, each by the member that it is.
    pub fn sidecars(&self) -> impl Iterator<Item = (&str, Hash)> {
        self.sidecars.iter().map(|(name, hash)| (name.as_str(), *hash))
    }

    /// The package with its sidecars, in their order.
    pub fn whole(mut self, sidecars: impl IntoIterator<Item = Vec<u8>>) -> Result<Pinned, Error> {
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

    fn pinned(text: &str) -> Pinned {
        let model = "rehearsal/agent".parse().unwrap();
        let documents = BTreeMap::from([("a.md".to_owned(), text.to_owned())]);
        Pinned { package: Package { documents, ..Package::new("clerk", model, "Be kind.") }, contracts: None }
    }

    fn read_back(blobs: &[Vec<u8>]) -> Pinned {
        let stored = StoredPackage::read(Hash::of(&blobs[0]), &blobs[0]).unwrap();
        let sidecars: Vec<Vec<u8>> = stored
            .sidecars()
            .map(|(_, hash)| blobs.iter().find(|blob| Hash::of(blob) == hash).unwrap().clone())
            .collect();
        stored.whole(sidecars).unwrap()
    }

    #[test]
    fn a_part_over_the_inline_limit_is_a_sidecar_and_the_package_keeps_its_hash() {
        for (bytes, blobs) in [(10, 1), (limits::INLINE_BYTES, 2)] {
            let pinned = pinned(&"x".repeat(bytes));
            let stored = pinned.to_blobs();
            assert_eq!(stored.len(), blobs);
            assert!(stored[0].len() <= limits::INLINE_BYTES);
            assert_eq!(read_back(&stored), pinned);
        }
    }

    #[test]
    fn a_package_that_does_not_parse_is_an_error() {
        let hash = Hash::of(b"x");
        assert_eq!(StoredPackage::read(hash, b"{").unwrap_err().kind(), Kind::RecordCorrupt);
        let stored = StoredPackage::read(hash, b"{\"agent\": 7}").unwrap();
        assert_eq!(stored.whole([]).unwrap_err().kind(), Kind::RecordCorrupt);
    }
}

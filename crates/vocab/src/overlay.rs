//! One layer of configuration as data: the settings of a harness, a capability, an agent, a session or a
//! turn. A setting that is absent comes from the layers below. `kernel::overlay` folds the layers.
use crate::label::TrustGuard;
use crate::message::ModelName;
use crate::policy::Rule;
use crate::rate::RateLimit;
use crate::{Error, Kind, limits};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// The settings of one layer. Its JSON is the table of an agent in a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Parts of the system prompt, joined in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_more")]
    pub system: Vec<String>,
    /// The model that answers. The last layer wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The models that answer: each one if those before it cannot. The last list wins, and `model` of a
    /// higher layer replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelName>,
    /// Seconds that turns wait for a provider that is down. The last layer wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_wait_s: Option<u32>,
    /// Model calls in one turn. The last layer wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<NonZeroU32>,
    /// Capabilities to enable, each once and in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Groups of built-in tools, each once and in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builtin: Vec<String>,
    /// Tool definitions. The last definition of a name wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<NamedDefinition>,
    /// MCP server definitions. The last definition of a name wins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, Value>,
    /// Texts that the model can open by path. The last text of a path wins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, String>,
    /// The network allow-list. Layers can only narrow it.
    #[serde(default, skip_serializing_if = "NetworkAllowList::is_open")]
    pub network: NetworkAllowList,
    /// The guard against calls that untrusted text may have caused. Layers can only make it stricter.
    #[serde(default, skip_serializing_if = "TrustGuard::is_open")]
    pub guard: TrustGuard,
    /// Programs that run at points of turns. The last definition of a name at a point wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<NamedDefinition>,
    /// The policy rules. They are joined in order and the first match decides, so the root layer has
    /// precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// The rate limits. They are joined, and every limit that matches a call applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateLimit>,
    /// All other settings, by name. The last layer wins.
    #[serde(flatten)]
    pub settings: BTreeMap<String, Value>,
}

/// A named definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDefinition {
    /// The name.
    pub name: String,
    /// The definition, which its consumer parses.
    #[serde(flatten)]
    pub definition: Map<String, Value>,
}

/// A layer that may extend a harness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The harness that it extends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The settings of the layer itself.
    #[serde(flatten)]
    pub overlay: Overlay,
}

/// A named bundle that an agent can enable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityLayer {
    /// Its purpose, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Its requirements.
    #[serde(default, skip_serializing_if = "CapabilityRequirements::is_empty")]
    pub needs: CapabilityRequirements,
    /// The settings that it adds.
    #[serde(flatten)]
    pub overlay: Overlay,
}

/// The requirements of a capability. A missing requirement is a start-up error that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapabilityRequirements {
    /// Other capabilities, which are enabled with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Settings that the agent must have, like `files`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Executable programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
}

impl CapabilityRequirements {
    /// Returns whether there are no requirements.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The network allow-list: a host must be in every one of these lists. Without a list, nothing is restricted;
/// an empty list allows no host. In JSON, one list is `["example.com"]`, and several are a list of lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkAllowList {
    lists: BTreeSet<BTreeSet<String>>,
}

impl NetworkAllowList {
    /// Creates an allow-list of these hosts.
    pub fn only(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { lists: BTreeSet::from([hosts.into_iter().map(Into::into).collect()]) }
    }

    /// Returns whether nothing is restricted.
    pub fn is_open(&self) -> bool {
        self.lists.is_empty()
    }

    /// Returns the intersection of two allow-lists.
    #[must_use]
    pub fn intersect(mut self, other: Self) -> Self {
        self.lists.extend(other.lists);
        self
    }

    /// Returns the lists. A host must be in each.
    pub fn lists(&self) -> impl Iterator<Item = &BTreeSet<String>> {
        self.lists.iter()
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of hosts like `[\"example.com\", \"*.example.org\"]`")]
enum HostLists {
    One(BTreeSet<String>),
    More(BTreeSet<BTreeSet<String>>),
}

impl<'de> Deserialize<'de> for NetworkAllowList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match HostLists::deserialize(from)? {
            HostLists::One(hosts) => Ok(Self::only(hosts)),
            HostLists::More(lists) => Ok(Self { lists }),
        }
    }
}

impl Serialize for NetworkAllowList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.lists.first() {
            Some(only) if self.lists.len() == 1 => only.serialize(to),
            _ => self.lists.serialize(to),
        }
    }
}

/// Serialises a list of texts, in which a single text may be written without the list.
mod one_or_more {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text or a list of texts")]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match OneOrMore::deserialize(from)? {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        })
    }

    pub(super) fn serialize<S: Serializer>(texts: &[String], to: S) -> Result<S::Ok, S::Error> {
        match texts {
            [text] => text.serialize(to),
            texts => texts.serialize(to),
        }
    }
}

/// The models that a layer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedModels {
    /// The model that answers.
    pub first: ModelName,
    /// The models that answer if it cannot, in this order.
    pub fallbacks: Vec<ModelName>,
}

impl Overlay {
    /// Returns the models that this layer names, if any.
    ///
    /// # Errors
    /// Returns `config.invalid` if it uses both `model` and `models`, names a model twice, or names too many.
    pub fn named_models(&self) -> Result<Option<NamedModels>, Error> {
        let invalid = |detail| Err(Error::new(Kind::ConfigInvalid, detail));
        let Some((first, fallbacks)) = self.models.split_first() else {
            return Ok(self.model.clone().map(|first| NamedModels { first, fallbacks: Vec::new() }));
        };
        if let Some(model) = &self.model {
            let detail = format!(
                "`model = \"{model}\"` and `models` are both set; `models` alone names all, the first one first"
            );
            return invalid(detail);
        }
        let twice = (1..self.models.len()).find(|at| self.models[..*at].contains(&self.models[*at]));
        if let Some(at) = twice {
            return invalid(format!("`models` names `{}` twice; each model is tried once", self.models[at]));
        }
        limits::check("fallback_models", fallbacks.len(), limits::Limits::default().fallback_models)?;
        Ok(Some(NamedModels { first: first.clone(), fallbacks: fallbacks.to_vec() }))
    }

    /// Decodes a layer from the JSON of a record or a table.
    pub fn from_json(value: Value) -> Result<Self, serde_json::Error> {
        if !value.is_object() {
            return Err(serde_json::Error::custom(format!("expected an object, got {value}")));
        }
        serde_json::from_value(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_layer_reads_back_as_it_was_written() {
        let written = json!({
            "parent": "base",
            "system": ["Be kind.", "Be brief."],
            "model": "rehearsal/agent",
            "model_calls": 7,
            "capabilities": ["sums"],
            "builtin": ["clock"],
            "tools": [{"name": "pay", "command": ["./pay"]}],
            "mcp": {"web": {"url": "https://example.com"}},
            "documents": {"notes.md": "tea at five"},
            "network": [["*.example"], ["a.example"]],
            "hooks": [{"name": "guard", "point": "before_tool"}],
            "rules": [{"id": "no", "then": {"deny": {"reason": "no"}}}],
            "rates": [{"name": "mail", "tool": "mail*", "calls": 5, "per": "minute"}],
            "files": "notes"
        });
        let layer = Layer::deserialize(&written).unwrap();
        assert_eq!(serde_json::to_value(&layer).unwrap(), written);
        assert_eq!(layer.overlay.settings, BTreeMap::from([("files".to_owned(), json!("notes"))]));
        let silent: Layer = serde_json::from_value(json!({})).unwrap();
        assert_eq!((serde_json::to_value(&silent).unwrap(), silent), (json!({}), Layer::default()));
    }

    #[test]
    fn empty_host_list_differs_from_none() {
        let read = |value| serde_json::from_value::<Overlay>(value).unwrap().network;
        assert_eq!(read(json!({})), NetworkAllowList::default());
        assert_eq!(read(json!({"network": []})), NetworkAllowList::only(Vec::<String>::new()));
        for network in [
            NetworkAllowList::default(),
            NetworkAllowList::only(["a"]),
            read(json!({"network": [["a"], []]})),
        ] {
            let overlay = Overlay { network: network.clone(), ..Overlay::default() };
            assert_eq!(read(serde_json::to_value(overlay).unwrap()), network);
        }
    }

    #[test]
    fn unparsable_layer_is_an_error() {
        for wrong in [
            json!([]),
            json!({"model_calls": 0}),
            json!({"network": "all"}),
            json!({"tools": [{}]}),
            json!(null),
        ] {
            assert!(Overlay::from_json(wrong.clone()).is_err(), "{wrong}");
        }
    }
}

//! One layer of configuration as data: what a harness, a capability, an agent, a session or a turn says of how turns are
//! answered (R10.1). Where it says nothing, the layers under it count. The fold is `kernel::overlay`.
use crate::label::Guard;
use crate::message::ModelName;
use crate::policy::Rule;
use crate::rate::Rate;
use crate::{Error, Kind, limits};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// What one layer says. Its JSON is the table of an agent in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Parts of what the model is told before the first message; they join in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_more")]
    pub system: Vec<String>,
    /// Which model answers; the last one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// Which models answer: each where those before it cannot. The last list counts, and `model` of a layer above replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelName>,
    /// Seconds that turns wait for a provider that is down; the last number counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_wait_s: Option<u32>,
    /// Model calls in one turn; the last number counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<NonZeroU32>,
    /// Bundles that it switches on; each once, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Groups of built-in tools; each once, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builtin: Vec<String>,
    /// Tools that it defines; of one name the last definition counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Defined>,
    /// MCP servers that it defines; of one name the last definition counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, Value>,
    /// Texts that the model can open by their path; of one path the last text counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, String>,
    /// What may be reached; it can only get less.
    #[serde(default, skip_serializing_if = "Reach::is_open")]
    pub network: Reach,
    /// What becomes of calls that untrusted text may have asked for; it can only get stricter.
    #[serde(default, skip_serializing_if = "Guard::is_open")]
    pub guard: Guard,
    /// Programs that run at points of turns; of one name at one point the last definition counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Defined>,
    /// What calls may do. They join in order and the first that fits decides, so the root has the first word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// How often calls may go out. They join; every one that fits a call counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<Rate>,
    /// Everything else, by name; the last value counts.
    #[serde(flatten)]
    pub settings: BTreeMap<String, Value>,
}

/// Something that is defined under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defined {
    /// What it is called.
    pub name: String,
    /// Its definition, for whoever makes it.
    #[serde(flatten)]
    pub definition: Map<String, Value>,
}

/// A layer that may stand on a harness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The harness under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What it says itself.
    #[serde(flatten)]
    pub overlay: Overlay,
}

/// A named bundle that an agent switches on (R10.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// What it is for, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What must be there for it.
    #[serde(default, skip_serializing_if = "Requires::is_empty")]
    pub needs: Requires,
    /// What it adds.
    #[serde(flatten)]
    pub overlay: Overlay,
}

/// What must be there for a capability. What is missing is an error at start-up that names it (R1.5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requires {
    /// Other capabilities, which are switched on with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Settings that the agent has to have, like `files`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// Variables of the environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Programs that can be run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
}

impl Requires {
    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What may be reached: hosts that are in every one of these lists. No list is no restriction; an empty list lets nothing
/// be reached. As JSON one list is `["example.com"]`, several are lists in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    lists: BTreeSet<BTreeSet<String>>,
}

impl Reach {
    /// These hosts and no others.
    pub fn only(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { lists: BTreeSet::from([hosts.into_iter().map(Into::into).collect()]) }
    }

    /// Whether nothing is said.
    pub fn is_open(&self) -> bool {
        self.lists.is_empty()
    }

    /// Only what both let be reached.
    #[must_use]
    pub fn narrowed(mut self, other: Self) -> Self {
        self.lists.extend(other.lists);
        self
    }

    /// The lists. A host must be in each.
    pub fn lists(&self) -> impl Iterator<Item = &BTreeSet<String>> {
        self.lists.iter()
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of hosts like `[\"example.com\", \"*.example.org\"]`")]
enum Lists {
    One(BTreeSet<String>),
    More(BTreeSet<BTreeSet<String>>),
}

impl<'de> Deserialize<'de> for Reach {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Lists::deserialize(from)? {
            Lists::One(hosts) => Ok(Self::only(hosts)),
            Lists::More(lists) => Ok(Self { lists }),
        }
    }
}

impl Serialize for Reach {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.lists.first() {
            Some(only) if self.lists.len() == 1 => only.serialize(to),
            _ => self.lists.serialize(to),
        }
    }
}

/// One text, or a list of them.
mod one_or_more {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text or a list of texts")]
    enum Said {
        One(String),
        More(Vec<String>),
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match Said::deserialize(from)? {
            Said::One(text) => vec![text],
            Said::More(texts) => texts,
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
    /// The one that answers.
    pub first: ModelName,
    /// Those that answer where it cannot, in this order.
    pub fallbacks: Vec<ModelName>,
}

impl Overlay {
    /// The models that this layer names, if it names any.
    ///
    /// # Errors
    /// `config.invalid` if it names them both as `model` and as `models`, one of them twice, or too many.
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

    /// Reads a layer from the JSON of a record or a table.
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
        let layer: Layer = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&layer).unwrap(), written);
        assert_eq!(layer.overlay.settings, BTreeMap::from([("files".to_owned(), json!("notes"))]));
        let silent: Layer = serde_json::from_value(json!({})).unwrap();
        assert_eq!((serde_json::to_value(&silent).unwrap(), silent), (json!({}), Layer::default()));
    }

    #[test]
    fn an_empty_list_of_hosts_is_not_the_same_as_none() {
        let read = |value| serde_json::from_value::<Overlay>(value).unwrap().network;
        assert_eq!(read(json!({})), Reach::default());
        assert_eq!(read(json!({"network": []})), Reach::only(Vec::<String>::new()));
        for network in [Reach::default(), Reach::only(["a"]), read(json!({"network": [["a"], []]}))] {
            let overlay = Overlay { network: network.clone(), ..Overlay::default() };
            assert_eq!(read(serde_json::to_value(overlay).unwrap()), network);
        }
    }

    #[test]
    fn a_layer_that_does_not_parse_is_an_error() {
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

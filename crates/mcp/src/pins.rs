//! Accepted tool definitions (pins), and the changes of a server since then.
use outlast_validation::Schema;
use outlast_vocab::message::ToolName;
use outlast_vocab::{Error, Hash, Kind, canonical_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The maximum number of tools of one server.
pub(crate) const TOOLS_PER_SERVER: usize = 500;

/// A server's definition of a tool: everything that a model sees and that a person reviews.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDefinition {
    /// The name on the server.
    pub name: String,
    /// The title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of the arguments.
    pub input: Map<String, Value>,
    /// The JSON Schema of the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Map<String, Value>>,
    /// The server's claims about the tool's behaviour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

impl ToolDefinition {
    /// Converts a definition from a server's list.
    pub(crate) fn of(tool: &rmcp::model::Tool) -> Self {
        Self {
            name: tool.name.to_string(),
            title: tool.title.clone(),
            description: tool.description.as_deref().map(str::to_owned),
            input: (*tool.input_schema).clone(),
            output: tool.output_schema.as_deref().cloned(),
            annotations: tool.annotations.as_ref().and_then(|said| serde_json::to_value(said).ok()),
        }
    }

    /// Returns a hash of the definition that does not depend on its formatting.
    pub fn hash(&self) -> Hash {
        canonical_json::fingerprint(self)
    }

    /// Returns the name for models: the server's name, a dot, and the tool's name.
    pub fn tool_name(&self, server: &str) -> Result<ToolName, Error> {
        format!("{server}.{}", self.name).try_into()
    }

    /// Returns whether this is our tool that reads resources.
    pub(crate) fn is_ours(&self) -> bool {
        *self == Self::read_resource()
    }

    /// Returns whether the server claims this hint.
    pub(crate) fn claims(&self, hint: &str) -> bool {
        self.annotations.as_ref().and_then(|said| said.get(hint)).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// The accepted definitions by server and tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PinnedDefinitions(BTreeMap<String, BTreeMap<String, ToolDefinition>>);

/// A difference between the accepted and the current definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinChange {
    /// The tool is new.
    New(ToolDefinition),
    /// The definition has changed.
    Changed {
        /// The accepted definition.
        accepted: ToolDefinition,
        /// The current definition.
        now: ToolDefinition,
    },
    /// The tool is gone.
    Gone(ToolDefinition),
}

impl PinnedDefinitions {
    /// Parses the output of [`PinnedDefinitions::to_json`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let pins: Self = serde_json::from_str(text).map_err(|cause| {
            Error::new(Kind::ConfigInvalid, format!("expected accepted definitions as JSON: {cause}"))
        })?;
        let named = pins.0.iter().flat_map(|(server, tools)| tools.iter().map(move |tool| (server, tool)));
        for (server, (name, definition)) in named {
            if *name != definition.name {
                let detail = format!("the definition under `{server}.{name}` is of `{}`", definition.name);
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        Ok(pins)
    }

    /// Formats the pins as a file that a person can read and diff.
    #[allow(clippy::missing_panics_doc, reason = "definitions came from JSON")]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("definitions fit JSON");
        text.push('\n');
        text
    }

    /// Returns the accepted definitions of a server.
    pub fn of(&self, server: &str) -> impl Iterator<Item = &ToolDefinition> {
        self.0.get(server).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns one accepted definition.
    pub fn find(&self, server: &str, tool: &str) -> Option<&ToolDefinition> {
        self.0.get(server)?.get(tool)
    }

    /// Accepts the current definitions of a server. They replace all its earlier ones.
    pub fn accept(&mut self, server: &str, now: Vec<ToolDefinition>) -> Result<(), Error> {
        check(server, &now)?;
        for definition in &now {
            let owner = format!("the input schema of tool `{server}.{}` is", definition.name);
            let input = Value::Object(definition.input.clone());
            Schema::new(&input).map_err(|error| error.of(&owner, Kind::InputInvalid))?;
        }
        let now = now.into_iter().map(|definition| (definition.name.clone(), definition)).collect();
        self.0.insert(server.to_owned(), now);
        Ok(())
    }

    /// Returns the differences between the accepted and the current definitions of a server.
    pub fn changes(&self, server: &str, now: &[ToolDefinition]) -> Vec<PinChange> {
        let mut changes = Vec::new();
        for definition in now {
            match self.find(server, &definition.name) {
                None => changes.push(PinChange::New(definition.clone())),
                Some(accepted) if accepted.hash() != definition.hash() => {
                    changes.push(PinChange::Changed { accepted: accepted.clone(), now: definition.clone() });
                }
                Some(_) => {}
            }
        }
        let gone = self.of(server).filter(|accepted| !now.iter().any(|now| now.name == accepted.name));
        changes.extend(gone.cloned().map(PinChange::Gone));
        changes
    }
}

/// Rejects names that a model cannot call, and names that look alike.
fn check(server: &str, tools: &[ToolDefinition]) -> Result<(), Error> {
    outlast_vocab::limits::check("tools_per_server", tools.len(), TOOLS_PER_SERVER)?;
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for tool in tools {
        tool.tool_name(server)?;
        if let Some(other) = seen.insert(lookalike_key(&tool.name), &tool.name) {
            let detail = format!("`{}` and `{other}` of the server `{server}` are too similar", tool.name);
            return Err(Error::new(Kind::ToolDuplicate, detail));
        }
    }
    Ok(())
}

/// Returns a key that is equal for names that look alike. Names are ASCII, so few letters are similar.
pub(crate) fn lookalike_key(name: &str) -> String {
    let letter = |c: char| match c.to_ascii_lowercase() {
        '0' => 'o',
        '1' | 'i' => 'l',
        '5' => 's',
        '-' | '.' => '_',
        other => other,
    };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(name: &str) -> ToolDefinition {
        let Value::Object(input) =
            json!({"type": "object", "properties": {"a": {"enum": ["x"], "default": "x"}}})
        else {
            unreachable!("it is an object")
        };
        ToolDefinition {
            name: name.to_owned(),
            title: Some("T".to_owned()),
            description: Some("Reads.".to_owned()),
            input,
            output: None,
            annotations: Some(json!({"readOnlyHint": true})),
        }
    }

    fn pins(definitions: Vec<ToolDefinition>) -> PinnedDefinitions {
        let mut pins = PinnedDefinitions::default();
        pins.accept("files", definitions).unwrap();
        pins
    }

    #[test]
    fn definition_changed_in_any_field_is_found() {
        let accepted = definition("read");
        let pins = pins(vec![definition("read")]);
        assert_eq!(pins.changes("files", std::slice::from_ref(&accepted)), []);
        let mut changed: Vec<ToolDefinition> = Vec::new();
        for (field, value) in [
            ("title", json!("U")),
            ("title", Value::Null),
            ("description", json!("Reads. ")),
            ("description", json!("Reads\u{200b}.")),
            ("description", json!("Rеads.")),
            ("input", json!({"type": "object"})),
            ("input", json!({"type": "object", "properties": {"a": {"enum": ["x", "y"], "default": "x"}}})),
            ("input", json!({"type": "object", "properties": {"a": {"enum": ["x"], "default": "y"}}})),
            ("output", json!({"type": "object"})),
            ("annotations", json!({"readOnlyHint": false})),
            ("annotations", Value::Null),
        ] {
            let mut other = serde_json::to_value(&accepted).unwrap();
            other[field] = value;
            changed.push(serde_json::from_value(other).unwrap());
        }
        for now in changed {
            let found = pins.changes("files", std::slice::from_ref(&now));
            assert_eq!(found, [PinChange::Changed { accepted: definition("read"), now }]);
        }
    }

    #[test]
    fn added_and_removed_definitions_are_found() {
        let pins = pins(vec![definition("read"), definition("write")]);
        assert_eq!(
            pins.changes("files", &[definition("write"), definition("delete")]),
            [PinChange::New(definition("delete")), PinChange::Gone(definition("read"))]
        );
        assert_eq!(pins.changes("other", &[]), []);
    }

    #[test]
    fn lookalike_and_uncallable_names_are_refused() {
        let refused = |names: &[&str]| {
            let definitions = names.iter().map(|name| definition(name)).collect();
            PinnedDefinitions::default().accept("files", definitions).unwrap_err().to_string()
        };
        assert_eq!(
            refused(&["list", "1ist"]),
            "tool.duplicate: `1ist` and `list` of the server `files` are too similar"
        );
        assert_eq!(
            refused(&["read", "Read"]),
            "tool.duplicate: `Read` and `read` of the server `files` are too similar"
        );
        assert_eq!(
            refused(&["rеad"]),
            "input.invalid: expected a tool name (letters, digits, `_`, `-`, `.`) of 1 to 64 bytes, got `files.rеad`"
        );
    }

    #[test]
    fn stored_pins_round_trip() {
        let pins = pins(vec![definition("read")]);
        assert_eq!(PinnedDefinitions::parse(&pins.to_json()).unwrap(), pins);
        assert_eq!(
            PinnedDefinitions::parse(&pins.to_json().replace("\"read\": {", "\"write\": {"))
                .unwrap_err()
                .to_string(),
            "config.invalid: the definition under `files.write` is of `read`"
        );
    }
}

//! Tool names for APIs, which only allow letters, digits, `_` and `-`. Our names may contain dots.
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::ToolContract;
use serde_json::Value;
use std::borrow::Cow;

/// The name for a call without a tool name.
const NAMELESS: &str = "nameless";

/// The maximum length of a name in bytes.
const NAME_BYTES: usize = 64;

/// The tools of a request with their names in the API.
pub(crate) struct ApiToolNames<'a> {
    tools: Vec<(Cow<'a, str>, &'a ToolContract)>,
}

impl<'a> ApiToolNames<'a> {
    /// Assigns API names to these tools. A number distinguishes names that would be equal.
    pub(crate) fn of(contracts: &'a [ToolContract]) -> Self {
        let mut tools: Vec<(Cow<'a, str>, &'a ToolContract)> = Vec::with_capacity(contracts.len());
        for contract in contracts {
            let mut name = sanitized(contract.name.as_str());
            let mut number = 1;
            while tools.iter().any(|(taken, _)| *taken == name) {
                number += 1;
                let suffix = format!("_{number}");
                let stem = sanitized(contract.name.as_str());
                let end = stem.len().min(NAME_BYTES - suffix.len());
                name = Cow::Owned(format!("{}{suffix}", &stem[..end]));
            }
            tools.push((name, contract));
        }
        Self { tools }
    }

    /// Returns the tools with their API names, in the order of the request.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a ToolContract)> {
        self.tools.iter().map(|(name, contract)| (name.as_ref(), *contract))
    }

    /// Returns whether there are no tools.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns the API name of a tool, including tools of earlier turns.
    pub(crate) fn api_name<'b>(&'b self, tool: &'b ToolName) -> Cow<'b, str> {
        let known = self.tools.iter().find(|(_, contract)| contract.name == *tool);
        known.map_or_else(|| sanitized(tool.as_str()), |(name, _)| Cow::Borrowed(name.as_ref()))
    }

    /// Returns the tool for an API name. An invalid name becomes one that no tool has, so that the model gets an error.
    pub(crate) fn tool_name(&self, name: &str) -> ToolName {
        if let Some(contract) = self.contract(name) {
            return contract.name.clone();
        }
        let fits = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
        let name: String = name.chars().map(fits).take(NAME_BYTES).collect();
        name.parse().unwrap_or_else(|_| NAMELESS.parse().expect("it fits"))
    }

    /// Returns whether the tool has no required arguments, so that a call without arguments is complete.
    pub(crate) fn takes_no_arguments(&self, name: &str) -> bool {
        self.contract(name).is_some_and(|contract| {
            contract.input.get("required").and_then(Value::as_array).is_none_or(Vec::is_empty)
        })
    }

    fn contract(&self, name: &str) -> Option<&'a ToolContract> {
        let named = self.tools.iter().find(|(known, _)| *known == name);
        named.map(|(_, contract)| *contract)
    }
}

fn sanitized(name: &str) -> Cow<'_, str> {
    if name.contains('.') { Cow::Owned(name.replace('.', "_")) } else { Cow::Borrowed(name) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use outlast_vocab::tool::EffectClass;
    use serde_json::json;

    pub(crate) fn contract(name: &str, input: Value) -> ToolContract {
        ToolContract {
            class: EffectClass::Pure,
            ..ToolContract::new(name.parse().unwrap(), format!("Does {name}."), input)
        }
    }

    #[test]
    fn dotted_tool_name_survives_api_round_trip() {
        let contracts = ["mcp.read", "mcp_read", "pay"].map(|name| contract(name, json!({})));
        let names = ApiToolNames::of(&contracts);
        let outward: Vec<String> =
            contracts.iter().map(|contract| names.api_name(&contract.name).into_owned()).collect();
        assert_eq!(outward, ["mcp_read", "mcp_read_2", "pay"]);
        for contract in &contracts {
            assert_eq!(names.tool_name(&names.api_name(&contract.name)), contract.name);
        }
    }

    #[test]
    fn invalid_tool_name_maps_to_unused_name() {
        let names = ApiToolNames::of(&[]);
        assert_eq!(names.tool_name("").as_str(), "nameless");
        assert_eq!(names.tool_name("read file\n").as_str(), "read_file_");
        assert_eq!(names.tool_name(&"x".repeat(70)).as_str().len(), 64);
    }
}

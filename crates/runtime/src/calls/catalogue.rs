//! The tools of this process: finds them by name, with the schemas of their arguments.
use crate::calls::client_tool_provider::ClientToolProvider;
use crate::limits::fair_permits::WorkOwner;
use crate::limits::validation::MeasuredSchema;
use crate::turn::output_schema::fits;
use outlast_ports::tool::ToolProvider;
use outlast_vocab::limits;
use outlast_vocab::message::ToolName;
use outlast_vocab::tool::{CallSinks, ClientTool, ToolContract};
use outlast_vocab::{Error, Kind, SessionId, TurnId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Schema keywords that allow properties beyond those listed.
const OPEN_KEYWORDS: [&str; 6] = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties", "if"];

/// All tools, each with its input schema.
pub struct ToolCatalogue {
    tools: BTreeMap<ToolName, CatalogueTool>,
}

#[derive(Clone)]
struct CatalogueTool {
    provider: Arc<dyn ToolProvider>,
    schema: Arc<MeasuredSchema>,
}

impl std::fmt::Debug for ToolCatalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

/// The turn that makes a call.
#[derive(Clone, Copy, Debug)]
pub struct CallingTurn {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
}

impl ToolCatalogue {
    /// Collects the tools of these providers. A duplicate name or an invalid schema is an error.
    pub fn new(providers: Vec<Arc<dyn ToolProvider>>) -> Result<Self, Error> {
        let mut tools = BTreeMap::new();
        for provider in providers {
            for manifest in provider.manifests() {
                let name = manifest.name;
                let contract = provider.contract(&name).ok_or_else(|| unknown(&name, &[]))?;
                let whose = format!("the input schema of tool `{name}` is");
                let schema = Arc::new(MeasuredSchema::new(&contract.input, whose, Kind::ConfigInvalid)?);
                check_sinks(contract)?;
                if tools.contains_key(&name) {
                    let detail = format!("two tools are called `{name}`; names must be unique");
                    return Err(Error::new(Kind::ToolDuplicate, detail));
                }
                tools.insert(name, CatalogueTool { provider: provider.clone(), schema });
            }
        }
        check_size(&tools)?;
        tools.values().try_for_each(|entry| entry.schema.compile_now())?;
        Ok(Self { tools })
    }

    /// Adds the tools that the sender of an input runs. A duplicate name is an error, because the model could
    /// not tell them apart. Their schemas are compiled later ([`ToolCatalogue::compile`]).
    pub(crate) fn with_client(self: Arc<Self>, client: &[ClientTool]) -> Result<Arc<Self>, Error> {
        if client.is_empty() {
            return Ok(self);
        }
        let provider: Arc<dyn ToolProvider> = Arc::new(ClientToolProvider::new(client));
        let (mut tools, mut size) = (self.tools.clone(), 0);
        for ClientTool { name, input, .. } in client {
            let whose = format!("the parameters of tool `{name}` are");
            let schema = Arc::new(MeasuredSchema::new(input, whose, Kind::InputInvalid)?);
            size += schema.size();
            if size > limits::SCHEMA_SIZE {
                let detail = format!(
                    "schema_size is limited to {} for all tools of an input together, but the tools up to `{name}` need {size}",
                    limits::SCHEMA_SIZE
                );
                return Err(Error::new(Kind::LimitExceeded, detail));
            }
            let entry = CatalogueTool { provider: provider.clone(), schema };
            if tools.insert(name.clone(), entry).is_some() {
                let detail = format!("there is a tool `{name}` already; give yours another name");
                return Err(Error::new(Kind::ToolDuplicate, detail));
            }
        }
        Ok(Arc::new(Self { tools }))
    }

    /// Returns these tools with the input schemas of the pinned contracts, which may differ from the current
    /// ones. They are compiled when a call first needs them.
    pub(crate) fn with_pinned_schemas(
        self: Arc<Self>,
        contracts: &[ToolContract],
    ) -> Result<Arc<Self>, Error> {
        let differs = |recorded: &&ToolContract| {
            self.contract(&recorded.name).is_some_and(|now| now.input != recorded.input)
        };
        let differing: Vec<&ToolContract> = contracts.iter().filter(differs).collect();
        if differing.is_empty() {
            return Ok(self);
        }
        let mut tools = self.tools.clone();
        for ToolContract { name, input, .. } in differing {
            if let Some(entry) = tools.get_mut(name) {
                let whose = format!("the input schema that tool `{name}` had is");
                entry.schema = Arc::new(MeasuredSchema::new(input, whose, Kind::PackageUnavailable)?);
            }
        }
        check_size(&tools)?;
        Ok(Arc::new(Self { tools }))
    }

    /// Compiles the schemas of these tools that were not compiled before. An invalid one is an error.
    pub(crate) async fn compile(&self, client: &[ClientTool], owner: WorkOwner) -> Result<(), Error> {
        for entry in client.iter().filter_map(|tool| self.tools.get(&tool.name)) {
            entry.schema.compile(owner).await?;
        }
        Ok(())
    }

    /// Returns the names of all tools.
    pub fn names(&self) -> impl Iterator<Item = &ToolName> {
        self.tools.keys()
    }

    /// Returns the contract of this tool.
    pub fn contract(&self, tool: &ToolName) -> Option<&ToolContract> {
        self.tools.get(tool).and_then(|entry| entry.provider.contract(tool))
    }

    /// Returns the provider of this tool.
    pub fn provider(&self, tool: &ToolName) -> Result<&Arc<dyn ToolProvider>, Error> {
        self.tools.get(tool).map(|entry| &entry.provider).ok_or_else(|| unknown(tool, &[]))
    }

    /// Describes what a call would do, without running it. Arguments are checked as in a real call.
    pub async fn preview(&self, tool: &ToolName, arguments: &Value) -> Result<Option<String>, Error> {
        let entry = self.tools.get(tool).ok_or_else(|| unknown(tool, &[]))?;
        fits(&entry.schema, arguments, None).await?;
        entry.provider.preview(tool, arguments).await
    }

    /// Checks arguments against the tool's schema.
    pub(crate) async fn takes(
        &self,
        tool: &ToolName,
        arguments: &Value,
        owner: WorkOwner,
    ) -> Result<(), Error> {
        let entry = self.tools.get(tool).ok_or_else(|| unknown(tool, &[]))?;
        fits(&entry.schema, arguments, owner).await
    }
}

/// Rejects tools whose schemas together are too large to compile in reasonable time.
fn check_size(tools: &BTreeMap<ToolName, CatalogueTool>) -> Result<(), Error> {
    let size: u64 = tools.values().map(|entry| entry.schema.size()).sum();
    if size <= limits::CATALOGUE_SIZE {
        return Ok(());
    }
    let detail = format!(
        "catalogue_size is limited to {} for the schemas of all tools of an agent together, but these {} tools need {size}; remove tools",
        limits::CATALOGUE_SIZE,
        tools.len()
    );
    Err(Error::new(Kind::LimitExceeded, detail))
}

/// Rejects a sink that no argument can match: the guard would never see it, and the call would run.
fn check_sinks(contract: &ToolContract) -> Result<(), Error> {
    let ToolContract { name, input, sinks, .. } = contract;
    let Some(CallSinks::Arguments(sinks)) = sinks else { return Ok(()) };
    let Some(sink) = sinks.iter().find(|sink| !may_have(input, sink)) else { return Ok(()) };
    let detail = format!(
        "the tool `{name}` names the sink `{sink}`, but its arguments have nothing there; a sink is a JSON pointer such as `/to`, or \
         `/items/*/to` for every element of a list"
    );
    Err(Error::new(Kind::ConfigInvalid, detail))
}

/// Whether a value of this schema may have something at the pointer, in which `*` matches every element and
/// member.
///
/// Whatever the schema leaves open counts as possible.
fn may_have(schema: &Value, pointer: &str) -> bool {
    let Some(path) = pointer.strip_prefix('/') else { return pointer.is_empty() };
    let (first, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    let is_open = OPEN_KEYWORDS.iter().any(|keyword| schema.get(keyword).is_some());
    is_open
        || may_be(schema, "array") && may_have_element(schema, first, rest)
        || may_be(schema, "object") && may_have_member(schema, first, rest)
}

/// Whether a value of this schema may have this type.
fn may_be(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == kind,
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        _ => true,
    }
}

fn may_have_element(schema: &Value, first: &str, rest: &str) -> bool {
    let is_place = first == "*" || first.parse::<usize>().is_ok();
    let tuple = || schema.get("prefixItems").is_some();
    is_place && (tuple() || schema.get("items").is_none_or(|items| may_have(items, rest)))
}

fn may_have_member(schema: &Value, first: &str, rest: &str) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    let name = first.replace("~1", "/").replace("~0", "~");
    if let Some(property) = properties.and_then(|properties| properties.get(&name)) {
        return may_have(property, rest);
    }
    let any = || properties.into_iter().flatten().any(|(_, property)| may_have(property, rest));
    match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => first == "*" && any(),
        Some(more) => may_have(more, rest) || first == "*" && any(),
        None => properties.is_none() || first == "*" && any(),
    }
}

/// The error for a tool that is not among these.
pub(crate) fn unknown(tool: &ToolName, visible: &[ToolContract]) -> Error {
    let names: Vec<&str> = visible.iter().map(|contract| contract.name.as_str()).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Error::new(Kind::ToolUnknown, format!("no tool is called `{tool}`; there are: {there}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use serde_json::{Map, json};

    fn tool(name: &str, input: Value) -> ClientTool {
        ClientTool { name: name.parse().unwrap(), description: String::new(), input }
    }

    fn catalogue(tools: &[ClientTool]) -> Result<Arc<ToolCatalogue>, Error> {
        ToolCatalogue::new(vec![Arc::new(ClientToolProvider::new(tools))]).map(Arc::new)
    }

    /// Returns tools whose schemas are too large together. Each refers twice to the next of 12 definitions.
    fn large_tools() -> Vec<ClientTool> {
        let definition = |n: u32| {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            (format!("d{n}"), if n == 12 { json!({}) } else { json!({ "allOf": [next, next] }) })
        };
        let definitions: Map<String, Value> = (1..=12).map(definition).collect();
        let input = json!({ "$defs": definitions, "properties": { "a": { "$ref": "#/$defs/d1" } } });
        (0..100).map(|n| tool(&format!("tool_{n}"), input.clone())).collect()
    }

    #[test]
    fn tools_of_an_agent_share_a_schema_size() {
        let refused = catalogue(&large_tools()).unwrap_err();
        assert_eq!(refused.kind(), Kind::LimitExceeded);
        assert!(refused.detail().starts_with("catalogue_size is limited to 200000"), "{refused}");
    }

    #[test]
    fn pinned_schemas_share_a_schema_size() {
        let large = large_tools();
        let small: Vec<_> = large.iter().map(|one| ClientTool { input: json!({}), ..one.clone() }).collect();
        let pinned: Vec<_> = large.iter().map(ClientTool::contract).collect();
        let refused = catalogue(&small).unwrap().with_pinned_schemas(&pinned).unwrap_err();
        assert!(refused.detail().starts_with("catalogue_size is limited to 200000"), "{refused}");
    }

    #[test]
    fn pinned_schema_is_compiled_by_its_first_call() {
        let pinned = [tool("old", json!({ "type": "any" })).contract()];
        let tools = catalogue(&[tool("old", json!({}))]).unwrap().with_pinned_schemas(&pinned).unwrap();
        let takes = tools.takes(&pinned[0].name, &json!({}), None).now_or_never();
        assert_eq!(takes.unwrap().unwrap_err().kind(), Kind::PackageUnavailable);
    }
}

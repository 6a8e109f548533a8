//! Turns tables of a file into layers that can be folded, stored and compared.
//!
//! Paths become absolute here, because a layer may be used in another directory than the one it was written
//! in.
use super::definition::{
    AgentDefinition, AgentTable, BuiltinGroup, DocumentFile, DocumentTable, FetchTable, McpTable, ToolTable,
    pins_of,
};
use super::hooks::HookTable;
use super::program::whole;
use super::rates::{RateTable, rates};
use super::rules::RuleTable;
use crate::config::document::{Document, read_text};
use outlast::tools::egress::HostRule;
use outlast::vocab::overlay::{CapabilityLayer, CapabilityRequirements, Layer, Overlay};
use outlast::vocab::policy::Rule;
use outlast::{Error, Kind};
use outlast_kernel::overlay::{LayerRegistry, OriginLayer, fold};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The source of a table: a place in a file, or the database.
pub(crate) struct TableLocation<'a> {
    document: Option<&'a Document>,
    at: Vec<&'a str>,
    /// A description for error messages, like `agent shop`.
    pub(super) what: String,
    home: PathBuf,
}

impl<'a> TableLocation<'a> {
    /// Creates the place of a table in a file.
    pub(super) fn within(document: &'a Document, at: &[&'a str], what: String) -> Result<Self, Error> {
        Ok(Self { document: Some(document), at: at.to_vec(), what, home: document.home()? })
    }

    /// Creates a place outside of any file. All paths there are absolute.
    pub(super) fn elsewhere(what: String) -> Self {
        Self { document: None, at: Vec::new(), what, home: PathBuf::from("/") }
    }

    /// Returns its files: the file it is written in, and the accepted definitions of its MCP servers.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let written = self.document.map(|document| document.path().to_owned());
        written.into_iter().flat_map(|written| [pins_of(&written), written]).collect()
    }

    /// Returns the directory that relative paths refer to.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns an error about a value in this place.
    pub(super) fn invalid(&self, steps: &[&str], what: &str) -> Error {
        match self.document {
            Some(document) => document.invalid(&[&self.at, steps].concat(), what),
            None => Error::new(Kind::ConfigInvalid, format!("{}: {what}", self.what)),
        }
    }

    /// Returns an error about the tool with this name.
    pub(super) fn of_tool(&self, name: &str, what: &str) -> Error {
        let tools = self
            .document
            .and_then(|document| document.value::<Vec<Value>>(&[&self.at[..], &["tools"]].concat()).ok()?);
        let is = |tool: &Value| tool["name"] == name;
        let index = tools.and_then(|tools| tools.iter().position(is)).map(|index| index.to_string());
        let steps: Vec<&str> = ["tools"].into_iter().chain(index.as_deref()).collect();
        self.invalid(&steps, &format!("tool `{name}`: {what}"))
    }
}

/// Returns the files of all documents of a configuration: of its agents, harnesses and capabilities. Tables that
/// cannot be read are left out.
pub(super) fn document_files(document: &Document) -> Result<Vec<PathBuf>, Error> {
    let mut tables: Vec<Vec<String>> = vec![vec!["documents".to_owned()]];
    for kind in ["agents", "harnesses", "capabilities"] {
        // In the file of a single agent, `capabilities` may be a list.
        for name in document.names(&[kind]).unwrap_or_default() {
            tables.push(vec![kind.to_owned(), name, "documents".to_owned()]);
        }
    }
    let home = document.home()?;
    let mut files = Vec::new();
    for at in tables {
        let at: Vec<&str> = at.iter().map(String::as_str).collect();
        let documents: Option<BTreeMap<String, DocumentTable>> = document.value(&at).ok().flatten();
        files.extend(documents.unwrap_or_default().into_values().filter_map(|document| match document {
            DocumentTable::File(DocumentFile { file }) => Some(home.join(file)),
            DocumentTable::Text(_) => None,
        }));
    }
    Ok(files)
}

/// A bundle of prompt, tools, MCP servers, documents and rules that agents switch on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[capabilities.NAME]")]
pub(crate) struct CapabilityTable {
    /// Its purpose, in one sentence.
    #[serde(default)]
    description: String,
    /// Its requirements.
    #[serde(default)]
    needs: NeedsTable,
    /// Text added to the system prompt.
    system: Option<String>,
    /// Groups of built-in tools.
    #[serde(default)]
    builtin: Vec<BuiltinGroup>,
    /// Allowed hosts; it can only restrict the agent further.
    #[schemars(with = "Option<Vec<String>>")]
    network: Option<Vec<HostRule>>,
    /// Hosts that `fetch` may reach; the table alone enables the tool.
    fetch: Option<FetchTable>,
    /// MCP servers, by name.
    #[serde(default)]
    mcp: BTreeMap<String, McpTable>,
    /// Texts that the model can open with `open_document`, by path.
    #[serde(default)]
    documents: BTreeMap<String, DocumentTable>,
    /// Tools that are programs.
    #[serde(default)]
    tools: Vec<ToolTable>,
    /// Rules for calls.
    #[serde(default, skip_serializing)]
    rules: Vec<RuleTable>,
    /// Rate limits for calls.
    #[serde(default, skip_serializing)]
    rates: Vec<RateTable>,
    /// Programs that run at points of turns.
    #[serde(default)]
    hooks: Vec<HookTable>,
}

/// The requirements of a capability. A missing one is an error at startup.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[capabilities.NAME.needs]")]
struct NeedsTable {
    /// Other capabilities, which are switched on before this one.
    #[serde(default)]
    capabilities: Vec<String>,
    /// Settings that the agent must have, like `files`.
    #[serde(default)]
    settings: Vec<String>,
    /// Environment variables that must be set.
    #[serde(default)]
    env: Vec<String>,
    /// Programs that must be installed.
    #[serde(default)]
    programs: Vec<String>,
}

impl AgentTable {
    /// Checks that the programs of its tools and MCP servers exist.
    pub(super) fn check_programs(&self, place: &TableLocation<'_>) -> Result<(), Error> {
        for tool in &self.tools {
            tool.words(place.home()).map_err(|what| place.of_tool(tool.name.as_str(), &what))?;
        }
        for (server, table) in &self.mcp {
            let invalid =
                |what: String| place.invalid(&["mcp", server], &format!("MCP server `{server}`: {what}"));
            table.words(place.home()).map_err(invalid)?;
        }
        for (index, hook) in self.hooks.iter().enumerate() {
            let invalid = |what: String| place.invalid(&["hooks", &index.to_string()], &what);
            hook.hook(place.home()).map_err(invalid)?;
        }
        Ok(())
    }

    /// Checks that `files` is below the working directory of the agent. This also applies to agents from the
    /// network.
    pub(super) fn check_files(&self, place: &TableLocation<'_>) -> Result<(), Error> {
        let below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        let is_below = |files: &PathBuf| files.components().all(below) && !files.as_os_str().is_empty();
        let Some(files) = self.files.as_ref().filter(|files| !is_below(files)) else {
            return Ok(());
        };
        let what =
            format!("expected a directory below the agent's working directory, got `{}`", files.display());
        Err(place.invalid(&["files"], &what))
    }

    /// Refuses a shell without its own directory.
    ///
    /// A shell may change everything in its directory, so no file of the agent may be there.
    pub(super) fn check_shell(&self, place: &TableLocation<'_>) -> Result<(), Error> {
        let what = match (&self.shell, &self.files) {
            (Some(_), None) => "the shell requires a directory for files; add `files = \"…\"`",
            (Some(_), Some(files)) if files.components().all(|part| part == Component::CurDir) => {
                "the shell can change everything in the directory for files, and this one may contain the database and the \
                 agent's file; use a directory below it, like `files = \"work\"`"
            }
            _ => return Ok(()),
        };
        Err(place.invalid(&["shell"], what))
    }

    /// Converts the table to a layer.
    pub(super) fn layer(mut self, place: &TableLocation<'_>) -> Result<Layer, Error> {
        let parent = self.parent.take();
        self.name = None;
        self.check_files(place)?;
        if let Some(fetch) = &self.fetch {
            fetch.rules().map_err(|error| place.invalid(&["fetch"], error.detail()))?;
        }
        if let Some(budget) = &self.budget {
            budget.budgets().map_err(|what| place.invalid(&["budget"], &what))?;
        }
        let models = Overlay { model: self.model.clone(), models: self.models.clone(), ..Overlay::default() };
        models.named_models().map_err(|error| place.invalid(&["models"], error.detail()))?;
        let rules = rules(std::mem::take(&mut self.rules), place)?;
        resolve_paths(&mut self.tools, &mut self.mcp, &mut self.documents, place)?;
        resolve_hook_paths(&mut self.hooks, place)?;
        let rates = rates(std::mem::take(&mut self.rates), place)?;
        Ok(Layer { parent, overlay: Overlay { rates, ..overlay(&self, rules, place)? } })
    }
}

impl CapabilityTable {
    /// Converts the table to a capability.
    pub(super) fn capability(mut self, place: &TableLocation<'_>) -> Result<CapabilityLayer, Error> {
        let NeedsTable { capabilities, settings, env, programs } = std::mem::take(&mut self.needs);
        let description = std::mem::take(&mut self.description);
        let rules = rules(std::mem::take(&mut self.rules), place)?;
        resolve_paths(&mut self.tools, &mut self.mcp, &mut self.documents, place)?;
        resolve_hook_paths(&mut self.hooks, place)?;
        let rates = rates(std::mem::take(&mut self.rates), place)?;
        let mut overlay = Overlay { rates, ..overlay(&self, rules, place)? };
        overlay.settings.retain(|name, _| name != "needs" && name != "description");
        Ok(CapabilityLayer {
            description,
            needs: CapabilityRequirements { capabilities, settings, env, programs },
            overlay,
        })
    }
}

fn rules(tables: Vec<RuleTable>, place: &TableLocation<'_>) -> Result<Vec<Rule>, Error> {
    let mut rules: Vec<Rule> = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let steps = ["rules", &index.to_string()];
        let rule = table.rule().map_err(|what| place.invalid(&steps, &what))?;
        if rules.iter().any(|other| other.id == rule.id) {
            let what = format!("two rules are called `{}`; names must be unique", rule.id);
            return Err(place.invalid(&steps, &what));
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// Makes paths absolute and reads documents, so that a layer means the same in every directory.
fn resolve_paths(
    tools: &mut [ToolTable],
    mcp: &mut BTreeMap<String, McpTable>,
    documents: &mut BTreeMap<String, DocumentTable>,
    place: &TableLocation<'_>,
) -> Result<(), Error> {
    for at in 0..tools.len() {
        let name = &tools[at].name;
        if tools[..at].iter().any(|other| other.name == *name) {
            let detail = format!("two tools are called `{name}`; names must be unique");
            return Err(place.invalid(&["tools", &at.to_string(), "name"], &detail));
        }
        let command = &mut tools[at].command;
        *command = whole(command, place.home());
    }
    for command in mcp.values_mut().filter_map(|server| server.command.as_mut()) {
        *command = whole(command, place.home());
    }
    for (path, document) in documents {
        if let DocumentTable::File(DocumentFile { file }) = document {
            let text = read_text(&place.home().join(&*file), "document");
            let text = text.map_err(|error| place.invalid(&["documents", path], error.detail()))?;
            *document = DocumentTable::Text(text);
        }
    }
    Ok(())
}

/// Makes the paths of hooks absolute, and refuses duplicates.
///
/// In a higher layer, a hook with the same name and point replaces the lower one. In one table, this would
/// hide a mistake.
fn resolve_hook_paths(hooks: &mut [HookTable], place: &TableLocation<'_>) -> Result<(), Error> {
    for at in 0..hooks.len() {
        let HookTable { name, point, .. } = &hooks[at];
        if hooks[..at].iter().any(|other| (&other.name, other.point) == (name, *point)) {
            let what = format!("two hooks at {point} are called `{name}`; names must be unique there");
            return Err(place.invalid(&["hooks", &at.to_string()], &what));
        }
        hooks[at].command = whole(&hooks[at].command, place.home());
    }
    Ok(())
}

fn overlay(table: &impl Serialize, rules: Vec<Rule>, place: &TableLocation<'_>) -> Result<Overlay, Error> {
    let invalid = |cause: serde_json::Error| place.invalid(&[], &cause.to_string());
    let mut value = serde_json::to_value(table).map_err(invalid)?;
    if let Some(members) = value.as_object_mut() {
        // An absent `network` allows everything, but an empty list allows nothing.
        members.retain(|name, value| {
            !value.is_null() && (name == "network" || value.as_array().is_none_or(|list| !list.is_empty()))
        });
    }
    Ok(Overlay { rules, ..Overlay::from_json(value).map_err(invalid)? })
}

/// Folds layers into an agent. The requirements of its capabilities must be met.
pub(super) fn folded(
    name: String,
    layers: Vec<OriginLayer>,
    registry: &LayerRegistry,
    place: &TableLocation<'_>,
) -> Result<AgentDefinition, Error> {
    let folded = fold(layers)?;
    for capability in &folded.capabilities {
        let needs = registry.capabilities.get(capability).map(|capability| &capability.needs);
        if let Some(missing) = needs.and_then(|needs| missing(needs, &folded)) {
            let what = format!("the capability `{capability}` needs {missing}");
            return Err(Error::new(Kind::PortMissing, format!("{}: {what}", place.what)));
        }
    }
    AgentDefinition::of(name, folded, place)
}

/// Returns the first unmet requirement.
fn missing(needs: &CapabilityRequirements, folded: &Overlay) -> Option<String> {
    let setting = needs.settings.iter().find(|setting| !folded.settings.contains_key(*setting));
    let variable =
        needs.env.iter().find(|variable| std::env::var_os(variable).is_none_or(|value| value.is_empty()));
    let program = needs.programs.iter().find(|program| !super::program::is_there(Path::new(program)));
    setting
        .map(|setting| format!("the setting `{setting}`, which no layer of the agent sets"))
        .or_else(|| variable.map(|variable| format!("the environment variable {variable}; set it")))
        .or_else(|| {
            program.map(|program| format!("the program `{program}`, which is missing or not executable"))
        })
}

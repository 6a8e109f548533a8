//! An agent as a table of a TOML file: name, prompt, tools, limits.
//!
//! [`super::layers`] turns tables into layers and folds them. This module builds the agent from the folded
//! result.
use super::budget::BudgetTable;
use super::hooks::{HookProgram, HookTable};
use super::layers::TableLocation;
use super::program::{ResolvedCommand, made_of};
use super::rates::RateTable;
use super::rules::RuleTable;
use crate::config_file;
use outlast::tools::Builtin;
use outlast::tools::command::{Program, ProgramTools};
use outlast::tools::egress::{Egress, EgressLimits, EgressRules, HostRule, Network, SystemNameResolver};
#[cfg(target_os = "linux")]
use outlast::tools::sandbox::SandboxPaths;
#[cfg(target_os = "linux")]
use outlast::tools::shell::Shell;
use outlast::tools::{FileRoot, ProtectedFiles};
use outlast::vocab::cost::Cost;
use outlast::vocab::label::TrustGuard;
use outlast::vocab::message::{ModelName, ToolName};
use outlast::vocab::overlay::{NetworkAllowList, Overlay};
use outlast::vocab::policy::Policy;
use outlast::vocab::tool::{CallSinks, EffectClass, RetryPolicy, ToolContract};
use outlast::vocab::{Hash, canonical_json};
use outlast::{Builder, Error, Kind, Limits};
use outlast_mcp::{
    HttpTransport, McpServerSettings, McpServerSpec, McpTools, NetworkCheck, PinnedDefinitions,
    ProcessTransport, ServerTransport, ToolFlow,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An agent with folded layers, whose programs, hooks and servers were found.
#[derive(Clone, Debug)]
pub(crate) struct AgentDefinition {
    name: String,
    folded: Overlay,
    agent: AgentTable,
    commands: Vec<(ToolContract, ResolvedCommand)>,
    servers: Vec<(McpTable, String, Option<ResolvedCommand>)>,
    hooks: Vec<HookProgram>,
    pins: PinnedDefinitions,
    /// Files that define the agent. Tools must not change them.
    own: Vec<PathBuf>,
    /// Files of the server and of all its agents. Tools must not change them.
    protected: ProtectedFiles,
}

/// An agent, or a harness that agents and other harnesses inherit from.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME]")]
pub(crate) struct AgentTable {
    /// The name of the agent. Required in a file with one agent; in `outlast.toml`, the table's name is used.
    pub(super) name: Option<String>,
    /// The harness that the agent inherits from.
    pub(super) parent: Option<String>,
    /// Capabilities to switch on.
    #[serde(default)]
    pub(super) capabilities: Vec<String>,
    /// The system prompt. The parts of all layers are joined, root first.
    pub(super) system: Option<String>,
    /// The model, like `openai/gpt-5`; `--model` overrides it.
    #[schemars(with = "Option<String>")]
    pub(super) model: Option<ModelName>,
    /// Models in order of preference: `["openai/gpt-5", "anthropic/claude-sonnet-4-5"]`. Replaces `model`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) models: Vec<ModelName>,
    /// Seconds that a turn waits for a provider that is down before it fails; default: 86400 (24 hours).
    pub(super) provider_wait_s: Option<u32>,
    /// Maximum model calls per turn; default: 50.
    pub(super) model_calls: Option<NonZeroU32>,
    /// Groups of built-in tools.
    #[serde(default)]
    pub(super) builtin: Vec<BuiltinGroup>,
    /// The directory for file tools, inside the agent's working directory.
    pub(super) files: Option<PathBuf>,
    /// Allowed hosts. Later layers can only restrict them further; an empty list blocks all hosts.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) network: Option<Vec<HostRule>>,
    /// Hosts that `fetch` may reach; the table alone enables the tool.
    pub(super) fetch: Option<FetchTable>,
    /// Lets the model run commands in `files`, in a sandbox.
    pub(super) shell: Option<ShellTable>,
    /// MCP servers, by name.
    #[serde(default)]
    pub(super) mcp: BTreeMap<String, McpTable>,
    /// Texts that the model can open with `open_document`, by path.
    #[serde(default)]
    pub(super) documents: BTreeMap<String, DocumentTable>,
    /// Tools that are programs.
    #[serde(default)]
    pub(super) tools: Vec<ToolTable>,
    /// Rules for its calls. The rules of all layers are joined, root first; the first match decides.
    #[serde(default, skip_serializing)]
    pub(super) rules: Vec<RuleTable>,
    /// Rate limits for its calls. The rates of all layers are joined; every match applies.
    #[serde(default, skip_serializing)]
    pub(super) rates: Vec<RateTable>,
    /// How to handle calls that untrusted text may have caused: `open` (default), `guarded` or `strict`.
    #[schemars(with = "Option<String>", extend("enum" = [TrustGuard::Open, TrustGuard::Guarded, TrustGuard::Strict]))]
    pub(super) guard: Option<TrustGuard>,
    /// Budgets of its turns.
    pub(super) budget: Option<BudgetTable>,
    /// Programs that run at points of its turns.
    #[serde(default)]
    pub(super) hooks: Vec<HookTable>,
}

/// A text that the model can open.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text, or `{ file = \"./notes.md\" }`")]
pub(crate) enum DocumentTable {
    /// The text itself.
    Text(String),
    /// A file with the text.
    File(DocumentFile),
}

/// A file with a text.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.documents.PATH]")]
pub(crate) struct DocumentFile {
    /// The file with the text, relative to this configuration.
    pub(super) file: PathBuf,
}

/// A group of built-in tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BuiltinGroup {
    Clock,
    Calculator,
    Values,
    ReadMore,
    Todo,
    AskUser,
    Fetch,
}

/// Hosts that `fetch` may reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.fetch]")]
pub(crate) struct FetchTable {
    /// Allowed hosts; default: every public host.
    #[schemars(with = "Option<Vec<String>>")]
    allow: Option<Vec<HostRule>>,
    /// Hosts that are allowed although they are not public.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    private: Vec<HostRule>,
}

impl FetchTable {
    pub(super) fn rules(&self) -> Result<EgressRules, Error> {
        let rules = EgressRules::public().and_private(self.private.iter().cloned())?;
        Ok(match &self.allow {
            Some(allow) => rules.only(allow.iter().cloned()),
            None => rules,
        })
    }
}

/// Settings of the `shell` tool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.shell]")]
pub(crate) struct ShellTable {
    /// Timeout of a command in seconds.
    deadline_s: Option<NonZeroU32>,
    /// Paths outside `files` that commands may read.
    #[serde(default)]
    read: Vec<PathBuf>,
    /// Environment variables that commands may see.
    #[serde(default)]
    env: Vec<String>,
    /// Starts the agent even if the kernel has no Landlock.
    #[serde(default)]
    without_landlock: bool,
}

#[cfg(target_os = "linux")]
impl ShellTable {
    fn shell(&self, root: &FileRoot) -> Shell {
        let mut shell = Shell::new(root);
        if let Some(seconds) = self.deadline_s {
            shell = shell.deadline(Duration::from_secs(seconds.get().into()));
        }
        if self.without_landlock {
            shell = shell.allow_missing_landlock();
        }
        shell = self.read.iter().fold(shell, Shell::read);
        self.env.iter().fold(shell, Shell::env)
    }
}

/// An MCP server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.mcp.SERVER]")]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the configuration")]
pub(crate) struct McpTable {
    /// The program and its arguments.
    pub(super) command: Option<Vec<String>>,
    /// The address of a server over HTTP.
    url: Option<String>,
    /// Environment variables that the program may see.
    #[serde(default)]
    env: Vec<String>,
    /// The environment variable that contains the token for the `url`.
    bearer: Option<String>,
    /// Allows a `url` on this machine or in a private network.
    #[serde(default)]
    private: bool,
    /// Runs the program in a sandbox.
    #[serde(default)]
    sandbox: bool,
    /// Paths that the program may read in the sandbox.
    #[serde(default)]
    read: Vec<PathBuf>,
    /// Paths that the program may write in the sandbox.
    #[serde(default)]
    write: Vec<PathBuf>,
    /// The tools of the server to enable; default: all accepted tools.
    only: Option<Vec<String>>,
    /// How to handle an interrupted call, by tool.
    #[serde(default)]
    classes: BTreeMap<String, ToolClass>,
    /// Believes the server's annotations of its tools.
    #[serde(default)]
    trust_annotations: bool,
    /// Trusts the text of the accepted definitions. By default it is untrusted text.
    #[serde(default)]
    trust_definitions: bool,
    /// Data flow through its tools: sensitive arguments and trusted results, by tool.
    #[serde(default)]
    tools: BTreeMap<String, McpToolTable>,
    /// Whether the server may ask the user; default: `true`.
    elicitation: Option<bool>,
    /// Timeout of a call in seconds; default: 120.
    deadline_s: Option<NonZeroU32>,
}

/// Data flow through a tool of an MCP server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[agents.NAME.mcp.SERVER.tools.TOOL]")]
pub(crate) struct McpToolTable {
    /// JSON pointers to sensitive arguments (who, what, how much, where), or `"call"` if the call itself is sensitive.
    #[schemars(schema_with = "sinks_schema")]
    sinks: Option<CallSinks>,
    /// Whether its results and its definition can be trusted: no outsider can influence them.
    #[serde(default)]
    trusted: bool,
    /// Whether its arguments leave this machine, so that a call can leak data.
    #[serde(default)]
    egress: bool,
}

impl From<&McpToolTable> for ToolFlow {
    fn from(table: &McpToolTable) -> Self {
        let McpToolTable { sinks, trusted, egress } = table.clone();
        Self { sinks, trusted, egress }
    }
}

/// Returns the JSON Schema of `sinks`: the string `call`, or JSON pointers.
fn sinks_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            { "const": "call", "description": "The call itself." },
            { "type": "array", "items": { "type": "string" }, "description": "JSON pointers to the sensitive arguments." },
            { "type": "null" }
        ]
    })
}

impl McpTable {
    fn rules(&self) -> Result<Option<EgressRules>, Error> {
        let network = if self.private { Network::Any } else { Network::Public };
        self.url.as_ref().map(|url| EgressRules::for_url(url, network)).transpose()
    }

    /// Returns a fingerprint of how the server is reached.
    fn made_of(&self) -> Hash {
        let Self { command, url, env, bearer, private, sandbox, read, write, .. } = self;
        canonical_json::fingerprint(&(command, url, env, bearer, private, sandbox, read, write))
    }

    /// Checks the server's URL against the network rules.
    fn within(&self, network: &NetworkAllowList) -> Result<(), Error> {
        let (Some(url), Some(rules)) = (&self.url, self.rules()?) else { return Ok(()) };
        rules.within(network)?.check(url).map(drop)
    }

    /// Returns the program and arguments that start the server inside a sandbox.
    #[cfg(target_os = "linux")]
    fn sandbox_launcher(
        &self,
        program: &OsStr,
        args: &[OsString],
        dir: &Path,
    ) -> Result<(OsString, Vec<OsString>), Error> {
        let within = |paths: &[PathBuf]| paths.iter().map(|path| dir.join(path)).collect();
        SandboxPaths { read: within(&self.read), write: within(&self.write) }.sandboxed_command(program, args)
    }

    #[cfg(not(target_os = "linux"))]
    fn sandbox_launcher(
        &self,
        _: &OsStr,
        _: &[OsString],
        _: &Path,
    ) -> Result<(OsString, Vec<OsString>), Error> {
        Err(Error::new(Kind::SandboxUnavailable, "the sandbox for MCP servers works on Linux only"))
    }

    fn server(
        &self,
        name: &str,
        words: Option<&ResolvedCommand>,
        dir: &Path,
    ) -> Result<McpServerSpec, Error> {
        let settings = McpServerSettings {
            only: self.only.clone(),
            classes: self.classes.iter().map(|(tool, class)| (tool.clone(), (*class).into())).collect(),
            trust_annotations: self.trust_annotations,
            trust_definitions: self.trust_definitions,
            flows: self.tools.iter().map(|(tool, table)| (tool.clone(), table.into())).collect(),
            elicitation: self.elicitation.unwrap_or(true),
            deadline: self.deadline_s.map(|seconds| Duration::from_secs(seconds.get().into())),
            fingerprint: Some(self.made_of()),
        };
        let way = match (words, &self.url, self.rules()?) {
            (Some(words), ..) => {
                let Program { program, args, dir, passed_env: passed_on } = words.in_dir(dir);
                let launcher = if self.sandbox {
                    Some(self.sandbox_launcher(&program, &args, &dir)?)
                } else {
                    guarded(&program, &args)
                };
                ServerTransport::Process(ProcessTransport {
                    program,
                    args,
                    dir,
                    passed_env: passed_on,
                    launcher,
                })
            }
            (None, Some(url), Some(rules)) => {
                // A response may stream for as long as the call takes. Calls have their own timeout.
                let caps = EgressLimits { idle: Duration::from_mins(10), ..EgressLimits::default() };
                let (table, bearer) = (self.clone(), self.bearer.clone());
                let within = NetworkCheck::new(move |network| table.within(network));
                let egress = Egress::with(rules, caps, Arc::new(SystemNameResolver))?;
                ServerTransport::Http(HttpTransport {
                    url: url.clone(),
                    client: egress.client().clone(),
                    bearer,
                    network_check: within,
                })
            }
            _ => return Err(Error::new(Kind::Internal, "a server is read with a command or a URL")),
        };
        Ok(McpServerSpec { name: name.to_owned(), transport: way, settings })
    }
}

/// Returns the program and arguments that start a program under a guardian process.
#[cfg(target_os = "linux")]
fn guarded(program: &OsStr, args: &[OsString]) -> Option<(OsString, Vec<OsString>)> {
    outlast::tools::sandbox::guarded_command(program, args)
}

#[cfg(not(target_os = "linux"))]
fn guarded(_: &OsStr, _: &[OsString]) -> Option<(OsString, Vec<OsString>)> {
    None
}

/// A tool that is a program.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[[agents.NAME.tools]]")]
pub(crate) struct ToolTable {
    /// The name that the model sees.
    #[schemars(with = "String")]
    pub(super) name: ToolName,
    /// The description that the model sees.
    description: String,
    /// How to handle an interrupted call: `at_most_once` (default), `idempotent` or `pure`.
    #[serde(default)]
    class: ToolClass,
    /// The program and its arguments, as a list; no shell interprets it.
    pub(super) command: Vec<String>,
    /// JSON Schema of the arguments; default: any object.
    input: Option<Map<String, Value>>,
    /// Timeout of one attempt in seconds; default: 120.
    deadline_s: Option<NonZeroU32>,
    /// Maximum number of attempts if the program reports that nothing happened.
    attempts: Option<NonZeroU32>,
    /// The tool that undoes a call.
    #[schemars(with = "Option<String>")]
    undo: Option<ToolName>,
    /// Dollars that a successful call costs, like `0.05`.
    #[schemars(with = "Option<String>")]
    price: Option<Cost>,
    /// Whether its output can be trusted: no outsider can influence it.
    #[serde(default)]
    trusted: bool,
    /// JSON pointers to sensitive arguments (who, what, how much, where), or `"call"` if the call itself is sensitive.
    #[schemars(schema_with = "sinks_schema")]
    sinks: Option<CallSinks>,
    /// Whether its arguments leave this machine, so that a call can leak data.
    #[serde(default)]
    egress: bool,
    /// Environment variables that the program may see.
    #[serde(default)]
    env: Vec<String>,
}

/// The effect class of a tool: how to handle an interrupted call. A program cannot be transactional.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolClass {
    #[default]
    AtMostOnce,
    Idempotent,
    Pure,
}

impl From<ToolClass> for EffectClass {
    fn from(class: ToolClass) -> Self {
        match class {
            ToolClass::AtMostOnce => Self::AtMostOnce,
            ToolClass::Idempotent => Self::Idempotent,
            ToolClass::Pure => Self::Pure,
        }
    }
}

impl AgentDefinition {
    /// Builds an agent from its folded layers. All programs and servers that it names must exist.
    pub(super) fn of(name: String, folded: Overlay, place: &TableLocation<'_>) -> Result<Self, Error> {
        let agent = table_of(&folded).map_err(|cause| place.invalid(&[], &cause.to_string()))?;
        agent.check_files(place)?;
        agent.check_shell(place)?;
        let command = |tool: &ToolTable| {
            let words = tool.words(place.home()).map_err(|what| place.of_tool(tool.name.as_str(), &what))?;
            Ok((tool.contract(), words))
        };
        let commands = agent.tools.iter().map(command).collect::<Result<Vec<_>, Error>>()?;
        let servers = agent.mcp.iter().map(|(server, table)| {
            let invalid =
                |what: &str| place.invalid(&["mcp", server], &format!("MCP server `{server}`: {what}"));
            table.within(&folded.network).map_err(|error| invalid(error.detail()))?;
            let words = table.words(place.home()).map_err(|what| invalid(&what))?;
            Ok((table.clone(), server.clone(), words))
        });
        let servers = servers.collect::<Result<Vec<_>, Error>>()?;
        let hook =
            |table: &HookTable| table.hook(place.home()).map_err(|what| place.invalid(&["hooks"], &what));
        let hooks = agent.hooks.iter().map(hook).collect::<Result<Vec<HookProgram>, Error>>()?;
        let programs = commands.iter().map(|(_, words)| words);
        let programs = programs.chain(servers.iter().filter_map(|(_, _, words)| words.as_ref()));
        let programs = programs.chain(hooks.iter().map(HookProgram::words)).flat_map(ResolvedCommand::files);
        let own = place.files().into_iter().chain(programs).collect();
        let (pins, protected) = (PinnedDefinitions::default(), ProtectedFiles::default());
        Ok(Self { name, folded, agent, commands, servers, hooks, pins, own, protected })
    }

    /// Sets the files that its tools must not change, in addition to its own.
    pub(super) fn protecting(self, protected: ProtectedFiles) -> Self {
        Self { protected, ..self }
    }

    /// Sets the accepted definitions of its MCP servers.
    pub(super) fn accepted(self, pins: PinnedDefinitions) -> Self {
        Self { pins, ..self }
    }

    /// Returns its MCP servers, to be started in `dir`.
    pub(crate) fn servers(&self, dir: &Path) -> Result<Vec<McpServerSpec>, Error> {
        self.servers.iter().map(|(table, name, words)| table.server(name, words.as_ref(), dir)).collect()
    }

    /// Returns the accepted definitions of its MCP servers.
    pub(crate) fn pins(&self) -> &PinnedDefinitions {
        &self.pins
    }

    /// Returns the agent's model, or `None` if it names none.
    pub(crate) fn model(&self) -> Option<&ModelName> {
        self.folded.models.first().or(self.folded.model.as_ref())
    }

    /// Adds the agent's fallback models.
    pub(crate) fn with_fallbacks(&self, builder: Builder) -> Builder {
        builder.fallback_models(self.folded.models.iter().skip(1).map(ModelName::as_str))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the agent to a builder. The agent works in `dir`.
    pub(crate) fn build(&self, builder: Builder, dir: &Path) -> Result<Builder, Error> {
        for place in self.writable_places(dir) {
            self.check_writable_place(&place)?;
        }
        let AgentTable { builtin, files, fetch, shell, budget, .. } = &self.agent;
        let Overlay {
            system,
            provider_wait_s,
            model_calls,
            capabilities,
            documents,
            network,
            guard,
            rules,
            rates,
            ..
        } = self.folded.clone();
        let mut builder = builder.agent(&self.name).policy(Policy { rules }).guard(guard).rates(rates);
        if let Some(budget) = budget {
            let budgets = budget.budgets().map_err(|what| Error::new(Kind::ConfigInvalid, what))?;
            builder = builder.budgets(budgets);
        }
        if !system.is_empty() {
            builder = builder.system(outlast_kernel::overlay::join_prompt(system));
        }
        if let Some(seconds) = provider_wait_s {
            builder = builder.provider_wait(Duration::from_secs(seconds.into()));
        }
        if let Some(model_calls) = model_calls {
            builder = builder.limits(Limits { model_calls: model_calls.get(), ..Limits::default() });
        }
        if !documents.is_empty() || !network.is_open() {
            builder = builder.overlay(Overlay { documents, network, ..Overlay::default() });
        }
        builder = builder.with_enabled_capabilities(capabilities);
        for group in builtin {
            builder = match group {
                BuiltinGroup::Clock => builder.builtin(Builtin::Clock),
                BuiltinGroup::Calculator => builder.builtin(Builtin::Calculator),
                BuiltinGroup::Values => builder.builtin(Builtin::Values),
                BuiltinGroup::ReadMore => builder.builtin(Builtin::ReadMore),
                BuiltinGroup::Todo => builder.builtin(Builtin::Todo),
                BuiltinGroup::AskUser => builder.builtin(Builtin::AskUser),
                // Added below, with its rules.
                BuiltinGroup::Fetch => builder,
            };
        }
        if fetch.is_some() || builtin.contains(&BuiltinGroup::Fetch) {
            let fetch = fetch.clone().unwrap_or_default();
            let made_of = canonical_json::fingerprint(&fetch);
            builder = builder.fetch(Egress::new(fetch.rules()?)?).service_fingerprint::<Egress>(made_of);
        }
        if let Some(files) = files {
            let root = dir.join(files);
            std::fs::create_dir_all(&root).map_err(|cause| {
                let detail = format!("the directory {} for files cannot be created: {cause}", root.display());
                Error::new(Kind::IoFailed, detail).because(cause)
            })?;
            let root =
                FileRoot::open(&root)?.deny_paths(self.own.clone()).deny_paths([dir.join(config_file::FILE)]);
            let root = root.protecting(self.protected.clone());
            let place = root.path().to_owned();
            #[cfg(target_os = "linux")]
            if let Some(shell) = shell {
                let made_of = canonical_json::fingerprint(&(&place, shell));
                builder = builder.shell(shell.shell(&root))?.service_fingerprint::<Shell>(made_of);
            }
            builder =
                builder.files(root).service_fingerprint::<FileRoot>(canonical_json::fingerprint(&place));
        }
        let mut commands = ProgramTools::default();
        for (contract, words) in &self.commands {
            commands.add(contract.clone(), words.in_dir(dir))?;
        }
        for (table, server, _) in &self.servers {
            for write in &table.write {
                builder = builder.mcp_server_writable(server, dir.join(write));
            }
        }
        if !self.servers.is_empty() {
            builder = builder.tools(McpTools::new(self.servers(dir)?, &self.pins)?);
        }
        for hook in &self.hooks {
            builder = builder.hook(hook.in_dir(dir)?);
        }
        Ok(builder.tools(commands))
    }

    /// Returns what its shell and its MCP servers may change, if the agent works in `dir`.
    pub(super) fn writable_places(&self, dir: &Path) -> Vec<WritablePlace> {
        let shell_root = self.agent.files.as_ref().filter(|_| self.agent.shell.is_some());
        let place = |writer: String, path: &PathBuf| WritablePlace {
            agent: self.name.clone(),
            writer,
            path: dir.join(path),
        };
        let shell = shell_root.map(|files| place("shell".to_owned(), files));
        let servers = self.servers.iter().flat_map(|(table, server, _)| {
            table.write.iter().map(move |write| place(format!("MCP server `{server}`"), write))
        });
        shell.into_iter().chain(servers).collect()
    }

    /// Refuses a place in which a program could change files of this agent or of the server.
    fn check_writable_place(&self, place: &WritablePlace) -> Result<(), Error> {
        self.check_outside(place)?;
        let WritablePlace { agent, writer, path } = place;
        let Some(file) = self.protected.inside(path) else { return Ok(()) };
        let detail = format!(
            "{} belongs to Outlast or to an agent, and the {writer} of the agent `{agent}` could change it; keep it out \
             of {}",
            file.display(),
            path.display()
        );
        Err(Error::new(Kind::ConfigInvalid, detail))
    }

    /// Refuses an agent with files in a place that a program may change.
    pub(super) fn check_outside(&self, place: &WritablePlace) -> Result<(), Error> {
        let WritablePlace { agent, writer, path } = place;
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        let is_inside = |part: &&PathBuf| part.canonicalize().is_ok_and(|part| part.starts_with(&path));
        let Some(own) = self.own.iter().find(is_inside) else { return Ok(()) };
        let whose = if *agent == self.name { "its".to_owned() } else { format!("agent `{agent}` with its") };
        let detail = format!(
            "the agent `{}` is loaded from {}, which {whose} {writer} could change; move it out of {}",
            self.name,
            own.display(),
            path.display()
        );
        Err(Error::new(Kind::ConfigInvalid, detail))
    }
}

/// A file or directory that a program of an agent may change.
#[derive(Clone, Debug)]
pub(super) struct WritablePlace {
    pub(super) agent: String,
    /// The program, like `shell`.
    writer: String,
    path: PathBuf,
}

/// Returns the path of the accepted MCP definitions, next to the agent's file.
pub(crate) fn pins_of(agent: &Path) -> PathBuf {
    agent.with_extension("mcp.json")
}

/// Converts a folded overlay back to the parts of a table that this module builds.
fn table_of(folded: &Overlay) -> Result<AgentTable, serde_json::Error> {
    let Overlay { builtin, tools, mcp, hooks, settings, .. } = folded;
    let made = json!({ "builtin": builtin, "tools": tools, "mcp": mcp, "hooks": hooks });
    let Value::Object(mut members) = made else { return Ok(AgentTable::default()) };
    members.extend(settings.clone());
    serde_json::from_value(Value::Object(members))
}

impl McpTable {
    /// Returns the server's program, or `None` if it is reached by URL.
    pub(super) fn words(&self, home: &Path) -> Result<Option<ResolvedCommand>, String> {
        if self.sandbox && self.command.is_none() {
            return Err("only a `command` can have a `sandbox`".to_owned());
        }
        let opens = !self.read.is_empty() || !self.write.is_empty();
        if opens && !self.sandbox {
            return Err("`read` and `write` require `sandbox = true`".to_owned());
        }
        match (&self.command, &self.url) {
            (Some(words), None) => {
                ResolvedCommand::find(words, home).and_then(|words| words.passing_on(&self.env)).map(Some)
            }
            (None, Some(_)) => self.rules().map(|_| None).map_err(|error| error.detail().to_owned()),
            _ => Err("expected either a `command` or a `url`".to_owned()),
        }
    }
}

impl ToolTable {
    /// Returns the tool's program.
    pub(super) fn words(&self, home: &Path) -> Result<ResolvedCommand, String> {
        ResolvedCommand::find(&self.command, home).and_then(|words| words.passing_on(&self.env))
    }

    fn contract(&self) -> ToolContract {
        let attempts = self.attempts.map_or(1, NonZeroU32::get);
        ToolContract {
            class: self.class.into(),
            retry: RetryPolicy { attempts, ..RetryPolicy::default() },
            deadline: self.deadline_s.map(|seconds| Duration::from_secs(seconds.get().into())),
            undo: self.undo.clone(),
            price: self.price,
            trusted: self.trusted,
            sinks: self.sinks.clone(),
            egress: self.egress,
            made_of: Some(made_of(&self.command, &self.env)),
            ..ToolContract::new(
                self.name.clone(),
                self.description.clone(),
                self.input.clone().map_or_else(|| json!({"type": "object"}), Value::Object),
            )
        }
    }
}

//! An agent as a file: its name, what it is told, its tools.
//!
//! The fields are those of one agent, so that a file of several can hold the same table under a name each.
use super::budget::BudgetTable;
use super::hooks::{Hook, HookTable};
use super::program::Words;
use super::rules::RuleTable;
use outlast::tools::Builtin;
use outlast::tools::FileRoot;
use outlast::tools::command::{Commands, Program};
use outlast::tools::egress::{Caps, Egress, HostRule, Network, Rules, SystemLookup};
#[cfg(target_os = "linux")]
use outlast::tools::sandbox::Walls;
#[cfg(target_os = "linux")]
use outlast::tools::shell::Shell;
use outlast::vocab::budget::Budgets;
use outlast::vocab::cost::Cost;
use outlast::vocab::label::Guard;
use outlast::vocab::message::{ModelName, ToolName};
use outlast::vocab::policy::{Policy, Rule};
use outlast::vocab::tool::{Contract, EffectClass, RetryPolicy};
use outlast::{Builder, Error, Kind, Limits};
use outlast_mcp::{Http, McpTools, Pins, Process, Server, Settings, Way};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;

/// The longest file in bytes.
const FILE_BYTES: u64 = 1 << 20;

/// An agent that was read from a file, with everything it names found.
#[derive(Clone, Debug)]
pub(crate) struct AgentFile {
    agent: AgentTable,
    commands: Vec<(Contract, Words)>,
    servers: Vec<(McpTable, String, Option<Words>)>,
    policy: Policy,
    budgets: Budgets,
    hooks: Vec<Hook>,
    pins: Pins,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentTable {
    name: String,
    system: Option<String>,
    model: Option<ModelName>,
    model_calls: Option<NonZeroU32>,
    #[serde(default)]
    builtin: Vec<Group>,
    files: Option<Spanned<PathBuf>>,
    fetch: Option<Spanned<FetchTable>>,
    shell: Option<Spanned<ShellTable>>,
    #[serde(default)]
    mcp: BTreeMap<String, Spanned<McpTable>>,
    #[serde(default)]
    tools: Vec<Spanned<ToolTable>>,
    #[serde(default)]
    rules: Vec<Spanned<RuleTable>>,
    #[serde(default)]
    guard: Guard,
    budget: Option<Spanned<BudgetTable>>,
    #[serde(default)]
    hooks: Vec<Spanned<HookTable>>,
}

/// A group of built-in tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Group {
    Clock,
    Calculator,
    Values,
    ReadMore,
    Todo,
    AskUser,
    Fetch,
}

/// What `fetch` may reach.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchTable {
    allow: Option<Vec<HostRule>>,
    #[serde(default)]
    private: Vec<HostRule>,
}

impl FetchTable {
    fn rules(&self) -> Result<Rules, Error> {
        let rules = Rules::public().and_private(self.private.iter().cloned())?;
        Ok(match &self.allow {
            Some(allow) => rules.only(allow.iter().cloned()),
            None => rules,
        })
    }
}

/// How commands run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShellTable {
    deadline_s: Option<NonZeroU32>,
    #[serde(default)]
    read: Vec<PathBuf>,
    #[serde(default)]
    env: Vec<String>,
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
            shell = shell.even_without_landlock();
        }
        shell = self.read.iter().fold(shell, Shell::read);
        self.env.iter().fold(shell, Shell::env)
    }
}

/// An MCP server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct McpTable {
    command: Option<Vec<String>>,
    url: Option<String>,
    #[serde(default)]
    env: Vec<String>,
    bearer: Option<String>,
    #[serde(default)]
    private: bool,
    #[serde(default)]
    sandbox: bool,
    #[serde(default)]
    read: Vec<PathBuf>,
    #[serde(default)]
    write: Vec<PathBuf>,
    only: Option<Vec<String>>,
    #[serde(default)]
    classes: BTreeMap<String, Class>,
    #[serde(default)]
    trust_annotations: bool,
    elicitation: Option<bool>,
    deadline_s: Option<NonZeroU32>,
}

impl McpTable {
    fn rules(&self) -> Result<Option<Rules>, Error> {
        let network = if self.private { Network::Any } else { Network::Public };
        self.url.as_ref().map(|url| Rules::for_url(url, network)).transpose()
    }

    /// What becomes the server behind walls.
    #[cfg(target_os = "linux")]
    fn walled(
        &self,
        program: &OsStr,
        args: &[OsString],
        dir: &Path,
    ) -> Result<(OsString, Vec<OsString>), Error> {
        let within = |paths: &[PathBuf]| paths.iter().map(|path| dir.join(path)).collect();
        Walls { read: within(&self.read), write: within(&self.write) }.around(program, args)
    }

    #[cfg(not(target_os = "linux"))]
    fn walled(&self, _: &OsStr, _: &[OsString], _: &Path) -> Result<(OsString, Vec<OsString>), Error> {
        Err(Error::new(Kind::SandboxUnavailable, "there are walls for MCP servers on Linux only"))
    }

    fn server(&self, name: &str, words: Option<&Words>, dir: &Path) -> Result<Server, Error> {
        let settings = Settings {
            only: self.only.clone(),
            classes: self.classes.iter().map(|(tool, class)| (tool.clone(), (*class).into())).collect(),
            trust_annotations: self.trust_annotations,
            elicitation: self.elicitation.unwrap_or(true),
            deadline: self.deadline_s.map(|seconds| Duration::from_secs(seconds.get().into())),
        };
        let way = match (words, &self.url, self.rules()?) {
            (Some(words), ..) => {
                let Program { program, args, dir, passed_on } = words.in_dir(dir);
                let launcher = self.sandbox.then(|| self.walled(&program, &args, &dir)).transpose()?;
                Way::Process(Process { program, args, dir, passed_on, launcher })
            }
            (None, Some(url), Some(rules)) => {
                // An answer may stream for as long as a call takes; that has a deadline of its own.
                let caps = Caps { idle: Duration::from_mins(10), ..Caps::default() };
                let egress = Egress::with(rules, caps, Arc::new(SystemLookup))?;
                let (url, client) = (url.clone(), egress.client().clone());
                Way::Http(Http { url, client, bearer: self.bearer.clone() })
            }
            _ => return Err(Error::new(Kind::Internal, "a server is read with a command or a URL")),
        };
        Ok(Server { name: name.to_owned(), way, settings })
    }
}

/// A tool that is a program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolTable {
    name: ToolName,
    description: String,
    #[serde(default)]
    class: Class,
    command: Vec<String>,
    input: Option<Map<String, Value>>,
    deadline_s: Option<NonZeroU32>,
    attempts: Option<NonZeroU32>,
    undo: Option<ToolName>,
    price: Option<Cost>,
    #[serde(default)]
    trusted: bool,
    sinks: Option<Vec<String>>,
    #[serde(default)]
    env: Vec<String>,
}

/// What a program may promise. It cannot take part in the session's transactions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Class {
    #[default]
    AtMostOnce,
    Idempotent,
    Pure,
}

impl From<Class> for EffectClass {
    fn from(class: Class) -> Self {
        match class {
            Class::AtMostOnce => Self::AtMostOnce,
            Class::Idempotent => Self::Idempotent,
            Class::Pure => Self::Pure,
        }
    }
}

impl AgentFile {
    /// Reads an agent. What it names must be there.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let unread = |cause| {
            Error::new(Kind::IoFailed, format!("the agent {} cannot be read: {cause}", path.display()))
                .because(cause)
        };
        let bytes = std::fs::metadata(path).map_err(unread)?.len();
        if bytes > FILE_BYTES {
            let detail = format!("{}: expected at most {FILE_BYTES} bytes, found {bytes}", path.display());
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        let text = std::fs::read_to_string(path).map_err(unread)?;
        let place = path.canonicalize().map_err(unread)?;
        let home = place.parent().unwrap_or(Path::new("/"));
        let mut agent = Source { path, text: &text }.agent(home)?;
        let pins = pins_of(path);
        match std::fs::read_to_string(&pins) {
            Ok(text) => agent.pins = Pins::parse(&text)?,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
            Err(cause) => {
                let detail = format!("{} cannot be read: {cause}", pins.display());
                return Err(Error::new(Kind::IoFailed, detail).because(cause));
            }
        }
        Ok(agent)
    }

    /// Its MCP servers, as they run in this directory.
    pub(crate) fn servers(&self, dir: &Path) -> Result<Vec<Server>, Error> {
        self.servers.iter().map(|(table, name, words)| table.server(name, words.as_ref(), dir)).collect()
    }

    /// What was accepted of its MCP servers.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The model that answers, if the agent has one of its own.
    pub(crate) fn model(&self) -> Option<&ModelName> {
        self.agent.model.as_ref()
    }

    /// Adds the agent to a builder. It works in this directory.
    pub(crate) fn build(&self, builder: Builder, dir: &Path) -> Result<Builder, Error> {
        let AgentTable { name, system, model_calls, builtin, files, fetch, shell, .. } = &self.agent;
        let mut builder = builder
            .agent(name)
            .policy(self.policy.clone())
            .budgets(self.budgets.clone())
            .guard(self.agent.guard);
        if let Some(system) = system {
            builder = builder.system(system);
        }
        if let Some(model_calls) = model_calls {
            builder = builder.limits(Limits { model_calls: model_calls.get(), ..Limits::default() });
        }
        for group in builtin {
            builder = match group {
                Group::Clock => builder.builtin(Builtin::Clock),
                Group::Calculator => builder.builtin(Builtin::Calculator),
                Group::Values => builder.builtin(Builtin::Values),
                Group::ReadMore => builder.builtin(Builtin::ReadMore),
                Group::Todo => builder.builtin(Builtin::Todo),
                Group::AskUser => builder.builtin(Builtin::AskUser),
                // With its rules, below.
                Group::Fetch => builder,
            };
        }
        if fetch.is_some() || builtin.contains(&Group::Fetch) {
            let rules =
                fetch.as_ref().map_or_else(|| Ok(Rules::public()), |fetch| fetch.get_ref().rules())?;
            builder = builder.fetch(Egress::new(rules)?);
        }
        if let Some(files) = files {
            let root = dir.join(files.get_ref());
            std::fs::create_dir_all(&root).map_err(|cause| {
                let detail = format!("the directory {} for files cannot be made: {cause}", root.display());
                Error::new(Kind::IoFailed, detail).because(cause)
            })?;
            let root = FileRoot::open(&root)?;
            #[cfg(target_os = "linux")]
            if let Some(shell) = shell {
                builder = builder.shell(shell.get_ref().shell(&root))?;
            }
            builder = builder.files(root);
        }
        let mut commands = Commands::default();
        for (contract, words) in &self.commands {
            commands.add(contract.clone(), words.in_dir(dir))?;
        }
        if !self.servers.is_empty() {
            builder = builder.tools(McpTools::new(self.servers(dir)?, &self.pins)?);
        }
        for hook in &self.hooks {
            builder = builder.hook(hook.in_dir(dir)?);
        }
        Ok(builder.tools(commands))
    }
}

/// Where what was accepted of an agent's MCP servers is kept: beside its file.
pub(crate) fn pins_of(agent: &Path) -> PathBuf {
    agent.with_extension("mcp.json")
}

/// A file while it is read: errors name the file and the line.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn agent(&self, home: &Path) -> Result<AgentFile, Error> {
        let agent: AgentTable = toml::from_str(self.text)
            .map_err(|error| self.invalid(error.span().map_or(0, |span| span.start), error.message()))?;
        if let Some(files) = &agent.files
            && !files
                .get_ref()
                .components()
                .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        {
            let detail = format!(
                "expected a directory below the one the agent works in, got `{}`",
                files.get_ref().display()
            );
            return Err(self.invalid(files.span().start, &detail));
        }
        if let Some(fetch) = &agent.fetch {
            fetch.get_ref().rules().map_err(|error| self.invalid(fetch.span().start, error.detail()))?;
        }
        if let (Some(shell), None) = (&agent.shell, &agent.files) {
            let detail = "the shell works in the directory for files; add `files = \"…\"`";
            return Err(self.invalid(shell.span().start, detail));
        }
        let command = |tool: &Spanned<ToolTable>| {
            let words = Words::find(&tool.get_ref().command, home)
                .and_then(|words| words.passing_on(&tool.get_ref().env))
                .map_err(|detail| {
                    self.invalid(tool.span().start, &format!("tool `{}`: {detail}", tool.get_ref().name))
                })?;
            Ok((tool.get_ref().contract(), words))
        };
        let commands = agent.tools.iter().map(command).collect::<Result<_, Error>>()?;
        let servers = agent.mcp.iter().map(|(name, table)| self.server(name, table, home));
        let servers = servers.collect::<Result<_, Error>>()?;
        let rule = |table: &Spanned<RuleTable>| {
            table.get_ref().rule().map_err(|what| self.invalid(table.span().start, &what))
        };
        let rules: Vec<Rule> = agent.rules.iter().map(rule).collect::<Result<_, Error>>()?;
        if let Some(twice) = rules
            .iter()
            .enumerate()
            .position(|(at, rule)| rules[..at].iter().any(|other| other.id == rule.id))
        {
            let what = format!("two rules are called `{}`; names must be unique", rules[twice].id);
            return Err(self.invalid(agent.rules[twice].span().start, &what));
        }
        let policy = Policy { rules };
        let budgets = agent
            .budget
            .as_ref()
            .map(|table| table.get_ref().budgets().map_err(|what| self.invalid(table.span().start, &what)));
        let budgets = budgets.transpose()?.unwrap_or_default();
        let hook = |table: &Spanned<HookTable>| {
            table.get_ref().hook(home).map_err(|what| self.invalid(table.span().start, &what))
        };
        let hooks = agent.hooks.iter().map(hook).collect::<Result<_, Error>>()?;
        Ok(AgentFile { agent, commands, servers, policy, budgets, hooks, pins: Pins::default() })
    }

    fn server(
        &self,
        name: &str,
        table: &Spanned<McpTable>,
        home: &Path,
    ) -> Result<(McpTable, String, Option<Words>), Error> {
        let invalid = |what: &str| self.invalid(table.span().start, &format!("MCP server `{name}`: {what}"));
        let told = table.get_ref();
        if told.sandbox && told.command.is_none() {
            return Err(invalid("only a `command` can have a `sandbox`"));
        }
        let opens = !told.read.is_empty() || !told.write.is_empty();
        if opens && !told.sandbox {
            return Err(invalid("`read` and `write` are for a server with `sandbox = true`"));
        }
        let words = match (&told.command, &told.url) {
            (Some(words), None) => {
                let words = Words::find(words, home).and_then(|words| words.passing_on(&told.env));
                Some(words.map_err(|what| invalid(&what))?)
            }
            (None, Some(_)) => {
                told.rules().map_err(|error| invalid(error.detail()))?;
                None
            }
            _ => return Err(invalid("expected either a `command` or a `url`")),
        };
        Ok((told.clone(), name.to_owned(), words))
    }

    fn invalid(&self, at: usize, what: &str) -> Error {
        let line = self.text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        // One line: what a parser says may have several.
        let what = what.trim().replace('\n', ", ");
        Error::new(Kind::ConfigInvalid, format!("{}:{line}: {what}", self.path.display()))
    }
}

impl ToolTable {
    fn contract(&self) -> Contract {
        let attempts = self.attempts.map_or(1, NonZeroU32::get);
        Contract {
            class: self.class.into(),
            retry: RetryPolicy { attempts, ..RetryPolicy::default() },
            deadline: self.deadline_s.map(|seconds| Duration::from_secs(seconds.get().into())),
            undo: self.undo.clone(),
            price: self.price,
            trusted: self.trusted,
            sinks: self.sinks.clone(),
            ..Contract::new(
                self.name.clone(),
                self.description.clone(),
                self.input.clone().map_or_else(|| json!({"type": "object"}), Value::Object),
            )
        }
    }
}

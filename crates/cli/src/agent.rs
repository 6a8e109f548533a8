//! Chooses and builds the agents of a command: model, prompt and tools.
//!
//! [`definition`] builds one agent from its combined layers. [`layers`] turns tables into layers, and [`sources`]
//! finds agents by name. How a turn is driven is the business of `outlast-runtime`.
mod budget;
pub(crate) mod definition;
mod hooks;
pub(crate) mod layers;
pub(crate) mod program;
mod protected;
pub(crate) mod rates;
mod rules;
pub(crate) mod skills;
pub(crate) mod sources;
mod stored_agents;

use crate::cedar;
use crate::config_file::{self, ConfigFile};
use crate::global_args::GlobalArgs;
use crate::terminal;
use crate::turn_backend::{ServerAgent, TurnBackend};
use clap::Args;
use definition::AgentDefinition;
use outlast::model::{EventStream, ModelCapabilities, ModelProvider, ModelRequest};
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::agents::agent_factory::FailedAgent;
use outlast::runtime::worker::system::{SystemClock, TokioTasks};
use outlast::spawner::Spawner;
use outlast::tools::{FileRoot, ProtectedFiles};
use outlast::vocab::Hash;
use outlast::vocab::message::{ModelName, shown};
use outlast::vocab::package::PinnedPackage;
use outlast::{Builder, Error, Kind, Outlast};
use sources::{AgentSources, LayeredAgent};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stored_agents::StoredAgentFactory;

/// The name of the agent that answers if no agent is named.
const UNNAMED: &str = "assistant";

/// The default model.
const RULES: &str = "rehearsal/agent";

/// The models that need neither a script nor a provider.
const REHEARSED: [&str; 2] = [RULES, "rehearsal/obedient"];

/// The agent of a command that drives turns.
#[derive(Args, Clone)]
pub(crate) struct AgentArgs {
    /// Agent to use: a name in the configuration or the database, or a TOML file; default: an assistant with the
    /// built-in tools
    #[arg(id = "agent", long, value_name = "NAME|FILE", conflicts_with = "files")]
    who: Option<String>,
    #[command(flatten)]
    pub(crate) options: AgentOptions,
}

/// Other settings of the agent.
#[derive(Args, Clone)]
pub(crate) struct AgentOptions {
    /// TOML file with an overlay for the agent, with the fields of an agent
    #[arg(long, value_name = "FILE", requires = "agent")]
    overlay: Option<PathBuf>,
    /// Model to use, like `openai/gpt-5`; default: the model of the script, of the agent, or `rehearsal/agent`
    #[arg(long, value_name = "NAME")]
    model: Option<ModelName>,
    /// How long turns wait for a model provider that is down before they fail; default: the agent's setting, or 86400
    #[arg(long, value_name = "SECONDS")]
    provider_wait: Option<u32>,
    /// Script for the rehearsal model
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Directory that file tools may access
    #[arg(long, value_name = "DIR", default_value = ".")]
    files: PathBuf,
    #[command(flatten)]
    pub(crate) configuration: ConfigFile,
}

impl AgentArgs {
    /// Creates a selection for a command that has its own flag for the agent's name.
    pub(crate) fn named(who: Option<String>, options: AgentOptions) -> Self {
        Self { who, options }
    }

    /// Returns what drives turns: the server, if one is named, or a worker in this process with this agent.
    pub(crate) async fn host(&self, data: &GlobalArgs) -> Result<TurnBackend, Error> {
        match data.client()? {
            Some(client) => Ok(TurnBackend::Server(client, Box::new(self.server_agent()?))),
            None => self.start(data).await.map(TurnBackend::Local),
        }
    }

    /// Returns the agent's name on the server, and the overlay to send with each input.
    fn server_agent(&self) -> Result<ServerAgent, Error> {
        let play = AgentOptions { overlay: None, provider_wait: None, ..self.options.clone() };
        let agent = Self { who: self.who.clone(), options: play }.server_agent_name()?;
        let mut overlay = self.options.overlay.as_deref().map(sources::overlay).transpose()?;
        if self.options.provider_wait.is_some() {
            overlay.get_or_insert_default().provider_wait_s = self.options.provider_wait;
        }
        Ok(ServerAgent { agent, overlay })
    }

    /// Returns the agent's name on the server.
    ///
    /// Fails if another flag changes the agent, because the server is configured where it starts.
    pub(crate) fn server_agent_name(&self) -> Result<Option<String>, Error> {
        match self.server_agent_and_model()? {
            (_, Some(_)) => Err(shapes_here("--model")),
            (who, None) => Ok(who),
        }
    }

    /// Fails if `--model` is given to a command that cannot use another model, for this reason.
    pub(crate) fn refuse_model(&self, reason: &str) -> Result<(), Error> {
        let Some(model) = &self.options.model else { return Ok(()) };
        let detail = format!("{reason}, so `--model {model}` has no effect; remove it");
        Err(Error::new(Kind::InputInvalid, detail))
    }

    /// Like [`Self::server_agent_name`], for requests in which the caller may also choose a model.
    pub(crate) fn server_agent_and_model(&self) -> Result<(Option<String>, Option<ModelName>), Error> {
        let flags = [
            ("--agent FILE", self.who.as_deref().is_some_and(is_file)),
            ("--overlay", self.options.overlay.is_some()),
            ("--provider-wait", self.options.provider_wait.is_some()),
            ("--script", self.options.script.is_some()),
            ("--files", self.options.files != Path::new(".")),
        ];
        match flags.into_iter().find(|(_, said)| *said) {
            Some((flag, _)) => Err(shapes_here(flag)),
            None => Ok((self.who.clone(), self.options.model.clone())),
        }
    }

    /// Starts a worker with this agent and all other agents.
    ///
    /// Agents from the database are reloaded when they change there. Errors in files are reported before the
    /// database is touched.
    pub(crate) async fn start(&self, data: &GlobalArgs) -> Result<Outlast, Error> {
        self.start_on(TokioTasks, data).await
    }

    /// Like [`Self::start`], but drives turns on `tasks`.
    pub(crate) async fn start_on(
        &self,
        tasks: impl Spawner + 'static,
        data: &GlobalArgs,
    ) -> Result<Outlast, Error> {
        let written = AgentSources::read(&self.options.configuration)?;
        let builder = data.configured(&self.options.configuration)?.tasks(tasks);
        let (first, is_written) = match self.who.as_deref().map(|who| self.member(&written, who)) {
            Some(Ok(member)) => (Some(member), true),
            None => (None, true),
            // Its parent may be stored in the database.
            Some(Err(_)) => (self.found(&written.clone().with_stored(data).await?)?, false),
        };
        let first = first.map(|member| member.agent);
        let builder = self.first(builder, first.as_ref(), written.protected_files())?;
        let name = first.as_ref().map(AgentDefinition::name);
        let OtherAgents { builder, mut made, .. } =
            others(builder, &written, name, &self.options.configuration)?;
        if is_written {
            made.insert(name.unwrap_or(UNNAMED).to_owned());
        }
        let planned = name.filter(|_| !is_written).map(ToOwned::to_owned);
        let factory = StoredAgentFactory::new(self.clone(), written, made, planned, data.path.clone())?;
        let outlast = builder.agent_factory(factory).start().await?;
        for FailedAgent { name, failure, .. } in outlast.runtime().left_out() {
            terminal::note(&format!("· the agent `{name}` is skipped: {failure}"));
        }
        Ok(outlast)
    }

    /// Returns a copy with another agent of the configuration, or with another model. A script plays only
    /// with its own model.
    pub(crate) fn with_agent_and_model(
        self,
        who: Option<String>,
        model: Option<ModelName>,
    ) -> Result<Self, Error> {
        if let Some(file) = who.as_deref().filter(|who| is_file(who)) {
            let detail = format!("expected the name of an agent, got `{}`", shown(file));
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        let Self { who: first, options: play } = self;
        // The flags for model, script and overlay apply only to the first agent.
        let play = if who.is_none() {
            play
        } else {
            AgentOptions { model: None, script: None, overlay: None, ..play }
        };
        let script = play.script.filter(|_| model.is_none());
        Ok(Self { who: who.or(first), options: AgentOptions { model: model.or(play.model), script, ..play } })
    }

    /// Returns the agents of the configuration and of the database.
    pub(crate) async fn sources(&self, data: &GlobalArgs) -> Result<AgentSources, Error> {
        AgentSources::read(&self.options.configuration)?.with_stored(data).await
    }

    /// Returns the package that turns of this agent are pinned to, or `None` if no flag selects an agent.
    pub(crate) async fn pinned(&self, data: &GlobalArgs) -> Result<Option<PinnedPackage>, Error> {
        if self.who.is_none() && self.options.model.is_none() && self.options.script.is_none() {
            return Ok(None);
        }
        let sources = AgentSources::read(&self.options.configuration)?.with_stored(data).await?;
        self.build(Outlast::ephemeral(), &sources)?.pinned().map(Some)
    }

    /// Builds this agent for a runtime in memory, with the Cedar policies of the configuration.
    pub(crate) fn in_memory_builder(&self, sources: &AgentSources) -> Result<Builder, Error> {
        let document = self.options.configuration.document()?;
        self.build(cedar::add_policies(Outlast::ephemeral(), document.as_ref())?, sources)
    }

    /// Adds this agent and all other agents to a builder.
    pub(crate) fn build(&self, builder: Builder, sources: &AgentSources) -> Result<Builder, Error> {
        let file = self.found(sources)?.map(|member| member.agent);
        let builder = self.first(builder, file.as_ref(), sources.protected_files())?;
        let first = file.as_ref().map(AgentDefinition::name);
        let OtherAgents { builder, left_out, .. } =
            others(builder, sources, first, &self.options.configuration)?;
        for (name, error) in left_out {
            terminal::note(&format!("· the agent `{name}` is skipped: {error}"));
        }
        Ok(builder)
    }

    /// Adds the first agent and the model providers.
    fn first(
        &self,
        builder: Builder,
        file: Option<&AgentDefinition>,
        protected: &ProtectedFiles,
    ) -> Result<Builder, Error> {
        let builder = match file {
            Some(file) => self.add_agent(builder, file)?,
            None => self.add_default_agent(builder, protected)?,
        };
        let builder = match &self.options.script {
            Some(path) => builder.provider(scripted_model(path, self.model(file)?)?),
            None => builder,
        };
        Ok(with_rehearsal_models(builder)?.provider(self.options.configuration.providers()?))
    }

    /// Adds the first agent without providers.
    fn add_agent(&self, builder: Builder, file: &AgentDefinition) -> Result<Builder, Error> {
        let model = self.model(Some(file))?;
        let builder = file.build(builder.model(model.as_str()), &here()?)?;
        let builder = self.with_provider_wait(builder);
        // A model from the command line has no fallbacks.
        Ok(if file.model() == Some(&model) { file.with_fallbacks(builder) } else { builder })
    }

    /// Adds the agent that answers if none is named.
    fn add_default_agent(&self, builder: Builder, protected: &ProtectedFiles) -> Result<Builder, Error> {
        let model = self.model(None)?;
        // The user did not choose this directory for tools, so files like `.env` stay hidden.
        let root = FileRoot::open(&self.options.files)?.deny_paths([here()?.join(config_file::FILE)]);
        let root = root.protecting(protected.clone()).hiding_dot_files();
        Ok(self.with_provider_wait(builder.model(model.as_str()).builtin_tools().files(root)))
    }

    /// Applies `--provider-wait`.
    fn with_provider_wait(&self, builder: Builder) -> Builder {
        match self.options.provider_wait {
            Some(seconds) => builder.provider_wait(Duration::from_secs(seconds.into())),
            None => builder,
        }
    }

    /// Returns the model that answers.
    fn model(&self, file: Option<&AgentDefinition>) -> Result<ModelName, Error> {
        let played = self.options.script.as_deref().map(name_of).transpose()?;
        let of_file = || file.and_then(|file| file.model()).cloned();
        self.options.model.clone().or(played).or_else(of_file).map_or_else(|| RULES.parse(), Ok)
    }

    /// Returns the named agent, or `None` if no agent is named.
    fn found(&self, sources: &AgentSources) -> Result<Option<LayeredAgent>, Error> {
        self.who.as_deref().map(|name| self.member(sources, name)).transpose()
    }

    fn member(&self, sources: &AgentSources, name: &str) -> Result<LayeredAgent, Error> {
        let over = self.options.overlay.as_deref();
        if is_file(name) { sources.in_file(Path::new(name), over) } else { sources.named(name, over) }
    }
}

fn shapes_here(flag: &str) -> Error {
    let detail = format!(
        "`{flag}` configures a worker of this process, but a server has its own agents; use `--agent NAME` to select one of them"
    );
    Error::new(Kind::CommandLocal, detail)
}

/// Returns whether the text is the path of an agent file, not a name.
pub(crate) fn is_file(agent: &str) -> bool {
    agent.contains('/') || Path::new(agent).extension().is_some_and(|ending| ending == "toml")
}

/// A builder with the other agents added.
struct OtherAgents {
    builder: Builder,
    made: BTreeSet<String>,
    /// Agents that cannot be built. Their turns wait for a worker that has them.
    left_out: Vec<(String, Error)>,
}

/// Adds the other agents, because a worker also claims their turns. An invalid agent is left out and does not
/// affect the others.
fn others(
    builder: Builder,
    sources: &AgentSources,
    first: Option<&str>,
    configuration: &ConfigFile,
) -> Result<OtherAgents, Error> {
    let dir = here()?;
    let mut others = OtherAgents { builder, made: BTreeSet::new(), left_out: Vec::new() };
    for name in sources.names().filter(|name| Some(*name) != first) {
        let made = sources.named(name, None).and_then(|LayeredAgent { agent, .. }| {
            validated_package(&agent, configuration)?;
            other(&agent, &dir)
        });
        match made {
            Ok(agent) => {
                others.builder = others.builder.add_agent(agent);
                others.made.insert(name.to_owned());
            }
            Err(error) => others.left_out.push((name.to_owned(), error)),
        }
    }
    Ok(others)
}

/// Builds an agent other than the first one.
fn other(agent: &AgentDefinition, dir: &Path) -> Result<Builder, Error> {
    let model = agent.model().map_or(RULES, ModelName::as_str);
    agent.build(Outlast::agent(agent.name()).model(model), dir).map(|builder| agent.with_fallbacks(builder))
}

/// Returns the package that turns of the agent are pinned to. Fails if a worker here could not start with the
/// agent.
pub(crate) fn validated_package(
    agent: &AgentDefinition,
    configuration: &ConfigFile,
) -> Result<PinnedPackage, Error> {
    let model = agent.model().map_or(RULES, ModelName::as_str);
    let builder =
        with_rehearsal_models(Outlast::ephemeral().model(model))?.provider(configuration.providers()?);
    agent.with_fallbacks(agent.build(builder, &here()?)?).validate()
}

/// Creates the model that plays a script.
fn scripted_model(path: &Path, model: ModelName) -> Result<SingleModelProvider, Error> {
    let rehearsal = Rehearsal::scripted(Script::read(path)?, Arc::new(SystemClock));
    if rehearsal.info(&model).is_some() {
        return Ok(SingleModelProvider { model, rehearsal });
    }
    let detail = format!(
        "expected a model like `rehearsal/NAME` to play {}, got `{model}`; remove `--script` or `--model`",
        path.display()
    );
    Err(Error::new(Kind::InputInvalid, detail))
}

/// Adds the models that need no provider.
fn with_rehearsal_models(builder: Builder) -> Result<Builder, Error> {
    REHEARSED.iter().try_fold(builder, |builder, model| {
        let rehearsal = Rehearsal::agent(Arc::new(SystemClock));
        Ok(builder.provider(SingleModelProvider { model: model.parse()?, rehearsal }))
    })
}

/// Returns the current directory, in which agents work.
pub(crate) fn here() -> Result<PathBuf, Error> {
    std::env::current_dir().map_err(|cause| {
        Error::new(Kind::IoFailed, format!("there is no current directory: {cause}")).because(cause)
    })
}

/// Returns the name of a script's model.
///
/// The name contains a hash of the script, so a turn continues only with the script it started with.
fn name_of(script: &Path) -> Result<ModelName, Error> {
    let text = std::fs::read(script).map_err(|cause| {
        let detail = format!("the script {} cannot be read: {cause}", script.display());
        Error::new(Kind::IoFailed, detail).because(cause)
    })?;
    format!("rehearsal/script-{:.8}", Hash::of(&text).to_string()).parse()
}

/// A rehearsal model with exactly one name.
///
/// A worker also claims turns of other sessions, which use other models. This script must not answer them.
struct SingleModelProvider {
    model: ModelName,
    rehearsal: Rehearsal,
}

impl ModelProvider for SingleModelProvider {
    fn info(&self, model: &ModelName) -> Option<ModelCapabilities> {
        (*model == self.model).then(|| self.rehearsal.info(model)).flatten()
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        self.rehearsal.stream(request)
    }
}

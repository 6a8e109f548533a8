//! Who answers: the model, what it is told to play, its tools. [`file`] reads an agent from a file.
mod budget;
pub(crate) mod file;
mod hooks;
pub(crate) mod program;
mod rules;

use crate::data::Data;
use crate::providers::Configuration;
use clap::Args;
use file::AgentFile;
use outlast::model::{EventStream, ModelInfo, ModelProvider, ModelRequest};
use outlast::providers::{Rehearsal, Script};
use outlast::runtime::system::SystemClock;
use outlast::tools::FileRoot;
use outlast::vocab::Hash;
use outlast::vocab::message::ModelName;
use outlast::{Builder, Error, Kind, Outlast};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The model that answers when nobody names another.
const RULES: &str = "rehearsal/agent";

/// The agent of a command that drives turns.
#[derive(Args)]
pub(crate) struct Agent {
    /// The agent, as a TOML file; an assistant with the built-in tools without it
    #[arg(long = "agent", value_name = "FILE", conflicts_with = "files")]
    file: Option<PathBuf>,
    /// The model that answers, like `openai/gpt-5`; the script's own, the agent's, or `rehearsal/agent`
    #[arg(long, value_name = "NAME")]
    model: Option<ModelName>,
    /// Let the rehearsal model play this script
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The directory that file tools may see
    #[arg(long, value_name = "DIR", default_value = ".")]
    files: PathBuf,
    #[command(flatten)]
    configuration: Configuration,
}

impl Agent {
    /// Starts a worker with this agent. What cannot be read is found before the database is touched.
    pub(crate) async fn start(&self, data: &Data) -> Result<Outlast, Error> {
        self.build(data.configured(&self.configuration)?)?.start().await
    }

    /// Adds this agent to a builder.
    pub(crate) fn build(&self, builder: Builder) -> Result<Builder, Error> {
        let providers = self.configuration.providers()?;
        let file = self.file.as_deref().map(AgentFile::read).transpose()?;
        let clock = Arc::new(SystemClock);
        let (played, rehearsal) = match &self.script {
            Some(path) => (Some(name_of(path)?), Rehearsal::scripted(Script::read(path)?, clock.clone())),
            None => (None, Rehearsal::agent(clock.clone())),
        };
        let rules: ModelName = RULES.parse()?;
        let of_file = || file.as_ref().and_then(AgentFile::model).cloned();
        let model = self.model.clone().or(played).or_else(of_file).unwrap_or_else(|| rules.clone());
        if let Some(script) = &self.script
            && rehearsal.info(&model).is_none()
        {
            let detail = format!(
                "expected a model like `rehearsal/NAME` to play {}, got `{model}`; leave `--script` or `--model` away",
                script.display()
            );
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        let builder = builder
            .model(model.as_str())
            .provider(Only { model, rehearsal })
            .provider(Only { model: rules, rehearsal: Rehearsal::agent(clock) })
            .provider(providers);
        match file {
            Some(file) => file.build(builder, &here()?),
            None => Ok(builder.builtin_tools().files(FileRoot::open(&self.files)?)),
        }
    }
}

/// Where an agent works: where the person who starts it is.
pub(crate) fn here() -> Result<PathBuf, Error> {
    std::env::current_dir().map_err(|cause| {
        Error::new(Kind::IoFailed, format!("there is no current directory: {cause}")).because(cause)
    })
}

/// The name of a script's model: a turn that began with a script goes on with that script or not at all.
fn name_of(script: &Path) -> Result<ModelName, Error> {
    let text = std::fs::read(script).map_err(|cause| {
        let detail = format!("the script {} cannot be read: {cause}", script.display());
        Error::new(Kind::IoFailed, detail).because(cause)
    })?;
    format!("rehearsal/script-{:.8}", Hash::of(&text).to_string()).parse()
}

/// A rehearsal model that answers to one name. A worker also finds turns of other sessions, which began under other
/// names and must not be answered by this one's script.
struct Only {
    model: ModelName,
    rehearsal: Rehearsal,
}

impl ModelProvider for Only {
    fn info(&self, model: &ModelName) -> Option<ModelInfo> {
        (*model == self.model).then(|| self.rehearsal.info(model)).flatten()
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> EventStream<'a> {
        self.rehearsal.stream(request)
    }
}

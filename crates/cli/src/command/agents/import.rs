//! `outlast agents import`: imports agents and skills into the database, or writes them to a file.
use crate::agent::skills::{self, Skill};
use crate::agent::sources::{ConfigDraft, config_drafts};
use crate::backend::CommandBackend;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::configs::{ConfigKind, StoredConfig};
use outlast::{Error, Kind};
use serde_json::{Value, json as object};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Imports agents and capabilities into the database, or writes them into a file.
#[derive(Args)]
pub(super) struct AgentImportArgs {
    /// AGENTS.md or another text with instructions, a skill or a folder of Agent Skills, an agent file, or an
    /// `outlast.toml`
    from: PathBuf,
    /// Name of the agent that is created from instructions; default: the name of their folder
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write tables of `outlast.toml` into this file, instead of storing them in the database
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// The kinds of files that can be imported.
enum ImportContent {
    /// Instructions, imported as an agent with this name.
    Instructions(String, ConfigDraft),
    Skills(Vec<Skill>),
    /// Tables of a configuration.
    Tables(Vec<ConfigDraft>),
}

impl AgentImportArgs {
    pub(super) async fn run(&self, data: &GlobalArgs) -> Result<(), Error> {
        let found = self.found()?;
        for (path, why) in found.left_out() {
            terminal::note(&format!("· {} {why} and is skipped", path.display()));
        }
        if let Some(file) = &self.to {
            return self.write(file, &found);
        }
        let drafts = found.into_drafts()?;
        let backend = match data.client()? {
            Some(client) => CommandBackend::Server(client),
            None => CommandBackend::File(data.open_or_create().await?),
        };
        store_drafts(&backend, drafts, data.json).await
    }

    fn found(&self) -> Result<ImportContent, Error> {
        let path = &self.from;
        if let Err(cause) = std::fs::metadata(path) {
            let detail = format!("{} cannot be read: {cause}", path.display());
            return Err(Error::new(Kind::IoFailed, detail).because(cause));
        }
        if path.is_dir() {
            return skills::read(path).map(ImportContent::Skills);
        }
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ending == "toml" {
            return config_drafts(path).map(ImportContent::Tables);
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => folder_of(path)?,
        };
        let body = json(&skills::instructions(path)?)?;
        Ok(ImportContent::Instructions(name.clone(), ConfigDraft { kind: ConfigKind::Agent, name, body }))
    }

    /// Appends tables to a file. The tables refer to text files by path.
    fn write(&self, file: &Path, found: &ImportContent) -> Result<(), Error> {
        let failed = |cause: std::io::Error| {
            Error::new(Kind::IoFailed, format!("{} cannot be written: {cause}", file.display()))
                .because(cause)
        };
        let mut tables = String::new();
        match found {
            ImportContent::Instructions(name, ConfigDraft { body, .. }) => {
                let _ = write!(tables, "\n[agents.{}]\nsystem = {}\n", quoted(name), body["system"]);
            }
            ImportContent::Skills(skills) => {
                for skill in skills {
                    tables += &table_of(skill);
                }
            }
            ImportContent::Tables(_) => {
                let detail = format!(
                    "{} is TOML already; copy its tables into {}",
                    self.from.display(),
                    file.display()
                );
                return Err(Error::new(Kind::InputInvalid, detail));
            }
        }
        let before = match std::fs::read_to_string(file) {
            Ok(text) => format!("{}\n", text.trim_end()),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(failed(cause)),
        };
        std::fs::write(file, format!("{before}{tables}").trim_start()).map_err(failed)?;
        let read = crate::config::document::Document::read(file, "configuration")
            .and_then(|document| crate::agent::sources::AgentSources::of(Some(document)));
        if let Err(error) = read {
            // The old content was valid, or the file did not exist.
            let restored =
                if before.is_empty() { std::fs::remove_file(file) } else { std::fs::write(file, before) };
            restored.map_err(failed)?;
            return Err(error);
        }
        terminal::note(&format!("· written into {}", file.display()));
        Ok(())
    }
}

impl ImportContent {
    fn left_out(&self) -> Vec<&(PathBuf, String)> {
        match self {
            Self::Skills(skills) => skills.iter().flat_map(|skill| &skill.left_out).collect(),
            Self::Instructions(..) | Self::Tables(_) => Vec::new(),
        }
    }

    fn into_drafts(self) -> Result<Vec<ConfigDraft>, Error> {
        let of_skill = |skill: &Skill| {
            let body = json(&skill.capability()?)?;
            Ok(ConfigDraft { kind: ConfigKind::Capability, name: skill.name.clone(), body })
        };
        match self {
            Self::Instructions(_, drafts) => Ok(vec![drafts]),
            Self::Skills(skills) => skills.iter().map(of_skill).collect(),
            Self::Tables(drafts) => Ok(drafts),
        }
    }
}

async fn store_drafts(backend: &CommandBackend, drafts: Vec<ConfigDraft>, json: bool) -> Result<(), Error> {
    for ConfigDraft { kind, name, body } in drafts {
        let StoredConfig { version, fingerprint, .. } = backend.put_config(kind, &name, body).await?;
        if json {
            terminal::json(&object!({
                "kind": kind.name(), "name": name, "version": version, "fingerprint": fingerprint,
            }));
            continue;
        }
        terminal::say(&format!("{kind} {name}, version {version}, in the database"));
    }
    Ok(())
}

fn table_of(skill: &Skill) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let mut table = format!(
        "\n[capabilities.{}]\ndescription = {}\nsystem = {}\n\n[capabilities.{}.documents]\n",
        quoted(&skill.name),
        text(&skill.description),
        text(&skill.prompt_text()),
        quoted(&skill.name),
    );
    for (path, file) in &skill.files {
        let file = file.canonicalize().unwrap_or_else(|_| file.clone());
        let _ = writeln!(table, "{} = {{ file = {} }}", text(path), text(&file.display().to_string()));
    }
    table
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

fn folder_of(path: &Path) -> Result<String, Error> {
    let folder =
        path.canonicalize().ok().and_then(|path| Some(path.parent()?.file_name()?.to_str()?.to_owned()));
    folder.ok_or_else(|| {
        let detail =
            format!("{} has no parent folder to name the agent after; pass `--name NAME`", path.display());
        Error::new(Kind::InputInvalid, detail)
    })
}

fn json(value: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(|cause| Error::new(Kind::Internal, cause.to_string()))
}

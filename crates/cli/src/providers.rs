//! What `outlast.toml` configures: where models come from, beside the environment, where contents of attachments lie, and
//! where outputs go.
use crate::sinks::{self, Written};
use clap::Args;
use outlast::providers::Providers;
use outlast::{Error, Kind};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The file that is read when it is there.
const FILE: &str = "outlast.toml";

/// Which configuration is read.
#[derive(Args)]
pub(crate) struct Configuration {
    /// The file that configures providers of models, the store of attachments and sinks; `./outlast.toml` if it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The tables that are read here; others are other parts' business.
#[derive(Deserialize)]
struct FileTable {
    attachments: Option<AttachmentsTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AttachmentsTable {
    store: String,
}

impl Configuration {
    /// The providers of the environment and of the file.
    pub(crate) fn providers(&self) -> Result<Providers, Error> {
        match self.file() {
            Some(file) => Providers::from_file(file),
            None => Providers::from_env(),
        }
    }

    /// Where contents of attachments lie, if the file says so.
    pub(crate) fn attachments(&self) -> Result<Option<String>, Error> {
        let Some((file, text)) = self.text()? else { return Ok(None) };
        let table: FileTable = toml::from_str(&text).map_err(|cause| {
            let detail = format!("{}: {cause}", file.display());
            Error::new(Kind::ConfigInvalid, detail)
        })?;
        Ok(table.attachments.map(|attachments| attachments.store))
    }

    /// Where outputs go.
    pub(crate) fn sinks(&self) -> Result<Vec<Written>, Error> {
        self.text()?.map_or(Ok(Vec::new()), |(file, text)| sinks::read(file, &text))
    }

    fn text(&self) -> Result<Option<(&Path, String)>, Error> {
        let Some(file) = self.file() else { return Ok(None) };
        let text = std::fs::read_to_string(file).map_err(|cause| {
            let detail = format!("the configuration {} cannot be read: {cause}", file.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        Ok(Some((file, text)))
    }

    fn file(&self) -> Option<&Path> {
        let named = self.config.as_deref();
        named.or_else(|| Some(Path::new(FILE)).filter(|file| file.exists()))
    }
}

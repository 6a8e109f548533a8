//! What `outlast.toml` configures: where models come from, beside the environment, where contents of attachments lie,
//! where outputs go, and agents ([`crate::agent::staff`]).
use crate::config::document::Document;
use crate::config::server::ServerTable;
use crate::config::{keys, schema};
use crate::sinks::{self, Written};
use crate::telemetry::TelemetryTable;
use clap::Args;
use outlast::Error;
use outlast::providers::Providers;
use outlast::telemetry::Settings;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The file that is read when it is there.
pub(crate) const FILE: &str = "outlast.toml";

/// Which configuration is read.
#[derive(Args, Clone)]
pub(crate) struct Configuration {
    /// The file that configures agents, providers of models, the store of attachments, telemetry and sinks; `./outlast.toml` if it is
    /// there
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// Where the contents of attachments lie.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[attachments]")]
pub(crate) struct AttachmentsTable {
    /// `file:///path` or `s3://bucket/prefix`; `--attachments` counts more.
    store: String,
}

impl Configuration {
    /// The configuration of this file, or of the usual one.
    pub(crate) fn of(config: Option<PathBuf>) -> Self {
        Self { config }
    }

    /// The providers of the environment and of the file.
    pub(crate) fn providers(&self) -> Result<Providers, Error> {
        match self.document()? {
            Some(document) => Providers::from_file(document.path()),
            None => Providers::from_env(),
        }
    }

    /// Where contents of attachments lie, if the file says so.
    pub(crate) fn attachments(&self) -> Result<Option<String>, Error> {
        let Some(document) = self.document()? else { return Ok(None) };
        let table: Option<AttachmentsTable> = document.value(&["attachments"])?;
        Ok(table.map(|attachments| attachments.store))
    }

    /// Where outputs go.
    pub(crate) fn sinks(&self) -> Result<Vec<Written>, Error> {
        self.document()?.map_or(Ok(Vec::new()), |document| sinks::read(document.path(), document.text()))
    }

    /// What the server is told.
    pub(crate) fn server(&self) -> Result<ServerTable, Error> {
        let Some(document) = self.document()? else { return Ok(ServerTable::default()) };
        Ok(document.value(&["server"])?.unwrap_or_default())
    }

    /// Where telemetry goes: what the file says, and over it the usual variables.
    pub(crate) fn telemetry(&self) -> Result<Option<Settings>, Error> {
        let Some(document) = self.document()? else { return Settings::from_env(None) };
        let table: Option<TelemetryTable> = document.value(&["telemetry"])?;
        let written = table.map(|table| table.settings()).transpose();
        let written = written.map_err(|error| document.invalid(&["telemetry"], error.detail()))?;
        Settings::from_env(written)
    }

    /// The file, if there is one. Every key in it is known.
    pub(crate) fn document(&self) -> Result<Option<Document>, Error> {
        let Some(file) = self.file() else { return Ok(None) };
        let document = Document::read(file, "configuration")?;
        keys::check(&document, &schema::configuration())?;
        Ok(Some(document))
    }

    /// The file that is read, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        let named = self.config.as_deref();
        named.or_else(|| Some(Path::new(FILE)).filter(|file| file.exists()))
    }
}

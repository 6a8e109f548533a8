//! The configuration file `outlast.toml`: providers, attachment store, sinks, server and telemetry.
//!
//! For its agents, see [`crate::agent::sources`].
use crate::config::document::Document;
use crate::config::server::ServerTable;
use crate::config::{keys, schema};
use crate::sinks::{self, ConfiguredSink};
use crate::telemetry::TelemetryTable;
use clap::Args;
use outlast::Error;
use outlast::providers::Providers;
use outlast::telemetry::TelemetrySettings;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The default configuration file, which is optional.
pub(crate) const FILE: &str = "outlast.toml";

/// The configuration file to read.
#[derive(Args, Clone)]
pub(crate) struct ConfigFile {
    /// Configuration file for agents, model providers, the attachment store, telemetry and sinks; default:
    /// `./outlast.toml`, if it exists
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// Where attachments are stored.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[attachments]")]
pub(crate) struct AttachmentsTable {
    /// `file:///path` or `s3://bucket/prefix`; `--attachments` overrides it.
    store: String,
}

impl ConfigFile {
    /// Creates a configuration from this file, or from the default one.
    pub(crate) fn of(config: Option<PathBuf>) -> Self {
        Self { config }
    }

    /// Returns the providers of the environment and of the file.
    pub(crate) fn providers(&self) -> Result<Providers, Error> {
        match self.document()? {
            Some(document) => Providers::from_file(document.path()),
            None => Providers::from_env(),
        }
    }

    /// Returns the address of the attachment store, if it is configured.
    pub(crate) fn attachments(&self) -> Result<Option<String>, Error> {
        let Some(document) = self.document()? else { return Ok(None) };
        let table: Option<AttachmentsTable> = document.value(&["attachments"])?;
        Ok(table.map(|attachments| attachments.store))
    }

    /// Returns the configured sinks.
    pub(crate) fn sinks(&self) -> Result<Vec<ConfiguredSink>, Error> {
        self.document()?.map_or(Ok(Vec::new()), |document| sinks::read(document.path(), document.text()))
    }

    /// Returns the `[server]` table.
    pub(crate) fn server(&self) -> Result<ServerTable, Error> {
        let Some(document) = self.document()? else { return Ok(ServerTable::default()) };
        Ok(document.value(&["server"])?.unwrap_or_default())
    }

    /// Returns the telemetry settings: the `[telemetry]` table, overridden by the standard environment
    /// variables.
    pub(crate) fn telemetry(&self) -> Result<Option<TelemetrySettings>, Error> {
        let Some(document) = self.document()? else { return TelemetrySettings::from_env(None) };
        let table: Option<TelemetryTable> = document.value(&["telemetry"])?;
        let written = table.map(|table| table.settings()).transpose();
        let written = written.map_err(|error| document.invalid(&["telemetry"], error.detail()))?;
        TelemetrySettings::from_env(written)
    }

    /// Reads the file, if there is one. Fails if it has unknown keys.
    pub(crate) fn document(&self) -> Result<Option<Document>, Error> {
        let Some(file) = self.file() else { return Ok(None) };
        let document = Document::read(file, "configuration")?;
        keys::check(&document, &schema::configuration())?;
        Ok(Some(document))
    }

    /// Returns the path of the file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        let named = self.config.as_deref();
        named.or_else(|| Some(Path::new(FILE)).filter(|file| file.exists()))
    }
}

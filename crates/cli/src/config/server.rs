//! `[server]` of `outlast.toml`: what `outlast serve` is told beside its options.
use outlast::Error;
use outlast::vocab::link::PublicUrl;
use schemars::JsonSchema;
use serde::Deserialize;

/// What the server is told.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[server]")]
pub(crate) struct ServerTable {
    /// Where people reach it, like `https://agents.example.com`; links that decide questions for approval lead there.
    pub(crate) url: Option<String>,
}

impl ServerTable {
    /// Where people reach it, if that is said.
    pub(crate) fn public_url(&self) -> Result<Option<PublicUrl>, Error> {
        self.url.as_deref().map(str::parse).transpose()
    }
}

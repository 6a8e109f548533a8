//! The `[server]` table of `outlast.toml`: settings of `outlast serve`.
use outlast::Error;
use outlast::vocab::link::PublicUrl;
use schemars::JsonSchema;
use serde::Deserialize;
use std::num::NonZeroU32;

/// What the server is told.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[server]")]
pub(crate) struct ServerTable {
    /// Where people reach it, like `https://agents.example.com`; links that decide questions for approval lead there.
    pub(crate) url: Option<String>,
    /// Requests that each key may send in a minute, and all who come without one together; as many as they like without it.
    pub(crate) requests_per_minute: Option<NonZeroU32>,
    /// Keys that open nothing that one address may send in a minute before it is told to wait; 60 without it.
    pub(crate) wrong_keys_per_minute: Option<NonZeroU32>,
}

impl ServerTable {
    /// Returns the public URL of the server, if it is set.
    pub(crate) fn public_url(&self) -> Result<Option<PublicUrl>, Error> {
        self.url.as_deref().map(str::parse).transpose()
    }
}

//! The `[server]` table of `outlast.toml`: settings of `outlast serve`.
use outlast::Error;
use outlast::vocab::approval_link::PublicUrl;
use schemars::JsonSchema;
use serde::Deserialize;
use std::num::NonZeroU32;

/// Settings of `outlast serve`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[server]")]
pub(crate) struct ServerTable {
    /// The public address of the server, like `https://agents.example.com`; approval links point to it.
    pub(crate) url: Option<String>,
    /// Requests per minute for each API key, and for all requests without a key together; default: no limit.
    pub(crate) requests_per_minute: Option<NonZeroU32>,
    /// Invalid API keys per minute that one address may send before it must wait; default: 60.
    pub(crate) wrong_keys_per_minute: Option<NonZeroU32>,
    /// Seconds in which a request to a compatible API can be repeated to join its turn, 0 for never; default: 120.
    pub(crate) repeat_window_s: Option<u32>,
}

impl ServerTable {
    /// Returns the public URL of the server, if it is set.
    pub(crate) fn public_url(&self) -> Result<Option<PublicUrl>, Error> {
        self.url.as_deref().map(str::parse).transpose()
    }
}

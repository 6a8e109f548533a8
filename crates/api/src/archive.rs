//! Sessions as files, re-runs, and verification of hash chains.
use outlast_vocab::SessionId;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// Import parameters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ImportParams {
    /// The key of the imported session. Defaults to the key in the file.
    pub key: Option<String>,
}

/// An imported session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImportedSession {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The number of turns that had not ended in the file. They are closed now.
    pub closed: u64,
    /// The number of turns in the file.
    pub turns: u64,
    /// The number of records in the file.
    pub records: u64,
}

/// The changes for a rerun of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RerunChanges {
    /// Where to start: the index of a turn, counted from 0, the id of a turn, or the path of an effect.
    /// Defaults to the beginning of the session.
    pub from: Option<String>,
    /// The name of the agent that answers. Defaults to the server's default agent.
    pub agent: Option<String>,
    /// The name of the model that answers. Defaults to the agent's model.
    pub model: Option<String>,
    /// The system prompt that replaces the agent's.
    pub prompt: Option<String>,
    /// Whether to repeat calls that are safe to repeat, even if the recording has a result for them.
    #[serde(default)]
    pub live: bool,
    /// Whether to make calls that must happen at most once, if the recording has no result for them. These
    /// are real calls.
    #[serde(default)]
    pub run_at_most_once: bool,
}

/// The result of a verification.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VerificationResult {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The number of records. Absent if the session is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// The damage that was found. Absent if the session is intact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<ChainDamage>,
}

/// The first record that does not match the hash chain.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChainDamage {
    /// The error code.
    #[schema(example = "record.corrupt")]
    pub code: Cow<'static, str>,
    /// The record, and what is wrong with it.
    pub detail: String,
}

//! Inputs and their receipts.
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::PluginName;
use outlast_vocab::record::{InputDelivery, Seq};
use outlast_vocab::{Hash, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An input for a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TurnInputRequest {
    /// The text of the input.
    #[schema(example = "what time is it?")]
    pub text: String,
    /// The key of the session. The session is created if it does not exist. Not allowed if the path names a
    /// session.
    pub session_key: Option<String>,
    /// The name of the agent that answers. Defaults to the server's default agent.
    pub agent: Option<String>,
    /// Settings that are added to the agent's for this turn only: `system`, `model`, `models`,
    /// `provider_wait_s`, `model_calls`, `documents`, `network`, `guard`, `rules` and `rates`, in the format
    /// of a package. They can give the model more instructions and restrict what it may do, but never permit
    /// more.
    #[schema(value_type = Option<Object>)]
    pub overlay: Option<Value>,
    /// The head of the session that the input continues. Defaults to the main head.
    pub head: Option<String>,
    /// A JSON Schema that the answer must match. An answer that does not match is sent back to the model.
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    /// How the input is delivered while a turn is running: `next` starts the next turn, `join` adds the input
    /// to the running turn. Defaults to `next`.
    #[schema(value_type = Option<String>, example = "next")]
    pub delivery: Option<InputDelivery>,
    /// Ids of attachments of the session to show to the model again. Only allowed if the path names the
    /// session.
    #[schema(value_type = Vec<String>)]
    pub attachments: Vec<AttachmentId>,
    /// Data for plug-ins, by plug-in name.
    #[schema(value_type = Object)]
    pub plugins: BTreeMap<PluginName, Value>,
}

/// The receipt of an input. The input is durable and will be answered even if the server restarts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct InputReceipt {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// Whether the input was already accepted with the same idempotency key.
    pub duplicate: bool,
    /// The sequence number of the input's record. The events of the turn start there.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// The hash of that record in the hash chain.
    #[schema(value_type = String)]
    pub hash: Hash,
    /// How the turn ended. Absent if it did not end while the request waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub end: Option<Value>,
}

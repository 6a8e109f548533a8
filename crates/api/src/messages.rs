//! Messages of sessions, and search hits.
use outlast_vocab::record::Seq;
use outlast_vocab::{Millis, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// Parameters that filter messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageParams {
    /// The head to read. Defaults to the main head.
    pub head: Option<String>,
    /// Only return messages that contain this text, ignoring case.
    pub search: Option<String>,
    /// Only return messages with this role: `user`, `assistant` or `tool`.
    pub role: Option<String>,
    /// The maximum number of messages to return. If absent, a page contains whole turns.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    pub cursor: Option<String>,
}

/// A message of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Message)]
pub struct MessageResource {
    /// The id of the session that contains the message. For a fork, this may be the session that it was
    /// forked from.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// The sequence number of the message in its session, for fork and rewind.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When the message became durable, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// The text of all parts, joined.
    pub text: String,
    /// The whole content. Messages of users and models have `parts` and `calls`, results of tools have
    /// `call`, `tool` and `result`.
    #[schema(value_type = Object)]
    pub content: Value,
}

/// Parameters that select a head.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageCountParams {
    /// The head to read. Defaults to the main head.
    pub head: Option<String>,
}

/// The number of messages of a head.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MessageCounts {
    /// The number of all messages.
    pub all: u64,
    /// The number of user messages.
    pub user: u64,
    /// The number of model messages.
    pub assistant: u64,
    /// The number of tool results.
    pub tool: u64,
}

/// A search query.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchParams {
    /// The words to find, ignoring case. A message must contain all of them. The last word may be a prefix.
    pub q: String,
    /// Only search this session.
    pub session: Option<String>,
    /// The maximum number of items to return. Defaults to 50.
    #[param(minimum = 1, maximum = 500)]
    pub limit: Option<usize>,
    /// The `next` value of the previous page. Defaults to the first page.
    pub cursor: Option<String>,
}

/// A message that matches the query.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SearchHit {
    /// The id of the session.
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The id of the turn.
    #[schema(value_type = String)]
    pub turn: TurnId,
    /// The sequence number of the message in its session, for fork and rewind.
    #[schema(value_type = u64)]
    pub seq: Seq,
    /// When the message became durable, as a Unix timestamp in milliseconds.
    #[schema(value_type = u64)]
    pub at: Millis,
    /// `user` or `assistant`.
    pub role: Cow<'static, str>,
    /// The text around the first match.
    pub excerpt: String,
}

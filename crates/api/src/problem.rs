//! Error responses (RFC 9457).
use outlast_vocab::{CallId, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// An error, as an RFC 9457 problem.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The path of the page that explains the error, on this server.
    #[serde(rename = "type")]
    #[schema(example = "/errors/session.not_found")]
    pub page: String,
    /// A short title: the error code.
    pub title: Cow<'static, str>,
    /// The HTTP status code.
    #[schema(example = 404)]
    pub status: u16,
    /// An explanation of this occurrence: what was expected, and what was found.
    pub detail: String,
    /// The error code. It is the same in every version.
    #[schema(example = "session.not_found")]
    pub code: Cow<'static, str>,
    /// How to react: `retry` the same request with backoff, `park` until a person or a deployment fixes the
    /// cause, `reject` the request as invalid, or report a `bug` in Outlast.
    #[schema(example = "reject")]
    pub class: Cow<'static, str>,
    /// The policy rule that caused the error. Absent if no rule did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The id of the session that the error is about. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub session: Option<SessionId>,
    /// The id of the turn that the error is about. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub turn: Option<TurnId>,
    /// The id of the tool call that the error is about. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub call: Option<CallId>,
    /// The id of the request, as in the `x-request-id` header and in the server's log. Absent if the request
    /// was rejected before routing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

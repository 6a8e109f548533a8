//! Errors in Anthropic's format, with the code of Outlast.
use crate::compat_error::ErrorContents;
use outlast_http::problem::common_responses;
use outlast_vocab::TurnId;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::RefOr;
use utoipa::{IntoResponses, ToSchema};

/// An error in Anthropic's format.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicError {
    /// Always `error`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The error.
    error: AnthropicErrorBody,
    /// The id of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

/// The details of an error.
#[derive(Serialize, ToSchema)]
pub(crate) struct AnthropicErrorBody {
    /// The error type, which follows from the status.
    #[serde(rename = "type")]
    #[schema(example = "invalid_request_error")]
    kind: &'static str,
    /// An explanation of this occurrence: what was expected, and what was found.
    message: String,
    /// The parameter that caused the error. Absent if no parameter did.
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<String>,
    /// Outlast's error code. `GET /errors/{code}` explains it.
    #[schema(example = "agent.not_found")]
    code: String,
    /// The turn, if the turn failed or was cancelled. The request itself was right.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    turn: Option<TurnId>,
}

/// Returns the body of an error response.
pub(crate) fn body(contents: &ErrorContents<'_>) -> Value {
    let ErrorContents { status, turn, code, detail, param, request } = contents;
    let error = AnthropicErrorBody {
        kind: if turn.is_some() { "api_error" } else { kind(status.as_u16()) },
        message: detail.clone(),
        param: param.map(ToOwned::to_owned),
        code: (*code).to_owned(),
        turn: *turn,
    };
    json!(AnthropicError { kind: "error", error, request_id: request.map(ToOwned::to_owned) })
}

fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// The error responses of every route of this API, for the OpenAPI document.
pub(crate) struct AnthropicErrors;

impl IntoResponses for AnthropicErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        common_responses("AnthropicError", "application/json")
    }
}

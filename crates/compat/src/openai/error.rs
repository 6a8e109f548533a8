//! Errors in OpenAI's format, with the code of Outlast.
use crate::compat_error::ErrorContents;
use outlast_http::problem::common_responses;
use outlast_vocab::TurnId;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::RefOr;
use utoipa::{IntoResponses, ToSchema};

/// An error in OpenAI's format.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiError {
    /// The error.
    error: OpenAiErrorBody,
}

/// The details of an error.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiErrorBody {
    /// An explanation of this occurrence: what was expected, and what was found.
    message: String,
    /// The error type, which follows from the status.
    #[serde(rename = "type")]
    #[schema(example = "invalid_request_error")]
    kind: &'static str,
    /// The parameter that caused the error. `null` if no parameter did.
    param: Option<String>,
    /// Outlast's error code. `GET /errors/{code}` explains it.
    #[schema(example = "agent.not_found")]
    code: String,
    /// The turn, if the turn failed or was cancelled. The request itself was right.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    turn: Option<TurnId>,
}

/// The error type of turns that failed or were cancelled. The request itself was right.
pub(super) const TURN_ERROR: &str = "server_error";

/// Returns the body of an error response.
pub(crate) fn body(contents: &ErrorContents<'_>) -> Value {
    let ErrorContents { turn, code, detail, param, .. } = contents;
    let error = OpenAiErrorBody {
        message: detail.clone(),
        kind: error_type(contents),
        param: param.map(ToOwned::to_owned),
        code: (*code).to_owned(),
        turn: *turn,
    };
    json!(OpenAiError { error })
}

/// Returns the type of an error.
pub(super) fn error_type(contents: &ErrorContents<'_>) -> &'static str {
    match contents.status.as_u16() {
        _ if contents.turn.is_some() => TURN_ERROR,
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// The error responses of every route of this API, for the OpenAPI document.
pub(crate) struct OpenAiErrors;

impl IntoResponses for OpenAiErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        common_responses("OpenAiError", "application/json")
    }
}

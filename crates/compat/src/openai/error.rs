//! Errors in OpenAI's format, with the code of Outlast.
use crate::compat_error::ErrorContents;
use outlast_http::problem::common_responses;
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
}

/// Returns the body of an error response.
pub(crate) fn body(contents: &ErrorContents<'_>) -> Value {
    let ErrorContents { status, of_turn, code, detail, param, .. } = contents;
    let error = OpenAiErrorBody {
        message: detail.clone(),
        kind: if *of_turn { "server_error" } else { kind(status.as_u16()) },
        param: param.map(ToOwned::to_owned),
        code: (*code).to_owned(),
    };
    json!(OpenAiError { error })
}

fn kind(status: u16) -> &'static str {
    match status {
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

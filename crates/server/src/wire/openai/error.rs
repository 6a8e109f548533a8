//! Errors as OpenAI's clients know them, with our code.
use crate::wire::refusal::Complaint;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// What went wrong, as OpenAI says it.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiError {
    /// The error.
    error: OpenAiErrorBody,
}

/// The error itself.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiErrorBody {
    /// What was expected and what was found.
    message: String,
    /// Which kind of error, by its status.
    #[serde(rename = "type")]
    #[schema(example = "invalid_request_error")]
    kind: &'static str,
    /// The parameter that it is about.
    param: Option<String>,
    /// Our stable code; its page is at `/errors/{code}`.
    #[schema(example = "agent.not_found")]
    code: String,
}

/// The body of an error.
pub(crate) fn body(complaint: &Complaint<'_>) -> Value {
    let Complaint { status, code, detail, param, .. } = complaint;
    let error = OpenAiErrorBody {
        message: detail.clone(),
        kind: kind(status.as_u16()),
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

/// The errors of every route of this wire, for the document.
pub(crate) struct OpenAiErrors;

impl IntoResponses for OpenAiErrors {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let said = [
            ("400", "A parameter does not have the form it must have, or is not taken."),
            ("401", "No API key, or one that counts no more."),
            ("403", "The key does not allow it, or the request comes from another site."),
            ("404", "It is not there, or belongs to another organisation."),
            ("default", "Any other error."),
        ];
        let response = |text: &str| {
            let error = Ref::from_schema_name("OpenAiError");
            let content = ContentBuilder::new().schema(Some(error)).build();
            ResponseBuilder::new().description(text).content("application/json", content).build()
        };
        said.into_iter().map(|(status, text)| (status.to_owned(), RefOr::T(response(text)))).collect()
    }
}

//! Errors of wires: an error of ours, in the shape of the API that was asked.
use crate::problem::{Cause, Failed, detail};
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use outlast_vocab::{Error, Kind};
use serde_json::Value;

/// How the paths of Anthropic's wire begin.
const ANTHROPIC: &str = "anthropic";

/// An error, and the parameter that it is about.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    pub(crate) param: Option<String>,
}

impl<E: Into<Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self { error: error.into(), param: None }
    }
}

impl Refusal {
    /// A parameter that has not the form it must have.
    pub(crate) fn wrong(param: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { error: Error::new(Kind::InputInvalid, detail), param: Some(param.into()) }
    }

    /// A parameter that would change the answer and is not taken.
    pub(crate) fn unsupported(param: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let param = param.into();
        let error = Error::new(Kind::ParameterUnsupported, format!("`{param}` is not taken: {why}"));
        Self { error, param: Some(param) }
    }

    /// The same error about this parameter.
    #[must_use]
    pub(crate) fn about(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }
}

/// What a handler of a wire gives.
pub(crate) type Answer<T> = Result<T, Refusal>;

#[derive(Clone)]
struct Param(String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { error, param } = self;
        let mut response = Failed(error).into_response();
        if let Some(param) = param {
            response.extensions_mut().insert(Param(param));
        }
        response
    }
}

/// An error as a wire says it.
pub(crate) struct Complaint<'a> {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) param: Option<&'a str>,
}

/// Says the error of an answer in the shape of the wire that its path belongs to. It stands around everything, so that also who is
/// turned away at the door or asks for a path that is not there is told so in words that its client knows.
pub(crate) async fn reshape(request: Request, next: Next) -> Response {
    let shape = shape_of(request.uri().path());
    let response = next.run(request).await;
    match (shape, response.extensions().get::<Cause>().cloned()) {
        (Some(shape), Some(Cause(error))) => reshaped(response, &error, shape),
        _ => response,
    }
}

/// Whether clients of a path bring their key as `x-api-key`.
pub(crate) fn takes_x_api_key(path: &str) -> bool {
    path.split('/').nth(1) == Some(ANTHROPIC)
}

/// Whether a path belongs to a wire.
pub(crate) fn is_wire(path: &str) -> bool {
    shape_of(path).is_some()
}

type Shape = fn(&Complaint<'_>) -> Value;

fn shape_of(path: &str) -> Option<Shape> {
    match path.split('/').nth(1)? {
        "openai" => Some(super::openai::error::body),
        ANTHROPIC => Some(super::anthropic::error::body),
        _ => None,
    }
}

fn reshaped(response: Response, error: &Error, shape: Shape) -> Response {
    let (mut parts, _) = response.into_parts();
    let param = parts.extensions.get::<Param>().map(|Param(param)| param.clone());
    let status = parts.status;
    let detail = detail(error, status);
    let complaint = Complaint { status, code: error.kind().code(), detail, param: param.as_deref() };
    let body = Json(shape(&complaint)).into_response().into_body();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

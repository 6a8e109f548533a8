//! Error responses of the API: RFC 9457, with the code, the class and the page of the error.
//!
//! The table of kinds in `vocab::error` defines the status of each error.
use crate::rate_limit::set_retry_after;
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use outlast_api::problem::Problem;
use outlast_vocab::{Error, ErrorPlace, Kind};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

/// The value of `retry-after` for a caller that was rejected because the server is busy, in seconds.
pub const BUSY_RETRY_AFTER: &str = "1";

/// The media type of problems.
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Converts an error to a problem.
pub fn of_error(error: &Error) -> Problem {
    let (kind, status) = (error.kind(), status(error));
    let ErrorPlace { session, turn, call, .. } = error.place();
    Problem {
        page: format!("/errors/{}", kind.code()),
        title: kind.code().into(),
        status: status.as_u16(),
        detail: public_detail(error, status),
        code: kind.code().into(),
        class: kind.class().name().into(),
        policy: error.policy().map(ToOwned::to_owned),
        session,
        turn,
        call,
        request: None,
    }
}

/// Returns the HTTP status of an error.
pub fn status(error: &Error) -> StatusCode {
    StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// An error that a handler returns.
#[derive(Debug)]
pub struct ApiError(pub Error);

impl<E: Into<Error>> From<E> for ApiError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// The result of a handler.
pub type ApiResult<T> = Result<T, ApiError>;

/// The error behind a response, for the log.
#[derive(Clone)]
pub struct ErrorCause(pub Arc<Error>);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let kind = error.kind();
        let mut response = (status(&error), Json(of_error(&error))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, PROBLEM);
        match kind {
            Kind::KeyInvalid => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Kind::RequestLimited => set_retry_after(error.pause().unwrap_or_default(), headers),
            Kind::ServerBusy | Kind::CallerBusy | Kind::QueueFull | Kind::StoreBusy | Kind::StoreFull => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(BUSY_RETRY_AFTER));
            }
            _ => {}
        }
        response.extensions_mut().insert(ErrorCause(Arc::new(error)));
        response
    }
}

/// Returns a problem response with another status than the usual one of its error.
pub fn response_with_status(error: &Error, status: StatusCode) -> Response {
    let problem = Problem { status: status.as_u16(), ..of_error(error) };
    let mut response = (status, Json(problem)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, PROBLEM);
    response
}

/// Adds the request id, and the ids in the request's path, to a problem response. Leaves other responses
/// unchanged.
///
/// # Panics
/// Never panics: a problem is texts and a number.
pub fn with_request_ids(response: Response, request: &str, named: ErrorPlace) -> Response {
    let ours = response.headers().get(header::CONTENT_TYPE) == Some(&PROBLEM);
    let Some(ErrorCause(error)) = response.extensions().get::<ErrorCause>().filter(|_| ours) else {
        return response;
    };
    let of_cause = of_error(error);
    let problem = Problem {
        session: of_cause.session.or(named.session),
        turn: of_cause.turn.or(named.turn),
        call: of_cause.call.or(named.call),
        request: Some(request.to_owned()),
        ..of_cause
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = serde_json::to_vec(&problem).expect("a problem is texts and a number");
    Response::from_parts(parts, Body::from(body))
}

/// Returns the error message for the caller. Internal errors may name files and machines, so their details go
/// only to the log.
pub fn public_detail(error: &Error, status: StatusCode) -> String {
    if status.is_server_error() && error.kind() != Kind::ServerBusy {
        return "an internal error occurred; the server's log has the details under the request id"
            .to_owned();
    }
    error.detail().to_owned()
}

/// The status of internal errors. A route without it has no error responses.
pub const INTERNAL_STATUS: &str = "500";

/// The error responses of every route, for the OpenAPI document. The server adds those that follow from a
/// route's parameters.
pub struct ProblemResponses;

impl IntoResponses for ProblemResponses {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        common_responses("Problem", "application/problem+json")
    }
}

/// Returns the error responses that every route can give, with the schema of the API that was called.
pub fn common_responses(
    schema: &str,
    content_type: &str,
) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let said = [
        ("400", "A value in the request is invalid."),
        ("403", "The API key does not permit this, or the request comes from another origin."),
        (INTERNAL_STATUS, "An internal error occurred. The server's log has the details."),
        (
            "503",
            "The server is at capacity, or its database accepts no writes. `retry-after` says when to retry.",
        ),
    ];
    let response = |text: &str| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
        ResponseBuilder::new().description(text).content(content_type, content).build()
    };
    said.into_iter().map(|(status, text)| (status.to_owned(), RefOr::T(response(text)))).collect()
}

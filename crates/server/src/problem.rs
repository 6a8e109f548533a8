//! Errors as the API answers them: RFC 9457, with the code, the class and the page of the error.
//!
//! Which status an error has is said in one place, the table of kinds in `vocab::error`.
use crate::quota::come_again;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use outlast_vocab::{Error, Kind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// Seconds after which a caller that was turned away may come again.
pub(crate) const COME_AGAIN: &str = "1";

/// What went wrong.
#[derive(Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The page that explains it, on this server.
    #[serde(rename = "type")]
    #[schema(example = "/errors/session.not_found")]
    page: String,
    /// The code, for people who read only this.
    title: &'static str,
    /// The HTTP status.
    #[schema(example = 404)]
    status: u16,
    /// What was expected and what was found.
    detail: String,
    /// The stable code: the same in every version.
    #[schema(example = "session.not_found")]
    code: &'static str,
    /// What a caller can do next: `retry`, `park`, `reject` or `bug`.
    #[schema(example = "reject")]
    class: &'static str,
    /// The rule that decided, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
}

impl Problem {
    /// What an error is told as.
    pub(crate) fn of(error: &Error) -> Self {
        let (kind, status) = (error.kind(), status(error));
        Self {
            page: format!("/errors/{}", kind.code()),
            title: kind.code(),
            status: status.as_u16(),
            detail: detail(error, status),
            code: kind.code(),
            class: kind.class().name(),
            policy: error.policy().map(ToOwned::to_owned),
        }
    }
}

fn status(error: &Error) -> StatusCode {
    StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// An error on its way out.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) Error);

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// What a handler gives.
pub(crate) type Answer<T> = Result<T, Failed>;

/// The error that a response tells of, for the log.
#[derive(Clone)]
pub(crate) struct Cause(pub(crate) Arc<Error>);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let kind = error.kind();
        let mut response = (status(&error), Json(Problem::of(&error))).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match kind {
            Kind::KeyInvalid => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Kind::RequestLimited => come_again(error.pause().unwrap_or_default(), headers),
            Kind::ServerBusy | Kind::CallerBusy | Kind::QueueFull | Kind::StoreBusy | Kind::StoreFull => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(COME_AGAIN));
            }
            _ => {}
        }
        response.extensions_mut().insert(Cause(Arc::new(error)));
        response
    }
}

/// What is told to whoever asked. What went wrong within the server names files and machines; that is for its log (S23).
pub(crate) fn detail(error: &Error, status: StatusCode) -> String {
    if status.is_server_error() && error.kind() != Kind::ServerBusy {
        return "the server could not do this; its log says more under the id of the request".to_owned();
    }
    error.detail().to_owned()
}

/// The errors of every route, for the document.
pub(crate) struct Problems;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let said = [
            ("400", "A value of the request does not have the form it must have."),
            ("401", "No API key, or one that counts no more."),
            ("403", "The key does not allow it, or the request comes from another site."),
            ("404", "It is not there, or belongs to another organisation."),
            (
                "429",
                "The caller asks for too much at once, or too often; `retry-after` says when to come again.",
            ),
            (
                "503",
                "The server does as much at once as it may, or its database takes nothing now; `retry-after` says when to come again.",
            ),
            ("default", "Any other error."),
        ];
        let response = |text: &str| {
            let problem = Ref::from_schema_name("Problem");
            let content = ContentBuilder::new().schema(Some(problem)).build();
            ResponseBuilder::new().description(text).content("application/problem+json", content).build()
        };
        said.into_iter().map(|(status, text)| (status.to_owned(), RefOr::T(response(text)))).collect()
    }
}

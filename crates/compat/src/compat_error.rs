//! Errors of the compatible APIs, in the format of the API that was called.
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use outlast_http::caller::CompatClient;
use outlast_http::problem::{self, ApiError, ErrorCause, public_detail};
use outlast_http::request_headers::REQUEST_ID;
use outlast_vocab::error::ErrorPlace;
use outlast_vocab::{Error, Failure, Kind, TurnId};
use serde_json::Value;

/// The status of a turn that ran and then failed or was cancelled, on APIs that have no object for it.
///
/// A repeated request could run the turn's tools again, so ended turns have a status that clients of Chat and Messages do
/// not repeat:
///
/// | status | repeated by |
/// |---|---|
/// | 400, 422 | Claude Code, up to 5 times with other bodies: it takes them for an unsupported feature |
/// | 408, 409, 429, 5xx | the official clients, the AI SDK |
/// | all but 400 to 407, 409 and 413 | `LangChain` JS |
/// | 402, 403, 405, 406 | none |
///
/// Of the last row, only 406 has no other meaning in these APIs.
const ENDED_TURN_STATUS: StatusCode = StatusCode::NOT_ACCEPTABLE;

/// An error, the parameter that it is about, and how far the request got.
#[derive(Debug)]
pub(crate) struct CompatError {
    pub(crate) error: Error,
    pub(crate) param: Option<String>,
    progress: RequestProgress,
}

/// How far a request got before its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestProgress {
    /// It was rejected and can be repeated.
    Nothing,
    /// Its input was accepted. Repeating the request would start another turn.
    Accepted,
    /// Its turn failed or was cancelled. The status of an error describes a request, so these turns have a fixed
    /// one: [`ENDED_TURN_STATUS`].
    TurnEnded(TurnId),
}

impl<E: Into<Error>> From<E> for CompatError {
    fn from(error: E) -> Self {
        Self { error: error.into(), param: None, progress: RequestProgress::Nothing }
    }
}

impl CompatError {
    /// Creates an error about an invalid parameter.
    pub(crate) fn invalid_param(param: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::from(Error::new(Kind::InputInvalid, detail)).about(param)
    }

    /// Creates an error about a parameter that would change the answer and is not supported.
    pub(crate) fn unsupported(param: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let param = param.into();
        let error = Error::new(Kind::ParameterUnsupported, format!("`{param}` is not supported: {why}"));
        Self::from(error).about(param)
    }

    /// Creates an error about a turn that failed or was cancelled.
    pub(crate) fn ended_turn(turn: TurnId, failure: &Failure) -> Self {
        let at = ErrorPlace { turn: Some(turn), ..ErrorPlace::default() };
        let error = Error::from(failure.clone()).at(at);
        Self { error, param: None, progress: RequestProgress::TurnEnded(turn) }
    }

    /// Marks the error as one after the input was accepted. Tells clients not to repeat the request
    /// automatically.
    #[must_use]
    pub(crate) fn after_acceptance(self) -> Self {
        let after =
            if self.progress == RequestProgress::Nothing { RequestProgress::Accepted } else { self.progress };
        Self { progress: after, ..self }
    }

    /// Returns the contents of the error response.
    pub(crate) fn contents(&self) -> ErrorContents<'_> {
        error_contents(&self.error, self.progress, self.param.as_deref())
    }

    /// Sets the parameter that the error is about.
    #[must_use]
    pub(crate) fn about(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }
}

/// The result of a handler of a compatible API.
pub(crate) type CompatResult<T> = Result<T, CompatError>;

/// What an error response needs in addition to the error itself.
#[derive(Clone)]
struct CompatErrorParts {
    param: Option<String>,
    progress: RequestProgress,
}

impl IntoResponse for CompatError {
    fn into_response(self) -> Response {
        let status = self.contents().status;
        let Self { error, param, progress: after } = self;
        let mut response = ApiError(error).into_response();
        *response.status_mut() = status;
        if after != RequestProgress::Nothing {
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response.extensions_mut().insert(CompatErrorParts { param, progress: after });
        response
    }
}

/// The contents of an error response.
pub(crate) struct ErrorContents<'a> {
    pub(crate) status: StatusCode,
    /// The turn, if it failed, and not the request.
    pub(crate) turn: Option<TurnId>,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) param: Option<&'a str>,
    /// The id of the request, if known.
    pub(crate) request: Option<&'a str>,
}

fn error_contents<'a>(error: &Error, after: RequestProgress, param: Option<&'a str>) -> ErrorContents<'a> {
    let code = error.kind().code();
    let (status, detail, turn) = match after {
        // The detail is the cause of a recorded end, which the caller may read, and not an error of this server.
        RequestProgress::TurnEnded(turn) => {
            (ENDED_TURN_STATUS, format!("{code}: {} ({turn})", error.detail()), Some(turn))
        }
        RequestProgress::Nothing | RequestProgress::Accepted => {
            let status = problem::status(error);
            (status, public_detail(error, status), None)
        }
    };
    ErrorContents { status, turn, code, detail, param, request: None }
}

/// Middleware that converts errors to the format of the API that the path belongs to, and tells
/// [`outlast_http::caller`] how clients of that API send their key. It wraps everything else, so that it also
/// converts errors of authentication and of unknown paths.
pub async fn format_errors(mut request: Request, next: Next) -> Response {
    let Some(wire) = compat_api(request.uri().path()) else { return next.run(request).await };
    request.extensions_mut().insert(wire.client);
    let mut response = next.run(request).await;
    if let Some(name) = wire.request_id
        && let Some(id) = response.headers().get(REQUEST_ID).cloned()
    {
        response.headers_mut().insert(name, id);
    }
    match response.extensions().get::<ErrorCause>().cloned() {
        Some(ErrorCause(error)) => formatted_error(response, &error, wire.error),
        None => response,
    }
}

/// Returns whether a path belongs to a compatible API.
pub fn is_compat_path(path: &str) -> bool {
    compat_api(path).is_some()
}

/// The properties of a compatible API that its middleware needs.
struct CompatApi {
    /// The format of its errors.
    error: ErrorFormat,
    /// An additional header for the request id, if its clients expect one.
    request_id: Option<&'static str>,
    /// How its clients send their key.
    client: CompatClient,
}

type ErrorFormat = fn(&ErrorContents<'_>) -> Value;

fn compat_api(path: &str) -> Option<CompatApi> {
    match path.split('/').nth(1)? {
        "openai" => Some(CompatApi {
            error: crate::openai::error::body,
            request_id: None,
            client: CompatClient { sends_x_api_key: false },
        }),
        "anthropic" => Some(CompatApi {
            error: crate::anthropic::error::body,
            request_id: Some("request-id"),
            client: CompatClient { sends_x_api_key: true },
        }),
        _ => None,
    }
}

fn formatted_error(response: Response, error: &Error, shape: ErrorFormat) -> Response {
    let (mut parts, _) = response.into_parts();
    let usual = CompatErrorParts { param: None, progress: RequestProgress::Nothing };
    let CompatErrorParts { param, progress: after } =
        parts.extensions.get::<CompatErrorParts>().cloned().unwrap_or(usual);
    let request = parts.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let contents = ErrorContents { request, ..error_contents(error, after, param.as_deref()) };
    let body = Json(shape(&contents)).into_response().into_body();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

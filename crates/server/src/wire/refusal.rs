//! Errors of wires: an error of ours, in the shape of the API that was asked.
use crate::around::REQUEST_ID;
use crate::problem::{Cause, Failed, detail};
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use outlast_vocab::error::At;
use outlast_vocab::{Error, Failure, Kind, TurnId};
use serde_json::Value;

/// How the paths of Anthropic's wire begin.
const ANTHROPIC: &str = "anthropic";

/// An error, the parameter that it is about, and how far the request had come.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    pub(crate) param: Option<String>,
    after: After,
}

/// How far a request had come before its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It was not taken, and can be made again.
    Nothing,
    /// Its input was accepted: the same request again is another turn.
    Acceptance,
    /// Its turn failed. The statuses of errors are about requests, so a turn that failed has one of its own.
    Turn(TurnId),
}

impl<E: Into<Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self { error: error.into(), param: None, after: After::Nothing }
    }
}

impl Refusal {
    /// A parameter that has not the form it must have.
    pub(crate) fn wrong(param: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::from(Error::new(Kind::InputInvalid, detail)).about(param)
    }

    /// A parameter that would change the answer and is not taken.
    pub(crate) fn unsupported(param: impl Into<String>, why: impl std::fmt::Display) -> Self {
        let param = param.into();
        let error = Error::new(Kind::ParameterUnsupported, format!("`{param}` is not taken: {why}"));
        Self::from(error).about(param)
    }

    /// A turn that somebody cancelled.
    pub(crate) fn cancelled(turn: TurnId) -> Self {
        Self::from(Error::new(Kind::TurnCancelled, format!("somebody cancelled {turn}"))).late()
    }

    /// A turn that failed.
    pub(crate) fn failed(turn: TurnId, failure: &Failure) -> Self {
        let at = At { turn: Some(turn), ..At::default() };
        let error = Error::from(failure.clone()).at(at);
        Self { error, param: None, after: After::Turn(turn) }
    }

    /// The same error, of a request whose input was accepted. Clients that make requests again by themselves are told not to.
    #[must_use]
    pub(crate) fn late(self) -> Self {
        let after = if self.after == After::Nothing { After::Acceptance } else { self.after };
        Self { after, ..self }
    }

    /// As a wire says it.
    pub(crate) fn complaint(&self) -> Complaint<'_> {
        complaint(&self.error, self.after, self.param.as_deref())
    }

    /// The same error about this parameter.
    #[must_use]
    pub(crate) fn about(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }
}

/// What a handler of a wire gives.
pub(crate) type Answer<T> = Result<T, Refusal>;

/// What the error of a response does not say by itself.
#[derive(Clone)]
struct More {
    param: Option<String>,
    after: After,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.complaint().status;
        let Self { error, param, after } = self;
        let mut response = Failed(error).into_response();
        *response.status_mut() = status;
        if after != After::Nothing {
            response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
        }
        response.extensions_mut().insert(More { param, after });
        response
    }
}

/// An error as a wire says it.
pub(crate) struct Complaint<'a> {
    pub(crate) status: StatusCode,
    /// Whether a turn failed, and not the request.
    pub(crate) of_turn: bool,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) param: Option<&'a str>,
    /// The id of the request, where it is known.
    pub(crate) request: Option<&'a str>,
}

fn complaint<'a>(error: &Error, after: After, param: Option<&'a str>) -> Complaint<'a> {
    let code = error.kind().code();
    let (status, detail) = match after {
        After::Turn(turn) => {
            let detail = format!("{turn} failed with {code}; GET /v1/turns/{turn} says more");
            // Clients repeat a request that is answered with 409, 429 or 5xx, and the same request again is another turn.
            (StatusCode::BAD_REQUEST, detail)
        }
        After::Nothing | After::Acceptance => {
            let status =
                StatusCode::from_u16(error.kind().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, detail(error, status))
        }
    };
    let of_turn = matches!(after, After::Turn(_));
    Complaint { status, of_turn, code, detail, param, request: None }
}

/// Says the error of an answer in the shape of the wire that its path belongs to. It stands around everything, so that also who is
/// turned away at the door or asks for a path that is not there is told so in words that its client knows.
pub(crate) async fn reshape(request: Request, next: Next) -> Response {
    let Some(wire) = wire_of(request.uri().path()) else { return next.run(request).await };
    let mut response = next.run(request).await;
    if let Some(name) = wire.request_id
        && let Some(id) = response.headers().get(REQUEST_ID).cloned()
    {
        response.headers_mut().insert(name, id);
    }
    match response.extensions().get::<Cause>().cloned() {
        Some(Cause(error)) => reshaped(response, &error, wire.error),
        None => response,
    }
}

/// Whether clients of a path bring their key as `x-api-key`.
pub(crate) fn takes_x_api_key(path: &str) -> bool {
    path.split('/').nth(1) == Some(ANTHROPIC)
}

/// Whether a path belongs to a wire.
pub(crate) fn is_wire(path: &str) -> bool {
    wire_of(path).is_some()
}

/// What is said of a wire around its handlers.
struct Wire {
    /// The shape of its errors.
    error: Shape,
    /// Where its clients look for the id of a request, if not where ours do.
    request_id: Option<&'static str>,
}

type Shape = fn(&Complaint<'_>) -> Value;

fn wire_of(path: &str) -> Option<Wire> {
    match path.split('/').nth(1)? {
        "openai" => Some(Wire { error: super::openai::error::body, request_id: None }),
        ANTHROPIC => Some(Wire { error: super::anthropic::error::body, request_id: Some("request-id") }),
        _ => None,
    }
}

fn reshaped(response: Response, error: &Error, shape: Shape) -> Response {
    let (mut parts, _) = response.into_parts();
    let usual = More { param: None, after: After::Nothing };
    let More { param, after } = parts.extensions.get::<More>().cloned().unwrap_or(usual);
    let request = parts.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let complaint = Complaint { request, ..complaint(error, after, param.as_deref()) };
    let body = Json(shape(&complaint)).into_response().into_body();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

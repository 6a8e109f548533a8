//! What is done around every request: its id, the door, the log, the counts, and headers that keep browsers from guessing.
use crate::problem::{Cause, Failed};
use crate::quota::Told;
use crate::shared::Shared;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::time::Instant;

/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The same, as OpenAI's clients send it.
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");

/// Letters of an id that a caller may choose.
const ID_LETTERS: usize = 64;

/// Lets a request through to its handler.
pub(crate) async fn around(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = id_of(request.headers()).unwrap_or_else(|| fresh_id(&shared));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let told = Told::default();
    request.extensions_mut().insert(told.clone());
    let admitted = shared.door.admitted(request.headers()).cloned();
    let mut response = match shared.door.check(request.headers()) {
        Err(error) => Failed(error).into_response(),
        Ok(()) if method == Method::OPTIONS && admitted.is_some() => StatusCode::NO_CONTENT.into_response(),
        Ok(()) => next.run(request).await,
    };
    let status = response.status();
    let took = began.elapsed();
    shared.metrics.answered(method.as_str(), &route, status.as_u16(), took);
    let cause = response.extensions().get::<Cause>().map(|Cause(error)| error.clone());
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match cause {
        Some(error) if status.is_server_error() => {
            tracing::error!(request = id, %method, route, status = status.as_u16(), took_ms, %error, "request failed");
        }
        Some(error) => {
            tracing::info!(request = id, %method, route, status = status.as_u16(), took_ms, %error, "request refused");
        }
        None => tracing::info!(request = id, %method, route, status = status.as_u16(), took_ms, "request"),
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    told.tell(headers);
    guard(headers);
    if let Some(origin) = admitted {
        open(headers, origin);
    }
    response
}

/// The id that a caller chose, if it can stand in a log.
fn id_of(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID).or_else(|| headers.get(CLIENT_REQUEST_ID))?.to_str().ok()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!id.is_empty() && id.len() <= ID_LETTERS && id.chars().all(fits)).then(|| id.to_owned())
}

fn fresh_id(shared: &Shared) -> String {
    format!("{:032x}", u128::from_be_bytes(shared.runtime.world().entropy.random()))
}

/// Nothing is taken for what it is not, framed, or kept by a cache, unless a handler says so.
fn guard(headers: &mut HeaderMap) {
    let usual = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in usual {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Lets a page of another site that may ask read the answer.
fn open(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    let allowed = "authorization, content-type, idempotency-key, if-match, last-event-id, x-request-id";
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
    let methods = "GET, POST, PUT, DELETE";
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    let told = "etag, ratelimit, ratelimit-policy, retry-after, x-request-id";
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(told));
}

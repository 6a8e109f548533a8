//! Middleware of all routes: request id, `Host` and `Origin` checks, admission control, log, metrics and
//! CORS headers. `api.rs` adds the layers of `tower-http`.
use crate::server_state::ServerState;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use outlast_http::key_watch::{self, RequestKey};
use outlast_http::problem::{self, ApiError, ErrorCause};
use outlast_http::rate_limit::RequestQuota;
use outlast_http::request_headers::REQUEST_ID;
use outlast_vocab::access::ApiKey;
use outlast_vocab::{ErrorPlace, Kind};
use std::future::Future;
use std::time::Instant;
use tracing::Instrument;

/// The request id header that OpenAI clients send.
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");

/// The path prefix of the health routes.
const HEALTH: &str = "/health/";

/// Request headers that pages of other origins may send: those of our API, and those of clients of the
/// compatible APIs.
const CORS_HEADERS: [&str; 14] = [
    "accept",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "outlast-repeat",
    "traceparent",
    "user-agent",
    "x-api-key",
    "x-client-request-id",
    "x-request-id",
];

/// Prefixes of other request headers that those clients may send.
const CORS_HEADER_PREFIXES: [&str; 4] = ["anthropic-", "mcp-", "openai-", "x-stainless-"];

/// The maximum length of a request id that a caller chooses.
const REQUEST_ID_CHARS: usize = 64;

/// Runs the middleware for one request and calls its handler.
pub(crate) async fn handle_request(
    State(shared): State<ServerState>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers()).unwrap_or_else(|| new_request_id(&shared));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let named = path_ids(&route, request.uri().path());
    let (exposed, pass) = (RequestQuota::default(), RequestKey::default());
    request.extensions_mut().insert(exposed.clone());
    request.extensions_mut().insert(pass.clone());
    let admitted = shared.http.origin_policy.allowed_origin(request.headers()).cloned();
    let asks_for = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let entered = shared.http.origin_policy.check(request.uri(), request.headers()).and_then(|()| {
        if route.starts_with(HEALTH) { Ok(shared.admission.admit_always()) } else { shared.admission.admit() }
    });
    let response = match entered {
        Err(error) => ApiError(error).into_response(),
        Ok(_) if method == Method::OPTIONS && admitted.is_some() => StatusCode::NO_CONTENT.into_response(),
        Ok(stay) => {
            request.extensions_mut().insert(stay.permits());
            // Every log line of the handler contains the request id, so the line of an accepted input links
            // the request to its turn.
            next.run(request).instrument(tracing::info_span!("request", request = id)).await
        }
    };
    let response = end_with_key(&shared, &pass, began, response).await;
    let status = response.status();
    let took = began.elapsed();
    shared.metrics.count_response(&method, &route, status.as_u16(), took);
    let cause = response.extensions().get::<ErrorCause>().map(|ErrorCause(error)| error.clone());
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match cause {
        // A busy server is not a failure, and this answer is frequent under load.
        Some(error) if status.is_server_error() && error.kind() != Kind::ServerBusy => {
            tracing::error!(request = id, %method, route, status = status.as_u16(), took_ms, %error, "request failed");
        }
        Some(error) => {
            tracing::info!(request = id, %method, route, status = status.as_u16(), took_ms, %error, "request refused");
        }
        None => tracing::info!(request = id, %method, route, status = status.as_u16(), took_ms, "request"),
    }
    let mut response = problem::with_request_ids(response, &id, named);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    exposed.write_headers(headers);
    if let Some(origin) = admitted {
        add_cors_headers(headers, origin, asks_for.as_ref());
    }
    response
}

/// Ends an answer when its API key becomes invalid.
///
/// If the handler took long, checks the key again. If the body is a stream, cuts it off when the key is
/// revoked or expires.
async fn end_with_key(
    shared: &ServerState,
    pass: &RequestKey,
    began: Instant,
    response: Response,
) -> Response {
    let Some(key) = pass.key() else { return response };
    if began.elapsed() >= key_watch::RECHECK_AFTER
        && !key_watch::is_still_valid(&shared.http.runtime, key).await
    {
        return ApiError(ApiKey::invalid()).into_response();
    }
    // A body of known size is already in memory.
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let kind = response.headers().get(header::CONTENT_TYPE);
    let of_events = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let over = shared.keys.invalidated(key);
    response.map(|body| {
        let pieces = body.into_data_stream();
        if of_events {
            Body::from_stream(pieces.take_until(over))
        } else {
            Body::from_stream(cut_off(pieces, over))
        }
    })
}

/// Streams a file until its key becomes invalid. Then the stream ends with an error, so that the client does
/// not mistake a partial file for a complete one.
fn cut_off(
    pieces: BodyDataStream,
    over: impl Future<Output = ()> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static {
    stream::unfold(Some((pieces, Box::pin(over))), |going_on| async {
        let (mut pieces, mut over) = going_on?;
        tokio::select! {
            biased;
            () = &mut over => Some((Err(axum::Error::new(ApiKey::invalid())), None)),
            piece = pieces.next() => Some((piece?, Some((pieces, over)))),
        }
    })
}

/// Returns the session, turn and call that the path of a request names.
fn path_ids(route: &str, path: &str) -> ErrorPlace {
    let mut at = ErrorPlace::default();
    for (name, said) in route.split('/').zip(path.split('/')) {
        match name {
            "{session}" => at.session = said.parse().ok(),
            "{turn}" => at.turn = said.parse().ok(),
            "{call}" => at.call = said.parse().ok(),
            _ => {}
        }
    }
    at
}

/// Returns the request id that the caller chose, if it is safe to log.
///
/// `tower-http` would copy any id into logs and responses. It also reads one header only.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID).or_else(|| headers.get(CLIENT_REQUEST_ID))?.to_str().ok()?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!id.is_empty() && id.len() <= REQUEST_ID_CHARS && id.chars().all(fits)).then(|| id.to_owned())
}

fn new_request_id(shared: &ServerState) -> String {
    format!("{:032x}", u128::from_be_bytes(shared.http.runtime.entropy().random()))
}

/// Adds the CORS headers for an allowed origin. Allows those of the requested headers that this server knows.
///
/// The `CorsLayer` of `tower-http` allows a fixed list of headers or all of them. Clients of the compatible
/// APIs send headers that are known only by their prefixes.
fn add_cors_headers(headers: &mut HeaderMap, origin: HeaderValue, asks_for: Option<&HeaderValue>) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin, access-control-request-headers"));
    let asks_for = asks_for.and_then(|names| names.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let known = |name: &&str| {
        CORS_HEADERS.contains(name) || CORS_HEADER_PREFIXES.iter().any(|begin| name.starts_with(begin))
    };
    let allowed: Vec<&str> = asks_for.split(',').map(str::trim).filter(known).collect();
    if let Ok(allowed) = HeaderValue::from_str(&allowed.join(", "))
        && !allowed.is_empty()
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    let methods = "GET, POST, PUT, DELETE";
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    let exposed = "etag, mcp-session-id, outlast-repeat, outlast-repeat-window, outlast-turn, ratelimit, ratelimit-policy, \
                request-id, retry-after, www-authenticate, x-request-id, x-should-retry";
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed));
}

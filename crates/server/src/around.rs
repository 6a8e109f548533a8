//! What is done around every request: its id, the door, the room it takes, the log, the counts, and headers that keep browsers
//! from guessing.
use crate::keys::{self, Pass};
use crate::problem::{self, Cause, Failed};
use crate::quota::Told;
use crate::shared::Shared;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use outlast_vocab::access::ApiKey;
use outlast_vocab::{At, Kind};
use std::future::Future;
use std::time::Instant;
use tracing::Instrument;

/// The header with the id of a request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The same, as OpenAI's clients send it.
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");

/// How routes begin that say whether the server is alive.
const HEALTH: &str = "/health/";

/// Headers that pages of other sites may send: ours, and those of the clients of other APIs that we speak.
const TAKEN: [&str; 13] = [
    "accept",
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "user-agent",
    "x-api-key",
    "x-client-request-id",
    "x-request-id",
];

/// How names begin that those clients make up.
const TAKEN_BEGIN: [&str; 4] = ["anthropic-", "mcp-", "openai-", "x-stainless-"];

/// Letters of an id that a caller may choose.
const ID_LETTERS: usize = 64;

/// Lets a request through to its handler.
pub(crate) async fn around(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = id_of(request.headers()).unwrap_or_else(|| fresh_id(&shared));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let named = named(&route, request.uri().path());
    let (told, pass) = (Told::default(), Pass::default());
    request.extensions_mut().insert(told.clone());
    request.extensions_mut().insert(pass.clone());
    let admitted = shared.door.admitted(request.headers()).cloned();
    let asks_for = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let entered = shared.door.check(request.uri(), request.headers()).and_then(|()| {
        if route.starts_with(HEALTH) { Ok(shared.rooms.enter_always()) } else { shared.rooms.enter() }
    });
    let response = match entered {
        Err(error) => Failed(error).into_response(),
        Ok(_) if method == Method::OPTIONS && admitted.is_some() => StatusCode::NO_CONTENT.into_response(),
        Ok(stay) => {
            request.extensions_mut().insert(stay.room());
            // Whatever is logged on the way names the request: the line of an input that was accepted joins it to its turn.
            next.run(request).instrument(tracing::info_span!("request", request = id)).await
        }
    };
    let response = while_it_counts(&shared, &pass, began, response).await;
    let status = response.status();
    let took = began.elapsed();
    shared.metrics.answered(&method, &route, status.as_u16(), took);
    let cause = response.extensions().get::<Cause>().map(|Cause(error)| error.clone());
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match cause {
        // That it does as much as it may is no failure, and told often when it is true.
        Some(error) if status.is_server_error() && error.kind() != Kind::ServerBusy => {
            tracing::error!(request = id, %method, route, status = status.as_u16(), took_ms, %error, "request failed");
        }
        Some(error) => {
            tracing::info!(request = id, %method, route, status = status.as_u16(), took_ms, %error, "request refused");
        }
        None => tracing::info!(request = id, %method, route, status = status.as_u16(), took_ms, "request"),
    }
    let mut response = problem::of_request(response, &id, named);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    told.tell(headers);
    guard(headers);
    if let Some(origin) = admitted {
        open(headers, origin, asks_for.as_ref());
    }
    response
}

/// An answer that took long, or goes on for long, is only for a key that still counts (S28).
async fn while_it_counts(shared: &Shared, pass: &Pass, began: Instant, response: Response) -> Response {
    let Some(key) = pass.key() else { return response };
    if began.elapsed() >= keys::LASTS && !keys::counts(&shared.runtime, key).await {
        return Failed(ApiKey::invalid()).into_response();
    }
    // A body whose length is known is there already.
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let kind = response.headers().get(header::CONTENT_TYPE);
    let of_events = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let over = shared.keys.over(key);
    response.map(|body| {
        let pieces = body.into_data_stream();
        if of_events {
            Body::from_stream(pieces.take_until(over))
        } else {
            Body::from_stream(cut(pieces, over))
        }
    })
}

/// The pieces of a file until its key is over. It breaks off then, so that nobody takes what came for the whole file.
fn cut(
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

/// What the path of a request names.
fn named(route: &str, path: &str) -> At {
    let mut at = At::default();
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

/// Lets a page of another site that may ask read the answer, and send the headers that we know of those it asks for.
fn open(headers: &mut HeaderMap, origin: HeaderValue, asks_for: Option<&HeaderValue>) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin, access-control-request-headers"));
    let asks_for = asks_for.and_then(|names| names.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let known = |name: &&str| TAKEN.contains(name) || TAKEN_BEGIN.iter().any(|begin| name.starts_with(begin));
    let allowed: Vec<&str> = asks_for.split(',').map(str::trim).filter(known).collect();
    if let Ok(allowed) = HeaderValue::from_str(&allowed.join(", "))
        && !allowed.is_empty()
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    let methods = "GET, POST, PUT, DELETE";
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    let told = "etag, mcp-session-id, ratelimit, ratelimit-policy, request-id, retry-after, www-authenticate, x-request-id, \
                x-should-retry";
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(told));
}

//! Events of one session, including live events, or of all sessions.
//!
//! A client that accepts `text/event-stream` gets a stream. Any other client gets a page, and can wait for
//! new events. The sequence number of a durable event is its SSE `id:`, so a client that reconnects with
//! `Last-Event-ID` gets every event exactly once.
use crate::event_reader::{EventFilter, PageSource, SessionReader, StreamSource};
use crate::server_state::ServerState;
use crate::sse::{self, EventStreamParts};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use outlast_api::events::{EventPage, EventParams, EventResource};
use outlast_http::caller::{Caller, Reads};
use outlast_http::extract::{PathParam, QueryParams};
use outlast_http::list_page;
use outlast_http::problem::{ApiResult, ProblemResponses};
use outlast_ports::journal::FeedCursor;
use outlast_runtime::Runtime;
use outlast_runtime::delivery::feed;
use outlast_vocab::record::Seq;
use outlast_vocab::{Error, Kind, SessionId};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Returns the routes of this module.
pub(crate) fn routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(of_session)).routes(routes!(of_all))
}

/// Returns the events of a session.
///
/// The response is a stream if the request accepts `text/event-stream`, and a page otherwise.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", tag = "events",
    params(("session" = String, Path), EventParams,
        ("last-event-id" = Option<u64>, Header, description = "The `id` of the last event that the client received. Takes precedence over `after`.")),
    responses((status = 200, description = "A page of events, or a stream of events.",
        content((EventPage = "application/json"), (EventResource = "text/event-stream"))), ProblemResponses),
    security(("key" = ["read"])))]
async fn of_session(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    PathParam(session): PathParam<SessionId>,
    QueryParams(find): QueryParams<EventParams>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    // Check that the session exists first. An open stream could not report that.
    let view = caller.runtime.store().session(session).await?;
    let after = resume_position(&find, &headers)?.unwrap_or(0);
    if !wants_stream(&headers) {
        let paged = PageSource::Session(session, Box::new(caller.runtime.events(session, Seq(after))));
        return page(&caller.runtime, &shared, paged, find, after).await;
    }
    let whose = (view.org, session);
    let join = || shared.broadcasts.join(&shared.http.runtime, &shared.http.limits, whose, view.last.seq);
    let joined = SessionReader::new(&caller.runtime, session, Seq(after), join);
    stream(caller.runtime, &shared, StreamSource::Session(Box::new(joined)), find)
}

/// Returns the events of all sessions, in the order in which they became durable.
///
/// The response is a stream if the request accepts `text/event-stream`, and a page otherwise. Events are
/// numbered across all sessions, with gaps.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(EventParams,
        ("last-event-id" = Option<u64>, Header, description = "The `id` of the last event that the client received. Takes precedence over `after`.")),
    responses((status = 200, description = "A page of events, or a stream of events.",
        content((EventPage = "application/json"), (EventResource = "text/event-stream"))), ProblemResponses),
    security(("key" = ["read"])))]
async fn of_all(
    caller: Caller<Reads>,
    State(shared): State<ServerState>,
    QueryParams(find): QueryParams<EventParams>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let after = match resume_position(&find, &headers)? {
        Some(after) => after,
        None => feed::newest(caller.runtime.store().as_ref()).await?.0,
    };
    let feed = Box::new(caller.runtime.feed(FeedCursor(after)));
    if !wants_stream(&headers) {
        return page(&caller.runtime, &shared, PageSource::All(feed), find, after).await;
    }
    stream(caller.runtime, &shared, StreamSource::All(feed), find)
}

/// Returns the position to resume after: that of `last-event-id`, or else that of the query.
fn resume_position(find: &EventParams, headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let Some(value) = headers.get("last-event-id") else { return Ok(find.after) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let wrong = || Error::new(Kind::InputInvalid, "expected the number of an event in `last-event-id`");
    number.map(Some).ok_or_else(wrong)
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepts.contains("text/event-stream")
}

fn event_filter(find: EventParams) -> EventFilter {
    let EventParams { session, turn, agent, types, live, .. } = find;
    let types = types.as_deref().unwrap_or_default().split(',').map(str::trim);
    let types: Vec<String> = types.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
    EventFilter { session, turn, agent, types, live: live.unwrap_or(true), agents: BTreeMap::new() }
}

fn stream(
    runtime: Runtime,
    shared: &ServerState,
    streamed: StreamSource,
    find: EventParams,
) -> ApiResult<Response> {
    let open = shared.http.streams.open(runtime.access(), &shared.http.limits)?;
    Ok(sse::response(
        shared,
        EventStreamParts { runtime, source: streamed, filter: event_filter(find), _slot: open },
    ))
}

async fn page(
    runtime: &Runtime,
    shared: &ServerState,
    paged: PageSource,
    find: EventParams,
    after: u64,
) -> ApiResult<Response> {
    let patience = list_page::wait_limit(find.wait, &shared.http.limits)?;
    let limit = list_page::page_limit(find.limit, &shared.http.limits)?;
    let limits =
        EventPageLimits { after, limit, examined_max: shared.http.limits.searched, wait_time: patience };
    let page = read_page(runtime, paged, event_filter(find), limits).await?;
    Ok(Json(page).into_response())
}

/// The limits of a page.
struct EventPageLimits {
    after: u64,
    limit: usize,
    /// The maximum number of events to examine, whether they match or not.
    examined_max: usize,
    wait_time: Duration,
}

/// Returns existing events, or waits for new ones until the timeout. If many events were examined, the page
/// ends early with the position to continue from.
async fn read_page(
    runtime: &Runtime,
    mut paged: PageSource,
    filter: EventFilter,
    EventPageLimits { after, limit, examined_max: looked_at, wait_time: patience }: EventPageLimits,
) -> Result<EventPage, Error> {
    let mut filter = EventFilter { live: false, ..filter };
    let until = Instant::now() + patience;
    let mut page = EventPage { items: Vec::new(), next: after };
    for _ in 0..looked_at {
        if page.items.len() == limit {
            break;
        }
        let seen = match paged.next_stored().await? {
            Some(seen) => seen,
            None if !page.items.is_empty() || patience.is_zero() => break,
            None => match tokio::time::timeout_at(until, paged.next()).await {
                Ok(seen) => seen?,
                Err(_) => break,
            },
        };
        page.next = seen.cursor.unwrap_or(page.next);
        if filter.matches(runtime, seen.properties()).await? {
            page.items.push(seen.frame());
        }
    }
    Ok(page)
}

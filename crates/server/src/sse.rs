//! A stream of server-sent events, with numbers and heartbeats. It ends when the server shuts down.
//!
//! The body is pulled, so a slow reader slows no one else. It only overruns its own buffer, and learns that
//! it missed events.
use crate::event_reader::{EncodedEvent, EventFilter, StreamSource};
use crate::server_state::ServerState;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use outlast_api::events::StreamError;
use outlast_http::caller_limits::CallerSlot;
use outlast_runtime::Runtime;
use outlast_vocab::Error;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The base of the SSE `retry` value, in milliseconds. It varies by half, so that clients do not all
/// reconnect at once.
const RETRY_BASE_MS: u64 = 1_000;

/// The parts of a stream.
pub(crate) struct EventStreamParts {
    pub(crate) runtime: Runtime,
    pub(crate) source: StreamSource,
    pub(crate) filter: EventFilter,
    /// Counts the stream as open until dropped.
    pub(crate) _slot: CallerSlot,
}

struct EventStreamBody {
    stream: EventStreamParts,
    heartbeat: Duration,
    /// When the next heartbeat is due, unless an event is sent before.
    heartbeat_at: Instant,
    stopping: watch::Receiver<bool>,
    /// The last durable event that was examined, whether it was sent or not.
    cursor: Option<u64>,
    has_ended: bool,
}

enum EventStreamStep {
    Stop,
    Heartbeat,
    Event(Result<Arc<EncodedEvent>, Error>),
}

/// Returns the stream as a response.
pub(crate) fn response(shared: &ServerState, stream: EventStreamParts) -> Response {
    let [high, low, ..] = shared.http.runtime.entropy().random();
    let jitter = u64::from(u16::from_be_bytes([high, low])) % RETRY_BASE_MS;
    let hello = Bytes::from(format!("retry: {}\n\n", RETRY_BASE_MS / 2 + jitter));
    let running = EventStreamBody {
        stream,
        heartbeat: shared.http.limits.heartbeat,
        heartbeat_at: Instant::now() + shared.http.limits.heartbeat,
        stopping: shared.http.stopping.clone(),
        cursor: None,
        has_ended: false,
    };
    let rest = futures_util::stream::unfold(running, |mut running| async move {
        let piece = running.next().await?;
        running.heartbeat_at = Instant::now() + running.heartbeat;
        Some((piece, running))
    });
    let all = futures_util::stream::once(async { hello }).chain(rest);
    let body = Body::from_stream(all.map(Ok::<_, Infallible>));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Tells proxies not to buffer the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl EventStreamBody {
    /// Returns the next bytes, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        loop {
            let happened = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => EventStreamStep::Stop,
                // Checked before events, because events that the filter drops produce no output, however many
                // there are.
                () = tokio::time::sleep_until(self.heartbeat_at) => EventStreamStep::Heartbeat,
                encoded = self.stream.source.next() => EventStreamStep::Event(encoded),
            };
            let encoded = match happened {
                EventStreamStep::Stop => return None,
                EventStreamStep::Heartbeat => return Some(self.heartbeat_bytes()),
                EventStreamStep::Event(encoded) => encoded,
            };
            match self.matching_bytes(encoded).await {
                Ok(None) => {}
                Ok(Some(piece)) => return Some(piece),
                Err(error) => {
                    self.has_ended = true;
                    return Some(error_event(&error));
                }
            }
        }
    }

    async fn matching_bytes(
        &mut self,
        encoded: Result<Arc<EncodedEvent>, Error>,
    ) -> Result<Option<Bytes>, Error> {
        let encoded = encoded?;
        let EventStreamParts { runtime, filter, .. } = &mut self.stream;
        let wanted = filter.matches(runtime, encoded.properties).await?;
        self.cursor = encoded.cursor.or(self.cursor);
        Ok(wanted.then(|| encoded.bytes.clone()))
    }

    /// Returns a heartbeat with the current position, so that a reader that reconnects does not examine the
    /// same events again.
    fn heartbeat_bytes(&self) -> Bytes {
        let id = self.cursor.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
        Bytes::from(format!(": alive\n{id}\n"))
    }
}

/// Returns the last event of a stream that failed.
fn error_event(error: &Error) -> Bytes {
    tracing::info!(%error, "a stream of events ended");
    let error = StreamError { class: error.class().name().into(), code: error.kind().code().into() };
    // Serialised JSON contains no line breaks.
    let data = serde_json::to_string(&error).unwrap_or_default();
    Bytes::from(format!("event: error\ndata: {data}\n\n"))
}

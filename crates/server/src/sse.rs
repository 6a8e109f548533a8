//! A stream of server-sent events, with numbers and heartbeats. It ends when the server shuts down.
//!
//! The body is pulled, so a slow reader slows no one else. It only overruns its own buffer, and learns that
//! it missed events.
use crate::follow::{Filter, Streamed, Told};
use crate::shared::Shared;
use crate::streams::Open;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use outlast_runtime::Runtime;
use outlast_vocab::Error;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The base of the SSE `retry` value, in milliseconds. It varies by half, so that clients do not all
/// reconnect at once.
const COME_BACK_MS: u64 = 1_000;

/// The parts of a stream.
pub(crate) struct Stream {
    pub(crate) runtime: Runtime,
    pub(crate) streamed: Streamed,
    pub(crate) filter: Filter,
    /// Counts the stream as open until dropped.
    pub(crate) _open: Open,
}

struct Running {
    stream: Stream,
    heartbeat: Duration,
    /// When the next heartbeat is due, unless an event is sent before.
    alive_at: Instant,
    stopping: watch::Receiver<bool>,
    /// The last durable event that was examined, whether it was sent or not.
    cursor: Option<u64>,
    over: bool,
}

enum Happened {
    Stop,
    Silence,
    Told(Result<Arc<Told>, Error>),
}

/// Returns the stream as a response.
pub(crate) fn response(shared: &Shared, stream: Stream) -> Response {
    let [high, low, ..] = shared.runtime.world().entropy.random();
    let jitter = u64::from(u16::from_be_bytes([high, low])) % COME_BACK_MS;
    let hello = Bytes::from(format!("retry: {}\n\n", COME_BACK_MS / 2 + jitter));
    let running = Running {
        stream,
        heartbeat: shared.limits.heartbeat,
        alive_at: Instant::now() + shared.limits.heartbeat,
        stopping: shared.stopping.clone(),
        cursor: None,
        over: false,
    };
    let rest = futures_util::stream::unfold(running, |mut running| async move {
        let piece = running.next().await?;
        running.alive_at = Instant::now() + running.heartbeat;
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

impl Running {
    /// Returns the next bytes, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        loop {
            let happened = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => Happened::Stop,
                // Checked before events, because events that the filter drops produce no output, however many
                // there are.
                () = tokio::time::sleep_until(self.alive_at) => Happened::Silence,
                told = self.stream.streamed.next() => Happened::Told(told),
            };
            let told = match happened {
                Happened::Stop => return None,
                Happened::Silence => return Some(self.alive()),
                Happened::Told(told) => told,
            };
            match self.wanted(told).await {
                Ok(None) => {}
                Ok(Some(piece)) => return Some(piece),
                Err(error) => {
                    self.over = true;
                    return Some(failed(&error));
                }
            }
        }
    }

    async fn wanted(&mut self, told: Result<Arc<Told>, Error>) -> Result<Option<Bytes>, Error> {
        let told = told?;
        let Stream { runtime, filter, .. } = &mut self.stream;
        let wanted = filter.wants(runtime, told.sight).await?;
        self.cursor = told.cursor.or(self.cursor);
        Ok(wanted.then(|| told.bytes.clone()))
    }

    /// Returns a heartbeat with the current position, so that a reader that reconnects does not examine the
    /// same events again.
    fn alive(&self) -> Bytes {
        let id = self.cursor.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
        Bytes::from(format!(": alive\n{id}\n"))
    }
}

/// Returns the last event of a stream that failed.
fn failed(error: &Error) -> Bytes {
    tracing::info!(%error, "a stream of events ended");
    let data = json!({ "code": error.kind().code(), "class": error.class().name() });
    Bytes::from(format!("event: error\ndata: {data}\n\n"))
}

//! A stream of server-sent events: numbered, alive, and over when the server shuts down.
//!
//! The body is pulled: a reader that is slow slows nobody, it only leaves its own line to overflow, and is told so.
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

/// Milliseconds after which a reader comes back; half of it more or less, so that not all come at once.
const COME_BACK_MS: u64 = 1_000;

/// What a stream is made of.
pub(crate) struct Stream {
    pub(crate) runtime: Runtime,
    pub(crate) streamed: Streamed,
    pub(crate) filter: Filter,
    /// Counts it as long as it is there.
    pub(crate) _open: Open,
}

struct Running {
    stream: Stream,
    heartbeat: Duration,
    /// When it says that it is alive, unless it says something else before.
    alive_at: Instant,
    stopping: watch::Receiver<bool>,
    /// The last durable event that was looked at, be it told or not.
    cursor: Option<u64>,
    over: bool,
}

enum Happened {
    Stop,
    Silence,
    Told(Result<Arc<Told>, Error>),
}

/// The stream as a response.
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
    // Proxies that gather answers would hold events up.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl Running {
    /// The next bytes; none when the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        loop {
            let happened = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => Happened::Stop,
                // Before what happens: events that are not told are no sign of life, however many there are.
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

    /// Says that the stream is alive, and how far it has looked: a reader that comes back does not look at that again.
    fn alive(&self) -> Bytes {
        let id = self.cursor.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
        Bytes::from(format!(": alive\n{id}\n"))
    }
}

/// The last event of a stream that cannot go on.
fn failed(error: &Error) -> Bytes {
    tracing::info!(%error, "a stream of events ended");
    let data = json!({ "code": error.kind().code(), "class": error.class().name() });
    Bytes::from(format!("event: error\ndata: {data}\n\n"))
}

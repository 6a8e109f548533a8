//! Streams a segment as server-sent events, in the format of a compatible API.
//!
//! The body is pulled, as in `sse`, so a slow reader slows no one else. A stream that ends without its last
//! event breaks the connection and never looks complete. The client can read it again.
use super::hearing::Hearing;
use super::refusal::{Answer, Complaint, Refusal};
use super::told::{Told, What};
use crate::shared::Shared;
use crate::streams::Open;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use outlast_vocab::Error;
use serde_json::Value;
use std::io;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Converts the events of a segment to the stream format of an API.
pub(crate) trait Voice: Send + 'static {
    /// Returns the events at the start of the stream.
    fn begins(&mut self) -> Answer<Vec<Line>>;

    /// Converts one event of the segment.
    fn says(&mut self, told: &Told) -> Answer<Vec<Line>>;

    /// Returns the last event of a stream that failed.
    fn fails(&mut self, complaint: &Complaint<'_>) -> Line;
}

/// One event of a stream.
pub(crate) struct Line {
    event: Option<&'static str>,
    data: String,
}

impl Line {
    /// Creates an event without a name.
    pub(crate) fn data(data: &Value) -> Self {
        Self { event: None, data: data.to_string() }
    }

    /// Creates an event with a name.
    pub(crate) fn named(event: &'static str, data: &Value) -> Self {
        Self { event: Some(event), data: data.to_string() }
    }

    /// Creates an event with text that is not JSON.
    pub(crate) fn text(text: &str) -> Self {
        Self { event: None, data: text.to_owned() }
    }

    fn bytes(&self) -> String {
        let event = self.event.map(|event| format!("event: {event}\n")).unwrap_or_default();
        // Serialised JSON contains no line breaks.
        format!("{event}data: {}\n\n", self.data)
    }
}

struct Running<V> {
    hearing: Hearing,
    voice: V,
    heartbeat: Duration,
    /// When the next heartbeat is due, unless an event is sent before.
    alive_at: Instant,
    stopping: watch::Receiver<bool>,
    began: bool,
    over: bool,
    /// Counts the stream as open until dropped.
    _open: Open,
}

enum Happened {
    Stop,
    Silence,
    Told(Result<Told, Error>),
}

/// Returns the stream as a response.
pub(crate) fn response<V: Voice>(shared: &Shared, open: Open, hearing: Hearing, voice: V) -> Response {
    let running = Running {
        hearing,
        voice,
        heartbeat: shared.limits.heartbeat,
        alive_at: Instant::now() + shared.limits.heartbeat,
        stopping: shared.stopping.clone(),
        began: false,
        over: false,
        _open: open,
    };
    let all = stream::unfold(running, |mut running| async move {
        let piece = running.next().await?;
        running.alive_at = Instant::now() + running.heartbeat;
        Some((piece, running))
    });
    let mut response = Body::from_stream(all).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Tells proxies not to buffer the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<V: Voice> Running<V> {
    /// Returns the next bytes, `None` at the end of the stream, or an error if the server stops before the
    /// end.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if !std::mem::replace(&mut self.began, true) {
            let lines = self.voice.begins();
            let piece = self.said(lines);
            if !piece.is_empty() {
                return Some(Ok(piece));
            }
        }
        while !self.over {
            let happened = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => Happened::Stop,
                // Checked before events, because events without an equivalent in this API produce no output.
                () = tokio::time::sleep_until(self.alive_at) => Happened::Silence,
                told = self.hearing.next() => Happened::Told(told),
            };
            let told = match happened {
                Happened::Stop => {
                    self.over = true;
                    return Some(Err(io::Error::other("the server stops before the answer is whole")));
                }
                Happened::Silence => return Some(Ok(Bytes::from_static(b": alive\n\n"))),
                Happened::Told(told) => told,
            };
            let lines = told.map_err(Refusal::from).and_then(|told| {
                self.over = matches!(told.what, What::Over(_));
                self.voice.says(&told)
            });
            let piece = self.said(lines);
            if !piece.is_empty() {
                return Some(Ok(piece));
            }
        }
        None
    }

    fn said(&mut self, lines: Answer<Vec<Line>>) -> Bytes {
        let lines = lines.unwrap_or_else(|refusal| {
            tracing::info!(error = %refusal.error, "the stream of an answer ended");
            self.over = true;
            vec![self.voice.fails(&refusal.complaint())]
        });
        Bytes::from(lines.iter().map(Line::bytes).collect::<String>())
    }
}

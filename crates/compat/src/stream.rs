//! Streams a segment as server-sent events, in the format of a compatible API.
//!
//! The body is pulled, as in `sse`, so a slow reader slows no one else. A stream that ends without its last
//! event breaks the connection and never looks complete. The client can read it again.
use super::answer_delivery::{AnswerDelivery, delivered_end};
use super::compat_error::{CompatError, CompatResult, ErrorContents};
use super::segment_event::{SegmentEvent, SegmentEventKind};
use super::segment_reader::SegmentReader;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use outlast_http::HttpState;
use outlast_http::caller_limits::CallerSlot;
use outlast_http::open_requests::DeliveredEnd;
use outlast_vocab::Error;
use serde_json::Value;
use std::io;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Converts the events of a segment to the stream format of an API.
pub(crate) trait StreamFormat: Send + 'static {
    /// Returns the events at the start of the stream.
    fn opening(&mut self) -> CompatResult<Vec<StreamLine>>;

    /// Converts one event of the segment.
    fn convert(&mut self, event: &SegmentEvent) -> CompatResult<Vec<StreamLine>>;

    /// Returns the last event of a stream that failed.
    fn failure(&mut self, contents: &ErrorContents<'_>) -> StreamLine;
}

/// One event of a stream.
pub(crate) struct StreamLine {
    event: Option<&'static str>,
    data: String,
}

impl StreamLine {
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

struct SegmentStream<V> {
    reader: SegmentReader,
    stream_format: V,
    heartbeat: Duration,
    /// When the next heartbeat is due, unless an event is sent before.
    heartbeat_at: Instant,
    stopping: watch::Receiver<bool>,
    began: bool,
    has_ended: bool,
    /// The end that the stream contains.
    end: DeliveredEnd,
    delivery: Option<AnswerDelivery>,
    /// Counts the stream as open until dropped.
    _open: CallerSlot,
}

enum SegmentStreamStep {
    Stop,
    Heartbeat,
    Event(Result<SegmentEvent, Error>),
}

/// Returns the stream as a response. A reader that returns to an answer needs no delivery.
pub(crate) fn response<V: StreamFormat>(
    shared: &HttpState,
    open: CallerSlot,
    reader: SegmentReader,
    delivery: Option<AnswerDelivery>,
    stream_format: V,
) -> Response {
    let mut response = ().into_response();
    if let Some(delivery) = &delivery {
        delivery.add_headers(&mut response);
    }
    let running = SegmentStream {
        reader,
        stream_format,
        heartbeat: shared.limits.heartbeat,
        heartbeat_at: Instant::now() + shared.limits.heartbeat,
        stopping: shared.stopping.clone(),
        began: false,
        has_ended: false,
        end: DeliveredEnd::NoAnswer,
        delivery,
        _open: open,
    };
    let all = stream::unfold(running, |mut running| async move {
        let piece = running.next().await?;
        running.heartbeat_at = Instant::now() + running.heartbeat;
        Some((piece, running))
    });
    *response.body_mut() = Body::from_stream(all);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Tells proxies not to buffer the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<V: StreamFormat> SegmentStream<V> {
    /// Returns the next bytes, `None` at the end of the stream, or an error if the server stops before the
    /// end.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if !std::mem::replace(&mut self.began, true) {
            let lines = self.stream_format.opening();
            let piece = self.encode(lines);
            if !piece.is_empty() {
                return Some(Ok(piece));
            }
        }
        while !self.has_ended {
            let happened = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => SegmentStreamStep::Stop,
                // Checked before events, because events without an equivalent in this API produce no output.
                () = tokio::time::sleep_until(self.heartbeat_at) => SegmentStreamStep::Heartbeat,
                event = self.reader.next() => SegmentStreamStep::Event(event),
            };
            let event = match happened {
                SegmentStreamStep::Stop => {
                    self.has_ended = true;
                    self.delivery = None;
                    return Some(Err(io::Error::other(
                        "the server is stopping before the answer is complete",
                    )));
                }
                SegmentStreamStep::Heartbeat => return Some(Ok(Bytes::from_static(b": alive\n\n"))),
                SegmentStreamStep::Event(event) => event,
            };
            let lines = event.map_err(CompatError::from).and_then(|event| {
                if let SegmentEventKind::Ended(end) = &event.kind {
                    (self.has_ended, self.end) = (true, delivered_end(Some(end)));
                }
                self.stream_format.convert(&event)
            });
            let piece = self.encode(lines);
            if !piece.is_empty() {
                return Some(Ok(piece));
            }
        }
        if let Some(mut delivery) = self.delivery.take() {
            delivery.delivered(self.end);
        }
        None
    }

    fn encode(&mut self, lines: CompatResult<Vec<StreamLine>>) -> Bytes {
        let lines = lines.unwrap_or_else(|refusal| {
            tracing::info!(error = %refusal.error, "the stream of an answer ended");
            (self.has_ended, self.end) = (true, DeliveredEnd::NoAnswer);
            vec![self.stream_format.failure(&refusal.contents())]
        });
        Bytes::from(lines.iter().map(StreamLine::bytes).collect::<String>())
    }
}

//! Splits a body into server-sent events, with limits.
//!
//! The crate `sse-stream` parses the format. This module limits the length of a line and of the whole body. A limit
//! applies at the same byte for any split into chunks. Bytes without an event (comments, which providers send as pings)
//! are reported as a sign of life.
use bytes::Bytes;
use futures_util::Stream;
use outlast_vocab::limits::{self, STREAM_BYTES, STREAM_LINE_BYTES};
use outlast_vocab::{Error, Kind};
use sse_stream::SseByteStream;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

/// An item of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SseItem {
    /// An event with its type, if it has one, and its data.
    Event {
        /// The type.
        name: Option<String>,
        /// The data. Events without data are skipped.
        data: String,
    },
    /// Bytes arrived without an event.
    KeepAlive,
}

/// The bytes of a body as they arrive, or the error that ended it.
pub type SseBody<'a> = Pin<Box<dyn Stream<Item = Result<Bytes, String>> + Send + 'a>>;

/// The events of a body.
pub struct SseEvents<'a> {
    events: SseByteStream<LimitedBody<'a>>,
    has_new_bytes: Arc<AtomicBool>,
}

impl<'a> SseEvents<'a> {
    /// Reads the events of a body.
    pub fn of(body: SseBody<'a>) -> Self {
        let has_new_bytes = Arc::new(AtomicBool::new(false));
        let bounded =
            LimitedBody { body, has_new_bytes: has_new_bytes.clone(), line: 0, whole: 0, limit_error: None };
        Self { events: SseByteStream::new(bounded), has_new_bytes }
    }
}

impl Stream for SseEvents<'_> {
    type Item = Result<SseItem, Error>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            return match Pin::new(&mut self.events).poll_next(task) {
                Poll::Ready(Some(Ok(event))) => {
                    self.has_new_bytes.store(false, Ordering::Relaxed);
                    let Some(data) = event.data else { continue };
                    Poll::Ready(Some(Ok(SseItem::Event { name: event.event, data })))
                }
                Poll::Ready(Some(Err(cause))) => Poll::Ready(Some(Err(body_error(cause)))),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending if self.has_new_bytes.swap(false, Ordering::Relaxed) => {
                    Poll::Ready(Some(Ok(SseItem::KeepAlive)))
                }
                Poll::Pending => Poll::Pending,
            };
        }
    }
}

fn body_error(cause: sse_stream::Error) -> Error {
    match cause {
        sse_stream::Error::Body(cause) => match cause.downcast::<BodyError>() {
            Ok(broken) => match *broken {
                BodyError::LimitExceeded(error) => error,
                BodyError::Body(detail) => Error::new(Kind::ModelCut, detail),
            },
            Err(cause) => {
                Error::new(Kind::Internal, format!("the body was interrupted for an unknown reason: {cause}"))
            }
        },
        cause => {
            Error::new(Kind::ModelRejected, format!("expected an event stream, got other bytes: {cause}"))
        }
    }
}

/// The reason for not reading a body any further.
#[derive(Debug)]
enum BodyError {
    LimitExceeded(Error),
    Body(String),
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LimitExceeded(error) => error.fmt(f),
            Self::Body(detail) => f.write_str(detail),
        }
    }
}

impl StdError for BodyError {}

/// A body that ends with an error if a line or the whole is too long.
struct LimitedBody<'a> {
    body: SseBody<'a>,
    has_new_bytes: Arc<AtomicBool>,
    line: usize,
    whole: usize,
    limit_error: Option<Error>,
}

impl LimitedBody<'_> {
    /// Returns the part of a chunk that is within the limits.
    fn take_allowed(&mut self, mut chunk: Bytes) -> Bytes {
        let free = STREAM_BYTES - self.whole;
        if chunk.len() > free {
            self.limit_error = limits::check("stream_bytes", STREAM_BYTES + 1, STREAM_BYTES).err();
            chunk.truncate(free);
        }
        let mut from = 0;
        loop {
            let end = line_end(&chunk[from..]).map(|at| from + at);
            let free = STREAM_LINE_BYTES - self.line;
            if end.unwrap_or(chunk.len()) - from > free {
                self.limit_error =
                    limits::check("stream_line_bytes", STREAM_LINE_BYTES + 1, STREAM_LINE_BYTES).err();
                chunk.truncate(from + free);
                break;
            }
            let Some(end) = end else {
                self.line += chunk.len() - from;
                break;
            };
            self.line = 0;
            from = end + 1;
        }
        self.whole += chunk.len();
        chunk
    }
}

/// Returns the position of the end of the line.
fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'\n', b'\r', bytes)
}

impl Stream for LimitedBody<'_> {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(over) = self.limit_error.take() {
            return Poll::Ready(Some(Err(BodyError::LimitExceeded(over))));
        }
        Poll::Ready(match ready!(self.body.as_mut().poll_next(task)) {
            Some(Ok(chunk)) => {
                self.has_new_bytes.store(true, Ordering::Relaxed);
                Some(Ok(self.take_allowed(chunk)))
            }
            Some(Err(cause)) => Some(Err(BodyError::Body(format!("the stream was interrupted: {cause}")))),
            None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt, stream};
    use proptest::prelude::*;

    /// Returns the events of these chunks, without signs of life.
    fn hear(chunks: &[&[u8]]) -> Vec<String> {
        let chunks = chunks.iter().map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
        let body = stream::iter(chunks.collect::<Vec<_>>());
        let events = SseEvents::of(Box::pin(body)).filter_map(async |items| match items {
            Ok(SseItem::Event { name, data }) => Some(event(name.as_deref(), &data)),
            Ok(SseItem::KeepAlive) => None,
            Err(error) => Some(error.to_string()),
        });
        std::pin::pin!(events).collect().now_or_never().expect("every chunk is there")
    }

    fn event(name: Option<&str>, data: &str) -> String {
        format!("{} {data:?}", name.unwrap_or("-"))
    }

    #[test]
    fn body_split_does_not_change_its_events() {
        let body = "\u{feff}data: {\"a\":\r\ndata: 1}\r\n\r\n: ping\r\rid: 7\nevent: über\ndata:ä\n\ndata\n\nretry: 9\n\ndata: cut";
        let whole = hear(&[body.as_bytes()]);
        assert_eq!(whole, [event(None, "{\"a\":\n1}"), event(Some("über"), "ä"), event(None, "")]);
        for at in 0..=body.len() {
            let (one, other) = body.as_bytes().split_at(at);
            assert_eq!(hear(&[one, other]), whole, "split at {at}");
        }
        let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        assert_eq!(hear(&bytes), whole);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_parse_equally_in_any_chunks(
            body in "(data: ?|event:|id|:|\n|\r|\r\n|[a-c{}\u{feff}ü]|\\PC){0,40}",
            cuts in prop::collection::vec(0usize..200, 0..6),
            garbage in prop::option::of((any::<u8>(), 0usize..200)),
        ) {
            let mut body = body.into_bytes();
            if let Some((byte, at)) = garbage {
                body.insert(at.min(body.len()), byte);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            prop_assert_eq!(hear(&chunks), hear(&[&body]));
        }
    }

    #[test]
    fn invalid_utf8_is_refused() {
        assert_eq!(
            hear(&[b"data: a\n\ndata: \xff\n\ndata: b\n\n"]),
            [
                event(None, "a"),
                "model.rejected: expected an event stream, got other bytes: utf8 parse error: invalid utf-8 \
                     sequence of 1 bytes from index 0"
                    .to_owned()
            ]
        );
    }

    #[test]
    fn oversized_line_is_refused_independent_of_chunks() {
        let line =
            |bytes: usize| [b"data: ok\n\ndata: ".as_slice(), &vec![b'x'; bytes - 6], b"\n\n"].concat();
        let over = "limit.exceeded: stream_line_bytes is limited to 8388608, but this needs 8388609";
        for chunk in [1 << 16, usize::MAX] {
            let items = |body: &[u8]| hear(&body.chunks(chunk).collect::<Vec<_>>());
            assert_eq!(items(&line(STREAM_LINE_BYTES)).len(), 2);
            assert_eq!(items(&line(STREAM_LINE_BYTES + 1)), [event(None, "ok"), over.to_owned()]);
        }
    }

    #[test]
    fn oversized_body_is_refused() {
        let line = [b":".as_slice(), &vec![b'x'; (1 << 20) - 2], b"\n"].concat();
        let chunks = vec![line.as_slice(); STREAM_BYTES >> 20];
        assert_eq!(hear(&chunks), Vec::<String>::new());
        let over = "limit.exceeded: stream_bytes is limited to 67108864, but this needs 67108865";
        assert_eq!(hear(&[chunks, vec![b"d"]].concat()), [over.to_owned()]);
    }

    #[test]
    fn comment_counts_as_keep_alive() {
        let chunk = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let body = stream::iter([chunk(": ping\n\n"), chunk("data: a\n\n"), chunk("data")]);
        let paused = body.chain(stream::pending()).then(|chunk| {
            let mut waited = false;
            let pause = std::future::poll_fn(move |task| {
                task.waker().wake_by_ref();
                if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
            });
            pause.map(|()| chunk)
        });
        let mut events = SseEvents::of(Box::pin(paused));
        let mut items = Vec::new();
        for _ in 0..8 {
            if let Some(Some(Ok(next))) = events.next().now_or_never() {
                items.push(next);
            }
        }
        let a = SseItem::Event { name: None, data: "a".to_owned() };
        assert_eq!(items, [SseItem::KeepAlive, a, SseItem::KeepAlive]);
    }

    #[test]
    fn interrupted_body_is_reported_as_truncated() {
        let broken = "connection reset".to_owned();
        let body = stream::iter([Ok(Bytes::from_static(b"data: a\n\nda")), Err(broken)]);
        let last = SseEvents::of(Box::pin(body))
            .collect::<Vec<_>>()
            .now_or_never()
            .unwrap()
            .pop()
            .unwrap()
            .unwrap_err();
        assert_eq!(last.to_string(), "model.cut: the stream was interrupted: connection reset");
    }
}

//! Reads the rest of a request body that a handler left unread.
//!
//! A handler may answer before it has read the body, for example if the key is invalid. The HTTP library then
//! closes the connection after the answer, often without telling the client, whose next request on it fails.
//! [`UnreadBody::discard`] reads the rest before the answer is sent, or finds that the connection must be closed.
use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use outlast_vocab::limits::ServerLimits;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// The body of a request. If it is dropped before its end, its [`UnreadBody`] receives the rest.
pub(crate) struct TrackedBody {
    /// Present until the body is dropped.
    body: Option<Incoming>,
    /// Present until the body has ended.
    rest: Option<oneshot::Sender<Incoming>>,
}

/// Receives the part of a request's body that its handler did not read.
pub(crate) struct UnreadBody {
    rest: oneshot::Receiver<Incoming>,
    /// Whether the client sends the body only after the server has asked for it.
    awaits_continue: bool,
}

impl TrackedBody {
    /// Tracks how far the body of a request is read.
    pub(crate) fn of(request: hyper::Request<Incoming>) -> (hyper::Request<Self>, UnreadBody) {
        let (sender, rest) = oneshot::channel();
        let awaits_continue = request.headers().contains_key(EXPECT);
        let request = request.map(|body| {
            let rest = (!body.is_end_stream()).then_some(sender);
            Self { body: Some(body), rest }
        });
        (request, UnreadBody { rest, awaits_continue })
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(None) = frame {
            self.rest = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if let (Some(body), Some(rest)) = (self.body.take(), self.rest.take())
            && !body.is_end_stream()
        {
            // If this fails, the connection has ended.
            let _ = rest.send(body);
        }
    }
}

impl UnreadBody {
    /// Reads and discards the rest of the body, within the limits. Returns whether it has ended, so that the
    /// connection can be used for the next request.
    pub(crate) async fn discard(mut self, limits: &ServerLimits) -> bool {
        let body = match self.rest.try_recv() {
            Ok(body) => body,
            Err(TryRecvError::Closed) => return true,
            // Something still reads it.
            Err(TryRecvError::Empty) => return false,
        };
        let most = u64::try_from(limits.unread_body_bytes).unwrap_or(u64::MAX);
        if self.awaits_continue || body.size_hint().lower() > most {
            return false;
        }
        tokio::time::timeout(limits.unread_body_wait, ends_within(body, most)).await.unwrap_or(false)
    }
}

/// Reads a body, and returns whether it ends after at most this many bytes.
async fn ends_within(mut body: Incoming, most: u64) -> bool {
    let mut bytes = 0_u64;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(frame) = frame else { return false };
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        if bytes > most {
            return false;
        }
    }
    true
}

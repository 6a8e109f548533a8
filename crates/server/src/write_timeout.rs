//! Closes connections whose client does not read.
//!
//! A client that stops reading an answer would otherwise hold its connection for ever, because a connection with an
//! unfinished answer is never evicted.
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection that fails if the client takes no bytes of an answer for some time.
pub(crate) struct WriteTimeoutStream<T> {
    inner: T,
    most: Duration,
    /// Runs while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteTimeoutStream<T> {
    /// Limits the time for which a write may make no progress.
    pub(crate) fn new(inner: T, most: Duration) -> Self {
        Self { inner, most, stalled: None }
    }

    /// Fails a write that has waited for too long.
    fn limited(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let most = self.most;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(most)));
        if stalled.as_mut().poll(cx).is_ready() {
            let why = format!("the client read nothing for {} s", most.as_secs());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.limited(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, bytes);
        this.limited(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::poll_immediate;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn write_without_progress_times_out() {
        let (stream, client) = tokio::io::duplex(4);
        let mut stream = WriteTimeoutStream::new(stream, Duration::from_millis(10));
        let stalled = stream.write_all(&[0; 12]).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[tokio::test]
    async fn progress_restarts_the_write_timeout() {
        let (stream, mut client) = tokio::io::duplex(4);
        let mut stream = WriteTimeoutStream::new(stream, Duration::from_hours(1));
        assert!(poll_immediate(stream.write_all(&[0; 12])).await.is_none());
        assert!(stream.stalled.is_some());
        client.read_exact(&mut [0; 4]).await.unwrap();
        stream.write_all(&[0; 4]).await.unwrap();
        assert!(stream.stalled.is_none());
    }
}

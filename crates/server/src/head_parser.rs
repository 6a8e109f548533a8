//! Checks the head of each request before the HTTP library reads it.
//!
//! The library accepts heads that exceed its limit, lines that end in a bare LF, and bodies with two lengths.
//! A proxy in front of the server may parse those differently, and so see other requests than the server
//! does. [`HeadCheckedStream`] passes on only heads that every parser understands alike. It also tracks the bodies
//! between heads, so that it checks every request of a pipeline.
use axum::http::StatusCode;
use axum::response::Response;
use outlast_http::problem;
use outlast_vocab::{Error, Kind};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Replaces a rejected head on the way to the library. The service answers it with the error.
const PLACEHOLDER_HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\n\r\n";

/// The size of a read.
const READ_BYTES: usize = 16 << 10;

/// The maximum length of the line that starts a chunk.
const CHUNK_LINE_BYTES: usize = 256;

/// How long a client may take to read the last answer if it is still sending. Closing earlier, with unread bytes,
/// would discard the answer.
const LAST_ANSWER_READ_TIME: Duration = Duration::from_secs(1);

/// The rejected request of a connection, counted from zero, and the reason.
#[derive(Clone, Default)]
pub(crate) struct HeadRejection(Arc<OnceLock<(u64, HeadFault)>>);

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadFault {
    TooLarge { most: usize },
    BareLineBreak,
    ControlCharacter,
    FoldedHeader,
    HeaderName,
    TwoLengths,
    Length,
    TransferEncoding,
}

impl HeadFault {
    /// Returns the error for the client.
    pub(crate) fn error(self) -> Error {
        let detail = match self {
            Self::TooLarge { most } => {
                let detail = format!(
                    "header_bytes is limited to {most}, but the header section of this request is longer"
                );
                return Error::new(Kind::LimitExceeded, detail);
            }
            Self::BareLineBreak => "a header line of the request ends in CR or LF alone; expected both",
            Self::ControlCharacter => "the request's header section contains a control character",
            Self::FoldedHeader => "a header of the request continues on the next line; expected one line",
            Self::HeaderName => "a header of the request has a space in its name, or no name",
            Self::TwoLengths => {
                "the request has two lengths; expected `content-length` or `transfer-encoding`, once"
            }
            Self::Length => "the header `content-length` is not a number",
            Self::TransferEncoding => "the header `transfer-encoding` must be `chunked`, in HTTP/1.1",
        };
        Error::new(Kind::InputInvalid, detail)
    }

    fn status(self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            _ => problem::status(&self.error()),
        }
    }
}

/// Answers a request whose head was rejected before routing.
pub(crate) fn rejection_response(fault: HeadFault) -> Response {
    let (error, status) = (fault.error(), fault.status());
    tracing::info!(status = status.as_u16(), %error, "request refused");
    problem::response_with_status(&error, status)
}

impl HeadRejection {
    /// Returns why this request of the connection is rejected, if it is.
    pub(crate) fn fault_of(&self, request: u64) -> Option<HeadFault> {
        self.0.get().filter(|(refused, _)| *refused == request).map(|(_, why)| *why)
    }
}

/// A connection whose heads are checked.
pub(crate) struct HeadCheckedStream<T> {
    inner: T,
    heads: HeadParser,
    /// Limits the time for a client that keeps sending after its last answer.
    discard_timeout: Option<Pin<Box<Sleep>>>,
}

impl<T> HeadCheckedStream<T> {
    /// Checks heads of at most `header_bytes` bytes.
    pub(crate) fn new(inner: T, header_bytes: usize, refusal: HeadRejection) -> Self {
        Self { inner, heads: HeadParser::new(header_bytes, refusal), discard_timeout: None }
    }
}

impl<T: AsyncRead + Unpin> HeadCheckedStream<T> {
    /// Reads and discards input until its end.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut space = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HeadCheckedStream<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.heads.forward(buf) {
                return Poll::Ready(Ok(()));
            }
            match this.heads.state {
                HeadState::Rejected => return this.poll_discard(cx),
                HeadState::Broken => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
                _ => {}
            }
            let mut space = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.heads.feed(read.filled());
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HeadCheckedStream<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.discard_timeout.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        }
        // Between requests, the client has its answer.
        if this.heads.state == HeadState::Head {
            return Poll::Ready(Ok(()));
        }
        let patience =
            this.discard_timeout.get_or_insert_with(|| Box::pin(tokio::time::sleep(LAST_ANSWER_READ_TIME)));
        if patience.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        this.poll_discard(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// The parser's position in the requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadState {
    Head,
    /// The number of bytes that are left of a body.
    Body(u64),
    /// The line that contains the length of a chunk.
    ChunkLine,
    /// The number of bytes that are left of a chunk.
    Chunk(u64),
    /// The line break after a chunk.
    ChunkEnd,
    /// Lines after the last chunk.
    Trailer,
    /// A head was rejected. Everything after it is ignored.
    Rejected,
    /// A body was malformed.
    Broken,
}

/// Checks bytes as they arrive, in pieces of any size.
struct HeadParser {
    state: HeadState,
    /// The head, the chunk line or the trailer line so far.
    line: Vec<u8>,
    /// Bytes of the trailer so far.
    trailer_bytes: usize,
    /// Bytes that were checked, of which the first `passed` were passed on.
    checked: Vec<u8>,
    /// The number of checked bytes that were passed on.
    passed: usize,
    /// The number of heads that were passed on.
    requests: u64,
    header_bytes: usize,
    refusal: HeadRejection,
}

impl HeadParser {
    fn new(header_bytes: usize, refusal: HeadRejection) -> Self {
        Self {
            state: HeadState::Head,
            line: Vec::new(),
            trailer_bytes: 0,
            checked: Vec::new(),
            passed: 0,
            requests: 0,
            header_bytes,
            refusal,
        }
    }

    /// Passes on checked bytes, and returns whether there were any.
    fn forward(&mut self, to: &mut ReadBuf<'_>) -> bool {
        let rest = &self.checked[self.passed..];
        let count = rest.len().min(to.remaining());
        to.put_slice(&rest[..count]);
        self.passed += count;
        if self.passed == self.checked.len() {
            self.checked.clear();
            self.passed = 0;
        }
        count > 0
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            match self.state {
                HeadState::Head => {
                    bytes = rest;
                    self.push_head_byte(*first);
                }
                HeadState::Body(left) | HeadState::Chunk(left) => {
                    let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.checked.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    let left = left - count as u64;
                    self.state = match self.state {
                        HeadState::Body(_) if left == 0 => HeadState::Head,
                        HeadState::Body(_) => HeadState::Body(left),
                        _ if left == 0 => HeadState::ChunkEnd,
                        _ => HeadState::Chunk(left),
                    };
                }
                HeadState::ChunkLine | HeadState::ChunkEnd | HeadState::Trailer => {
                    bytes = rest;
                    self.push_body_line_byte(*first);
                }
                HeadState::Rejected | HeadState::Broken => return,
            }
        }
    }

    /// Reads one byte of a head.
    fn push_head_byte(&mut self, byte: u8) {
        let before = self.line.last().copied();
        self.line.push(byte);
        if (byte == b'\n') != (before == Some(b'\r')) {
            return self.reject(HeadFault::BareLineBreak);
        }
        if byte == 0x7f || byte < b' ' && !matches!(byte, b'\r' | b'\n' | b'\t') {
            return self.reject(HeadFault::ControlCharacter);
        }
        if self.line.len() > self.header_bytes {
            return self.reject(HeadFault::TooLarge { most: self.header_bytes });
        }
        // HTTP allows empty lines before a request. Drop them.
        if self.line == b"\r\n" {
            self.line.clear();
        }
        if self.line.ends_with(b"\r\n\r\n") {
            match state_after_head(&self.line) {
                Ok(body) => {
                    self.checked.append(&mut self.line);
                    self.requests += 1;
                    self.state = body;
                }
                Err(why) => self.reject(why),
            }
        }
    }

    /// Reads one byte of a chunk line, the line break after a chunk, or the trailer.
    fn push_body_line_byte(&mut self, byte: u8) {
        self.checked.push(byte);
        self.line.push(byte);
        let most = if self.state == HeadState::Trailer { self.header_bytes } else { CHUNK_LINE_BYTES };
        let is_bare = byte == b'\n' && !self.line.ends_with(b"\r\n");
        if is_bare || self.line.len() > most {
            self.state = HeadState::Broken;
        }
        if byte != b'\n' || self.state == HeadState::Broken {
            return;
        }
        let line = std::mem::take(&mut self.line);
        let line = &line[..line.len() - 2];
        self.state = match self.state {
            HeadState::ChunkEnd if line.is_empty() => HeadState::ChunkLine,
            HeadState::ChunkLine => match chunk_length(line) {
                Some(0) => {
                    self.trailer_bytes = 0;
                    HeadState::Trailer
                }
                Some(length) => HeadState::Chunk(length),
                None => HeadState::Broken,
            },
            HeadState::Trailer if line.is_empty() => HeadState::Head,
            HeadState::Trailer => {
                self.trailer_bytes += line.len() + 2;
                if self.trailer_bytes > self.header_bytes { HeadState::Broken } else { HeadState::Trailer }
            }
            _ => HeadState::Broken,
        };
    }

    fn reject(&mut self, why: HeadFault) {
        // Only the first rejection is kept. Nothing after it is read.
        let _ = self.refusal.0.set((self.requests, why));
        self.line = Vec::new();
        self.checked.extend_from_slice(PLACEHOLDER_HEAD);
        self.state = HeadState::Rejected;
    }
}

/// Returns the length of a chunk from its line.
fn chunk_length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_hex = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    str::from_utf8(digits).ok().filter(|_| is_hex).and_then(|digits| u64::from_str_radix(digits, 16).ok())
}

/// Returns the state after a head, or why the head is rejected.
fn state_after_head(head: &[u8]) -> Result<HeadState, HeadFault> {
    let text = &head[..head.len() - 4];
    let mut lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let is_current = lines.next().is_some_and(|line| line.ends_with(b" HTTP/1.1"));
    let (mut length, mut chunked) = (None, false);
    for line in lines {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(HeadFault::FoldedHeader);
        }
        let end = line.iter().position(|byte| *byte == b':').ok_or(HeadFault::HeaderName)?;
        let (name, value) = (&line[..end], line[end + 1..].trim_ascii());
        if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) {
            return Err(HeadFault::HeaderName);
        }
        let is_length = name.eq_ignore_ascii_case(b"content-length");
        let is_encoding = name.eq_ignore_ascii_case(b"transfer-encoding");
        if (is_length || is_encoding) && (length.is_some() || chunked) {
            return Err(HeadFault::TwoLengths);
        }
        if is_length {
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let number =
                str::from_utf8(value).ok().filter(|_| is_number).and_then(|value| value.parse().ok());
            length = Some(number.ok_or(HeadFault::Length)?);
        }
        if is_encoding {
            chunked = is_current && value.eq_ignore_ascii_case(b"chunked");
            if !chunked {
                return Err(HeadFault::TransferEncoding);
            }
        }
    }
    Ok(match length {
        _ if chunked => HeadState::ChunkLine,
        Some(length) if length > 0 => HeadState::Body(length),
        _ => HeadState::Head,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses bytes in pieces of this size. Returns what is passed on, the rejected request, and the last
    /// state.
    fn pass(bytes: &[u8], piece: usize, most: usize) -> (Vec<u8>, Option<(u64, HeadFault)>, HeadState) {
        let refusal = HeadRejection::default();
        let mut heads = HeadParser::new(most, refusal.clone());
        let mut passed = Vec::new();
        for piece in bytes.chunks(piece) {
            heads.feed(piece);
            let mut space = [0; 7];
            loop {
                let mut to = ReadBuf::new(&mut space);
                if !heads.forward(&mut to) {
                    break;
                }
                passed.extend_from_slice(to.filled());
            }
        }
        (passed, refusal.0.get().copied(), heads.state)
    }

    /// Checks the outcome, which must be the same for every split of the bytes.
    #[track_caller]
    fn check(bytes: &[u8], want: Option<(u64, HeadFault)>, state: HeadState) -> Vec<u8> {
        let whole = pass(bytes, bytes.len(), 200);
        assert_eq!((whole.1, whole.2), (want, state));
        for piece in 1..bytes.len() {
            assert_eq!(pass(bytes, piece, 200), whole, "pieces of {piece}");
        }
        whole.0
    }

    #[track_caller]
    fn takes(bytes: &[u8]) {
        assert_eq!(check(bytes, None, HeadState::Head), bytes);
    }

    #[track_caller]
    fn refuses(before: &[u8], bytes: &[u8], request: u64, why: HeadFault) {
        let all = [before, bytes].concat();
        let passed = check(&all, Some((request, why)), HeadState::Rejected);
        assert_eq!(passed, [before, PLACEHOLDER_HEAD].concat());
    }

    const GET: &[u8] = b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
    const POST: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\na\nb\n\n";
    const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\na\nb\n\n\r\n0A\r\n0123456789\r\n0\r\nt: v\r\n\r\n";

    #[test]
    fn pipelined_requests_pass_through() {
        takes(GET);
        takes(&[GET, POST, CHUNKED, GET].concat());
        takes(&[CHUNKED, CHUNKED, POST, POST].concat());
        takes(b"GET / HTTP/1.0\r\ncontent-length: 0\r\nx:\r\n\r\n");
    }

    #[test]
    fn empty_lines_before_requests_are_removed() {
        let bytes = [b"\r\n\r\n", GET, b"\r\n", GET].concat();
        assert_eq!(check(&bytes, None, HeadState::Head), [GET, GET].concat());
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        for (head, why) in [
            (&b"GET / HTTP/1.1\nhost: a\r\n\r\n"[..], HeadFault::BareLineBreak),
            (b"GET / HTTP/1.1\r\nhost: a\n\r\n", HeadFault::BareLineBreak),
            (b"GET / HTTP/1.1\r\nhost: a\r\n\n", HeadFault::BareLineBreak),
            (b"GET / HTTP/1.1\r\nhost: a\rx: b\r\n\r\n", HeadFault::BareLineBreak),
            (b"\nGET / HTTP/1.1\r\n\r\n", HeadFault::BareLineBreak),
            (b"\x16\x03\x01", HeadFault::ControlCharacter),
            (b"GET / HTTP/1.1\r\nx: a\0b\r\n\r\n", HeadFault::ControlCharacter),
            (b"GET / HTTP/1.1\r\nx: a\r\n b\r\n\r\n", HeadFault::FoldedHeader),
            (b"GET / HTTP/1.1\r\nx : a\r\n\r\n", HeadFault::HeaderName),
            (b"GET / HTTP/1.1\r\nx\r\n\r\n", HeadFault::HeaderName),
            (
                b"P / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
                HeadFault::TwoLengths,
            ),
            (
                b"P / HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\nContent-Length: 1\r\n\r\n",
                HeadFault::TwoLengths,
            ),
            (b"P / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n", HeadFault::TwoLengths),
            (b"P / HTTP/1.1\r\ncontent-length: +1\r\n\r\n", HeadFault::Length),
            (b"P / HTTP/1.1\r\ncontent-length: 1, 1\r\n\r\n", HeadFault::Length),
            (b"P / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n", HeadFault::Length),
            (b"P / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n", HeadFault::TransferEncoding),
            (b"P / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n", HeadFault::TransferEncoding),
        ] {
            refuses(b"", head, 0, why);
            refuses(&[POST, GET, CHUNKED].concat(), head, 3, why);
        }
    }

    #[test]
    fn head_length_limit_is_exact() {
        let head = |bytes: usize| {
            let fixed = b"GET / HTTP/1.1\r\nx: \r\n\r\n".len();
            format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(bytes - fixed)).into_bytes()
        };
        takes(&head(200));
        refuses(b"", &head(201), 0, HeadFault::TooLarge { most: 200 });
        refuses(GET, &head(5_000), 1, HeadFault::TooLarge { most: 200 });
    }

    #[test]
    fn malformed_chunks_end_the_connection() {
        let head = &b"P / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"[..];
        for body in
            [&b"5\nabcde\r\n"[..], b"x\r\n", b"\r\n", b"-1\r\n", b"1\r\nabc\r\n", b"ffffffffffffffffff\r\n"]
        {
            check(&[head, body].concat(), None, HeadState::Broken);
        }
    }
}

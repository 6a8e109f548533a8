//! Decodes and bounds a response body. The limit applies to decoded bytes, so a decompression bomb is cut while it
//! grows.
use super::EgressLimits;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use outlast_ports::tool::failed;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use std::io::{self, Write};

/// Bodies up to this size are exempt from the ratio. A short page of blanks is not a bomb.
const RATIO_EXEMPT_BYTES: usize = 1 << 10;

/// A body while it is received.
pub(super) struct DecodedBody {
    decoder: Decoder,
    received: usize,
    caps: EgressLimits,
}

enum Decoder {
    Plain(BoundedBuffer),
    Gzip(MultiGzDecoder<BoundedBuffer>),
    Zlib(ZlibDecoder<BoundedBuffer>),
}

/// Whether to read more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyProgress {
    More,
    /// The limit is reached; the rest is not read.
    Full,
}

impl DecodedBody {
    /// Creates a body with this content encoding.
    pub(super) fn new(encoding: Option<&str>, caps: EgressLimits) -> Result<Self, Error> {
        let buffer = BoundedBuffer { bytes: Vec::new(), most: caps.bytes };
        let decoder = match encoding.map(str::trim).map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "identity") => Decoder::Plain(buffer),
            Some("gzip" | "x-gzip") => Decoder::Gzip(MultiGzDecoder::new(buffer)),
            Some("deflate") => Decoder::Zlib(ZlibDecoder::new(buffer)),
            Some(other) => {
                return Err(failed(format!(
                    "the response has the encoding `{}`, which is not supported",
                    shown(other)
                )));
            }
        };
        Ok(Self { decoder, received: 0, caps })
    }

    /// Decodes a chunk.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<BodyProgress, Error> {
        self.received += piece.len();
        let written = match &mut self.decoder {
            Decoder::Plain(buffer) => buffer.write_all(piece),
            Decoder::Gzip(decoder) => decoder.write_all(piece),
            Decoder::Zlib(decoder) => decoder.write_all(piece),
        };
        let buffer = self.buffer();
        if self.is_encoded() && buffer.bytes.len() / self.caps.ratio > self.received + RATIO_EXEMPT_BYTES {
            let detail = format!(
                "decoded_ratio is limited to {}, but {} bytes already expanded to {}",
                self.caps.ratio,
                self.received,
                buffer.bytes.len()
            );
            return Err(Error::new(Kind::LimitExceeded, detail));
        }
        match written {
            Ok(()) => Ok(BodyProgress::More),
            Err(_) if buffer.is_full() => Ok(BodyProgress::Full),
            Err(cause) => Err(undecodable(cause)),
        }
    }

    /// Finishes decoding and returns the body.
    pub(super) fn finish(self) -> Result<Vec<u8>, Error> {
        let buffer = match self.decoder {
            Decoder::Plain(buffer) => buffer,
            Decoder::Gzip(decoder) => decoder.finish().map_err(undecodable)?,
            Decoder::Zlib(decoder) => decoder.finish().map_err(undecodable)?,
        };
        Ok(buffer.bytes)
    }

    /// Returns what was decoded so far, if the rest is not needed.
    pub(super) fn into_partial(mut self) -> Vec<u8> {
        std::mem::take(match &mut self.decoder {
            Decoder::Plain(buffer) => &mut buffer.bytes,
            Decoder::Gzip(decoder) => &mut decoder.get_mut().bytes,
            Decoder::Zlib(decoder) => &mut decoder.get_mut().bytes,
        })
    }

    fn buffer(&self) -> &BoundedBuffer {
        match &self.decoder {
            Decoder::Plain(buffer) => buffer,
            Decoder::Gzip(decoder) => decoder.get_ref(),
            Decoder::Zlib(decoder) => decoder.get_ref(),
        }
    }

    fn is_encoded(&self) -> bool {
        !matches!(self.decoder, Decoder::Plain(_))
    }
}

fn undecodable(cause: io::Error) -> Error {
    Error::new(Kind::EgressUnreachable, format!("the response cannot be decoded: {cause}")).because(cause)
}

/// A buffer with a maximum size.
struct BoundedBuffer {
    bytes: Vec<u8>,
    most: usize,
}

impl BoundedBuffer {
    fn is_full(&self) -> bool {
        self.bytes.len() >= self.most
    }
}

impl Write for BoundedBuffer {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let free = self.most - self.bytes.len();
        let fits = piece.len().min(free);
        self.bytes.extend_from_slice(&piece[..fits]);
        if fits == 0 && !piece.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

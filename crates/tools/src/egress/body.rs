//! What comes back, undone and bounded: bytes are counted after decoding, and a bomb is cut while it grows.
use super::Caps;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use outlast_ports::tool::failed;
use outlast_vocab::message::shown;
use outlast_vocab::{Error, Kind};
use std::io::{self, Write};

/// Bytes that may become anything: a short page of blanks is no bomb.
const SMALL: usize = 1 << 10;

/// A body on its way in.
pub(super) struct Body {
    decoder: Decoder,
    received: usize,
    caps: Caps,
}

enum Decoder {
    Plain(Kept),
    Gzip(MultiGzDecoder<Kept>),
    Zlib(ZlibDecoder<Kept>),
}

/// Whether more is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    GoOn,
    /// The bound is reached; the rest is not read.
    Full,
}

impl Body {
    /// A body that is encoded like this.
    pub(super) fn new(encoding: Option<&str>, caps: Caps) -> Result<Self, Error> {
        let kept = Kept { bytes: Vec::new(), most: caps.bytes };
        let decoder = match encoding.map(str::trim).map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "identity") => Decoder::Plain(kept),
            Some("gzip" | "x-gzip") => Decoder::Gzip(MultiGzDecoder::new(kept)),
            Some("deflate") => Decoder::Zlib(ZlibDecoder::new(kept)),
            Some(other) => {
                return Err(failed(format!(
                    "the answer is encoded as `{}`, which was not asked for",
                    shown(other)
                )));
            }
        };
        Ok(Self { decoder, received: 0, caps })
    }

    /// Takes a piece.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Taken, Error> {
        self.received += piece.len();
        let written = match &mut self.decoder {
            Decoder::Plain(kept) => kept.write_all(piece),
            Decoder::Gzip(decoder) => decoder.write_all(piece),
            Decoder::Zlib(decoder) => decoder.write_all(piece),
        };
        let kept = self.kept();
        if self.is_encoded() && kept.bytes.len() / self.caps.ratio > self.received + SMALL {
            let detail = format!(
                "decoded_ratio is limited to {}, but {} bytes became {} already",
                self.caps.ratio,
                self.received,
                kept.bytes.len()
            );
            return Err(Error::new(Kind::LimitExceeded, detail));
        }
        match written {
            Ok(()) => Ok(Taken::GoOn),
            Err(_) if kept.is_full() => Ok(Taken::Full),
            Err(cause) => Err(undecodable(cause)),
        }
    }

    /// All of it, as far as it was wanted.
    pub(super) fn finish(self) -> Result<Vec<u8>, Error> {
        let kept = match self.decoder {
            Decoder::Plain(kept) => kept,
            Decoder::Gzip(decoder) => decoder.finish().map_err(undecodable)?,
            Decoder::Zlib(decoder) => decoder.finish().map_err(undecodable)?,
        };
        Ok(kept.bytes)
    }

    /// What is there when the rest is not wanted.
    pub(super) fn cut(mut self) -> Vec<u8> {
        std::mem::take(match &mut self.decoder {
            Decoder::Plain(kept) => &mut kept.bytes,
            Decoder::Gzip(decoder) => &mut decoder.get_mut().bytes,
            Decoder::Zlib(decoder) => &mut decoder.get_mut().bytes,
        })
    }

    fn kept(&self) -> &Kept {
        match &self.decoder {
            Decoder::Plain(kept) => kept,
            Decoder::Gzip(decoder) => decoder.get_ref(),
            Decoder::Zlib(decoder) => decoder.get_ref(),
        }
    }

    fn is_encoded(&self) -> bool {
        !matches!(self.decoder, Decoder::Plain(_))
    }
}

fn undecodable(cause: io::Error) -> Error {
    Error::new(Kind::EgressUnreachable, format!("the answer cannot be decoded: {cause}")).because(cause)
}

/// Keeps bytes up to a bound.
struct Kept {
    bytes: Vec<u8>,
    most: usize,
}

impl Kept {
    fn is_full(&self) -> bool {
        self.bytes.len() >= self.most
    }
}

impl Write for Kept {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let room = self.most - self.bytes.len();
        let fits = piece.len().min(room);
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

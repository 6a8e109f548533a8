//! Storage for the contents of attachments outside the database: a directory, a bucket, or memory.
//!
//! Content is addressed by its hash, so it never changes; it can only be written again with the same bytes. This port
//! does not know sessions or reference counts. The database tracks which sessions use a content ([`crate::filed`]). Its
//! rows are written after the content and removed before it.
use crate::Answer;
use crate::clock::Clock;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use outlast_vocab::hash::Hashing;
use outlast_vocab::{Error, Hash, Kind, Millis, limits};
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream of byte chunks.
pub type Pieces<'a> = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send + 'a>>;

/// A stream of the stored contents, in any order.
pub type Listing<'a> = Pin<Box<dyn Stream<Item = Result<Found, Error>> + Send + 'a>>;

/// Content that was just stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The hash of its bytes, which is its name.
    pub content: Hash,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Metadata of stored content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The hash of its bytes, which is its name.
    pub content: Hash,
    /// Its size in bytes.
    pub bytes: u64,
    /// The time of the last [`Contents::put`].
    pub written: Millis,
}

/// Content-addressed storage. If the storage does not respond, methods fail with `attachment.unavailable`.
pub trait Contents: Send + Sync {
    /// Returns a human-readable location without credentials.
    fn place(&self) -> String;

    /// Stores a stream under the hash of all its bytes. Fails if it has over `most` bytes.
    ///
    /// The content is durable when this returns. Readers never see a part of it. If the content exists, it is written
    /// again, and [`Found::written`] is updated.
    fn put<'a>(&'a self, pieces: Pieces<'a>, most: usize) -> Answer<'a, Stored>;

    /// Returns the bytes of a range. The range must start inside the content and is truncated at its end.
    ///
    /// If the content does not exist, this fails with `blob.not_found`. It does not check the hash; use [`verified`]
    /// for that.
    fn get(&self, content: Hash, range: Range<u64>) -> Answer<'_, Pieces<'_>>;

    /// Returns the metadata of content, or `None` if it does not exist.
    fn info(&self, content: Hash) -> Answer<'_, Option<Found>>;

    /// Deletes content. Succeeds if the content does not exist.
    fn delete(&self, content: Hash) -> Answer<'_, ()>;

    /// Lists all stored contents.
    fn list(&self) -> Listing<'_>;

    /// Removes leftovers of uploads that were interrupted before this time.
    fn tidy(&self, before: Millis) -> Answer<'_, ()>;
}

/// Passes a whole content through, and fails at its end if the bytes do not match the hash.
pub fn verified(stored: Stored, pieces: Pieces<'_>) -> Pieces<'_> {
    let begin = (pieces, Hashing::default(), 0_u64, false);
    Box::pin(stream::unfold(begin, move |(mut pieces, mut hashing, mut bytes, ended)| async move {
        if ended {
            return None;
        }
        let (piece, ends) = match pieces.next().await {
            Some(Ok(piece)) => {
                hashing.update(&piece);
                bytes += piece.len() as u64;
                (Ok(piece), false)
            }
            Some(Err(error)) => (Err(error), true),
            None if hashing.hash() == stored.content => return None,
            None => (Err(unlike(stored, bytes)), true),
        };
        Some((piece, (pieces, hashing, bytes, ends)))
    }))
}

fn unlike(Stored { content, bytes }: Stored, found: u64) -> Error {
    let detail =
        format!("the content {content} has {bytes} bytes, but the {found} that were read do not fit it");
    Error::new(Kind::AttachmentCorrupt, detail)
}

/// Collects a stream into memory. If it has over `most` bytes, this fails with the limit `name`.
pub async fn gathered(mut pieces: Pieces<'_>, name: &'static str, most: usize) -> Result<Vec<u8>, Error> {
    let mut whole = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        limits::check(name, whole.len() + piece.len(), most)?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

/// Returns a stream of one chunk.
pub fn one_piece<'a>(bytes: impl Into<Bytes>) -> Pieces<'a> {
    Box::pin(stream::iter([Ok(bytes.into())]))
}

/// Returns the part of `bytes` inside the range.
pub fn cut(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(inside(range.start)..inside(range.end)).unwrap_or_default()
}

/// The error for content that does not exist.
pub fn absent(content: Hash) -> Error {
    Error::new(Kind::BlobNotFound, format!("no content has the hash {content}"))
}

/// Contents in memory, for tests. Tests can make it unreachable and corrupt its contents.
pub struct MemoryContents {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    contents: BTreeMap<Hash, (Bytes, Millis)>,
    unreachable: bool,
}

impl MemoryContents {
    /// Creates an empty storage. The clock sets [`Found::written`].
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Makes all further requests succeed or fail.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().unreachable = !reachable;
    }

    /// Replaces the bytes of content without changing its hash.
    pub fn spoil(&self, content: Hash, bytes: impl Into<Bytes>) {
        if let Some((old, _)) = self.lock().contents.get_mut(&content) {
            *old = bytes.into();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked<T>(&self, answer: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        if state.unreachable {
            return Err(Error::new(Kind::AttachmentUnavailable, "memory was told not to answer"));
        }
        answer(&mut state)
    }
}

impl Contents for MemoryContents {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn put<'a>(&'a self, pieces: Pieces<'a>, most: usize) -> Answer<'a, Stored> {
        Box::pin(async move {
            let whole = gathered(pieces, "outside_bytes", most).await?;
            let stored = Stored { content: Hash::of(&whole), bytes: whole.len() as u64 };
            let row = (whole.into(), self.clock.now());
            self.asked(|state| Ok(state.contents.insert(stored.content, row)))?;
            Ok(stored)
        })
    }

    fn get(&self, content: Hash, range: Range<u64>) -> Answer<'_, Pieces<'_>> {
        let found = self.asked(|state| {
            let (bytes, _) = state.contents.get(&content).ok_or_else(|| absent(content))?;
            Ok(bytes.slice_ref(cut(bytes, range)))
        });
        Box::pin(std::future::ready(found.map(one_piece)))
    }

    fn info(&self, content: Hash) -> Answer<'_, Option<Found>> {
        let found = |(bytes, written): &(Bytes, Millis)| Found {
            content,
            bytes: bytes.len() as u64,
            written: *written,
        };
        let info = self.asked(|state| Ok(state.contents.get(&content).map(found)));
        Box::pin(std::future::ready(info))
    }

    fn delete(&self, content: Hash) -> Answer<'_, ()> {
        let gone = self.asked(|state| Ok(state.contents.remove(&content))).map(drop);
        Box::pin(std::future::ready(gone))
    }

    fn list(&self) -> Listing<'_> {
        let found = |(content, (bytes, written)): (&Hash, &(Bytes, Millis))| {
            Ok(Found { content: *content, bytes: bytes.len() as u64, written: *written })
        };
        let all = self.asked(|state| Ok(state.contents.iter().map(found).collect::<Vec<_>>()));
        Box::pin(stream::iter(all.unwrap_or_else(|error| vec![Err(error)])))
    }

    fn tidy(&self, _: Millis) -> Answer<'_, ()> {
        // An interrupted put leaves nothing in memory.
        Box::pin(std::future::ready(Ok(())))
    }
}

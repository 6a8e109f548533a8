//! Storage for the contents of attachments outside the database: a directory, a bucket, or memory.
//!
//! Content is addressed by its hash, so it never changes; it can only be written again with the same bytes. This port
//! does not know sessions or reference counts. The database tracks which sessions use a content ([`crate::attachment_upload`]). Its
//! rows are written after the content and removed before it.
use crate::ResultFuture;
use crate::clock::Clock;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use outlast_vocab::hash::IncrementalHasher;
use outlast_vocab::{Error, Hash, Kind, Millis, limits};
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stream of byte chunks.
pub type ByteStream<'a> = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send + 'a>>;

/// A stream of the stored contents, in any order.
pub type ContentListing<'a> = Pin<Box<dyn Stream<Item = Result<ContentEntry, Error>> + Send + 'a>>;

/// Content that was just stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredContent {
    /// The hash of its bytes, which is its name.
    pub content: Hash,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Metadata of stored content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentEntry {
    /// The hash of its bytes, which is its name.
    pub content: Hash,
    /// Its size in bytes.
    pub bytes: u64,
    /// The time of the last [`ContentStorage::put`].
    pub written: Millis,
}

/// Content-addressed storage. If the storage does not respond, methods fail with `attachment.unavailable`.
pub trait ContentStorage: Send + Sync {
    /// Returns a human-readable location without credentials.
    fn place(&self) -> String;

    /// Stores a stream under the hash of all its bytes. Fails if it has over `most` bytes.
    ///
    /// The content is durable when this returns. Readers never see a part of it. If the content exists, it is written
    /// again, and [`ContentEntry::written`] is updated.
    fn put<'a>(&'a self, pieces: ByteStream<'a>, most: usize) -> ResultFuture<'a, StoredContent>;

    /// Returns the bytes of a range. The range must start inside the content and is truncated at its end.
    ///
    /// If the content does not exist, this fails with `blob.not_found`. It does not check the hash; use [`verify_content`]
    /// for that.
    fn get(&self, content: Hash, range: Range<u64>) -> ResultFuture<'_, ByteStream<'_>>;

    /// Returns the metadata of content, or `None` if it does not exist.
    fn info(&self, content: Hash) -> ResultFuture<'_, Option<ContentEntry>>;

    /// Deletes content. Succeeds if the content does not exist.
    fn delete(&self, content: Hash) -> ResultFuture<'_, ()>;

    /// Lists all stored contents.
    fn list(&self) -> ContentListing<'_>;

    /// Removes leftovers of uploads that were interrupted before this time.
    fn remove_partial_uploads(&self, before: Millis) -> ResultFuture<'_, ()>;
}

/// Passes a whole content through, and fails at its end if the bytes do not match the hash.
pub fn verify_content(stored: StoredContent, pieces: ByteStream<'_>) -> ByteStream<'_> {
    let begin = (pieces, IncrementalHasher::default(), 0_u64, false);
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
            None => (Err(corrupt_content(stored, bytes)), true),
        };
        Some((piece, (pieces, hashing, bytes, ends)))
    }))
}

fn corrupt_content(StoredContent { content, bytes }: StoredContent, found: u64) -> Error {
    let detail =
        format!("the content {content} has {bytes} bytes, but {found} bytes that do not match it were read");
    Error::new(Kind::AttachmentCorrupt, detail)
}

/// Collects a stream into memory. If it has over `most` bytes, this fails with the limit `name`.
pub async fn collect_bytes(
    mut pieces: ByteStream<'_>,
    name: &'static str,
    most: usize,
) -> Result<Vec<u8>, Error> {
    let mut whole = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        limits::check(name, whole.len() + piece.len(), most)?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

/// Returns a stream of one chunk.
pub fn single_chunk<'a>(bytes: impl Into<Bytes>) -> ByteStream<'a> {
    Box::pin(stream::iter([Ok(bytes.into())]))
}

/// Returns the part of `bytes` inside the range.
pub fn byte_range(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(inside(range.start)..inside(range.end)).unwrap_or_default()
}

/// The error for content that does not exist.
pub fn content_not_found(content: Hash) -> Error {
    Error::new(Kind::BlobNotFound, format!("no content has the hash {content}"))
}

/// Contents in memory, for tests. Tests can make it unreachable and corrupt its contents.
pub struct MemoryContents {
    clock: Arc<dyn Clock>,
    state: Mutex<MemoryContentsState>,
}

#[derive(Default)]
struct MemoryContentsState {
    contents: BTreeMap<Hash, (Bytes, Millis)>,
    unreachable: bool,
}

impl MemoryContents {
    /// Creates an empty storage. The clock sets [`ContentEntry::written`].
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Makes all further requests succeed or fail.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().unreachable = !reachable;
    }

    /// Replaces the bytes of content without changing its hash.
    pub fn corrupt(&self, content: Hash, bytes: impl Into<Bytes>) {
        if let Some((old, _)) = self.lock().contents.get_mut(&content) {
            *old = bytes.into();
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryContentsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_state<T>(
        &self,
        answer: impl FnOnce(&mut MemoryContentsState) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        if state.unreachable {
            return Err(Error::new(Kind::AttachmentUnavailable, "memory was told not to answer"));
        }
        answer(&mut state)
    }
}

impl ContentStorage for MemoryContents {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn put<'a>(&'a self, pieces: ByteStream<'a>, most: usize) -> ResultFuture<'a, StoredContent> {
        Box::pin(async move {
            let whole = collect_bytes(pieces, "outside_bytes", most).await?;
            let stored = StoredContent { content: Hash::of(&whole), bytes: whole.len() as u64 };
            let row = (whole.into(), self.clock.now());
            self.with_state(|state| Ok(state.contents.insert(stored.content, row)))?;
            Ok(stored)
        })
    }

    fn get(&self, content: Hash, range: Range<u64>) -> ResultFuture<'_, ByteStream<'_>> {
        let found = self.with_state(|state| {
            let (bytes, _) = state.contents.get(&content).ok_or_else(|| content_not_found(content))?;
            Ok(bytes.slice_ref(byte_range(bytes, range)))
        });
        Box::pin(std::future::ready(found.map(single_chunk)))
    }

    fn info(&self, content: Hash) -> ResultFuture<'_, Option<ContentEntry>> {
        let found = |(bytes, written): &(Bytes, Millis)| ContentEntry {
            content,
            bytes: bytes.len() as u64,
            written: *written,
        };
        let info = self.with_state(|state| Ok(state.contents.get(&content).map(found)));
        Box::pin(std::future::ready(info))
    }

    fn delete(&self, content: Hash) -> ResultFuture<'_, ()> {
        let gone = self.with_state(|state| Ok(state.contents.remove(&content))).map(drop);
        Box::pin(std::future::ready(gone))
    }

    fn list(&self) -> ContentListing<'_> {
        let found = |(content, (bytes, written)): (&Hash, &(Bytes, Millis))| {
            Ok(ContentEntry { content: *content, bytes: bytes.len() as u64, written: *written })
        };
        let all = self.with_state(|state| Ok(state.contents.iter().map(found).collect::<Vec<_>>()));
        Box::pin(stream::iter(all.unwrap_or_else(|error| vec![Err(error)])))
    }

    fn remove_partial_uploads(&self, _: Millis) -> ResultFuture<'_, ()> {
        // An interrupted put leaves nothing in memory.
        Box::pin(std::future::ready(Ok(())))
    }
}

//! Where the contents of attachments lie when that is not the database (R12.4): a folder, a bucket, memory.
//!
//! Content is named by its hash, so it is never changed, only written again as it was. This port knows no sessions and no
//! counts: who uses content is in the rows of the database ([`crate::filed`]), which are written after it and forgotten
//! before it.
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

/// Bytes as they come.
pub type Pieces<'a> = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send + 'a>>;

/// Contents as they are found, in any order.
pub type Listing<'a> = Pin<Box<dyn Stream<Item = Result<Found, Error>> + Send + 'a>>;

/// Content that was just put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The hash of its bytes: its name.
    pub content: Hash,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Content that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub content: Hash,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it was last put.
    pub written: Millis,
}

/// Keeps contents under their hashes. An error that says that the place does not answer is `attachment.unavailable`.
pub trait Contents: Send + Sync {
    /// Where this is, as a person would say it. It holds no key.
    fn place(&self) -> String;

    /// Keeps what comes under the hash of all of it, and refuses more than `most` bytes. Durable when the answer comes;
    /// nobody sees half of it. Content that is there already is written again, so that its age begins anew.
    fn put<'a>(&'a self, pieces: Pieces<'a>, most: usize) -> Answer<'a, Stored>;

    /// The bytes of a range that begins inside the content; what lies behind its end is left away. Content that is not
    /// there is `blob.not_found`. Whether the bytes fit their hash is for the reader to find out ([`verified`]).
    fn get(&self, content: Hash, range: Range<u64>) -> Answer<'_, Pieces<'_>>;

    /// What is known of content without its bytes, if it is there.
    fn info(&self, content: Hash) -> Answer<'_, Option<Found>>;

    /// Removes content. What is not there is removed already.
    fn delete(&self, content: Hash) -> Answer<'_, ()>;

    /// Everything that is there.
    fn list(&self) -> Listing<'_>;

    /// Removes what was left by puts that were cut off before this time.
    fn tidy(&self, before: Millis) -> Answer<'_, ()>;
}

/// Passes whole content on, and fails at its end if it is not what its name says.
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

/// All bytes of a stream, if they are no more than `most`; the limit is called `name`.
pub async fn gathered(mut pieces: Pieces<'_>, name: &'static str, most: usize) -> Result<Vec<u8>, Error> {
    let mut whole = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        limits::check(name, whole.len() + piece.len(), most)?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

/// Bytes that are in memory as a stream of one piece.
pub fn one_piece<'a>(bytes: impl Into<Bytes>) -> Pieces<'a> {
    Box::pin(stream::iter([Ok(bytes.into())]))
}

/// The part of bytes that lies in a range.
pub fn cut(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(inside(range.start)..inside(range.end)).unwrap_or_default()
}

/// What whoever asks for content that is not there is told.
pub fn absent(content: Hash) -> Error {
    Error::new(Kind::BlobNotFound, format!("no content has the hash {content}"))
}

/// Contents in memory, for tests. It can be told to be unreachable, and its contents can be spoilt.
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
    /// Nothing yet; ages are told by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// From now on every question is answered, or none is.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().unreachable = !reachable;
    }

    /// Changes content behind everybody's back.
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
        // A put that is cut off leaves nothing in memory.
        Box::pin(std::future::ready(Ok(())))
    }
}

//! The rules for content storage: content is complete, stored under its hash, and kept until it is deleted.
use super::scene::refused;
use super::{Rule, Running, block_on};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_ports::contents::{Contents, Found, Pieces, Stored, gathered, one_piece, verified};
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::ops::Range;

/// A size limit above all contents in these rules.
const MOST: usize = 64 << 20;

/// A content storage under test, empty at first.
pub trait ContentsFixture: Sync {
    /// Returns the storage.
    fn contents(&self) -> &dyn Contents;

    /// Returns the current time of the storage.
    fn now(&self) -> Millis;

    /// Changes the bytes of content without the storage's knowledge.
    fn spoil(&self, content: Hash, bytes: &[u8]);

    /// Runs a rule to completion. Override this if the storage works only inside a certain runtime.
    fn run(&self, rule: Running<'_>) {
        block_on(rule);
    }
}

/// The storage under test.
pub(super) struct Shelf<'a>(&'a dyn ContentsFixture);

impl<'a> From<&'a dyn ContentsFixture> for Shelf<'a> {
    fn from(on: &'a dyn ContentsFixture) -> Self {
        Self(on)
    }
}

impl Shelf<'_> {
    fn at(&self) -> &dyn Contents {
        self.0.contents()
    }

    async fn put(&self, bytes: &[u8]) -> Result<Stored, Error> {
        self.at().put(one_piece(bytes.to_vec()), MOST).await
    }

    async fn read(&self, stored: Stored, range: Range<u64>) -> Result<Vec<u8>, Error> {
        gathered(self.at().get(stored.content, range).await?, "outside_bytes", MOST).await
    }

    async fn whole(&self, stored: Stored) -> Result<Vec<u8>, Error> {
        let pieces = self.at().get(stored.content, 0..stored.bytes).await?;
        gathered(verified(stored, pieces), "outside_bytes", MOST).await
    }

    async fn listed(&self) -> Result<Vec<Hash>, Error> {
        let found: Vec<Found> = self.at().list().try_collect().await?;
        let mut names: Vec<Hash> = found.into_iter().map(|found| found.content).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// Returns this many bytes, as chunks and as a whole. Neighbouring bytes differ.
fn many(bytes: usize) -> (Pieces<'static>, Vec<u8>) {
    let whole: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    let pieces: Vec<_> = whole.chunks(65_537).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    (Box::pin(stream::iter(pieces)), whole)
}

pub(super) async fn content_reads_back_under_its_hash(s: &Shelf<'_>) -> Rule {
    let stored = s.put(b"hello").await?;
    assert_eq!(stored, Stored { content: Hash::of(b"hello"), bytes: 5 });
    assert_eq!(s.whole(stored).await?, b"hello");
    Ok(())
}

pub(super) async fn large_content_reads_back_under_its_hash(s: &Shelf<'_>) -> Rule {
    let (pieces, whole) = many((20 << 20) + 7);
    let stored = s.at().put(pieces, MOST).await?;
    assert_eq!(stored, Stored { content: Hash::of(&whole), bytes: whole.len() as u64 });
    assert!(s.whole(stored).await? == whole);
    assert_eq!(s.read(stored, 10_000_000..10_000_003).await?, whole[10_000_000..10_000_003]);
    assert_eq!(s.listed().await?, [stored.content]);
    Ok(())
}

pub(super) async fn a_range_is_read_alone(s: &Shelf<'_>) -> Rule {
    let stored = s.put(b"hello").await?;
    assert_eq!(s.read(stored, 1..3).await?, b"el");
    assert_eq!(s.read(stored, 4..5).await?, b"o");
    assert_eq!(s.read(stored, 3..100).await?, b"lo");
    Ok(())
}

pub(super) async fn more_than_the_limit_is_refused_and_leaves_nothing(s: &Shelf<'_>) -> Rule {
    s.at().put(one_piece(b"four".to_vec()), 4).await?;
    refused(s.at().put(one_piece(b"fives".to_vec()), 4).await, Kind::LimitExceeded);
    let (pieces, whole) = many(20 << 20);
    refused(s.at().put(pieces, whole.len() - 1).await, Kind::LimitExceeded);
    assert_eq!(s.listed().await?, [Hash::of(b"four")]);
    Ok(())
}

pub(super) async fn a_stream_that_breaks_leaves_nothing(s: &Shelf<'_>) -> Rule {
    let (pieces, _) = many(20 << 20);
    let broken = stream::iter([Err(Error::new(Kind::IoFailed, "the file is gone"))]);
    refused(s.at().put(Box::pin(pieces.chain(broken)), MOST).await, Kind::IoFailed);
    assert_eq!(s.listed().await?, []);
    Ok(())
}

pub(super) async fn what_is_not_there_is_not_found(s: &Shelf<'_>) -> Rule {
    let absent = Hash::of(b"absent");
    assert_eq!(s.at().info(absent).await?, None);
    refused(s.at().get(absent, 0..1).await, Kind::BlobNotFound);
    s.at().delete(absent).await
}

pub(super) async fn information_comes_without_bytes(s: &Shelf<'_>) -> Rule {
    let before = s.0.now();
    let Stored { content, bytes } = s.put(b"hello").await?;
    let found = s.at().info(content).await?.expect("it was just put");
    assert_eq!((found.content, found.bytes), (content, bytes));
    // Storages report times in seconds, and their clocks may differ from ours.
    assert!(found.written.0.abs_diff(before.0) < 60_000, "{found:?} was put at {before:?}");
    let listed: Vec<Found> = s.at().list().try_collect().await?;
    assert_eq!(listed, [found]);
    Ok(())
}

pub(super) async fn deleted_content_is_gone_and_can_be_put_again(s: &Shelf<'_>) -> Rule {
    let [one, other] = [s.put(b"one").await?, s.put(b"other").await?];
    s.at().delete(one.content).await?;
    s.at().delete(one.content).await?;
    assert_eq!(s.listed().await?, [other.content]);
    refused(s.whole(one).await, Kind::BlobNotFound);
    assert_eq!(s.put(b"one").await?, one);
    assert_eq!(s.whole(one).await?, b"one");
    Ok(())
}

pub(super) async fn the_same_content_is_there_once_whoever_puts_it(s: &Shelf<'_>) -> Rule {
    let (_, whole) = many(9 << 20);
    let put = || async { s.at().put(many(9 << 20).0, MOST).await };
    let all = join_all((0..3).map(|_| put())).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(s.listed().await?, [Hash::of(&whole)]);
    assert!(s.whole(all[0]).await? == whole);
    Ok(())
}

pub(super) async fn changed_content_is_found_by_its_hash_and_mended_by_a_put(s: &Shelf<'_>) -> Rule {
    let stored = s.put(b"hello").await?;
    s.0.spoil(stored.content, b"hallo");
    refused(s.whole(stored).await, Kind::AttachmentCorrupt);
    s.0.spoil(stored.content, b"hel");
    refused(s.whole(stored).await, Kind::AttachmentCorrupt);
    s.put(b"hello").await?;
    assert_eq!(s.whole(stored).await?, b"hello");
    Ok(())
}

pub(super) async fn tidying_leaves_contents_alone(s: &Shelf<'_>) -> Rule {
    let stored = s.put(b"hello").await?;
    s.at().tidy(Millis(u64::MAX >> 1)).await?;
    assert_eq!(s.whole(stored).await?, b"hello");
    Ok(())
}

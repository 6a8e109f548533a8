//! The rules for content storage: content is complete, stored under its hash, and kept until it is deleted.
use super::store_under_test::refused;
use super::{RuleFuture, RuleResult, block_on};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use outlast_ports::contents::{
    ByteStream, ContentEntry, ContentStorage, StoredContent, collect_bytes, single_chunk, verify_content,
};
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::ops::Range;

/// A size limit above all contents in these rules.
const MOST: usize = 64 << 20;

/// A content storage under test, empty at first.
pub trait ContentsFixture: Sync {
    /// Returns the storage.
    fn contents(&self) -> &dyn ContentStorage;

    /// Returns the current time of the storage.
    fn now(&self) -> Millis;

    /// Changes the bytes of content without the storage's knowledge.
    fn corrupt(&self, content: Hash, bytes: &[u8]);

    /// Runs a rule to completion. Override this if the storage works only inside a certain runtime.
    fn run(&self, rule: RuleFuture<'_>) {
        block_on(rule);
    }
}

/// The storage under test.
pub(super) struct StorageUnderTest<'a>(&'a dyn ContentsFixture);

impl<'a> From<&'a dyn ContentsFixture> for StorageUnderTest<'a> {
    fn from(on: &'a dyn ContentsFixture) -> Self {
        Self(on)
    }
}

impl StorageUnderTest<'_> {
    fn storage(&self) -> &dyn ContentStorage {
        self.0.contents()
    }

    async fn put(&self, bytes: &[u8]) -> Result<StoredContent, Error> {
        self.storage().put(single_chunk(bytes.to_vec()), MOST).await
    }

    async fn read(&self, stored: StoredContent, range: Range<u64>) -> Result<Vec<u8>, Error> {
        collect_bytes(self.storage().get(stored.content, range).await?, "outside_bytes", MOST).await
    }

    async fn whole(&self, stored: StoredContent) -> Result<Vec<u8>, Error> {
        let pieces = self.storage().get(stored.content, 0..stored.bytes).await?;
        collect_bytes(verify_content(stored, pieces), "outside_bytes", MOST).await
    }

    async fn listed(&self) -> Result<Vec<Hash>, Error> {
        let found: Vec<ContentEntry> = self.storage().list().try_collect().await?;
        let mut names: Vec<Hash> = found.into_iter().map(|found| found.content).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// Returns this many bytes, as chunks and as a whole. Neighbouring bytes differ.
fn many(bytes: usize) -> (ByteStream<'static>, Vec<u8>) {
    let whole: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    let pieces: Vec<_> = whole.chunks(65_537).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    (Box::pin(stream::iter(pieces)), whole)
}

pub(super) async fn content_reads_back_under_its_hash(s: &StorageUnderTest<'_>) -> RuleResult {
    let stored = s.put(b"hello").await?;
    assert_eq!(stored, StoredContent { content: Hash::of(b"hello"), bytes: 5 });
    assert_eq!(s.whole(stored).await?, b"hello");
    Ok(())
}

pub(super) async fn large_content_reads_back_under_its_hash(s: &StorageUnderTest<'_>) -> RuleResult {
    let (pieces, whole) = many((20 << 20) + 7);
    let stored = s.storage().put(pieces, MOST).await?;
    assert_eq!(stored, StoredContent { content: Hash::of(&whole), bytes: whole.len() as u64 });
    assert!(s.whole(stored).await? == whole);
    assert_eq!(s.read(stored, 10_000_000..10_000_003).await?, whole[10_000_000..10_000_003]);
    assert_eq!(s.listed().await?, [stored.content]);
    Ok(())
}

pub(super) async fn range_read_returns_only_its_bytes(s: &StorageUnderTest<'_>) -> RuleResult {
    let stored = s.put(b"hello").await?;
    assert_eq!(s.read(stored, 1..3).await?, b"el");
    assert_eq!(s.read(stored, 4..5).await?, b"o");
    assert_eq!(s.read(stored, 3..100).await?, b"lo");
    Ok(())
}

pub(super) async fn oversized_upload_is_refused_and_leaves_nothing(s: &StorageUnderTest<'_>) -> RuleResult {
    s.storage().put(single_chunk(b"four".to_vec()), 4).await?;
    refused(s.storage().put(single_chunk(b"fives".to_vec()), 4).await, Kind::LimitExceeded);
    let (pieces, whole) = many(20 << 20);
    refused(s.storage().put(pieces, whole.len() - 1).await, Kind::LimitExceeded);
    assert_eq!(s.listed().await?, [Hash::of(b"four")]);
    Ok(())
}

pub(super) async fn broken_upload_stream_stores_nothing(s: &StorageUnderTest<'_>) -> RuleResult {
    let (pieces, _) = many(20 << 20);
    let broken = stream::iter([Err(Error::new(Kind::IoFailed, "the file is gone"))]);
    refused(s.storage().put(Box::pin(pieces.chain(broken)), MOST).await, Kind::IoFailed);
    assert_eq!(s.listed().await?, []);
    Ok(())
}

pub(super) async fn missing_content_is_not_found(s: &StorageUnderTest<'_>) -> RuleResult {
    let absent = Hash::of(b"absent");
    assert_eq!(s.storage().info(absent).await?, None);
    refused(s.storage().get(absent, 0..1).await, Kind::BlobNotFound);
    s.storage().delete(absent).await
}

pub(super) async fn info_and_list_return_metadata_only(s: &StorageUnderTest<'_>) -> RuleResult {
    let before = s.0.now();
    let StoredContent { content, bytes } = s.put(b"hello").await?;
    let found = s.storage().info(content).await?.expect("it was just put");
    assert_eq!((found.content, found.bytes), (content, bytes));
    // Storages report times in seconds, and their clocks may differ from ours.
    assert!(found.written.0.abs_diff(before.0) < 60_000, "{found:?} was put at {before:?}");
    let listed: Vec<ContentEntry> = s.storage().list().try_collect().await?;
    assert_eq!(listed, [found]);
    Ok(())
}

pub(super) async fn deleted_content_can_be_put_again(s: &StorageUnderTest<'_>) -> RuleResult {
    let [one, other] = [s.put(b"one").await?, s.put(b"other").await?];
    s.storage().delete(one.content).await?;
    s.storage().delete(one.content).await?;
    assert_eq!(s.listed().await?, [other.content]);
    refused(s.whole(one).await, Kind::BlobNotFound);
    assert_eq!(s.put(b"one").await?, one);
    assert_eq!(s.whole(one).await?, b"one");
    Ok(())
}

pub(super) async fn concurrent_puts_store_content_once(s: &StorageUnderTest<'_>) -> RuleResult {
    let (_, whole) = many(9 << 20);
    let put = || async { s.storage().put(many(9 << 20).0, MOST).await };
    let all = join_all((0..3).map(|_| put())).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(s.listed().await?, [Hash::of(&whole)]);
    assert!(s.whole(all[0]).await? == whole);
    Ok(())
}

pub(super) async fn corrupt_content_is_detected_and_repaired_by_put(s: &StorageUnderTest<'_>) -> RuleResult {
    let stored = s.put(b"hello").await?;
    s.0.corrupt(stored.content, b"hallo");
    refused(s.whole(stored).await, Kind::AttachmentCorrupt);
    s.0.corrupt(stored.content, b"hel");
    refused(s.whole(stored).await, Kind::AttachmentCorrupt);
    s.put(b"hello").await?;
    assert_eq!(s.whole(stored).await?, b"hello");
    Ok(())
}

pub(super) async fn removing_partial_uploads_keeps_complete_contents(s: &StorageUnderTest<'_>) -> RuleResult {
    let stored = s.put(b"hello").await?;
    s.storage().remove_partial_uploads(Millis(u64::MAX >> 1)).await?;
    assert_eq!(s.whole(stored).await?, b"hello");
    Ok(())
}

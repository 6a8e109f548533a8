//! Stores attachment contents in a directory (`file:///path`) or in an S3-compatible bucket (`s3://bucket/prefix`).
//!
//! Each database has its own place below the address, so it never treats the contents of another database as unused.
//! Content is stored at `contents/ab/abcd…`, under its hash. Small content is written there directly. Large content is
//! written to `incoming/` while it is hashed, and then moved, so readers never see a part of it. In a directory, the
//! file and its directory are synced before a put returns.
//!
//! This crate does not know sessions or reference counts. [`outlast_ports::attachment_upload`] defines the order of operations.
mod address;
mod folder;

use address::ContentsAddress;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
pub use object_store;
use object_store::path::Path;
use object_store::{
    Error as Cause, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart,
};
use outlast_ports::ResultFuture;
use outlast_ports::contents::{
    ByteStream, ContentEntry, ContentListing, ContentStorage, StoredContent, content_not_found,
};
use outlast_vocab::hash::IncrementalHasher;
use outlast_vocab::{Error, Hash, Kind, Millis, limits};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The size of a part in bytes. Content up to this size is sent in one request.
const PART_BYTES: usize = 8 << 20;

/// The number of parts that are uploaded concurrently.
const PARTS_AT_ONCE: usize = 2;

/// A directory or a bucket.
pub struct ObjectContents {
    store: Arc<dyn ObjectStore>,
    location: String,
    /// The path of one database.
    root: Path,
    /// The same as a file system path, if this is a directory.
    folder: Option<PathBuf>,
}

impl ObjectContents {
    /// Opens the contents of one database at an address.
    ///
    /// A directory is created if its parent exists. A bucket must exist. The keys, region and endpoint of a bucket are
    /// read from the usual `AWS_…` variables. The address can override the endpoint with `?endpoint=https://…`.
    pub fn open(address: &str, database: &str) -> Result<Self, Error> {
        match address.parse()? {
            ContentsAddress::Folder(path) => {
                let folder = path.join(database);
                let store = Arc::new(folder::open(&path, &folder)?);
                Ok(Self { store, location: address.to_owned(), root: Path::default(), folder: Some(folder) })
            }
            ContentsAddress::Bucket(bucket) => {
                let root = bucket.prefix.clone().join(database);
                let (store, place) = bucket.open()?;
                Ok(Self::with_store(store, place, root))
            }
        }
    }

    /// Checks whether a text is a valid address. Opens nothing.
    pub fn check(address: &str) -> Result<(), Error> {
        address.parse::<ContentsAddress>().map(drop)
    }

    /// Uses any store that `object_store` supports, below a path that no other database uses. Writes to the store must
    /// be durable when it confirms them.
    pub fn with_store(store: Arc<dyn ObjectStore>, location: String, root: Path) -> Self {
        Self { store, location, root, folder: None }
    }

    fn name(&self, content: Hash) -> Path {
        let hex = content.to_string();
        self.root.clone().join("contents").join(&hex[..2]).join(hex)
    }

    fn upload_path(&self) -> Path {
        self.root.clone().join("incoming")
    }

    fn failed(&self, cause: Cause) -> Error {
        let detail = format!("{} cannot store or read content: {cause}", self.location);
        Error::new(Kind::AttachmentUnavailable, detail).because(cause)
    }

    async fn put_whole(&self, mut pieces: ByteStream<'_>, most: usize) -> Result<StoredContent, Error> {
        let mut coming = IncomingContent::new(most);
        let mut first = Vec::new();
        let mut size = 0;
        while size <= PART_BYTES {
            let Some(piece) = pieces.next().await else {
                let stored = coming.stored();
                let payload: PutPayload = first.into_iter().collect();
                self.store
                    .put(&self.name(stored.content), payload)
                    .await
                    .map_err(|cause| self.failed(cause))?;
                return Ok(stored);
            };
            let piece = coming.add_chunk(piece)?;
            size += piece.len();
            first.push(piece);
        }
        self.put_large(first, pieces, coming).await
    }

    /// Writes large content to a temporary name first, because its hash is known only at its end.
    async fn put_large(
        &self,
        first: Vec<Bytes>,
        pieces: ByteStream<'_>,
        mut coming: IncomingContent,
    ) -> Result<StoredContent, Error> {
        let name = self.upload_path().join(random_name()?);
        let upload = self.store.put_multipart(&name).await.map_err(|cause| self.failed(cause))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        for piece in first {
            upload.put(piece);
        }
        if let Err(error) = self.send(&mut upload, pieces, &mut coming).await {
            // Leftovers of an abort are removed by `remove_partial_uploads`, or by the lifecycle rules of the bucket.
            let _aborted = upload.abort().await;
            return Err(error);
        }
        upload.finish().await.map_err(|cause| self.failed(cause))?;
        let stored = coming.stored();
        let moved = self.store.copy(&name, &self.name(stored.content)).await;
        // If the deletion fails, `remove_partial_uploads` removes the object.
        let _deleted = self.store.delete(&name).await;
        moved.map_err(|cause| self.failed(cause))?;
        Ok(stored)
    }

    async fn send(
        &self,
        upload: &mut WriteMultipart,
        mut pieces: ByteStream<'_>,
        coming: &mut IncomingContent,
    ) -> Result<(), Error> {
        while let Some(piece) = pieces.next().await {
            upload.put(coming.add_chunk(piece)?);
            upload.wait_for_capacity(PARTS_AT_ONCE).await.map_err(|cause| self.failed(cause))?;
        }
        Ok(())
    }

    async fn read(&self, content: Hash, range: Range<u64>) -> Result<ByteStream<'_>, Error> {
        let name = self.name(content);
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(range.clone())));
        match self.store.get_opts(&name, options).await {
            Ok(found) => Ok(Box::pin(found.into_stream().map_err(|cause| self.failed(cause)))),
            Err(Cause::NotFound { .. }) => Err(content_not_found(content)),
            Err(cause) => match self.store.head(&name).await {
                Ok(ObjectMeta { size, .. }) if size <= range.start => {
                    let detail = format!("the content {content} has only {size} bytes left");
                    Err(Error::new(Kind::AttachmentCorrupt, detail).because(cause))
                }
                _ => Err(self.failed(cause)),
            },
        }
    }

    async fn head(&self, content: Hash) -> Result<Option<ContentEntry>, Error> {
        match self.store.head(&self.name(content)).await {
            Ok(meta) => Ok(Some(found(content, &meta))),
            Err(Cause::NotFound { .. }) => Ok(None),
            Err(cause) => Err(self.failed(cause)),
        }
    }

    async fn remove(&self, name: &Path) -> Result<(), Error> {
        match self.store.delete(name).await {
            Ok(()) | Err(Cause::NotFound { .. }) => Ok(()),
            Err(cause) => Err(self.failed(cause)),
        }
    }

    async fn remove_stale_uploads(&self, before: Millis) -> Result<(), Error> {
        let mut left = self.store.list(Some(&self.upload_path()));
        while let Some(meta) = left.try_next().await.map_err(|cause| self.failed(cause))? {
            if written(&meta) < before {
                self.remove(&meta.location).await?;
            }
        }
        match self.folder.clone() {
            Some(folder) => folder::remove_staged(folder, before).await,
            None => Ok(()),
        }
    }
}

impl ContentStorage for ObjectContents {
    fn place(&self) -> String {
        self.location.clone()
    }

    fn put<'a>(&'a self, pieces: ByteStream<'a>, most: usize) -> ResultFuture<'a, StoredContent> {
        Box::pin(self.put_whole(pieces, most))
    }

    fn get(&self, content: Hash, range: Range<u64>) -> ResultFuture<'_, ByteStream<'_>> {
        Box::pin(self.read(content, range))
    }

    fn info(&self, content: Hash) -> ResultFuture<'_, Option<ContentEntry>> {
        Box::pin(self.head(content))
    }

    fn delete(&self, content: Hash) -> ResultFuture<'_, ()> {
        Box::pin(async move { self.remove(&self.name(content)).await })
    }

    fn list(&self) -> ContentListing<'_> {
        let all = self.store.list(Some(&self.root.clone().join("contents")));
        // Objects whose names are not hashes are not ours.
        let ours = all.map_err(|cause| self.failed(cause)).try_filter_map(|meta| async move {
            let content = meta.location.filename().and_then(|name| name.parse().ok());
            Ok(content.map(|content| found(content, &meta)))
        });
        Box::pin(ours)
    }

    fn remove_partial_uploads(&self, before: Millis) -> ResultFuture<'_, ()> {
        Box::pin(self.remove_stale_uploads(before))
    }
}

/// Hashes and counts incoming content.
struct IncomingContent {
    hashing: IncrementalHasher,
    bytes: usize,
    most: usize,
}

impl IncomingContent {
    fn new(most: usize) -> Self {
        Self { hashing: IncrementalHasher::default(), bytes: 0, most }
    }

    fn add_chunk(&mut self, piece: Result<Bytes, Error>) -> Result<Bytes, Error> {
        let piece = piece?;
        self.bytes += piece.len();
        limits::check("outside_bytes", self.bytes, self.most)?;
        self.hashing.update(&piece);
        Ok(piece)
    }

    fn stored(&self) -> StoredContent {
        StoredContent { content: self.hashing.hash(), bytes: self.bytes as u64 }
    }
}

fn found(content: Hash, meta: &ObjectMeta) -> ContentEntry {
    ContentEntry { content, bytes: meta.size, written: written(meta) }
}

fn written(meta: &ObjectMeta) -> Millis {
    Millis(u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0))
}

fn random_name() -> Result<String, Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|cause| {
        Error::new(
            Kind::IoFailed,
            format!("the operating system returned no random bytes for a name: {cause}"),
        )
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}

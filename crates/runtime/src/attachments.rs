//! Stores the contents of attachments in the database or outside it, and sweeps unused contents.
//!
//! External content is uploaded before the commit that refers to it. The commit carries the sweep number that
//! was read before the upload. [`outlast_ports::attachment_upload`] explains why no content is lost in between.
pub(crate) mod attachment_access;
pub(crate) mod attachment_cache;
pub(crate) mod attachment_references;

use bytes::BytesMut;
use futures_util::{TryStreamExt, stream};
use outlast_ports::attachment_upload::{AttachmentUpload, DeletionRequest, ExternalUpload, Upload};
use outlast_ports::contents::{
    ByteStream, ContentStorage, StoredContent, collect_bytes, single_chunk, verify_content,
};
use outlast_ports::store::Store;
use outlast_views::{AttachmentView, BlobLocation};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::MediaType;
use outlast_vocab::{Error, Hash, Kind, Limits, Millis, SessionId, WorkerId, limits};
use std::ops::Range;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes read from the database at once.
const PIECE: u64 = 256 << 10;

/// Bytes read from a stream at once.
const READ: usize = 64 << 10;

/// Contents marked for deletion in one write.
const BATCH: usize = 100;

/// The attachments of a database.
#[derive(Clone)]
pub struct Attachments {
    store: Arc<dyn Store>,
    contents: Option<Arc<dyn ContentStorage>>,
    limits: Arc<Limits>,
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// External contents that were checked.
    pub looked_at: u64,
    /// Contents that were deleted.
    pub deleted: u64,
}

/// Returns the bytes of a file, socket or pipe as a stream.
pub fn read_from<'a>(reader: impl AsyncRead + Send + 'a) -> ByteStream<'a> {
    let reader = Box::pin(reader);
    Box::pin(stream::try_unfold(reader, |mut reader| async move {
        let mut piece = BytesMut::with_capacity(READ);
        let read = reader.read_buf(&mut piece).await.map_err(|cause| {
            let detail = format!("the file to attach cannot be read: {cause}");
            Error::new(Kind::IoFailed, detail).because(cause)
        })?;
        Ok((read > 0).then(|| (piece.freeze(), reader)))
    }))
}

/// Returns the name of this database in the external store. It is derived from the database's secret.
pub async fn name_of(store: &dyn Store) -> Result<String, Error> {
    let secret = store.secret().await?;
    let name = Hash::of_parts("outlast.contents.v1", [secret.as_slice()]).to_string();
    Ok(name[..16].to_owned())
}

impl Attachments {
    /// Creates a handle. Contents are stored in `contents` if given, otherwise in the database.
    pub fn new(
        store: Arc<dyn Store>,
        contents: Option<Arc<dyn ContentStorage>>,
        limits: impl Into<Arc<Limits>>,
    ) -> Self {
        Self { store, contents, limits: limits.into() }
    }

    /// Whether contents are stored outside the database.
    pub(crate) fn are_external(&self) -> bool {
        self.contents.is_some()
    }

    /// Returns the limit on the size of one attachment, with its name.
    pub fn most(&self) -> (&'static str, usize) {
        match self.contents {
            Some(_) => ("outside_bytes", self.limits.outside_bytes),
            None => ("attachment_bytes", self.limits.attachment_bytes),
        }
    }

    /// Uploads streamed content to the external store, or buffers it for the database.
    pub async fn keep(
        &self,
        media_type: MediaType,
        name: Option<String>,
        pieces: ByteStream<'_>,
    ) -> Result<AttachmentUpload, Error> {
        let (limit, most) = self.most();
        let Some(contents) = &self.contents else {
            let bytes = collect_bytes(pieces, limit, most).await?;
            return Upload::new(media_type, name, bytes).map(AttachmentUpload::Inline);
        };
        let sweeps = self.store.sweeps().await?;
        let put = contents.put(pieces, most).await?;
        ExternalUpload::new(media_type, name, put, sweeps).map(AttachmentUpload::Outside)
    }

    /// Uploads the bytes of these files before a commit refers to them.
    pub(crate) async fn place(&self, files: Vec<AttachmentUpload>) -> Result<Vec<AttachmentUpload>, Error> {
        let Some(contents) = &self.contents else { return Ok(files) };
        let mut placed = Vec::new();
        for file in files {
            placed.push(match file {
                AttachmentUpload::Outside(_) => file,
                AttachmentUpload::Inline(Upload { attachment, bytes }) => {
                    let sweeps = self.store.sweeps().await?;
                    let put = contents.put(single_chunk(bytes.to_vec()), self.most().1).await?;
                    AttachmentUpload::Outside(ExternalUpload { attachment, bytes: put.bytes, sweeps })
                }
            });
        }
        Ok(placed)
    }

    /// Checks that content still exists after a commit was refused for it. Returns the files with the current
    /// sweep number.
    pub(crate) async fn confirm(
        &self,
        files: Vec<AttachmentUpload>,
        by: WorkerId,
        now: Millis,
    ) -> Result<Vec<AttachmentUpload>, Error> {
        let Some(contents) = &self.contents else { return Ok(files) };
        // Content that a dead process was deleting stays marked for deletion until a worker unmarks it.
        let all = files.iter().map(|file| file.attachment().content).collect();
        let lasts = self.limits.deletion_lasts;
        self.store.unmark_for_deletion(DeletionRequest { contents: all, worker: by, now, lasts }).await?;
        let mut confirmed = Vec::new();
        for file in files {
            confirmed.push(match file {
                AttachmentUpload::Inline(_) => file,
                AttachmentUpload::Outside(outside) => {
                    let sweeps = self.store.sweeps().await?;
                    let ExternalUpload { attachment, bytes, .. } = outside;
                    if contents.info(attachment.content).await?.is_none() {
                        let which = attachment.name.as_deref().unwrap_or("an attachment");
                        let detail =
                            format!("{which} was deleted as unused while it was attached; send it again");
                        return Err(Error::new(Kind::AttachmentSwept, detail));
                    }
                    AttachmentUpload::Outside(ExternalUpload { attachment, bytes, sweeps })
                }
            });
        }
        Ok(confirmed)
    }

    /// Returns the metadata of an attachment.
    pub async fn info(&self, session: SessionId, id: AttachmentId) -> Result<AttachmentView, Error> {
        self.store.attachment(session, id).await
    }

    /// Returns an attachment and its bytes as a stream. The stream ends with an error if the bytes do not
    /// match their hash.
    pub async fn open(
        &self,
        session: SessionId,
        id: AttachmentId,
    ) -> Result<(AttachmentView, ByteStream<'_>), Error> {
        let view = self.info(session, id).await?;
        let stored = StoredContent { content: view.attachment.content, bytes: view.bytes };
        let pieces = match view.location {
            BlobLocation::Outside => self.outside()?.get(stored.content, 0..stored.bytes).await?,
            BlobLocation::Database => self.pieces(session, id, stored.bytes),
        };
        Ok((view, verify_content(stored, pieces)))
    }

    /// Returns a range of an attachment's bytes, cut at its end.
    pub async fn read(
        &self,
        session: SessionId,
        id: AttachmentId,
        range: Range<u64>,
    ) -> Result<Vec<u8>, Error> {
        let view = self.info(session, id).await?;
        let range = range.start..range.end.min(view.bytes);
        let most = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        limits::check("attachment_bytes", most, self.limits.attachment_bytes)?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let content = view.attachment.content;
        match view.location {
            BlobLocation::Database => self.store.attached(session, id, range).await,
            BlobLocation::Outside => {
                collect_bytes(self.outside()?.get(content, range).await?, "attachment_bytes", most).await
            }
        }
    }

    /// Returns an attachment with all its bytes in memory.
    pub(crate) async fn load(&self, session: SessionId, id: AttachmentId) -> Result<Upload, Error> {
        let (view, pieces) = self.open(session, id).await?;
        let size = usize::try_from(view.bytes).unwrap_or(usize::MAX);
        limits::check("attachment_bytes", size, self.limits.attachment_bytes)?;
        let bytes = collect_bytes(pieces, "attachment_bytes", self.limits.attachment_bytes).await?.into();
        Ok(Upload { attachment: view.attachment, bytes })
    }

    /// Returns the bytes with this hash from the database or the external store. `None` if they are gone or
    /// exceed `most`.
    pub(crate) async fn whole(&self, content: Hash, most: usize) -> Result<Option<Vec<u8>>, Error> {
        match self.store.blob(content).await {
            Err(error) if error.kind() == Kind::BlobNotFound => {}
            found => return found.map(Some),
        }
        let Some(contents) = &self.contents else { return Ok(None) };
        let Some(found) = contents.info(content).await? else { return Ok(None) };
        if found.bytes > most as u64 {
            return Ok(None);
        }
        let stored = StoredContent { content, bytes: found.bytes };
        let pieces = contents.get(content, 0..found.bytes.max(1)).await?;
        collect_bytes(verify_content(stored, pieces), "shown_file_bytes", most).await.map(Some)
    }

    fn outside(&self) -> Result<&dyn ContentStorage, Error> {
        self.contents.as_deref().ok_or_else(|| {
            let detail =
                "the content is stored outside the database, but no store is configured; set `store` in `[attachments]`";
            Error::new(Kind::AttachmentUnavailable, detail)
        })
    }

    /// Streams content from the database.
    fn pieces(&self, session: SessionId, id: AttachmentId, bytes: u64) -> ByteStream<'_> {
        let starts = (0..bytes).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX));
        let pieces = stream::iter(starts.map(Ok)).and_then(move |start| async move {
            let end = bytes.min(start + PIECE);
            self.store.attached(session, id, start..end).await.map(Into::into)
        });
        Box::pin(pieces)
    }

    /// Deletes external contents that nothing refers to.
    ///
    /// Such content belonged to a deleted session, or its uploader died before the commit. Content younger
    /// than `content_grace` is kept. A worker must not run two sweeps at the same time.
    pub async fn sweep(&self, by: WorkerId, now: Millis) -> Result<SweepReport, Error> {
        let Some(contents) = &self.contents else { return Ok(SweepReport::default()) };
        let grace = u64::try_from(self.limits.content_grace.as_millis()).unwrap_or(u64::MAX);
        let before = Millis(now.0.saturating_sub(grace));
        contents.remove_partial_uploads(before).await?;
        let mut swept = SweepReport::default();
        let mut old = Vec::new();
        let mut listing = contents.list();
        while let Some(found) = listing.try_next().await? {
            swept.looked_at += 1;
            if found.written <= before {
                old.push(found.content);
            }
            if old.len() == BATCH {
                swept.deleted += self.delete(contents.as_ref(), std::mem::take(&mut old), by, now).await?;
            }
        }
        swept.deleted += self.delete(contents.as_ref(), old, by, now).await?;
        // Rows without content: a process deleted the content and died before it removed the row.
        let mut gone = Vec::new();
        for content in self.store.unreferenced(self.limits.page_rows).await? {
            if contents.info(content).await?.is_none() {
                gone.push(content);
            }
        }
        self.delete(contents.as_ref(), gone, by, now).await?;
        Ok(swept)
    }

    /// Deletes those of these contents that nothing refers to, and returns how many.
    async fn delete(
        &self,
        contents: &dyn ContentStorage,
        which: Vec<Hash>,
        by: WorkerId,
        now: Millis,
    ) -> Result<u64, Error> {
        let mark = self.mark_for_deletion(self.store.filter_unreferenced(which).await?, by, now).await?;
        for content in &mark {
            contents.delete(*content).await?;
        }
        let deleted = mark.len() as u64;
        self.forget(mark, by).await?;
        Ok(deleted)
    }

    async fn mark_for_deletion(
        &self,
        contents: Vec<Hash>,
        worker: WorkerId,
        now: Millis,
    ) -> Result<Vec<Hash>, Error> {
        if contents.is_empty() {
            return Ok(contents);
        }
        let lasts = self.limits.deletion_lasts;
        self.store.mark_for_deletion(DeletionRequest { contents, worker, now, lasts }).await
    }

    async fn forget(&self, contents: Vec<Hash>, worker: WorkerId) -> Result<(), Error> {
        if contents.is_empty() {
            return Ok(());
        }
        self.store.forget_deleted(contents, worker).await
    }
}

//! Attachments before they enter a session, and the deletion of unused content outside the database.
//!
//! External content is uploaded first. A later transaction adds the row that refers to it and counts the use. The
//! content is deleted after its last use is gone. A row therefore never refers to missing content, provided that
//! content is not deleted between its upload and the commit that refers to it. These rules prevent such a deletion:
//!
//! - A deletion takes two writes. `mark_for_deletion` marks the content: one transaction checks that nothing uses it and
//!   records that a worker is deleting it. Then the worker deletes the content. Then `forget_deleted` deletes the row. Both
//!   writes raise the sweep counter.
//! - An upload reads the sweep counter *before* it begins, and the commit carries that number. The commit is refused
//!   (`attachment.swept`) if the counter has changed or the content is marked.
//! - A deletion begins after its `mark_for_deletion` and ends before its `forget_deleted`. Suppose it overlaps the time between reading
//!   the counter and the commit. If one of the two writes falls within that time, the counter differs. If `mark_for_deletion`
//!   comes before that time and `forget_deleted` after it, the content is still marked. If `mark_for_deletion` comes after the commit, it
//!   sees the use and marks nothing.
//! - The sweep that marked content finishes the deletion. Others may take over only when its last request can no
//!   longer be in flight (`deletion_lasts`). Then a later sweep of the same worker may, because a worker runs one
//!   sweep at a time. Another worker may too, if there is evidence that the first is dead. Silence alone is not
//!   evidence. So a delayed worker never deletes content that was uploaded again since.
//!
//! The argument does not depend on age. Age only makes refusals rare: an upload makes content young again, and
//! content younger than `content_grace` is not marked.
//!
//! The transactions are in `outlast-ledger`, and the storage of external content in [`crate::contents`].
use crate::ResultFuture;
use crate::contents::StoredContent;
use outlast_vocab::id::{AttachmentId, WorkerId};
use outlast_vocab::message::{Attachment, MediaType};
use outlast_vocab::{Error, Hash, Kind, Millis};
use std::sync::Arc;
use std::time::Duration;

/// The sweep counter: how often content was marked for deletion or unmarked in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepCounter(pub u64);

/// An attachment with its bytes, before it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Upload {
    /// The attachment's metadata.
    pub attachment: Attachment,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

impl Upload {
    /// Creates an upload from bytes of this media type. The name does not affect its identity: equal bytes of one
    /// type are the same attachment.
    pub fn new(
        media_type: MediaType,
        name: Option<String>,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        let bytes = bytes.into();
        let put = StoredContent { content: Hash::of(&bytes), bytes: bytes.len() as u64 };
        Ok(Self { attachment: attachment_of(put, media_type, name)?, bytes })
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of {:?}", self.bytes.len(), self.attachment)
    }
}

/// An attachment before it enters a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentUpload {
    /// With its bytes, which are stored in the database.
    Inline(Upload),
    /// Its content was uploaded to external storage.
    Outside(ExternalUpload),
}

impl AttachmentUpload {
    /// Returns the attachment's metadata.
    pub fn attachment(&self) -> &Attachment {
        match self {
            Self::Inline(upload) => &upload.attachment,
            Self::Outside(outside) => &outside.attachment,
        }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(upload) => upload.bytes.len() as u64,
            Self::Outside(outside) => outside.bytes,
        }
    }
}

impl From<Upload> for AttachmentUpload {
    fn from(upload: Upload) -> Self {
        Self::Inline(upload)
    }
}

/// An attachment whose content was uploaded to external storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalUpload {
    /// The attachment's metadata.
    pub attachment: Attachment,
    /// Its size in bytes.
    pub bytes: u64,
    /// The sweep counter before the upload.
    pub sweeps: SweepCounter,
}

impl ExternalUpload {
    /// Creates an attachment of this media type from content that was just uploaded.
    pub fn new(
        media_type: MediaType,
        name: Option<String>,
        put: StoredContent,
        sweeps: SweepCounter,
    ) -> Result<Self, Error> {
        let attachment = attachment_of(put, media_type, name)?;
        Ok(Self { attachment, bytes: put.bytes, sweeps })
    }
}

/// Returns the attachment for content of this media type. The name does not affect its id: equal content of one type
/// is the same attachment.
pub(crate) fn attachment_of(
    put: StoredContent,
    media_type: MediaType,
    name: Option<String>,
) -> Result<Attachment, Error> {
    if put.bytes == 0 {
        let which = name.as_deref().unwrap_or("an attachment");
        return Err(Error::new(Kind::AttachmentEmpty, format!("{which} has no bytes")));
    }
    let id = AttachmentId::derived(&[put.content.as_bytes(), media_type.as_str().as_bytes()]);
    Ok(Attachment { id, content: put.content, media_type, name })
}

/// A worker's request to mark content for deletion.
#[derive(Clone, Debug)]
pub struct DeletionRequest {
    /// The hashes of the content.
    pub contents: Vec<Hash>,
    /// The worker that deletes it.
    pub worker: WorkerId,
    /// The current time.
    pub now: Millis,
    /// How long an earlier deletion may still be in flight.
    pub lasts: Duration,
}

/// Tracks external content: its uses and its deletion.
pub trait ExternalContentStore: Send + Sync {
    /// Returns the sweep counter.
    fn sweeps(&self) -> ResultFuture<'_, SweepCounter>;

    /// Returns content that was used and is now unused, up to `limit`.
    fn unreferenced(&self, limit: usize) -> ResultFuture<'_, Vec<Hash>>;

    /// Returns those of these contents that nothing uses.
    fn filter_unreferenced(&self, contents: Vec<Hash>) -> ResultFuture<'_, Vec<Hash>>;

    /// Marks content for deletion by a worker, and returns what the worker may delete. Content that is used, or that
    /// another worker is deleting, is excluded.
    fn mark_for_deletion(&self, request: DeletionRequest) -> ResultFuture<'_, Vec<Hash>>;

    /// Removes the marks of dead workers from content that they did not delete. Afterwards the caller must check
    /// whether the content still exists.
    fn unmark_for_deletion(&self, request: DeletionRequest) -> ResultFuture<'_, ()>;

    /// Records that a worker has deleted the content it marked.
    fn forget_deleted(&self, contents: Vec<Hash>, worker: WorkerId) -> ResultFuture<'_, ()>;
}

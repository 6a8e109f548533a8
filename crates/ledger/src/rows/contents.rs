//! Content: blobs, attachments, and content stored outside the database.
use super::{RowAccess, SessionNo};
use outlast_ports::attachment_upload::SweepCounter;
use outlast_views::BlobLocation;
use outlast_vocab::id::{AttachmentId, WorkerId};
use outlast_vocab::message::Attachment;
use outlast_vocab::{Error, Hash, Millis};
use std::ops::Range;

/// An attachment of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRow {
    /// The session that uses it.
    pub session: SessionNo,
    /// The attachment's metadata.
    pub attachment: Attachment,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where its content is stored.
    pub location: BlobLocation,
}

/// Content stored outside the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalContentRow {
    /// The hash of the content.
    pub content: Hash,
    /// How many attachments use it.
    pub uses: u64,
    /// The worker that is deleting it, if any.
    pub deletion: Option<DeletionMark>,
}

/// A mark for deletion: a worker is deleting the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionMark {
    /// The worker.
    pub worker: WorkerId,
    /// When the worker marked the content.
    pub since: Millis,
}

/// Added to the use count of a blob that is never deleted.
pub const PINNED_USES: u64 = 1 << 40;

/// Reads attachments and content.
pub trait ContentRows: RowAccess {
    /// Returns an attachment of a session.
    fn attachment(&self, session: SessionNo, id: AttachmentId) -> Result<Option<AttachmentRow>, Error>;
    /// Returns the attachments of a session after a given one, by ascending id.
    fn attachments(
        &self,
        session: SessionNo,
        after: Option<AttachmentId>,
        limit: usize,
    ) -> Result<Vec<AttachmentRow>, Error>;
    /// Returns a blob.
    fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error>;
    /// Returns a range of the bytes of a blob, without reading the rest. The range is cut at the end of the blob.
    fn blob_range(&self, hash: Hash, range: Range<u64>) -> Result<Option<Vec<u8>>, Error>;
    /// Returns a configuration. The caller read its fingerprint in a record that it has access to.
    fn package(&self, fingerprint: Hash) -> Result<Option<Vec<u8>>, Error> {
        self.blob(fingerprint)
    }
    /// Returns the row of external content that is or was used, or is being deleted.
    fn external_content(&self, content: Hash) -> Result<Option<ExternalContentRow>, Error>;
    /// Returns how often content was marked for deletion or unmarked.
    fn sweep_counter(&self) -> Result<SweepCounter, Error>;
}

/// Lists unused content.
pub trait ContentQueries: ContentRows {
    /// Returns external content that nothing uses any longer.
    fn unreferenced_content(&self, limit: usize) -> Result<Vec<Hash>, Error>;
}

/// Writes attachments and content.
pub trait ContentWrites: ContentRows {
    /// Stores a blob, or counts one more use of it.
    fn put_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error>;
    /// Stores a blob that is never deleted, whether used or not.
    fn pin_blob(&mut self, hash: Hash, bytes: &[u8]) -> Result<(), Error>;
    /// Inserts an attachment of a session, which must not have it yet. Uses of its content are counted separately.
    fn insert_attachment(&mut self, row: &AttachmentRow) -> Result<(), Error>;
    /// Inserts or replaces the row of external content.
    fn put_external_content(&mut self, row: &ExternalContentRow) -> Result<(), Error>;
    /// Deletes the row of external content.
    fn delete_external_content(&mut self, content: Hash) -> Result<(), Error>;
    /// Sets how often content was marked for deletion or unmarked.
    fn put_sweep_counter(&mut self, sweeps: SweepCounter) -> Result<(), Error>;
}

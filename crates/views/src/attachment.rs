//! Attachments of sessions, and where their content is stored.
use outlast_vocab::message::Attachment;

/// An attachment of a session, as queries return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentView {
    /// The attachment's metadata.
    pub attachment: Attachment,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where its content is stored.
    pub location: BlobLocation,
}

/// Where content is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobLocation {
    /// In the database.
    Database,
    /// In external storage, under its hash.
    Outside,
}

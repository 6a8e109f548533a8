//! Attachments of sessions.
use outlast_views::{AttachmentView, BlobLocation};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::{Attachment, MediaType};
use outlast_vocab::{Error, Hash};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An attachment of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Attachment)]
pub struct AttachmentResource {
    /// The id of the attachment.
    #[schema(value_type = String)]
    pub id: AttachmentId,
    /// The hash of the content.
    #[schema(value_type = String)]
    pub content: Hash,
    /// The media type of the content.
    pub media_type: String,
    /// The original file name. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The size in bytes.
    pub bytes: u64,
    /// Whether the content is stored outside the database. Absent if it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

impl From<AttachmentView> for AttachmentResource {
    fn from(AttachmentView { attachment, bytes, location }: AttachmentView) -> Self {
        let Attachment { id, content, media_type, name } = attachment;
        Self {
            id,
            content,
            media_type: media_type.into(),
            name,
            bytes,
            outside: location == BlobLocation::Outside,
        }
    }
}

impl TryFrom<AttachmentResource> for AttachmentView {
    type Error = Error;

    fn try_from(attachment: AttachmentResource) -> Result<Self, Error> {
        let AttachmentResource { id, content, media_type, name, bytes, outside } = attachment;
        let media_type = MediaType::try_from(media_type)?;
        let location = if outside { BlobLocation::Outside } else { BlobLocation::Database };
        Ok(Self { attachment: Attachment { id, content, media_type, name }, bytes, location })
    }
}

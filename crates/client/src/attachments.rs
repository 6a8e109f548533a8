//! Attachments of a session.
use crate::Client;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use outlast_views::{AttachmentView, BlobLocation};
use outlast_vocab::id::AttachmentId;
use outlast_vocab::message::{Attachment, MediaType};
use outlast_vocab::{Error, Hash, Kind, SessionId};
use reqwest::Method;
use serde::Deserialize;

#[derive(Deserialize)]
struct AttachmentJson {
    id: AttachmentId,
    content: Hash,
    media_type: String,
    name: Option<String>,
    bytes: u64,
    #[serde(default)]
    outside: bool,
}

impl TryFrom<AttachmentJson> for AttachmentView {
    type Error = Error;

    fn try_from(attached: AttachmentJson) -> Result<Self, Error> {
        let AttachmentJson { id, content, media_type, name, bytes, outside } = attached;
        let media_type = MediaType::try_from(media_type)?;
        let lies = if outside { BlobLocation::Outside } else { BlobLocation::Database };
        Ok(Self { attachment: Attachment { id, content, media_type, name }, bytes, location: lies })
    }
}

impl Client {
    /// Lists the attachments that a session uses.
    pub async fn attachments(&self, session: SessionId) -> Result<Vec<AttachmentView>, Error> {
        let path = ["v1", "sessions", &session.to_string(), "attachments"];
        let attached: Vec<AttachmentJson> = self.list(&path, &[], usize::MAX).await?;
        attached.into_iter().map(AttachmentView::try_from).collect()
    }

    /// Returns the bytes of an attachment as a stream.
    pub async fn attachment(
        &self,
        session: SessionId,
        id: AttachmentId,
    ) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + use<>, Error> {
        let path = ["v1", "sessions", &session.to_string(), "attachments", &id.to_string()];
        let response = self.send_without_timeout(self.request(Method::GET, &path, &[])).await?;
        Ok(response.bytes_stream().map_err(|cause| {
            let detail =
                format!("the attachment broke off: {}", crate::http::error_chain(&cause.without_url()));
            Error::new(Kind::ServerUnreachable, detail)
        }))
    }
}

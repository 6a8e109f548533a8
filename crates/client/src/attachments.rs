//! Attachments of a session.
use crate::Client;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use outlast_api::attachments::AttachmentResource;
use outlast_views::AttachmentView;
use outlast_vocab::id::AttachmentId;
use outlast_vocab::{Error, Kind, SessionId};
use reqwest::Method;

impl Client {
    /// Lists the attachments that a session uses.
    pub async fn attachments(&self, session: SessionId) -> Result<Vec<AttachmentView>, Error> {
        let path = ["v1", "sessions", &session.to_string(), "attachments"];
        let attachments: Vec<AttachmentResource> = self.list(&path, &(), usize::MAX).await?;
        attachments.into_iter().map(AttachmentView::try_from).collect()
    }

    /// Returns the bytes of an attachment as a stream.
    pub async fn attachment(
        &self,
        session: SessionId,
        id: AttachmentId,
    ) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + use<>, Error> {
        let path = ["v1", "sessions", &session.to_string(), "attachments", &id.to_string()];
        let response = self.send_without_timeout(self.request(Method::GET, &path, &())).await?;
        Ok(response.bytes_stream().map_err(|cause| {
            let detail = format!(
                "the download of the attachment was interrupted: {}",
                crate::http::error_chain(&cause.without_url())
            );
            Error::new(Kind::ServerUnreachable, detail)
        }))
    }
}

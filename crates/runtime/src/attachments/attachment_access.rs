//! Gives access to the attachments of a store, and reads contents for model calls through a cache.
use crate::attachments::Attachments;
use crate::attachments::attachment_cache::{AttachmentCache, attachments};
use crate::attachments::attachment_references::AttachmentResolver;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::contents::ContentStorage;
use outlast_ports::model::AttachmentContents;
use outlast_ports::store::Store;
use outlast_vocab::message::Message;
use outlast_vocab::{Error, Limits, SessionId};
use std::sync::Arc;

/// Where attachment contents are stored, and a cache of those that were recently sent to a model.
#[derive(Clone)]
pub(crate) struct AttachmentAccess {
    /// Where contents are stored. `None` means the database.
    contents: Option<Arc<dyn ContentStorage>>,
    cache: Arc<AttachmentCache>,
    limits: Arc<Limits>,
}

impl AttachmentAccess {
    /// Creates an empty cache over this storage. `None` means the database.
    pub(crate) fn new(contents: Option<Arc<dyn ContentStorage>>, limits: Arc<Limits>) -> Self {
        let cache = Arc::new(AttachmentCache::new(limits.recent_file_bytes));
        Self { contents, cache, limits }
    }

    /// Whether contents are stored outside the database.
    pub(crate) fn is_external(&self) -> bool {
        self.contents.is_some()
    }

    /// Returns the attachments in this store.
    pub(crate) fn in_store(&self, store: &Arc<dyn Store>) -> Attachments {
        Attachments::new(store.clone(), self.contents.clone(), self.limits.clone())
    }

    /// Returns the attachments of a session that arguments of its calls may refer to.
    pub(crate) fn of_session(
        &self,
        store: Option<&Arc<dyn Store>>,
        session: SessionId,
    ) -> AttachmentResolver {
        let (attachments, bytes) = (store.map(|store| self.in_store(store)), self.limits.projected_bytes);
        AttachmentResolver { attachments, session, bytes }
    }

    /// Returns the bytes of the attachments in these messages, newest first, up to `shown_file_bytes`.
    ///
    /// Attachments that are gone or do not fit are left out; the model sees that they are missing.
    ///
    /// `unsaved` are attachments that the store does not have yet. Without a store, only those are found.
    pub(crate) async fn contents_of<'m>(
        &self,
        store: Option<&Arc<dyn Store>>,
        unsaved: &[Upload],
        messages: impl DoubleEndedIterator<Item = &'m Message>,
    ) -> Result<AttachmentContents, Error> {
        let mut files = AttachmentContents::default();
        let mut remaining = self.limits.shown_file_bytes;
        for content in messages.rev().flat_map(attachments).map(|attachment| attachment.content) {
            if files.get(content).is_some() {
                continue;
            }
            let made = unsaved.iter().find(|file| file.attachment.content == content);
            let known = made.map(|file| file.bytes.clone()).or_else(|| self.cache.get(content));
            let bytes = match (known, store) {
                (Some(bytes), _) => bytes,
                (None, None) => continue,
                (None, Some(store)) => match self.in_store(store).whole(content, remaining).await? {
                    Some(bytes) => self.cache.keep(content, bytes.into()),
                    None => continue,
                },
            };
            if bytes.len() <= remaining {
                remaining -= bytes.len();
                files.insert(content, bytes);
            }
        }
        Ok(files)
    }
}

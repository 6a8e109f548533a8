//! Loads the bytes of attachments for model calls and caches them.
use crate::agents::resolved_agent::RuntimeServices;
use outlast_ports::attachment_upload::Upload;
use outlast_ports::model::AttachmentContents;
use outlast_ports::store::Store;
use outlast_vocab::message::{Attachment, Message, Part};
use outlast_vocab::{Error, Hash};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Returns the bytes of the attachments in these messages, newest first, up to `shown_file_bytes`.
///
/// Attachments that are gone or do not fit are left out; the model sees that they are missing.
///
/// `unsaved` are attachments that the store does not have yet. Without a store, only those are found.
pub(crate) async fn contents_of<'m>(
    services: &RuntimeServices,
    store: Option<&Arc<dyn Store>>,
    unsaved: &[Upload],
    messages: impl DoubleEndedIterator<Item = &'m Message>,
) -> Result<AttachmentContents, Error> {
    let mut files = AttachmentContents::default();
    let mut remaining = services.limits.shown_file_bytes;
    for content in messages.rev().flat_map(attachments).map(|attachment| attachment.content) {
        if files.get(content).is_some() {
            continue;
        }
        let made = unsaved.iter().find(|file| file.attachment.content == content);
        let known = made.map(|file| file.bytes.clone()).or_else(|| services.files.get(content));
        let bytes = match (known, store) {
            (Some(bytes), _) => bytes,
            (None, None) => continue,
            (None, Some(store)) => match services.attachments(store).whole(content, remaining).await? {
                Some(bytes) => services.files.keep(content, bytes.into()),
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

/// Returns the attachments that a message refers to.
pub(crate) fn attachments(message: &Message) -> impl DoubleEndedIterator<Item = &Attachment> {
    let parts = match message {
        Message::User { parts } | Message::Assistant { parts, .. } => parts.as_slice(),
        Message::Tool { .. } => &[],
    };
    parts.iter().filter_map(|part| match part {
        Part::Attachment { attachment } => Some(attachment),
        Part::Text { .. } | Part::Reasoning { .. } | Part::Sealed { .. } => None,
    })
}

/// A cache of recently shown contents. The oldest are evicted first.
#[derive(Debug)]
pub struct AttachmentCache {
    most: usize,
    kept: Mutex<VecDeque<(Hash, Arc<[u8]>)>>,
}

impl AttachmentCache {
    /// Creates a cache of up to this many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    fn get(&self, content: Hash) -> Option<Arc<[u8]>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(hash, _)| *hash == content).map(|(_, bytes)| bytes.clone())
    }

    fn keep(&self, content: Hash, bytes: Arc<[u8]>) -> Arc<[u8]> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((content, bytes.clone()));
        while kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > self.most {
            kept.pop_front();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_shown_bytes_are_cached_up_to_limit() {
        let recent = AttachmentCache::new(10);
        let [one, two, large] = [b"1234".as_slice(), b"56789", b"0123456789a"];
        for bytes in [one, two] {
            recent.keep(Hash::of(bytes), bytes.into());
        }
        assert_eq!(recent.get(Hash::of(one)).as_deref(), Some(one));
        recent.keep(Hash::of(b"x!"), b"x!".as_slice().into());
        assert_eq!(recent.get(Hash::of(one)), None);
        assert_eq!(recent.get(Hash::of(two)).as_deref(), Some(two));
        recent.keep(Hash::of(large), large.into());
        assert_eq!(recent.get(Hash::of(large)), None);
    }
}

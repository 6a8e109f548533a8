//! Caches contents of attachments that were recently sent to a model.
use outlast_vocab::Hash;
use outlast_vocab::message::{Attachment, Message, Part};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Returns the attachments that a message refers to.
pub(crate) fn attachments(message: &Message) -> impl DoubleEndedIterator<Item = &Attachment> {
    let parts = match message {
        Message::User { parts } | Message::Assistant { parts, .. } => parts.as_slice(),
        Message::Tool { .. } => &[],
    };
    parts.iter().filter_map(|part| match part {
        Part::Attachment { attachment } => Some(attachment),
        Part::Text { .. }
        | Part::Reasoning { .. }
        | Part::Sealed { .. }
        | Part::Instruction { .. }
        | Part::Link { .. } => None,
    })
}

/// A cache of recently shown contents. The oldest are evicted first.
#[derive(Debug)]
pub(crate) struct AttachmentCache {
    most: usize,
    contents: Mutex<VecDeque<(Hash, Arc<[u8]>)>>,
}

impl AttachmentCache {
    /// Creates a cache of up to this many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most, contents: Mutex::default() }
    }

    pub(super) fn get(&self, content: Hash) -> Option<Arc<[u8]>> {
        let contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.iter().find(|(hash, _)| *hash == content).map(|(_, bytes)| bytes.clone())
    }

    pub(super) fn keep(&self, content: Hash, bytes: Arc<[u8]>) -> Arc<[u8]> {
        let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
        contents.push_back((content, bytes.clone()));
        while contents.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > self.most {
            contents.pop_front();
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

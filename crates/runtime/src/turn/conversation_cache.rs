//! A cache of recent conversations, so that the next turn of a session need not read them from the store.
//!
//! The cache is bounded in bytes over all sessions. An entry is valid only if nothing was written to the session since;
//! otherwise the conversation is read from the store.
use outlast_kernel::conversation::Conversation;
use outlast_vocab::SessionId;
use outlast_vocab::record::{NodeRef, Seq};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The position of a conversation: its last message and the next record of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationPosition {
    /// The last message.
    pub node: NodeRef,
    /// The next record of the session.
    pub next: Seq,
}

/// The conversation cache.
#[derive(Debug)]
pub struct ConversationCache {
    most: usize,
    kept: Mutex<ConversationCacheState>,
}

#[derive(Debug, Default)]
struct ConversationCacheState {
    conversations: HashMap<SessionId, CachedConversation>,
    /// Cache order, oldest first. An entry that was taken or replaced has another number and is skipped.
    order: VecDeque<(u64, SessionId)>,
    number: u64,
    bytes: usize,
}

#[derive(Debug)]
struct CachedConversation {
    number: u64,
    standing: ConversationPosition,
    conversation: Conversation,
    size: usize,
}

impl ConversationCache {
    /// Creates a cache of up to `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// Removes and returns the conversation of a session, if it is at exactly this position.
    pub fn take(&self, standing: ConversationPosition) -> Option<Conversation> {
        let mut kept = self.lock();
        let entry = kept.conversations.remove(&standing.node.session)?;
        kept.bytes -= entry.size;
        (entry.standing == standing).then_some(entry.conversation)
    }

    /// Caches a conversation for the next turn of its session.
    pub fn keep(&self, standing: ConversationPosition, conversation: Conversation) {
        let (session, size) = (standing.node.session, conversation.size());
        let mut kept = self.lock();
        let kept = &mut *kept;
        kept.number += 1;
        kept.order.push_back((kept.number, session));
        kept.bytes += size;
        let entry = CachedConversation { number: kept.number, standing, conversation, size };
        if let Some(old) = kept.conversations.insert(session, entry) {
            kept.bytes -= old.size;
        }
        // Stale order entries are removed with the oldest, so the order stays about as long as the cache.
        while kept.bytes > self.most || kept.order.len() > 2 * kept.conversations.len() + 16 {
            let Some((number, oldest)) = kept.order.pop_front() else { return };
            if kept.conversations.get(&oldest).is_some_and(|entry| entry.number == number)
                && let Some(entry) = kept.conversations.remove(&oldest)
            {
                kept.bytes -= entry.size;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConversationCacheState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::TurnId;
    use outlast_vocab::message::Message;

    fn standing(session: u128, next: u64) -> ConversationPosition {
        ConversationPosition {
            node: NodeRef { session: SessionId::from_u128(session), seq: Seq(next - 2) },
            next: Seq(next),
        }
    }

    fn conversation(text: &str) -> Conversation {
        let mut conversation = Conversation::default();
        conversation.push(TurnId::from_u128(1), vec![Message::user(text)]);
        conversation
    }

    #[test]
    fn cached_conversation_serves_only_next_record() {
        let recent = ConversationCache::new(100);
        recent.keep(standing(1, 9), conversation("hi"));
        assert!(recent.take(standing(1, 10)).is_none());
        recent.keep(standing(1, 9), conversation("hi"));
        assert_eq!(recent.take(standing(1, 9)).unwrap().messages().as_slice(), [Message::user("hi")]);
        assert!(recent.take(standing(1, 9)).is_none());
    }

    #[test]
    fn conversation_cache_evicts_oldest_over_byte_limit() {
        let recent = ConversationCache::new(2 * Message::user("12345").size());
        for session in 1..=100 {
            recent.keep(standing(session, 9), conversation("12345"));
        }
        let kept: Vec<u128> =
            (1..=100).filter(|session| recent.take(standing(*session, 9)).is_some()).collect();
        assert_eq!(kept, [99, 100]);
        assert!(recent.lock().order.len() <= 20 && recent.lock().bytes == 0);
    }
}

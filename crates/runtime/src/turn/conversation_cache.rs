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
    state: Mutex<ConversationCacheState>,
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
    position: ConversationPosition,
    conversation: Conversation,
    size: usize,
}

impl ConversationCache {
    /// Creates a cache of up to `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Removes and returns the conversation of a session, if it is at exactly this position.
    pub fn take(&self, position: ConversationPosition) -> Option<Conversation> {
        let mut state = self.lock();
        let entry = state.conversations.remove(&position.node.session)?;
        state.bytes -= entry.size;
        (entry.position == position).then_some(entry.conversation)
    }

    /// Caches a conversation for the next turn of its session.
    pub fn keep(&self, position: ConversationPosition, conversation: Conversation) {
        let (session, size) = (position.node.session, conversation.size());
        let mut state = self.lock();
        let state = &mut *state;
        state.number += 1;
        state.order.push_back((state.number, session));
        state.bytes += size;
        let entry = CachedConversation { number: state.number, position, conversation, size };
        if let Some(old) = state.conversations.insert(session, entry) {
            state.bytes -= old.size;
        }
        // Stale order entries are removed with the oldest, so the order stays about as long as the cache.
        while state.bytes > self.most || state.order.len() > 2 * state.conversations.len() + 16 {
            let Some((number, oldest)) = state.order.pop_front() else { return };
            if state.conversations.get(&oldest).is_some_and(|entry| entry.number == number)
                && let Some(entry) = state.conversations.remove(&oldest)
            {
                state.bytes -= entry.size;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConversationCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_vocab::TurnId;
    use outlast_vocab::message::Message;

    fn position(session: u128, next: u64) -> ConversationPosition {
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
        recent.keep(position(1, 9), conversation("hi"));
        assert!(recent.take(position(1, 10)).is_none());
        recent.keep(position(1, 9), conversation("hi"));
        assert_eq!(recent.take(position(1, 9)).unwrap().messages().as_slice(), [Message::user("hi")]);
        assert!(recent.take(position(1, 9)).is_none());
    }

    #[test]
    fn conversation_cache_evicts_oldest_over_byte_limit() {
        let recent = ConversationCache::new(2 * Message::user("12345").size());
        for session in 1..=100 {
            recent.keep(position(session, 9), conversation("12345"));
        }
        let cached: Vec<u128> =
            (1..=100).filter(|session| recent.take(position(*session, 9)).is_some()).collect();
        assert_eq!(cached, [99, 100]);
        assert!(recent.lock().order.len() <= 20 && recent.lock().bytes == 0);
    }
}

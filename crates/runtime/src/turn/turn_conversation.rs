//! The conversation before a turn: loaded when the turn needs it, and cached for the next turn of its session.
use crate::calls::catalogue::CallingTurn;
use crate::turn::conversation_cache::{ConversationCache, ConversationPosition};
use crate::turn::conversation_reader::{self, LoadedConversation};
use outlast_kernel::conversation::Conversation;
use outlast_kernel::replay::TurnHistory;
use outlast_ports::store::Store;
use outlast_vocab::Error;
use outlast_vocab::effect::JournalPosition;
use outlast_vocab::message::Message;
use outlast_vocab::record::{NodeRef, RepairedCall, Seq};
use std::sync::Arc;

/// The conversation before one turn.
pub(crate) struct TurnConversation {
    cache: Arc<ConversationCache>,
    /// The message that the turn follows.
    parent: Option<NodeRef>,
    /// The record that accepted the input.
    first: Seq,
    loaded: Option<Conversation>,
}

impl TurnConversation {
    /// Describes the conversation of a turn that follows `parent` and whose input is the record `first`.
    pub(crate) fn new(cache: Arc<ConversationCache>, parent: Option<NodeRef>, first: Seq) -> Self {
        Self { cache, parent, first, loaded: None }
    }

    /// Returns the message that the turn follows.
    pub(crate) fn parent(&self) -> Option<NodeRef> {
        self.parent
    }

    /// Returns the conversation if it is loaded.
    pub(super) fn loaded(&self) -> Option<&Conversation> {
        self.loaded.as_ref()
    }

    /// Returns the conversation. It is empty before [`load`](Self::load).
    pub(super) fn get(&mut self) -> &mut Conversation {
        self.loaded.get_or_insert_default()
    }

    /// Loads the conversation, up to `bytes`, with the compactions of this turn applied. Returns the calls of the turn
    /// before that have no result.
    pub(super) async fn load(
        &mut self,
        store: &dyn Store,
        history: &TurnHistory,
        bytes: usize,
    ) -> Result<Vec<RepairedCall>, Error> {
        if self.loaded.is_some() {
            return Ok(Vec::new());
        }
        let LoadedConversation { mut conversation, repaired } = self.read(store, bytes).await?;
        for compacted in history.compactions() {
            conversation.compact(compacted.clone());
        }
        self.loaded = Some(conversation);
        Ok(repaired)
    }

    async fn read(&self, store: &dyn Store, bytes: usize) -> Result<LoadedConversation, Error> {
        let Some(node) = self.parent else { return Ok(LoadedConversation::default()) };
        match self.cache.take(ConversationPosition { node, next: self.first }) {
            Some(conversation) => Ok(LoadedConversation { conversation, repaired: Vec::new() }),
            None => conversation_reader::conversation(store, node, bytes).await,
        }
    }

    /// Caches the conversation with the messages of this turn, for the session's next turn. `place` is the last message
    /// and `last` the last record.
    pub(super) fn cache(
        &mut self,
        CallingTurn { session, turn }: CallingTurn,
        messages: Vec<Message>,
        place: Option<JournalPosition>,
        last: Seq,
    ) {
        if let (Some(mut conversation), Some(place), false) = (self.loaded.take(), place, messages.is_empty())
        {
            conversation.push(turn, messages);
            let node = NodeRef { session, seq: place.seq };
            self.cache.keep(ConversationPosition { node, next: Seq(last.0 + 1) }, conversation);
        }
    }
}

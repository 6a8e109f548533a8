//! Reads the conversation up to a message, in the form that a model is shown.
use outlast_kernel::conversation::Conversation;
use outlast_kernel::transcript::{self, Transcript};
use outlast_ports::store::Store;
use outlast_vocab::record::{NodeRef, RepairedCall};
use outlast_vocab::{Error, Kind};

/// A conversation up to a message.
#[derive(Debug, Default)]
pub struct LoadedConversation {
    /// The conversation.
    pub conversation: Conversation,
    /// Calls of its last turn without a result, because a fork or rewind cut the turn there.
    pub repaired: Vec<RepairedCall>,
}

/// Reads the turns up to and including this message, with compactions applied. Reads at most `bytes` of records.
pub async fn conversation(
    store: &dyn Store,
    node: NodeRef,
    bytes: usize,
) -> Result<LoadedConversation, Error> {
    let mut recalled = LoadedConversation::default();
    for turn in store.history(node, bytes).await?.into_iter().rev() {
        let id = turn.records.first().and_then(|record| record.turn);
        let id = id.ok_or_else(|| Error::new(Kind::RecordCorrupt, "a message belongs to no turn"))?;
        let Transcript { messages, compactions, repaired } =
            transcript::of_turn(turn.records, turn.last_in_branch);
        for compacted in compactions {
            recalled.conversation.compact(compacted);
        }
        recalled.conversation.push(id, messages);
        // A fork or rewind can only have cut the last turn.
        recalled.repaired = repaired;
    }
    Ok(recalled)
}

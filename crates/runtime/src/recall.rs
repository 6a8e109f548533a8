//! Reads the conversation before a message, as a model would be shown it.
use outlast_kernel::conversation::Conversation;
use outlast_kernel::transcript::{self, Transcript};
use outlast_ports::store::Store;
use outlast_vocab::record::{NodeRef, RepairedCall};
use outlast_vocab::{Error, Kind};

/// A conversation up to a message.
#[derive(Debug, Default)]
pub struct Recalled {
    /// The conversation.
    pub conversation: Conversation,
    /// Calls of its last turn that had no result where a fork or a rewind has cut it.
    pub repaired: Vec<RepairedCall>,
}

/// The turns before and with this message, as far as `bytes` of records go, as compactions left them.
pub async fn conversation(store: &dyn Store, node: NodeRef, bytes: usize) -> Result<Recalled, Error> {
    let mut recalled = Recalled::default();
    for turn in store.history(node, bytes).await?.iter().rev() {
        let Transcript { messages, compactions, repaired } = transcript::of_turn(&turn.records, turn.cut);
        let id = turn.records.first().and_then(|record| record.turn);
        let id = id.ok_or_else(|| Error::new(Kind::RecordCorrupt, "a message belongs to no turn"))?;
        for compacted in compactions {
            recalled.conversation.compact(compacted);
        }
        recalled.conversation.push(id, messages);
        // The last turn is the only one that a fork or a rewind can have cut just now.
        recalled.repaired = repaired;
    }
    Ok(recalled)
}

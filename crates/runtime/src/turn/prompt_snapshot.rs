//! Reconstructs the full prompt of a recorded model call: system prompt, tools and messages.
//!
//! A record stores the position in the conversation and not the conversation itself. The prompt is rebuilt from that
//! position, from the package that the turn is pinned to, and from the recorded changes of hooks.
use crate::agents::agent_registry;
use crate::turn::conversation_reader;
use outlast_kernel::conversation::Conversation;
use outlast_kernel::transcript::{self, Transcript};
use outlast_ports::store::Store;
use outlast_vocab::effect::{Command, ModelCall};
use outlast_vocab::hook::{ContextHookInput, HookPatch};
use outlast_vocab::message::Message;
use outlast_vocab::record::{EffectPerformed, Fact, HookApplied, Record, Seq};
use outlast_vocab::tool::ToolContract;
use outlast_vocab::{Error, Kind, Limits, TurnId};

/// The prompt of a model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptSnapshot {
    /// The request as recorded.
    pub call: ModelCall,
    /// The system prompt.
    pub system: String,
    /// The tool contracts. `None` in databases written before contracts were stored.
    pub tools: Option<Vec<ToolContract>>,
    /// The messages, in order.
    pub messages: Vec<Message>,
}

/// Reconstructs the prompt of the model call with this key in a turn.
pub async fn to_model(store: &dyn Store, turn: TurnId, key: &str) -> Result<PromptSnapshot, Error> {
    let records = store.turn_records(turn).await?;
    let call = asked(&records, key).ok_or_else(|| {
        Error::new(Kind::NodeNotFound, format!("turn {turn} has no model call that was answered at `{key}`"))
    })?;
    let pinned = agent_registry::of_turn(store, turn).await?;
    let pinned = pinned.ok_or_else(|| Error::new(Kind::BlobNotFound, format!("{turn} has no package")))?;
    let until = call.at.map_or(Seq(0), |place| place.seq);
    let parent = records.iter().find_map(|record| match &record.fact {
        Fact::Started(started) => started.parent,
        _ => None,
    });
    let mut conversation = match parent {
        Some(node) => {
            conversation_reader::conversation(store, node, Limits::default().view_bytes * 4)
                .await?
                .conversation
        }
        None => Conversation::default(),
    };
    let patches = patches(&records, key);
    let before = records.into_iter().take_while(|record| record.seq <= until).collect();
    let Transcript { messages: own, compactions, .. } = transcript::of_turn(before, until);
    for compacted in compactions {
        conversation.compact(compacted);
    }
    let mut messages = conversation.messages().as_ref().clone();
    messages.extend(conversation.shown(&own).iter().cloned());
    let mut seen = ContextHookInput { system: pinned.package.system, messages };
    for patch in patches {
        match patch {
            HookPatch::BeforeContext(patch) => patch.apply(&mut seen),
            HookPatch::BeforeModel(patch) => seen.system = patch.system.unwrap_or(seen.system),
            _ => {}
        }
    }
    Ok(PromptSnapshot { call, system: seen.system, tools: pinned.contracts, messages: seen.messages })
}

fn asked(records: &[Record], key: &str) -> Option<ModelCall> {
    records.iter().find_map(|record| match &record.fact {
        Fact::Performed(EffectPerformed { key: at, command: Command::ModelCall(call), .. })
            if at.as_str() == key =>
        {
            Some(call.clone())
        }
        _ => None,
    })
}

/// Returns the changes that hooks made to an effect, in order.
fn patches(records: &[Record], key: &str) -> Vec<HookPatch> {
    let patch = |record: &Record| match &record.fact {
        Fact::Hooked(HookApplied { key: at, patch, .. }) if at.as_str() == key => Some(patch.clone()),
        _ => None,
    };
    records.iter().filter_map(patch).collect()
}

//! What a model would be shown of a session now, and how many tokens each part takes.
use crate::turn::conversation_reader;
use outlast_ports::store::Store;
use outlast_views::SessionView;
use outlast_vocab::effect::{ModelOutcome, Outcome, Usage};
use outlast_vocab::message::Message;
use outlast_vocab::record::{EffectPerformed, Fact, Seq};
use outlast_vocab::{Error, Kind, Limits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Approximate bytes per token.
const TOKEN: usize = 4;

/// The messages a model would be shown, and their size.
#[derive(Clone, Debug, Default)]
pub struct ContextUsage {
    /// The messages, in order.
    pub messages: Arc<Vec<Message>>,
    /// The usage of the last model call.
    pub last_usage: Option<Usage>,
    /// How often older messages were compacted.
    pub compactions: usize,
}

impl ContextUsage {
    /// Reads the ledger of a session's head.
    pub async fn of(store: &dyn Store, session: &SessionView, head: &str) -> Result<Self, Error> {
        let head = session.heads.iter().find(|(name, _)| name == head).ok_or_else(|| {
            Error::new(Kind::NodeNotFound, format!("session {} has no head `{head}`", session.id))
        })?;
        let messages = match head.1 {
            Some(node) => {
                let most = Limits::default().view_bytes * 4;
                conversation_reader::conversation(store, node, most).await?.conversation.messages().clone()
            }
            None => Arc::default(),
        };
        let mut ledger = Self { messages, last_usage: None, compactions: 0 };
        let mut after = Seq(0);
        loop {
            let page = store.records(session.id, after, Limits::default().page_rows).await?;
            let Some(last) = page.last() else { return Ok(ledger) };
            after = last.seq;
            for record in &page {
                ledger.take(&record.fact);
            }
        }
    }

    fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Performed(EffectPerformed {
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                ..
            }) => self.last_usage = Some(reply.usage),
            Fact::Compacted(_) => self.compactions += 1,
            _ => {}
        }
    }

    /// Returns the approximate tokens of all messages.
    pub fn tokens(&self) -> usize {
        self.messages.iter().map(tokens).sum()
    }

    /// Returns how many files the messages contain. Their tokens depend on the provider.
    pub fn files(&self) -> usize {
        let parts = self.messages.iter().flat_map(|message| match message {
            Message::User { parts } | Message::Assistant { parts, .. } => parts.as_slice(),
            Message::Tool { .. } => &[],
        });
        parts.filter(|part| part.is_file()).count()
    }

    /// Returns the approximate tokens of each part: the user's, the model's, and the results of each tool.
    pub fn by_part(&self) -> BTreeMap<&str, usize> {
        let mut parts = BTreeMap::new();
        for message in self.messages.iter() {
            *parts.entry(who(message)).or_default() += tokens(message);
        }
        parts
    }
}

/// Returns the approximate tokens of a message.
pub fn tokens(message: &Message) -> usize {
    message.size().div_ceil(TOKEN)
}

/// Returns who a message is from: `user`, `assistant`, or the tool that returned it.
pub fn who(message: &Message) -> &str {
    match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::Tool { tool, .. } => tool.as_str(),
    }
}

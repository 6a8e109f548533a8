//! What a model would be shown of a session now, and what each part of it takes (R4.10).
use crate::recall;
use outlast_ports::store::{SessionView, Store};
use outlast_vocab::effect::{ModelOutcome, Outcome, Usage};
use outlast_vocab::message::{Message, Part};
use outlast_vocab::record::{Fact, Performed, Seq};
use outlast_vocab::{Error, Kind, Limits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a token, about.
const TOKEN: usize = 4;

/// What a model would be shown, part by part.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The messages, in order.
    pub messages: Arc<Vec<Message>>,
    /// What the last call of a model used.
    pub last_usage: Option<Usage>,
    /// How often older messages were made shorter.
    pub compactions: usize,
}

impl Ledger {
    /// The ledger of a head of a session.
    pub async fn of(store: &dyn Store, session: &SessionView, head: &str) -> Result<Self, Error> {
        let head = session.heads.iter().find(|(name, _)| name == head).ok_or_else(|| {
            Error::new(Kind::NodeNotFound, format!("session {} has no head `{head}`", session.id))
        })?;
        let messages = match head.1 {
            Some(node) => {
                let most = Limits::default().view_bytes * 4;
                recall::conversation(store, node, most).await?.conversation.messages().clone()
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
            Fact::Performed(Performed {
                outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)), ..
            }) => self.last_usage = Some(reply.usage),
            Fact::Compacted(_) => self.compactions += 1,
            _ => {}
        }
    }

    /// Tokens of all messages, about.
    pub fn tokens(&self) -> usize {
        self.messages.iter().map(tokens).sum()
    }

    /// Files among the messages. What they take is for the provider to say.
    pub fn files(&self) -> usize {
        let parts = self.messages.iter().flat_map(|message| match message {
            Message::User { parts } | Message::Assistant { parts, .. } => parts.as_slice(),
            Message::Tool { .. } => &[],
        });
        parts.filter(|part| matches!(part, Part::Attachment { .. })).count()
    }

    /// Tokens of each part: the user's, the model's, and the results of each tool.
    pub fn by_part(&self) -> BTreeMap<&str, usize> {
        let mut parts = BTreeMap::new();
        for message in self.messages.iter() {
            *parts.entry(who(message)).or_default() += tokens(message);
        }
        parts
    }
}

/// Tokens of a message, about.
pub fn tokens(message: &Message) -> usize {
    message.size().div_ceil(TOKEN)
}

/// Whose message it is: `user`, `assistant`, or the tool whose result it is.
pub fn who(message: &Message) -> &str {
    match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::Tool { tool, .. } => tool.as_str(),
    }
}

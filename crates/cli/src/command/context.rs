//! `outlast context`: what a model would be shown of a session now, and what each part of it takes (R4.10).
use crate::data::Data;
use crate::find;
use crate::terminal;
use clap::Args;
use outlast::runtime::recall;
use outlast::store::MAIN;
use outlast::vocab::effect::{ModelOutcome, Outcome, Usage};
use outlast::vocab::message::{Message, Part};
use outlast::vocab::record::{Fact, Performed, Seq};
use outlast::{Error, Kind, Limits};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a token, about.
const TOKEN: usize = 4;

/// Shows what a model would be shown of a session.
#[derive(Args)]
pub(crate) struct Context {
    /// The session, by id or key
    session: String,
    /// The head to look at
    #[arg(long, value_name = "NAME", default_value = MAIN)]
    head: String,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl Context {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let store = data.open().await?;
        let session = find::session(store.as_ref(), &self.session).await?;
        let head = session.heads.iter().find(|(name, _)| *name == self.head).ok_or_else(|| {
            Error::new(Kind::NodeNotFound, format!("session {} has no head `{}`", session.id, self.head))
        })?;
        let messages = match head.1 {
            Some(node) => {
                let most = Limits::default().view_bytes * 4;
                recall::conversation(store.as_ref(), node, most).await?.conversation.messages().clone()
            }
            None => Arc::default(),
        };
        let (mut last_usage, mut compactions, mut after) = (None, 0, Seq(0));
        loop {
            let page = store.records(session.id, after, Limits::default().page_rows).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for record in &page {
                match &record.fact {
                    Fact::Performed(Performed {
                        outcome: Outcome::ModelCall(ModelOutcome::Reply(reply)),
                        ..
                    }) => {
                        last_usage = Some(reply.usage);
                    }
                    Fact::Compacted(_) => compactions += 1,
                    _ => {}
                }
            }
        }
        let shown = Shown { messages: &messages, last_usage, compactions };
        if self.json {
            shown.as_json();
        } else {
            shown.as_table();
        }
        Ok(())
    }
}

struct Shown<'a> {
    messages: &'a [Message],
    last_usage: Option<Usage>,
    compactions: usize,
}

impl Shown<'_> {
    fn as_table(&self) {
        let mut by_tool: BTreeMap<&str, usize> = BTreeMap::new();
        for message in self.messages {
            let beginning: String =
                message.text().chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
            terminal::say(&format!("{:>8}  {:<12} {beginning}", tokens(message), who(message)));
            if let Message::Tool { tool, .. } = message {
                *by_tool.entry(tool.as_str()).or_default() += tokens(message);
            }
        }
        let total: usize = self.messages.iter().map(tokens).sum();
        terminal::say(&format!("{total:>8}  tokens in {} messages, about", self.messages.len()));
        for (tool, tokens) in by_tool {
            terminal::say(&format!("{tokens:>8}  of them results of {tool}"));
        }
        let files = self.files();
        if files > 0 {
            terminal::say(&format!("{files:>8}  files, not counted"));
        }
        if let Some(Usage { input, cache_read, cache_write, .. }) = self.last_usage {
            let read = input + cache_read + cache_write;
            terminal::note(&format!(
                "· the last call read {read} tokens, {cache_read} of them from the provider's cache"
            ));
        }
        if self.compactions > 0 {
            terminal::note(&format!(
                "· made shorter {} times; fork or rewind to an earlier message to see more",
                self.compactions
            ));
        }
    }

    fn as_json(&self) {
        let messages: Vec<_> = self
            .messages
            .iter()
            .map(|message| json!({ "who": who(message), "tokens": tokens(message), "text": message.text() }))
            .collect();
        let total: usize = self.messages.iter().map(tokens).sum();
        terminal::json(&json!({
            "messages": messages,
            "tokens": total,
            "files": self.files(),
            "last_usage": self.last_usage,
            "compactions": self.compactions,
        }));
    }

    fn files(&self) -> usize {
        let parts = self.messages.iter().flat_map(|message| match message {
            Message::User { parts } | Message::Assistant { parts, .. } => parts.as_slice(),
            Message::Tool { .. } => &[],
        });
        parts.filter(|part| matches!(part, Part::Attachment { .. })).count()
    }
}

fn tokens(message: &Message) -> usize {
    message.size().div_ceil(TOKEN)
}

fn who(message: &Message) -> &str {
    match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::Tool { tool, .. } => tool.as_str(),
    }
}
